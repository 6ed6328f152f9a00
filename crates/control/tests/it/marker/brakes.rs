//! What keeps marks from moving all at once, or for ever.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::story::{QUIET, Story};
use crate::support::{Manager, eventually, manager, manager_ahead};

/// Ahead of the API server by so much, the manager takes all pods for older than five minutes.
const AHEAD: Duration = Duration::from_secs(600);

fn spec() -> Value {
    json!({
        "strategy": {"conflictPolicy": "Overwrite"},
        "matchRequirements": {"podSelector": {"matchLabels": {"app": "web"}}, "nodeSelector": {"matchLabels": {"arch": "x86"}}},
        "markItems": {"labels": {"k": "1"}},
    })
}

/// Thirty pods on three nodes that match.
async fn thirty(story: &Story) {
    for node in ["a", "b", "c"] {
        story.node(node, json!({"arch": "x86"})).await;
        for number in 0..10 {
            story.pod(&format!("{node}{number}"), node, json!({"app": "web"}), true).await;
        }
    }
}

async fn relabel(story: &Story, node: &str, arch: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"arch": arch}}}));
    story.api("v1", "Node").patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// How many changes a manager may have made that began to lead at this time, at the earliest.
fn allowed(since: Instant) -> usize {
    (since.elapsed().as_secs() / 6) as usize
}

async fn ahead(story: &Story, name: &str) -> (Manager, Instant) {
    let since = Instant::now();
    (manager_ahead(&story.cluster, name, AHEAD).await, since)
}

/// Nodes are relabelled by mistake: ten pods a minute lose their marks, and none at once after another leads. A change of the spec is
/// carried out at once.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_relabelled_by_mistake_move_few_marks() {
    let story = Story::of_objects().await;
    thirty(&story).await;
    let (first, since) = ahead(&story, "marker-brake").await;
    story.marker("m", spec()).await;
    let status = story.is_done("m", 30).await;
    assert!(status["carryingOut"].is_null(), "it is carried out: {status}");
    for node in ["a", "b", "c"] {
        relabel(&story, node, "arm").await;
    }
    let message = story.reason("m", "Held", "Allowance").await;
    assert!(message.contains("no more may be changed in a minute than 10 pods"), "{message}");
    for _ in 0..8 {
        // Counted before it is asked: what comes meanwhile is allowed too.
        let left = story.with("k", "1").await.len();
        let most = allowed(since);
        assert!(30 - left <= most, "{} of {most}", 30 - left);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    first.end().await;
    let before = story.with("k", "1").await.len();
    assert!(before > 0, "the story is too slow");
    let (_second, since) = ahead(&story, "marker-brake").await;
    eventually("the second goes on", || async {
        let left = story.with("k", "1").await.len();
        let most = allowed(since);
        assert!(before - left <= most, "{} of {most}", before - left);
        if left < before { Ok(()) } else { Err(format!("{left} are marked")) }
    })
    .await;
    story.mark("m", json!(0)).await;
    let asked = Instant::now();
    story.are_marked("k", "1", &[]).await;
    assert!(asked.elapsed() < Duration::from_secs(45), "a change of the spec waits for no minute");
    story.cluster.stop().await.unwrap();
}

/// New pods are marked at once: a rollout makes many.
#[tokio::test(flavor = "multi_thread")]
async fn young_pods_wait_for_no_allowance() {
    let story = Story::of_objects().await;
    story.node("a", json!({"arch": "x86"})).await;
    let _manager = manager(&story.cluster, "marker-young").await;
    story.marker("m", spec()).await;
    story.is_done("m", 0).await;
    for number in 0..30 {
        story.pod(&format!("p{number}"), "a", json!({"app": "web"}), true).await;
    }
    let begun = Instant::now();
    story.is_done("m", 30).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    story.cluster.stop().await.unwrap();
}

/// Somebody sets a mark back again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_changed_again_and_again_rests() {
    let story = Story::of_objects().await;
    story.node("a", json!({"arch": "x86"})).await;
    story.pod("p", "a", json!({"app": "web"}), true).await;
    let _manager = manager(&story.cluster, "marker-rest").await;
    story.marker("m", spec()).await;
    for _ in 0..4 {
        story.are_marked("k", "1", &["p"]).await;
        story.patch_pod("p", json!({"metadata": {"labels": {"k": "theirs"}}})).await;
    }
    story.are_marked("k", "1", &["p"]).await;
    story.patch_pod("p", json!({"metadata": {"labels": {"k": "theirs"}}})).await;
    story.reason("m", "Held", "PodsRest").await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("k", "theirs", &["p"]).await;
    story.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marker_that_is_suspended_changes_nothing() {
    let story = Story::of_objects().await;
    story.node("a", json!({"arch": "x86"})).await;
    story.pod("p", "a", json!({"app": "web"}), true).await;
    let _manager = manager(&story.cluster, "marker-suspend").await;
    let suspend = |said: Value| json!({"metadata": {"annotations": {"dapple.dev/suspend": said}}});
    let mut object = suspend(json!("true"));
    object["metadata"]["name"] = json!("m");
    object["spec"] = spec();
    story.create("apps.kruise.io/v1alpha1", "PodMarker", object).await;
    story.reason("m", "Marked", "Suspended").await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("k", "1", &[]).await;
    story.patch_marker("m", suspend(Value::Null)).await;
    story.are_marked("k", "1", &["p"]).await;
    story.patch_marker("m", suspend(json!("true"))).await;
    story.reason("m", "Marked", "Suspended").await;
    story.mark("m", json!(0)).await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("k", "1", &["p"]).await;
    story.cluster.stop().await.unwrap();
}

/// A Node that vanished leaves its pods for a while: nobody knows whether they match, and their marks stay.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_node_that_vanished_keep_their_marks() {
    let story = Story::of_objects().await;
    thirty(&story).await;
    let _manager = manager(&story.cluster, "marker-vanished").await;
    story.marker("m", spec()).await;
    story.is_done("m", 30).await;
    story.api("v1", "Node").delete("b", &DeleteParams::default()).await.unwrap();
    let message = story.reason("m", "ProbesKnown", "PodsUnknown").await;
    assert!(message.contains("10 on nodes that are not there"), "{message}");
    tokio::time::sleep(QUIET).await;
    let marked = story.with("k", "1").await;
    assert_eq!(marked.len(), 30, "{marked:?}");
    let pod = story.read("b0").await;
    assert_eq!(pod.labels().get("k").map(String::as_str), Some("1"));
    story.cluster.stop().await.unwrap();
}
