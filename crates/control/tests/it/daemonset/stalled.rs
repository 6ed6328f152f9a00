//! A rollout that does not come on says so.

use std::time::Duration;

use serde_json::json;

use super::gate::own_cluster;
use super::story::{Story, rolling};
use crate::support::{manager, manager_ahead};

/// Longer than a rollout may take without progress, and far less than a lease may be behind.
const LATER: Duration = Duration::from_secs(11 * 60);

#[tokio::test(flavor = "multi_thread")]
async fn ten_minutes_without_progress_are_told() {
    let story = Story::empty("stalled", own_cluster().await).await;
    story.add_nodes("n", 2, json!({})).await;
    let now = manager(&story.cluster, "now").await;
    let set = |image: &str| {
        let strategy = rolling(json!({"maxUnavailable": 1}));
        story.set(image, json!({"updateStrategy": strategy, "minReadySeconds": 3600}))
    };
    story.apply(&set("agent:1")).await;
    story.have_image(2, "agent:1").await;
    story.apply(&set("agent:2")).await;
    let message = story.condition("Progressing", "True", "RollingOut").await;
    assert!(message.contains("n-00"), "{message}");
    now.end().await;
    // Ten minutes cannot be waited for, nor can what the API server dates be dated back: a clock that is ahead sees the same.
    let later = manager_ahead(&story.cluster, "later", LATER).await;
    let message = story.condition("Progressing", "False", "Stalled").await;
    assert!(message.contains("no progress for 10 minutes") && message.contains("n-00"), "{message}");
    let told = story.says("Stalled", |said| !said.is_empty()).await;
    assert!(told[0].0 == "Warning" && told[0].2.contains("no progress for 10 minutes"), "{told:?}");
    later.end().await;
}
