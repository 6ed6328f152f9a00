//! A patch that changes while an update in place is under way.

use dapple_testbed::Readiness;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::story::{Story, changed, look_at, rolling};
use super::watch::{Invariants, watch};

/// Another image for nodes with large disks.
fn image(value: &str) -> Value {
    json!({"selector": {"matchLabels": {"disk": "large"}},
        "patch": {"spec": {"containers": [{"name": "agent", "image": value}]}}})
}

/// kwok's stages.
async fn stages(story: &Story) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kwok.x-k8s.io", "v1alpha1", "Stage");
    Api::all_with(story.cluster.client().await.unwrap(), &ApiResource::from_gvk(&kind))
}

/// Keeps kwok from restarting containers on a node: what their images are is read, and nothing done.
async fn freeze(story: &Story, node: &str) {
    let differ = "(.status.containerStatuses // []) as $all \
        | any(.spec.containers[]; . as $c | any($all[]; .name == $c.name and .image != $c.image))";
    let stage = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": format!("freeze-{}", story.name)},
        "spec": {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}, "weight": 100_000, "next": {}, "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".spec.nodeName", "operator": "In", "values": [node]},
                {"key": differ, "operator": "In", "values": ["true"]}]}},
    });
    let name = format!("freeze-{}", story.name);
    let params = PatchParams::apply("test").force();
    stages(story).await.patch(&name, &params, &Patch::Apply(&stage)).await.expect("the stage is taken");
    // Returns once kwok knows its stages.
    story.cluster.hold_readiness(&story.name, &[node], Readiness::Fail).await.unwrap();
}

async fn thaw(story: &Story) {
    let name = format!("freeze-{}", story.name);
    stages(story).await.delete(&name, &DeleteParams::default()).await.unwrap();
    story.cluster.release_readiness(&story.name).await.unwrap();
}

/// What the annotation says ran before the change, and which change it is.
fn state(pod: &Pod) -> (Value, Value) {
    let text = pod.annotations().get("apps.kruise.io/inplace-update-state").cloned().unwrap_or_default();
    let state: Value = serde_json::from_str(&text).unwrap_or_default();
    (state["lastContainerStatuses"]["agent"]["imageID"].clone(), state["revision"].clone())
}

fn image_id(pod: &Pod) -> String {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.image_id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_patch_wins_over_an_update_that_is_under_way() {
    let story = Story::new("midway").await;
    let set = |value: &str| {
        let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 1}));
        story.set("agent:1", json!({"patches": [image(value)], "updateStrategy": strategy}))
    };
    story.apply(&set("agent:large-1")).await;
    let first = story.have_image(2, "agent:large-1").await;
    let ran = image_id(&story.pods.get(&first["large-001"].name).await.unwrap());
    assert!(ran.contains("agent:large-1"), "{ran}");

    let untouched = vec!["small-000", "small-001", "small-002", "small-003"];
    let frozen = story.node("large-001");
    freeze(&story, &frozen).await;
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched }).await;
    let mut hashes = Vec::new();
    for value in ["agent:large-2", "agent:large-3"] {
        story.apply(&set(value)).await;
        let is_changed = |(node, pod): &(String, Pod)| node == "large-001" && look_at(pod).image == value;
        let pods = story.every_pod("the node is at it", |pods| pods.iter().any(is_changed)).await;
        let pod = &pods.iter().find(|known| is_changed(known)).unwrap().1;
        assert_eq!(pod.uid().unwrap_or_default(), first["large-001"].uid, "the same pod");
        let (before, revision) = state(pod);
        assert_eq!(before, json!(ran), "what ran when it began is not forgotten");
        assert_eq!(revision, json!(pod.labels()["controller-revision-hash"]));
        hashes.push(revision);
    }
    assert_ne!(hashes[0], hashes[1]);
    // The budget is spent: the other node waits.
    let other = story.pods.get(&first["large-000"].name).await.unwrap();
    assert_eq!(look_at(&other).image, "agent:large-1");
    story.message(("Progressing", "True", "RollingOut"), &[&frozen, "is being updated in place"]).await;

    thaw(&story).await;
    let last = story.have_image(2, "agent:large-3").await;
    assert_eq!(changed(&first, &last), Vec::<String>::new(), "every pod is the same one");
    watched.finish().await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_patch_that_cannot_be_had_in_place_replaces_the_pod_within_the_budget() {
    let story = Story::new("midway-replaced").await;
    let set = |value: &str, cache: &str| {
        let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 1}));
        let mut patch = image(value);
        patch["patch"]["spec"]["containers"][0]["env"] = json!([{"name": "CACHE", "value": cache}]);
        story.set("agent:1", json!({"patches": [patch], "updateStrategy": strategy}))
    };
    story.apply(&set("agent:large-1", "2Ti")).await;
    let first = story.have_image(2, "agent:large-1").await;
    let bad = story.node("large-001");
    story.cluster.hold_readiness("midway-replaced", &[&bad], Readiness::Fail).await.unwrap();
    let untouched = vec!["small-000", "small-001", "small-002", "small-003"];
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched }).await;
    story.apply(&set("agent:large-2", "2Ti")).await;
    let begun = |(node, pod): &(String, Pod)| node == "large-001" && look_at(pod).image == "agent:large-2";
    story.every_pod("it is under way", |pods| pods.iter().any(begun)).await;
    story.apply(&set("agent:large-2", "4Ti")).await;
    let replaced = |(node, pod): &(String, Pod)| node == "large-001" && look_at(pod).cache == "4Ti";
    story.every_pod("it is replaced", |pods| pods.iter().any(replaced)).await;
    story.cluster.release_readiness("midway-replaced").await.unwrap();
    let last = story.pods_are("both have it", |seen| seen.values().filter(|pod| pod.cache == "4Ti").count() == 2).await;
    assert_eq!(changed(&first, &last), ["large-000", "large-001"]);
    watched.finish().await;
}
