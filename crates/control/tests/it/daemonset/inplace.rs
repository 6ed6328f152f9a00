//! Changes of running pods: what can be had in place is, within the budget, and the rest replaces.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::fields::{ALL, LONG};
use super::steps::condition;
use super::story::{Story, changed, is_ready, rolling};
use super::watch::{Invariants, watch};

pub(super) const GATE: &str = "InPlaceUpdateReady";

pub(super) fn in_place() -> Value {
    rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 2}))
}

fn two_down() -> Invariants {
    Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }
}

fn has_gate(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.condition_type == GATE)
}

pub(super) fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": "1Gi"}})
}

/// Waits until every pod is ready and as it should be.
pub(super) async fn all_are(story: &Story, what: &str, is_right: impl Fn(&Pod) -> bool) -> Vec<Pod> {
    crate::support::eventually(&format!("{}: {what}", story.name), || async {
        let pods = story.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let count = pods.iter().filter(|pod| is_ready(pod) && is_right(pod)).count();
        if count == 6 && pods.len() == 6 { Ok(pods) } else { Err(format!("{count} of {} pods", pods.len())) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_annotations_change_without_a_restart() {
    let story = Story::new("in-place-fields").await;
    let mut set = story.set("agent:1", json!({"updateStrategy": in_place()}));
    story.apply(&set).await;
    let first = story.have_image(6, "agent:1").await;
    all_are(&story, "gates are open", |pod| has_gate(pod) && condition(pod, GATE) == Some("True")).await;

    let watched = watch(&story, two_down()).await;
    set["spec"]["template"]["metadata"]["labels"]["tier"] = json!("edge");
    set["spec"]["template"]["metadata"]["annotations"] = json!({"example.com/note": "2"});
    story.apply(&set).await;
    let is_told = |pod: &Pod| {
        pod.labels().get("tier").is_some_and(|tier| tier == "edge")
            && pod.annotations().get("example.com/note").is_some_and(|note| note == "2")
    };
    all_are(&story, "labels and annotations", |pod| is_told(pod) && condition(pod, GATE) == Some("True")).await;
    let second = story.pods_are("all are ready", |seen| seen.len() == 6).await;
    assert_eq!(changed(&first, &second), Vec::<String>::new(), "every pod is the same one");
    story.condition("Progressing", "False", "Complete").await;
    watched.finish().await;
}

/// The kubelet of kwok says nothing about cpu and memory: this says it in its place.
pub(super) async fn report(story: &Story, pod: &Pod, amounts: Value) {
    let path = "/status/containerStatuses/0/resources";
    let patch = serde_json::from_value(json!([{"op": "add", "path": path, "value": amounts}])).unwrap();
    let patch = Patch::<()>::Json(patch);
    story.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
}

/// A container's cpu and memory: what is asked for, and what the node says that it has.
pub(super) fn asked_and_given(pod: &Pod) -> (Value, Value) {
    let pod = serde_json::to_value(pod).unwrap();
    let given = pod["status"]["containerStatuses"][0]["resources"].clone();
    (pod["spec"]["containers"][0]["resources"].clone(), given)
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_and_memory_change_without_a_restart_and_the_node_is_waited_for() {
    let story = Story::new("resize").await;
    let (few, many) = (amounts("100m", "64Mi"), amounts("200m", "128Mi"));
    let mut set = story.set("agent:1", json!({"updateStrategy": in_place()}));
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = few.clone();
    story.apply(&set).await;
    let first = story.have_image(6, "agent:1").await;
    for pod in all_are(&story, "they run", |pod| condition(pod, GATE) == Some("True")).await {
        report(&story, &pod, few.clone()).await;
    }

    let watched = watch(&story, two_down()).await;
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = many.clone();
    story.apply(&set).await;
    let is_asked = |pod: &Pod| asked_and_given(pod) == (many.clone(), few.clone()) && !is_ready(pod);
    // Two are down at once before the first is done.
    story.pod_on("small-002", "more is asked for", is_asked).await;
    for node in ["small-003", "small-002", "small-001", "small-000", "large-001", "large-000"] {
        let pod = story.pod_on(node, "more is asked for", is_asked).await;
        assert_eq!(condition(&pod, GATE), Some("False"), "it waits for the node");
        report(&story, &pod, many.clone()).await;
    }
    let has_more = |pod: &Pod| asked_and_given(pod).1 == many && condition(pod, GATE) == Some("True");
    all_are(&story, "all have more", has_more).await;
    assert_eq!(watched.finish().await, (2, 1));
    let last = story.pods_are("all are ready", |seen| seen.len() == 6).await;
    assert_eq!(changed(&first, &last), Vec::<String>::new(), "every pod is the same one");
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_node_cannot_resize_pods_are_replaced() {
    let story = Story::new("resize-not").await;
    let mut set = story.set("agent:1", json!({"updateStrategy": in_place()}));
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = amounts("100m", "64Mi");
    story.apply(&set).await;
    let first = story.have_image(6, "agent:1").await;
    // The API server refuses to resize pods whose node does not tell what they have.
    let watched = watch(&story, two_down()).await;
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = amounts("200m", "128Mi");
    story.apply(&set).await;
    all_are(&story, "all have more", |pod| asked_and_given(pod).0 == amounts("200m", "128Mi")).await;
    let last = story.pods_are("all are ready", |seen| seen.len() == 6).await;
    assert_eq!(changed(&first, &last).len(), 6);
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_changed_in_place_replaces_within_the_budget() {
    let story = Story::new("in-place-not").await;
    let mut set = story.set("agent:1", json!({"updateStrategy": in_place()}));
    story.apply(&set).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, two_down()).await;
    set["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("1Ti");
    story.apply(&set).await;
    let has_more = |seen: &super::story::ByNode| seen.values().filter(|pod| pod.cache == "1Ti").count() == 6;
    let second = story.pods_are("all have more", has_more).await;
    assert_eq!(changed(&first, &second).len(), 6);
    all_are(&story, "gates are open", |pod| has_gate(pod) && condition(pod, GATE) == Some("True")).await;
    // Requests where there were none make another class of service: no running pod can be given that.
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = amounts("100m", "64Mi");
    story.apply(&set).await;
    let third = story.pods_are("all are new", |seen| seen.len() == 6 && changed(&second, seen).len() == 6).await;
    assert_eq!(third.len(), 6);
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_made_before_the_strategy_was_in_place_are_changed_in_place_too() {
    let story = Story::new("in-place-switch").await;
    story.apply(&story.set("agent:1", json!({"updateStrategy": rolling(json!({"maxUnavailable": 2}))}))).await;
    let first = story.have_image(6, "agent:1").await;
    story.apply(&story.set("agent:1", json!({"updateStrategy": in_place()}))).await;
    story.nothing_changes(&first).await;
    // None comes up before as many are down as may be.
    story.delay(&ALL, LONG).await;
    let watched = watch(&story, two_down()).await;
    story.apply(&story.set("agent:2", json!({"updateStrategy": in_place()}))).await;
    watched.sees_down(2).await;
    story.release().await;
    let second = story.have_image(6, "agent:2").await;
    assert_eq!(changed(&first, &second), Vec::<String>::new(), "every pod is the same one");
    assert_eq!(watched.finish().await, (2, 1));
    story.condition("Progressing", "False", "Complete").await;
    // A pod that is lost comes back with the gate.
    story.delete_pod(&second["small-000"].name).await;
    story.pod_on("small-000", "the new one", |pod| has_gate(pod) && is_ready(pod)).await;
}
