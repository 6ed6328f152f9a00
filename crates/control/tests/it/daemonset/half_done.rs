//! Resizes that were cut off between two writes. The pod is left as whoever led then left it: the label is the new one, the
//! amounts are noted, and the spec has the old ones.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::inplace::{GATE, all_are, amounts, asked_and_given, in_place, report};
use super::steps::condition;
use super::story::{Story, changed, is_ready};

const NOTE: &str = "dapple.dev/resize";
const REVISION: &str = "dapple.dev/revision";
const HASH: &str = "controller-revision-hash";

/// What a pod's metadata says that it is.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    hash: String,
    revision: String,
}

fn said(pod: &Pod) -> Said {
    Said { hash: pod.labels()[HASH].clone(), revision: pod.annotations()[REVISION].clone() }
}

/// A set whose pods have these amounts.
fn set(story: &Story, amounts: &Value, more: Value) -> Value {
    let mut strategy = in_place();
    for (field, value) in more.as_object().into_iter().flatten() {
        strategy["rollingUpdate"][field] = value.clone();
    }
    let mut set = story.set("agent:1", json!({"updateStrategy": strategy}));
    set["spec"]["template"]["spec"]["containers"][0]["resources"] = amounts.clone();
    set
}

/// Leaves the pod of a node as if it were on its way to these amounts.
async fn leave_half_done(story: &Story, pod: &str, to: &Said, amounts: &Value) {
    let note = json!({"revision": to.hash, "containers": {"agent": amounts}}).to_string();
    let annotations = json!({REVISION: to.revision, NOTE: note});
    let metadata = json!({"labels": {HASH: to.hash}, "annotations": annotations});
    story.change_pod(pod, json!({"metadata": metadata})).await;
}

/// Whether a pod is what it is said to be, with nothing left to do but by the node.
fn is_whole(pod: &Pod, said_to_be: &Said, amounts: &Value) -> bool {
    said(pod) == *said_to_be && asked_and_given(pod).0 == *amounts && !pod.annotations().contains_key(NOTE)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_was_cut_off_ends_as_the_label_says() {
    let story = Story::new("half-done").await;
    let (few, many) = (amounts("100m", "64Mi"), amounts("200m", "128Mi"));
    story.apply(&set(&story, &few, json!({}))).await;
    let first = story.have_image(6, "agent:1").await;
    let is_open = |pod: &Pod| condition(pod, GATE) == Some("True");
    let pods = all_are(&story, "they run", is_open).await;
    let one = said(&pods[0]);
    for pod in &pods {
        report(&story, pod, few.clone()).await;
    }
    story.apply(&set(&story, &many, json!({"maxUnavailable": 6}))).await;
    for node in first.keys() {
        let pod = story.pod_on(node, "more is asked for", |pod| asked_and_given(pod).0 == many && !is_ready(pod)).await;
        report(&story, &pod, many.clone()).await;
    }
    let pods =
        all_are(&story, "all have more", |pod| is_open(pod) && asked_and_given(pod) == (many.clone(), many.clone()))
            .await;
    let other = said(&pods[0]);
    all_are(&story, "no note is left", |pod| is_open(pod) && is_whole(pod, &other, &many)).await;

    // On its way to what the set does not say any more.
    leave_half_done(&story, &first["small-000"].name, &one, &few).await;
    story
        .pod_on("small-000", "it is as the set says", |pod| {
            is_whole(pod, &other, &many) && is_open(pod) && is_ready(pod)
        })
        .await;

    // The same, and the set says nothing to this node.
    story.apply(&set(&story, &many, json!({"paused": true}))).await;
    story.condition("Progressing", "False", "Complete").await;
    let ends = async |node: &str| {
        leave_half_done(&story, &first[node].name, &one, &few).await;
        let pod = story.pod_on(node, "it is as its label says", |pod| is_whole(pod, &one, &few)).await;
        report(&story, &pod, few.clone()).await;
    };
    ends("small-001").await;

    // Once it has them, somebody else may give it others. What comes later is seen later.
    let mine = json!({"spec": {"containers": [{"name": "agent", "resources": amounts("150m", "64Mi")}]}});
    let (name, params) = (&first["small-001"].name, PatchParams::default());
    let resized: Pod = story.pods.patch_subresource("resize", name, &params, &Patch::Strategic(mine)).await.unwrap();
    ends("small-002").await;
    let after = story.pods.get(name).await.unwrap();
    assert_eq!(asked_and_given(&after).0, amounts("150m", "64Mi"));
    assert_eq!(after.metadata.generation, resized.metadata.generation, "nobody has touched it");

    // The rollout goes on, from what the labels say.
    story.apply(&set(&story, &many, json!({}))).await;
    for node in ["small-001", "small-002"] {
        let pod = story.pod_on(node, "more is asked for", |pod| is_whole(pod, &other, &many)).await;
        report(&story, &pod, many.clone()).await;
    }
    all_are(&story, "all have more", |pod| is_open(pod) && is_whole(pod, &other, &many)).await;
    let last = story.pods_are("all are ready", |seen| seen.len() == 6).await;
    assert_eq!(changed(&first, &last), Vec::<String>::new(), "every pod is the same one");
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_resize_is_refused_does_not_stay_half_done() {
    let story = Story::new("half-refused").await;
    let few = amounts("100m", "64Mi");
    story.apply(&set(&story, &few, json!({"paused": true}))).await;
    let first = story.have_image(6, "agent:1").await;
    let pods = all_are(&story, "they run", |pod| condition(pod, GATE) == Some("True")).await;
    let now = said(&pods[0]);
    // The API server refuses to resize pods whose node does not tell what they have.
    leave_half_done(&story, &first["small-000"].name, &now, &amounts("200m", "128Mi")).await;
    let last = story.pods_are("it is replaced", |seen| changed(&first, seen).len() == 1 && seen.len() == 6).await;
    assert_eq!(changed(&first, &last), ["small-000"]);
    let pod = story.pods.get(&last["small-000"].name).await.unwrap();
    assert!(is_whole(&pod, &now, &few), "{:?}", pod.metadata);
}
