//! Several markers over the same pods.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::story::{MARKED_BY, MARKS, QUIET, Story, condition};
use crate::support::manager;

fn spec(policy: &str, replicas: Value, labels: Value) -> Value {
    json!({"strategy": {"conflictPolicy": policy, "replicas": replicas}, "markItems": {"labels": labels},
        "matchRequirements": {"podSelector": {"matchLabels": {"app": "web"}}}})
}

async fn pods(story: &Story, count: usize) {
    story.node("n", json!({})).await;
    for number in 0..count {
        story.pod(&format!("p{number}"), "n", json!({"app": "web"}), true).await;
    }
}

/// Over one key with different values the older one wins, and the younger one looks for other pods. Both say so.
#[tokio::test(flavor = "multi_thread")]
async fn over_one_key_the_older_marker_wins() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-older").await;
    pods(&story, 4).await;
    story.marker("older", spec("Ignore", json!(2), json!({"k": "1"}))).await;
    story.is_done("older", 2).await;
    // Made in another second, or by its name.
    story.marker("younger", spec("Overwrite", json!(2), json!({"k": "2"}))).await;
    story.are_marked("k", "1", &["p0", "p1"]).await;
    story.are_marked("k", "2", &["p2", "p3"]).await;
    let message = story.reason("younger", "Conflict", "OlderMarker").await;
    assert!(message.contains("older (2 pods)"), "{message}");
    let message = story.reason("older", "Conflict", "YoungerMarker").await;
    assert!(message.contains("younger (2 pods)"), "{message}");
    // It takes what the younger one had, though that was there first.
    story.mark("older", json!(3)).await;
    story.are_marked("k", "1", &["p0", "p1", "p2"]).await;
    story.are_marked("k", "2", &["p3"]).await;
    let status = story.says("younger", "that it has fewer", |status| status["succeeded"] == 1).await;
    assert_eq!([&status["desired"], &status["matched"], &status["conflicting"]], [&json!(1), &json!(1), &json!(3)]);
    // Taken off in any order, in the end pods have what they had.
    story.mark("younger", json!(0)).await;
    story.are_marked("k", "2", &[]).await;
    story.mark("older", json!(0)).await;
    story.are_marked("k", "1", &[]).await;
    for name in ["p0", "p1", "p2", "p3"] {
        let pod = story.read(name).await;
        assert!(!pod.labels().contains_key("k") && !pod.annotations().contains_key(MARKS), "{name}");
    }
    story.cluster.stop().await.unwrap();
}

/// Equal values are shared, and the last to leave takes them off.
#[tokio::test(flavor = "multi_thread")]
async fn equal_values_are_shared() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-shared").await;
    pods(&story, 2).await;
    for name in ["one", "two"] {
        story.marker(name, spec("Ignore", json!("100%"), json!({"k": "1"}))).await;
        story.is_done(name, 2).await;
    }
    let pod = story.read("p0").await;
    assert_eq!(pod.annotations().get(MARKED_BY).map(String::as_str), Some("one,two"));
    story.mark("one", json!(0)).await;
    story.reason("one", "Marked", "Cleaned").await;
    story.are_marked("k", "1", &["p0", "p1"]).await;
    assert_eq!(story.read("p0").await.annotations().get(MARKED_BY).map(String::as_str), Some("two"));
    story.mark("two", json!(0)).await;
    story.are_marked("k", "1", &[]).await;
    story.cluster.stop().await.unwrap();
}

/// Each makes the other match, and then not: it comes to an end, and is shown.
#[tokio::test(flavor = "multi_thread")]
async fn markers_that_make_each_other_match_come_to_rest() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-circle").await;
    pods(&story, 1).await;
    let selecting = |key: &str, operator: &str, label: &str| {
        json!({"matchRequirements": {"podSelector": {"matchExpressions": [{"key": key, "operator": operator}]}},
            "markItems": {"labels": {label: "1"}}})
    };
    // `first` marks what `second` has not marked, and `second` what `first` has.
    story.marker("first", selecting("b", "DoesNotExist", "a")).await;
    story.marker("second", selecting("a", "Exists", "b")).await;
    let is_resting = |status: &Value| condition(status, "Held")["reason"] == "PodsRest";
    let rests = async |marker: &str| story.says(marker, "that pods rest", is_resting).await;
    tokio::select! { _ = rests("first") => {}, _ = rests("second") => {} }
    tokio::time::sleep(QUIET).await;
    let version = story.read("p0").await.resource_version();
    tokio::time::sleep(QUIET).await;
    assert_eq!(story.read("p0").await.resource_version(), version, "nothing is written any more");
    story.cluster.stop().await.unwrap();
}

/// What no mark of another is touched by: it stays when marks are taken off, whatever it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_somebody_else_has_set_since_stays() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-since").await;
    pods(&story, 2).await;
    story.marker("m", spec("Ignore", json!(2), json!({"k": "1", "l": "1"}))).await;
    story.is_done("m", 2).await;
    story.patch_pod("p0", json!({"metadata": {"labels": {"k": "theirs"}}})).await;
    // It conflicts by now, so what the marker has set is taken off, and nothing else.
    story.are_marked("l", "1", &["p1"]).await;
    story.are_marked("k", "theirs", &["p0"]).await;
    let message = story.reason("m", "Conflict", "OtherValues").await;
    assert!(message.contains("1 pod with other values"), "{message}");
    assert!(!story.read("p0").await.annotations().contains_key(MARKS));
    story.cluster.stop().await.unwrap();
}
