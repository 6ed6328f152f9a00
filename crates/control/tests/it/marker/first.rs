//! The first story of the specification: which ten pods are marked, and what becomes of them.

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::story::{HERE, MARKED_BY, MARKS, QUIET, Story};
use crate::support::{kubectl_ok, manager};

const LABEL: &str = "upgradeStrategy";
const NOTE: &str = "markUpgradeStrategyUsingPodMarker";

/// The specification's own marker.
fn spec() -> Value {
    json!({
        "strategy": {"replicas": 10, "confilctPolicy": "Overwrite"},
        "matchRequirements": {
            "podSelector": {"matchLabels": {"app": "nginx"}},
            "nodeSelector": {"matchLabels": {"arch": "x86"}},
        },
        "matchPreferences": [{"podSelector": {"matchLabels": {"pod.state": "working_online"}}}, {"podReady": true}],
        "markItems": {"labels": {LABEL: "inPlace"}, "annotations": {NOTE: "marker"}},
    })
}

/// Fourteen pods of all four classes on nodes that match, and others that must not be marked.
async fn pods(story: &Story) {
    story.node("x86", json!({"arch": "x86"})).await;
    story.node("arm", json!({"arch": "arm"})).await;
    let online = || json!({"app": "nginx", "pod.state": "working_online"});
    let offline = || json!({"app": "nginx"});
    for (class, count, labels, is_ready) in
        [("d", 3, offline(), false), ("c", 4, offline(), true), ("b", 3, online(), false), ("a", 4, online(), true)]
    {
        for number in 0..count {
            story.pod(&format!("{class}{number}"), "x86", labels.clone(), is_ready).await;
        }
    }
    for number in 0..3 {
        story.pod(&format!("w{number}"), "arm", online(), true).await;
    }
    story.pod("other", "x86", json!({"app": "db", "pod.state": "working_online"}), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_pods_are_marked_the_preferred_ones_first() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-first").await;
    pods(&story).await;
    // One has another value, and one has all the marks already.
    story.patch_pod("a1", json!({"metadata": {"labels": {LABEL: "theirs"}}})).await;
    let marked = json!({"labels": {LABEL: "inPlace"}, "annotations": {NOTE: "marker"}});
    story.patch_pod("a2", json!({"metadata": marked})).await;
    story.marker("marker", spec()).await;
    let ten = ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "c0", "c1", "c2"];
    story.are_marked(LABEL, "inPlace", &ten).await;
    let status = story.is_done("marker", 10).await;
    assert_eq!([&status["desired"], &status["matched"], &status["failed"]], [&json!(10), &json!(14), &json!(0)]);
    let columns = kubectl_ok(&story.cluster, &["get", "podmarker", "marker", "-n", HERE, "--no-headers"], "");
    assert_eq!(columns.split_whitespace().collect::<Vec<_>>()[..6], ["marker", "10", "10", "14", "0", "0"]);
    is_recorded(&story).await;
    stays_as_it_is(&story, &ten).await;
    shrinks_and_grows(&story, &ten).await;
    is_deleted_and_made_again(&story, &ten).await;
    story.cluster.stop().await.unwrap();
}

/// What was set says what was there, and only on pods that the marker has changed.
async fn is_recorded(story: &Story) {
    let pod = story.read("a1").await;
    assert_eq!(pod.annotations().get(NOTE).map(String::as_str), Some("marker"));
    assert_eq!(pod.annotations().get(MARKED_BY).map(String::as_str), Some("marker"));
    let record: Value = serde_json::from_str(&pod.annotations()[MARKS]).unwrap();
    let of_label = record.as_array().unwrap().iter().find(|entry| entry["label"] == LABEL).unwrap();
    assert_eq!([&of_label["set"], &of_label["found"]], [&json!("inPlace"), &json!("theirs")]);
    let foreign = story.read("a2").await;
    assert!(!foreign.annotations().contains_key(MARKS) && !foreign.annotations().contains_key(MARKED_BY));
}

