//! Hooks: pods are not deleted or changed before whoever holds them lets go.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::steps::{condition, image};
use super::story::{Story, changed, is_ready, rolling};
use super::watch::{Invariants, watch};

const HOLD: &str = "example.com/hold";
const STATE: &str = "lifecycle.apps.kruise.io/state";

/// A set whose pods are held by a label or a finalizer from the start.
fn held(story: &Story, image: &str, strategy: Value, lifecycle: Value) -> Value {
    let mut set = story.set(image, json!({"updateStrategy": strategy, "lifecycle": lifecycle}));
    let metadata = &mut set["spec"]["template"]["metadata"];
    if lifecycle.to_string().contains("finalizersHandler") {
        metadata["finalizers"] = json!([HOLD]);
    } else {
        metadata["labels"][HOLD] = json!("yes");
    }
    set
}

fn by_label() -> Value {
    json!({"labelsHandler": {HOLD: "yes"}})
}

fn let_go() -> Value {
    json!({"metadata": {"labels": {HOLD: null}}})
}

fn is_in(state: &'static str) -> impl Fn(&Pod) -> bool {
    move |pod| pod.labels().get(STATE).map(String::as_str) == Some(state)
}

/// One node at a time, and never two pods on one.
fn one_by_one() -> Invariants {
    Invariants { budget: Some(1), most_on_a_node: 1, untouched: vec!["small-001", "small-002"] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_the_label_is_deleted_once_it_is_gone() {
    let story = Story::new("hook-label").await;
    let set = |image: &str| held(&story, image, rolling(json!({})), json!({"preDelete": by_label()}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, one_by_one()).await;
    story.apply(&set("agent:2")).await;
    let waiting = story.pod_on("small-003", "it is prepared", is_in("PreparingDelete")).await;
    assert!(waiting.annotations().contains_key("lifecycle.apps.kruise.io/timestamp"));
    story.message(("Progressing", "True", "RollingOut"), &["small-003: pod", "is held by preDelete"]).await;
    // It takes the budget while it waits: no other is begun, and it goes on serving.
    story.nothing_changes(&first).await;
    let others = story.pods_on("small-002").await.unwrap();
    assert!(!is_in("PreparingDelete")(&others[0]) && is_ready(&story.pods_on("small-003").await.unwrap()[0]));

    story.change_pod(&waiting.name_any(), let_go()).await;
    let new = story.pod_on("small-003", "the new one", |pod| image(pod) == "agent:2").await;
    assert!(!new.labels().contains_key(STATE), "a new pod is held for nothing");
    story.pod_on("small-002", "the next is prepared", is_in("PreparingDelete")).await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_the_finalizer_is_deleted_once_it_is_gone() {
    let story = Story::new("hook-finalizer").await;
    let hook = json!({"preDelete": {"finalizersHandler": [HOLD]}});
    let set = |image: &str| held(&story, image, rolling(json!({})), hook.clone());
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, one_by_one()).await;
    story.apply(&set("agent:2")).await;
    let waiting = story.pod_on("small-003", "it is prepared", is_in("PreparingDelete")).await;
    assert!(waiting.metadata.deletion_timestamp.is_none());
    story.nothing_changes(&first).await;
    story.change_pod(&waiting.name_any(), json!({"metadata": {"finalizers": null}})).await;
    let new = story.pod_on("small-003", "the new one", |pod| image(pod) == "agent:2").await;
    assert_eq!(new.finalizers(), [HOLD]);
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_may_ask_that_a_pod_gets_no_traffic_while_it_waits() {
    let story = Story::new("hook-unready").await;
    let hook = json!({"preDelete": {"labelsHandler": {HOLD: "yes"}, "markPodNotReady": true}});
    let set = |image: &str| held(&story, image, rolling(json!({})), hook.clone());
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    let watched = watch(&story, one_by_one()).await;
    story.apply(&set("agent:2")).await;
    let waiting = story.pod_on("small-003", "it is prepared", is_in("PreparingDelete")).await;
    let name = waiting.name_any();
    let is_out = |pod: &Pod| !is_ready(pod) && condition(pod, "KruisePodReady") == Some("False");
    story.pod_on("small-003", "it is out of service", |pod| pod.name_any() == name && is_out(pod)).await;
    story.status("it is counted", |status| status["numberUnavailable"] == 1).await;
    story.change_pod(&name, let_go()).await;
    story.pod_on("small-003", "the new one serves", |pod| image(pod) == "agent:2" && is_ready(pod)).await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_changed_in_place_once_it_is_let_go() {
    let story = Story::new("hook-in-place").await;
    let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible"}));
    let hook = json!({"inPlaceUpdate": by_label()});
    let set = |image: &str| held(&story, image, strategy.clone(), hook.clone());
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, one_by_one()).await;
    story.apply(&set("agent:2")).await;
    let waiting = story.pod_on("small-003", "it is prepared", is_in("PreparingUpdate")).await;
    story.message(("Progressing", "True", "RollingOut"), &["small-003: pod", "is held by inPlaceUpdate"]).await;
    story.nothing_changes(&first).await;

    story.change_pod(&waiting.name_any(), let_go()).await;
    let updated = story.pod_on("small-003", "it is updated", is_in("Updated")).await;
    assert_eq!((updated.uid(), image(&updated)), (waiting.uid(), "agent:2"));
    story.change_pod(&waiting.name_any(), json!({"metadata": {"labels": {HOLD: "yes"}}})).await;
    story.pod_on("small-003", "it serves again", |pod| is_in("Normal")(pod) && is_ready(pod)).await;
    // The next one is asked, and the same pods serve still.
    story.pod_on("small-002", "the next is prepared", is_in("PreparingUpdate")).await;
    let now = story.pods_are("all are ready", |seen| seen.len() == 6).await;
    assert_eq!(changed(&first, &now), Vec::<String>::new());
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_out_of_service_for_its_update_is_ready_before_it_is_held_again() {
    let story = Story::new("hook-both").await;
    let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible"}));
    let hook = json!({"inPlaceUpdate": {"labelsHandler": {HOLD: "yes"}, "markPodNotReady": true}});
    let set = |image: &str| held(&story, image, strategy.clone(), hook.clone());
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    let watched = watch(&story, one_by_one()).await;
    story.apply(&set("agent:2")).await;
    let is_out = |pod: &Pod| is_in("PreparingUpdate")(pod) && condition(pod, "KruisePodReady") == Some("False");
    let waiting = story.pod_on("small-003", "it is out of service", |pod| is_out(pod) && !is_ready(pod)).await;
    story.change_pod(&waiting.name_any(), let_go()).await;
    // Whoever holds it waits until it is ready to hold it again: OpenKruise makes it ready once it is updated.
    let back = story.pod_on("small-003", "it is ready", |pod| is_in("Updated")(pod) && is_ready(pod)).await;
    assert_eq!((back.uid(), image(&back)), (waiting.uid(), "agent:2"));
    story.change_pod(&waiting.name_any(), json!({"metadata": {"labels": {HOLD: "yes"}}})).await;
    story.pod_on("small-003", "it serves again", |pod| is_in("Normal")(pod) && is_ready(pod)).await;
    watched.finish().await;
}
