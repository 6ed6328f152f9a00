//! The feature gate of patches, and what is measured of them.

use std::sync::Arc;

use dapple_control::families;
use dapple_control::install::install_crds;
use dapple_testbed::progress::Quiet;
use dapple_testbed::{Cluster, ClusterSpec, Need, Upstream};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::steps::with_image;
use super::story::{ByNode, Story, cache, changed, rolling, tolerant};
use crate::support::{Manager, eventually, http_get, manager, manager_with};

pub(super) async fn own_cluster() -> Arc<Cluster> {
    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await.unwrap();
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &Quiet).await.expect("the cluster starts");
    install_crds(&cluster.client().await.unwrap()).await.unwrap();
    Arc::new(cluster)
}

/// The value of a counter of the set `agent` in a namespace; 0 before it was counted first.
fn counter(metrics: &str, name: &str, namespace: &str) -> u64 {
    let start = format!("{name}{{namespace=\"{namespace}\",name=\"agent\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)?.trim().parse().ok()).unwrap_or(0)
}

/// Waits until a counter of a story's set is as it should be, and returns all metrics.
async fn counted(manager: &Manager, (name, namespace): (&str, &str), is_right: impl Fn(u64) -> bool) -> String {
    eventually(&format!("{name} is right"), || async {
        let (code, metrics) = http_get(manager.address, "/metrics").await?;
        let found = counter(&metrics, name, namespace);
        if code == 200 && is_right(found) { Ok(metrics) } else { Err(format!("{found:?}, status {code}")) }
    })
    .await
}

fn with_cache(seen: &ByNode, value: &str) -> Vec<String> {
    seen.iter().filter(|(_, pod)| pod.cache == value).map(|(node, _)| node.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_are_measured_and_without_the_gate_they_stay_stored() {
    let story = Story::empty("gate", own_cluster().await).await;
    story.add_nodes("small", 2, json!({"disk": "small"})).await;
    story.add_nodes("large", 2, json!({"disk": "large"})).await;
    let on = manager(&story.cluster, "gate-on").await;
    let set = |image: &str| {
        let strategy = rolling(json!({"maxUnavailable": "100%", "rollingUpdateType": "InPlaceIfPossible"}));
        story.set(image, json!({"updateStrategy": strategy, "patches": [cache("large", "2Ti")]}))
    };
    story.apply(&set("agent:1")).await;
    let first = story.pods_are("two are patched", |seen| seen.len() == 4 && with_cache(seen, "2Ti").len() == 2).await;
    let applied = ("daemonset_patches_applied_total", "gate");
    let metrics = counted(&on, applied, |count| count == 2).await;
    assert_eq!(counter(&metrics, "daemonset_patches_errors_total", "gate"), 0, "{metrics}");
    assert!(counter(&metrics, "daemonset_patches_duration_seconds_count", "gate") > 0, "{metrics}");
    story.apply(&set("agent:2")).await;
    let first_again = story.have_image(4, "agent:2").await;
    assert_eq!(changed(&first, &first_again), Vec::<String>::new(), "in place");
    counted(&on, applied, |count| count == 4).await;
    story.status("all are counted", |status| status["numberAvailable"] == 4).await;
    on.end().await;

    let off =
        manager_with(&story.cluster, "gate-off", families::gates("AdvancedDaemonSetNodeLabelPatches=false").unwrap())
            .await;
    // A new node gets the template as it is; nothing else happens.
    story.add_nodes("late", 1, json!({"disk": "large"})).await;
    let second = story.pods_are("the new node has one", |seen| seen.len() == 5).await;
    assert_eq!(changed(&first, &second), ["late-000"]);
    assert_eq!(second["late-000"].cache, "500Gi");
    story
        .status("all count as updated, and as available", |status| {
            status["updatedNumberScheduled"] == 5 && status["numberAvailable"] == 5
        })
        .await;
    story.nothing_changes(&second).await;
    let stored = story.sets.get("agent").await.unwrap();
    assert_eq!(stored.data["spec"]["patches"].as_array().unwrap().len(), 1, "patches stay stored");
    // The next change of the template gives everybody the template.
    story.apply(&set("agent:3")).await;
    let third = story.have_image(5, "agent:3").await;
    assert_eq!(with_cache(&third, "500Gi").len(), 5);
    off.end().await;

    // With the gate again, patches are served again: those concerned follow, and no other.
    let on = manager(&story.cluster, "gate-again").await;
    let is_served = |seen: &ByNode| seen.len() == 5 && with_cache(seen, "2Ti").len() == 3;
    let fourth = story.pods_are("three are patched", is_served).await;
    assert_eq!(changed(&third, &fourth), ["large-000", "large-001", "late-000"]);
    assert_eq!(with_image(&fourth, "agent:3").len(), 5);
    drop(on);
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_fail_are_counted() {
    let story = Story::empty("errors", own_cluster().await).await;
    story.add_nodes("small", 1, json!({"disk": "small"})).await;
    story.add_nodes("large", 1, json!({"disk": "large"})).await;
    let manager = manager(&story.cluster, "errors").await;
    let broken =
        json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}});
    let set = tolerant(story.set("agent:1", json!({"patches": [broken]})));
    let set: DynamicObject = serde_json::from_value(set).unwrap();
    story.sets.create(&PostParams::default(), &set).await.unwrap();
    story.condition("Degraded", "True", "PatchFailed").await;
    // Per node and try.
    let errors = "daemonset_patches_errors_total";
    counted(&manager, (errors, "errors"), |count| count > 0).await;
    story.status("the other node is served", |status| status["numberAvailable"] == 1).await;
    story.nodes_are_seen().await;
    let before = counter(&http_get(manager.address, "/metrics").await.unwrap().1, errors, "errors");
    // What happens to nodes otherwise is no further try.
    for ready in [json!("false"), Value::Null] {
        story.say_ready(&["small-000".to_owned(), "large-000".to_owned()], ready).await;
    }
    story.nodes_are_seen().await;
    let after = counter(&http_get(manager.address, "/metrics").await.unwrap().1, errors, "errors");
    assert_eq!(after, before);
}
