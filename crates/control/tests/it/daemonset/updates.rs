//! Updates: the budget, the partition, surge, in place.

use dapple_testbed::Readiness;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::story::{Story, changed, rolling};
use super::watch::{Invariants, watch};

#[tokio::test(flavor = "multi_thread")]
async fn updates_keep_the_budget_and_the_partition() {
    let story = Story::new("standard").await;
    let set = |image: &str, more| story.set(image, json!({"updateStrategy": rolling(more)}));
    story.apply(&set("agent:1", json!({"maxUnavailable": 2}))).await;
    story.have_image(6, "agent:1").await;
    story.status("all are available", |status| status["numberAvailable"] == 6).await;

    let untouched = vec!["large-000", "large-001"];
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched }).await;
    story.apply(&set("agent:2", json!({"maxUnavailable": 2, "partition": 2}))).await;
    let updated = story.have_image(4, "agent:2").await;
    let told = story.status("the status says so", |status| status["updatedNumberScheduled"] == 4).await;
    assert_ne!(told["currentRevision"], json!(story.newest().await));
    let message = story.condition("Progressing", "False", "HeldBack").await;
    assert!(message.starts_with("2 of 6 nodes are held back"), "{message}");
    assert_eq!(watched.finish().await, (2, 1));

    // A pod on a node that is held back comes back as it was.
    story.pods.delete(&updated["large-000"].name, &DeleteParams::default()).await.unwrap();
    let again =
        story.pods_are("it comes back", |seen| seen.len() == 6 && changed(&updated, seen) == ["large-000"]).await;
    assert_eq!(again["large-000"].image, "agent:1");

    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2", json!({"maxUnavailable": 2}))).await;
    story.have_image(6, "agent:2").await;
    story.newest_is_current().await;
    story.condition("Progressing", "False", "Complete").await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surge_never_takes_a_node_down() {
    let story = Story::new("surge").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxSurge": "34%"}))}));
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    let watched = watch(&story, Invariants { budget: Some(0), most_on_a_node: 2, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    story.have_image(6, "agent:2").await;
    let doubled = watched.most_doubled().await;
    assert!(doubled <= 3, "34% of 6, rounded up, and not {doubled}");
    assert_eq!(watched.finish().await, (0, 2), "old and new stood side by side");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_changed_where_they_run() {
    let story = Story::new("in-place").await;
    let set = |image: &str| {
        let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 2}));
        story.set(image, json!({"updateStrategy": strategy}))
    };
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    let second = story.have_image(6, "agent:2").await;
    assert_eq!(changed(&first, &second), Vec::<String>::new(), "every pod is the same one");
    watched.finish().await;
    story.status("all have it", |status| status["updatedNumberScheduled"] == 6).await;
    let newest = story.newest().await;
    let pods = story.pods.list(&ListParams::default()).await.unwrap();
    for pod in pods {
        assert_eq!(pod.annotations().get("dapple.dev/revision"), Some(&newest));
        assert!(pod.annotations().contains_key("apps.kruise.io/inplace-update-state"));
    }
    // What cannot be changed in a running pod replaces it.
    let mut other = set("agent:2");
    other["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("1Ti");
    story.apply(&other).await;
    let third =
        story.pods_are("all have more", |seen| seen.values().filter(|pod| pod.cache == "1Ti").count() == 6).await;
    assert_eq!(changed(&second, &third).len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_does_not_come_up_stops_and_says_where() {
    let story = Story::new("stuck").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 1}))}));
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    let bad = story.node("small-003");
    story.cluster.hold_readiness("stuck", &[bad.as_str()], Readiness::Fail).await.unwrap();
    story.apply(&set("agent:2")).await;
    story.message(("Progressing", "True", "RollingOut"), &[&bad]).await;
    story
        .status("one is updated", |status| status["updatedNumberScheduled"] == 1 && status["numberUnavailable"] == 1)
        .await;
    story.cluster.release_readiness("stuck").await.unwrap();
    story.have_image(6, "agent:2").await;
}
