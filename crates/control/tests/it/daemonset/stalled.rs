//! A rollout that does not come on says so, and goes on once somebody does something.

use std::time::Duration;

use serde_json::json;

use super::gate::own_cluster;
use super::illness::{Course, Illness, SICK, names_ways_out};
use super::story::{Story, rolling, tolerant};
use crate::support::{manager, manager_ahead};

/// Longer than a rollout may take without progress, and far less than a lease may be behind.
const LATER: Duration = Duration::from_secs(11 * 60);
/// How long pods must be ready: far longer than the node takes to die, since the test's own machine may stand still.
const MIN_READY: u64 = 8;
/// The last by name is updated first.
const DEAD: &str = "n-001";

#[tokio::test(flavor = "multi_thread")]
async fn ten_minutes_without_progress_are_told() {
    let story = Story::empty("stalled", own_cluster().await).await;
    story.add_nodes("n", 2, json!({})).await;
    let now = manager(&story.cluster, "now").await;
    let set = |image: &str| {
        let strategy = rolling(json!({"maxUnavailable": 1}));
        tolerant(story.set(image, json!({"updateStrategy": strategy, "minReadySeconds": MIN_READY})))
    };
    story.apply(&set("agent:1")).await;
    story.have_image(2, "agent:1").await;
    // Pods that were ready for too short a time would be down, and come first.
    story.status("all are available", |status| status["numberAvailable"] == 2).await;
    story.condition("Progressing", "False", "Complete").await;
    let (after, only) = (Duration::ZERO, Some(story.node(DEAD)));
    let course = Course { ready: "false", takes_pods_along: false, after, only, is_for_good: true, is_over: false };
    let illness = Illness::begin(&story, course);
    story.apply(&set(SICK)).await;
    illness.reaches(&story, 1).await;
    // Its pod is ready all the same, and counts as available in the end.
    let (dead, not_ready) = (format!("{}: updated ", story.node(DEAD)), ", not Ready since ");
    story.message(("Progressing", "True", "RollingOut"), &[&dead, not_ready]).await;
    story.status("both are available", |status| status["numberAvailable"] == 2).await;
    now.end().await;
    // Ten minutes cannot be waited for, nor can what the API server dates be dated back: a clock that is ahead sees the same.
    let later = manager_ahead(&story.cluster, "later", LATER).await;
    let parts = ["no progress for 10 minutes: 1 of 2 nodes have", &dead, not_ready];
    let message = story.message(("Progressing", "False", "Stalled"), &parts).await;
    names_ways_out(&message);
    let told = story.says("Stalled", |said| !said.is_empty()).await;
    assert!(told[0].0 == "Warning" && parts.iter().all(|part| told[0].2.contains(part)), "{told:?}");
    names_ways_out(&told[0].2);

    illness.change(|course| course.is_over = true);
    story.have_image(2, SICK).await;
    story.condition("Progressing", "False", "Complete").await;
    later.end().await;
}
