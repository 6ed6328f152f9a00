//! What people get wrong, or write by hand.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::story::{MARKS, QUIET, Story};
use crate::support::manager;

fn spec(labels: Value) -> Value {
    json!({"strategy": {"conflictPolicy": "Overwrite"}, "markItems": {"labels": labels},
        "matchRequirements": {"podSelector": {"matchLabels": {"app": "web"}}}})
}

async fn pods(story: &Story, names: &[&str]) {
    story.node("n", json!({})).await;
    for name in names {
        story.pod(name, "n", json!({"app": "web"}), true).await;
    }
}

/// Keys by which controllers know their pods are refused though no webhook is there.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_controllers_are_refused() {
    let story = Story::of_objects().await;
    for key in ["pod-template-hash", "statefulset.kubernetes.io/pod-name", "apps.kruise.io/a", "dapple.dev/marks"] {
        let marker = json!({"metadata": {"name": "m"}, "spec": spec(json!({key: "1"}))});
        let refused = story.try_create("apps.kruise.io/v1alpha1", "PodMarker", marker).await.unwrap_err();
        assert!(refused.contains("must not have keys"), "{key}: {refused}");
    }
    story.cluster.stop().await.unwrap();
}

/// A record that cannot be read makes the marks foreign: they count, and are not taken off.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_edited_by_hand_is_not_trusted() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-record").await;
    pods(&story, &["a", "b", "c"]).await;
    story.marker("m", spec(json!({"k": "1"}))).await;
    story.is_done("m", 3).await;
    story.patch_pod("a", json!({"metadata": {"annotations": {MARKS: "not JSON"}}})).await;
    // One that would have a key taken off that no marker sets.
    let forged = json!([{"marker": "m", "label": "pod-template-hash", "set": "h", "at": 1}]).to_string();
    let forgery = json!({"labels": {"pod-template-hash": "h"}, "annotations": {MARKS: forged}});
    story.patch_pod("b", json!({"metadata": forgery})).await;
    tokio::time::sleep(QUIET).await;
    story.mark("m", json!(0)).await;
    story.are_marked("k", "1", &["a", "b"]).await;
    story.reason("m", "Marked", "Cleaned").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(story.read("b").await.labels().get("pod-template-hash").map(String::as_str), Some("h"));
    story.cluster.stop().await.unwrap();
}

/// A pod whose annotations are full is refused: it has failed, the others are marked, and it is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_takes_no_more_annotations_has_failed_and_holds_up_nobody() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-full").await;
    pods(&story, &["a", "full", "z"]).await;
    let most = 256 * 1024 - "notes".len();
    story.patch_pod("full", json!({"metadata": {"annotations": {"notes": "x".repeat(most)}}})).await;
    story.marker("m", spec(json!({"k": "1"}))).await;
    story.are_marked("k", "1", &["a", "z"]).await;
    let message = story.reason("m", "Marked", "PodsRefused").await;
    assert!(message.contains("refused to change 1 pod"), "{message}");
    story.patch_pod("full", json!({"metadata": {"annotations": {"notes": null}}})).await;
    story.are_marked("k", "1", &["a", "full", "z"]).await;
    story.is_done("m", 3).await;
    story.cluster.stop().await.unwrap();
}

/// A value of an annotation that dapple does not keep is read before it is replaced, and put back.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_that_were_there_before_are_put_back() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-annotations").await;
    pods(&story, &["a", "b"]).await;
    // It is cached before there is a marker that asks for it.
    story.patch_pod("a", json!({"metadata": {"annotations": {"example.com/note": "what it said"}}})).await;
    tokio::time::sleep(QUIET).await;
    let mut marker = spec(json!({}));
    marker["markItems"] = json!({"annotations": {"example.com/note": "marked"}});
    story.marker("m", marker).await;
    story.is_done("m", 2).await;
    let note = async |name: &str| story.read(name).await.annotations().get("example.com/note").cloned();
    assert_eq!([note("a").await, note("b").await], [Some("marked".to_owned()), Some("marked".to_owned())]);
    story.mark("m", json!(0)).await;
    story.reason("m", "Marked", "Cleaned").await;
    story.says("m", "that nothing waits", |status| status["waiting"] == 0).await;
    assert_eq!([note("a").await, note("b").await], [Some("what it said".to_owned()), None]);
    story.cluster.stop().await.unwrap();
}

/// Pods that go while they are marked are no loss, and those that leave neither count nor are patched.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_go_meanwhile_are_left_out() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-gone").await;
    pods(&story, &["a", "b", "c", "d"]).await;
    let status = json!({"status": {"phase": "Succeeded"}});
    let patch = kube::api::Patch::Merge(status);
    story.pods().patch_status("c", &Default::default(), &patch).await.unwrap();
    // Bound to a node that nobody plays, it stays for as long as it may.
    story.pods().delete("d", &Default::default()).await.unwrap();
    story.marker("m", spec(json!({"k": "1"}))).await;
    story.are_marked("k", "1", &["a", "b"]).await;
    story.delete_pod("a").await;
    let status = story.says("m", "that one is left", |status| status["matched"] == 1).await;
    assert_eq!([&status["succeeded"], &status["failed"], &status["waiting"]], [&json!(1), &json!(0), &json!(0)]);
    story.cluster.stop().await.unwrap();
}