/// Marks do not move when other pods become preferred.
async fn stays_as_it_is(story: &Story, ten: &[&str]) {
    for name in ["d0", "d1"] {
        story.patch_pod(name, json!({"metadata": {"labels": {"pod.state": "working_online"}}})).await;
    }
    tokio::time::sleep(QUIET).await;
    story.are_marked(LABEL, "inPlace", ten).await;
    for name in ["d0", "d1"] {
        story.patch_pod(name, json!({"metadata": {"labels": {"pod.state": null}}})).await;
    }
}

async fn shrinks_and_grows(story: &Story, ten: &[&str]) {
    story.mark("marker", json!(5)).await;
    story.are_marked(LABEL, "inPlace", &["a0", "a1", "a2", "a3", "b0"]).await;
    story.mark("marker", json!(0)).await;
    // What others have set stays.
    story.are_marked(LABEL, "inPlace", &["a2"]).await;
    story.are_marked(LABEL, "theirs", &["a1"]).await;
    story.reason("marker", "Marked", "Cleaned").await;
    for name in ten {
        let pod = story.read(name).await;
        assert!(!pod.annotations().contains_key(MARKS) && !pod.annotations().contains_key(MARKED_BY), "{name}");
        assert_eq!(pod.annotations().contains_key(NOTE), *name == "a2", "{name}");
    }
    story.mark("marker", json!("50%")).await;
    story.are_marked(LABEL, "inPlace", &ten[..7]).await;
    story.mark("marker", json!(10)).await;
    story.are_marked(LABEL, "inPlace", ten).await;
    story.is_done("marker", 10).await;
}

/// Deletion leaves marks, names and records: a marker of the same name owns them again.
async fn is_deleted_and_made_again(story: &Story, ten: &[&str]) {
    story.markers().delete("marker", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(QUIET).await;
    story.are_marked(LABEL, "inPlace", ten).await;
    assert!(story.read("a1").await.annotations().contains_key(MARKS));
    story.marker("marker", spec()).await;
    story.is_done("marker", 10).await;
    story.are_marked(LABEL, "inPlace", ten).await;
    // New items change marked pods where they are.
    let items = json!({"labels": {LABEL: null, "canary": "yes"}, "annotations": {NOTE: null}});
    story.patch_marker("marker", json!({"spec": {"markItems": items}})).await;
    story.are_marked("canary", "yes", ten).await;
    story.are_marked(LABEL, "inPlace", &["a2"]).await;
    story.are_marked(LABEL, "theirs", &["a1"]).await;
    story.mark("marker", json!(0)).await;
    story.are_marked("canary", "yes", &[]).await;
}

/// A controller that replaces marked pods meets the same ten again, and not the next ten.
#[tokio::test(flavor = "multi_thread")]
async fn who_replaces_marked_pods_is_not_led_through_the_fleet() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-replaced").await;
    story.node("x86", json!({"arch": "x86"})).await;
    for number in 0..6 {
        story.pod(&format!("p{number}"), "x86", json!({"app": "nginx"}), true).await;
    }
    let mut marker = spec();
    marker["strategy"]["replicas"] = json!(2);
    story.marker("marker", marker).await;
    story.are_marked(LABEL, "inPlace", &["p0", "p1"]).await;
    for round in 0..2 {
        // A mark is set in some second, and only a pod of a later one is made after it.
        tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
        for name in story.with(LABEL, "inPlace").await {
            story.delete_pod(&name).await;
        }
        tokio::time::sleep(QUIET).await;
        story.are_marked(LABEL, "inPlace", &[]).await;
        story.reason("marker", "Held", "SeatsKept").await;
        let successors = [format!("new-{round}-0"), format!("new-{round}-1")];
        for name in &successors {
            story.pod(name, "x86", json!({"app": "nginx"}), true).await;
        }
        story.are_marked(LABEL, "inPlace", &[&successors[0], &successors[1]]).await;
    }
    story.cluster.stop().await.unwrap();
}
