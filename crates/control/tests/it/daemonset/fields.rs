//! Every field of the update strategy, and what else decides when pods come and go.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::steps::{condition, image, with_image};
use super::story::{ByNode, Story, changed, is_ready, rolling};
use super::watch::{Invariants, watch};

pub(super) const ALL: [&str; 6] = ["large-000", "large-001", "small-000", "small-001", "small-002", "small-003"];
/// Longer than any story takes.
pub(super) const LONG: Duration = Duration::from_secs(600);
const SMALL: [&str; 4] = ["small-000", "small-001", "small-002", "small-003"];

/// The budget of nodes that are down, and at most one pod on each.
fn at_most_down(budget: usize) -> Invariants {
    Invariants { budget: Some(budget), most_on_a_node: 1, untouched: vec![] }
}

/// A set of `agent:1` with this strategy, once every node has its pod.
async fn started(story: &Story, strategy: Value) -> ByNode {
    story.apply(&story.set("agent:1", json!({"updateStrategy": strategy}))).await;
    story.have_image(6, "agent:1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_on_delete_pods_change_once_somebody_deletes_them() {
    let story = Story::new("on-delete").await;
    let on_delete = json!({"type": "OnDelete"});
    let first = started(&story, on_delete.clone()).await;
    story.apply(&story.set("agent:2", json!({"updateStrategy": on_delete}))).await;
    let message = story.condition("Progressing", "False", "WaitsForDeletion").await;
    assert!(message.starts_with("6 nodes get revision"), "{message}");
    story.nothing_changes(&first).await;

    story.delete_pod(&first["small-001"].name).await;
    let second = story.have_image(1, "agent:2").await;
    assert_eq!(changed(&first, &second), ["small-001"]);
    story.status("one is updated", |status| status["updatedNumberScheduled"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_on_delete_nothing_counts_that_is_left_of_a_rolling_update() {
    let nobody = json!({"matchLabels": {"disk": "of-nobody"}});
    let left = [
        ("paused", json!({"paused": true})),
        ("partition", json!({"partition": 6})),
        ("selector", json!({"selector": nobody})),
        ("surge", json!({"maxSurge": 2, "maxUnavailable": 0})),
        ("all", json!({"paused": true, "partition": "100%", "selector": nobody, "maxSurge": 2, "maxUnavailable": 0})),
    ];
    let stories = left.map(|(name, rolling_update)| async move {
        let story = Story::new(&format!("on-delete-{name}")).await;
        let strategy = json!({"type": "OnDelete", "rollingUpdate": rolling_update});
        let first = started(&story, strategy.clone()).await;
        story.apply(&story.set("agent:2", json!({"updateStrategy": strategy}))).await;
        let message = story.condition("Progressing", "False", "WaitsForDeletion").await;
        assert!(message.starts_with("6 nodes get revision"), "{name}: {message}");
        story.condition("Paused", "False", "NotPaused").await;
        story.nothing_changes(&first).await;
        story.delete_pod(&first["large-000"].name).await;
        let second = story.pods_are("it comes back", |seen| changed(&first, seen) == ["large-000"]).await;
        assert_eq!(with_image(&second, "agent:2"), ["large-000"], "{name}");
    });
    futures::future::join_all(stories).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_strategy_one_node_at_a_time_is_updated() {
    let story = Story::new("defaults").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, at_most_down(1)).await;
    story.apply(&story.set("agent:2", json!({}))).await;
    let second = story.have_image(6, "agent:2").await;
    assert_eq!(watched.finish().await, (1, 1));
    assert_eq!(changed(&first, &second).len(), 6, "standard: every pod is a new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_is_a_number_or_a_percentage_rounded_up_and_used_in_full() {
    let story = Story::new("max-unavailable").await;
    started(&story, rolling(json!({}))).await;
    for (image, most, expected) in [("agent:2", json!(3), 3), ("agent:3", json!("20%"), 2)] {
        // None comes up before as many are down as may be.
        story.delay(&ALL, LONG).await;
        let watched = watch(&story, at_most_down(expected)).await;
        let strategy = rolling(json!({"maxUnavailable": most}));
        story.apply(&story.set(image, json!({"updateStrategy": strategy}))).await;
        watched.sees_down(expected).await;
        story.release().await;
        story.have_image(6, image).await;
        assert_eq!(watched.finish().await, (expected, 1), "{most} of 6");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surge_of_two_has_two_nodes_with_two_pods() {
    let story = Story::new("max-surge").await;
    let surge = || rolling(json!({"maxSurge": 2, "maxUnavailable": 0}));
    started(&story, surge()).await;
    story.delay(&ALL, LONG).await;
    let watched = watch(&story, Invariants { budget: Some(0), most_on_a_node: 2, untouched: vec![] }).await;
    story.apply(&story.set("agent:2", json!({"updateStrategy": surge()}))).await;
    watched.sees_doubled(2).await;
    story.release().await;
    story.have_image(6, "agent:2").await;
    assert_eq!(watched.most_doubled().await, 2);
    assert_eq!(watched.finish().await, (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surge_is_superseded_half_way_and_nobody_is_down() {
    let story = Story::new("superseded").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxSurge": 1}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    story.delay(&["small-003"], LONG).await;
    let watched = watch(&story, Invariants { budget: Some(0), most_on_a_node: 2, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    let is = |wanted: &'static str| move |pod: &Pod| image(pod) == wanted;
    // Started, and known to be so: what is written to a pod that changes meanwhile is tried again later.
    let is_half = |pod: &Pod| is("agent:2")(pod) && condition(pod, "ContainersReady") == Some("False");
    let half = story.pod_on("small-003", "the new one", is_half).await;
    assert!(!is_ready(&half));
    story.message(("Progressing", "True", "RollingOut"), &[&half.name_any(), "is not ready"]).await;

    story.apply(&set("agent:3")).await;
    story.pod_on("small-003", "the newest", is("agent:3")).await;
    let is_left = |(_, pod): &(String, Pod)| pod.uid() == half.uid() && pod.metadata.deletion_timestamp.is_none();
    story.every_pod("the half-made one goes", |pods| !pods.iter().any(is_left)).await;
    let there = story.pods_on("small-003").await.unwrap();
    assert!(there.iter().all(|pod| pod.uid() != half.uid()), "the half-made one is gone");
    let old = there.iter().find(|pod| image(pod) == "agent:1").expect("the old one stays");
    assert!(is_ready(old) && old.uid().as_ref() == Some(&first["small-003"].uid));

    story.release().await;
    story.have_image(6, "agent:3").await;
    assert_eq!(watched.finish().await, (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_outside_the_selector_keep_what_they_have() {
    let story = Story::new("selector").await;
    let large = json!({"selector": {"matchLabels": {"disk": "large"}}});
    let first = started(&story, rolling(large.clone())).await;
    let watched = watch(&story, Invariants { untouched: SMALL.to_vec(), ..at_most_down(1) }).await;
    story.apply(&story.set("agent:2", json!({"updateStrategy": rolling(large.clone())}))).await;
    let second = story.have_image(2, "agent:2").await;
    assert_eq!(changed(&first, &second), ["large-000", "large-001"]);
    let message = story.condition("Progressing", "False", "HeldBack").await;
    assert!(message.starts_with("4 of 6 nodes are held back"), "{message}");
    watched.finish().await;

    // What is lost there comes back as it was.
    story.delete_pod(&second["small-002"].name).await;
    let is_back = |seen: &ByNode| seen.len() == 6 && changed(&second, seen) == ["small-002"];
    let third = story.pods_are("it comes back", is_back).await;
    assert_eq!(third["small-002"].image, "agent:1");

    let watched = watch(&story, Invariants { untouched: vec!["large-000", "large-001"], ..at_most_down(1) }).await;
    story.apply(&story.set("agent:2", json!({"updateStrategy": rolling(json!({"selector": {}}))}))).await;
    story.have_image(6, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_lowered_goes_on_where_it_stopped() {
    let story = Story::new("partition").await;
    let set = |image: &str, partition: Value| {
        story.set(image, json!({"updateStrategy": rolling(json!({"partition": partition}))}))
    };
    story.apply(&set("agent:1", json!(4))).await;
    story.have_image(6, "agent:1").await;
    let watched = watch(&story, at_most_down(1)).await;
    story.apply(&set("agent:2", json!(4))).await;
    let two = story.have_image(2, "agent:2").await;
    assert_eq!(with_image(&two, "agent:2"), SMALL[2..]);
    // Rounded down: of six nodes, two.
    story.apply(&set("agent:2", json!("40%"))).await;
    let four = story.have_image(4, "agent:2").await;
    assert_eq!(changed(&two, &four), SMALL[..2]);

    // Held back again, those that are updated stay so.
    story.apply(&set("agent:2", json!(5))).await;
    story.nothing_changes(&four).await;
    story.status("still four", |status| status["updatedNumberScheduled"] == 4).await;

    story.apply(&set("agent:2", json!(0))).await;
    let all = story.have_image(6, "agent:2").await;
    assert_eq!(changed(&four, &all), ["large-000", "large-001"]);
    assert_eq!(watched.finish().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_updates_and_not_creation() {
    let story = Story::new("paused").await;
    let set = |image: &str, paused: bool| {
        story.set(image, json!({"updateStrategy": rolling(json!({"paused": paused, "maxUnavailable": 2}))}))
    };
    story.apply(&set("agent:1", false)).await;
    let first = story.have_image(6, "agent:1").await;
    story.condition("Paused", "False", "NotPaused").await;
    story.apply(&set("agent:2", true)).await;
    story.condition("Paused", "True", "Paused").await;
    let message = story.condition("Progressing", "False", "Paused").await;
    assert!(message.starts_with("6 nodes get revision"), "{message}");
    story.nothing_changes(&first).await;

    story.delete_pod(&first["small-001"].name).await;
    story.add_nodes("late", 1, json!({})).await;
    let second = story.pods_are("seven pods", |seen| seen.len() == 7 && changed(&first, seen).len() == 2).await;
    assert_eq!(with_image(&second, "agent:1").len(), 7, "at the revision that is current");

    let watched = watch(&story, at_most_down(2)).await;
    story.apply(&set("agent:2", false)).await;
    story.have_image(7, "agent:2").await;
    story.condition("Paused", "False", "NotPaused").await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_available_once_it_was_ready_for_a_while() {
    // Long enough to be seen on a machine that stands still for some seconds.
    let seconds = 20;
    let story = Story::new("min-ready").await;
    let set = |image: &str| {
        let mut set = story.set(image, json!({"minReadySeconds": seconds}));
        set["spec"]["template"]["spec"]["nodeSelector"] = json!({"story": "min-ready", "disk": "large"});
        set
    };
    story.apply(&set("agent:1")).await;
    let lags = |status: &Value| status["numberReady"] == 2 && status["numberAvailable"] == 0;
    let lags = |status: &Value| lags(status) && status["numberUnavailable"] == 2;
    story.status("ready, and not available yet", lags).await;
    story.status("available", |status| status["numberAvailable"] == 2).await;

    let watched = watch(&story, at_most_down(1)).await;
    story.apply(&set("agent:2")).await;
    let lags = |status: &Value| status["numberReady"] == 2 && status["numberAvailable"] == 1;
    story.status("the new one is ready, and not available yet", lags).await;
    story.have_image(2, "agent:2").await;
    watched.finish().await;
    // The second was made only after the first had been ready for long enough.
    let mut pods = story.pods.list(&ListParams::default()).await.unwrap().items;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let made = pods[1].metadata.creation_timestamp.as_ref().unwrap().0.as_second();
    // Counted from the end of the second that the condition names.
    assert!(made - ready_since(&pods[0]) > seconds, "made at {made}, ready at {}", ready_since(&pods[0]));
}

fn ready_since(pod: &Pod) -> i64 {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).unwrap();
    let ready = conditions.iter().find(|is| is.type_ == "Ready").unwrap();
    ready.last_transition_time.as_ref().unwrap().0.as_second()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_burst_is_slower_and_everything_arrives() {
    let story = Story::new("burst").await;
    let set = |image: &str, burst: Value| {
        let strategy = rolling(json!({"maxUnavailable": "100%"}));
        story.set(image, json!({"burstReplicas": burst, "updateStrategy": strategy}))
    };
    story.apply(&set("agent:1", json!(1))).await;
    story.have_image(6, "agent:1").await;
    for (image, burst) in [("agent:2", json!(1)), ("agent:3", json!("50%"))] {
        let watched = watch(&story, at_most_down(6)).await;
        story.apply(&set(image, burst)).await;
        story.have_image(6, image).await;
        watched.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_pods_come_step_by_step_with_partitioned_scaling() {
    let story = Story::new("scaling").await;
    let set = |partition: Value| {
        let strategy = rolling(json!({"partition": partition}));
        story.set("agent:1", json!({"updateStrategy": strategy, "scaleStrategy": {"partitionedScaling": true}}))
    };
    let mut before = ByNode::new();
    for (partition, expected) in [(json!(4), 2), (json!("50%"), 3), (json!(0), 6)] {
        story.apply(&set(partition.clone())).await;
        let now = story.pods_are("some more", |seen| seen.len() == expected).await;
        story.nothing_changes(&now).await;
        let told = story.status("it is counted", |status| status["numberAvailable"] == expected).await;
        assert_eq!((&told["desiredNumberScheduled"], &told["currentNumberScheduled"]), (&json!(6), &json!(expected)));
        let kept = before.keys().all(|node| before[node] == now[node]);
        assert!(kept && now.keys().eq(ALL[6 - expected..].iter()), "partition {partition}: {now:?}");
        before = now;
    }
}
