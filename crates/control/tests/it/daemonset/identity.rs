//! What revisions and pods are called, and what the status says of them, as users and tools of OpenKruise and Kubernetes
//! expect.

use dapple_api::daemonset::convert;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::story::{ByNode, Story, cache, changed, is_ready, look_at, rolling};
use crate::support::eventually;

const HASH: &str = "controller-revision-hash";

/// The hashes that pods on nodes of this kind carry.
async fn hashes(story: &Story, kind: &str) -> Vec<String> {
    let pods = story.all_pods().await;
    let mut all: Vec<String> =
        pods.iter().filter(|(node, _)| node.starts_with(kind)).map(|(_, pod)| pod.labels()[HASH].clone()).collect();
    all.sort();
    all.dedup();
    all
}

/// The set as v1alpha1 has it.
async fn as_v1alpha1(story: &Story) -> Value {
    let mut set = serde_json::to_value(story.sets.get("agent").await.unwrap()).unwrap();
    set["apiVersion"] = json!("apps.kruise.io/v1beta1");
    set["kind"] = json!("DaemonSet");
    convert(set, "apps.kruise.io/v1alpha1").expect("it is converted")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_has_the_hash_of_pods_and_revisions_are_named_by_it() {
    let story = Story::new("bare-hash").await;
    let set = |image: &str, value: &str| {
        let strategy = rolling(json!({"maxUnavailable": 6}));
        story.set(image, json!({"patches": [cache("large", value)], "updateStrategy": strategy}))
    };
    let mut seen = Vec::new();
    for (image, value) in [("agent:1", "2Ti"), ("agent:2", "2Ti"), ("agent:2", "4Ti")] {
        story.apply(&set(image, value)).await;
        let has_it = |seen: &ByNode| {
            let large = seen.iter().filter(|(node, _)| node.starts_with("large"));
            seen.len() == 6
                && seen.values().all(|pod| pod.image == image)
                && large.clone().all(|(_, pod)| pod.cache == value)
        };
        story.pods_are("all have it", has_it).await;
        let newest = story.newest_is_current().await;
        let told = story.status("all is told", |status| status["updatedNumberScheduled"] == 6).await;
        let hash = told["updateRevision"].as_str().unwrap().to_owned();
        assert_eq!(hashes(&story, "small").await, [hash.as_str()], "what unpatched pods carry");
        assert_ne!(hashes(&story, "large").await, [hash.as_str()]);
        assert_eq!(as_v1alpha1(&story).await["status"]["daemonSetHash"], json!(hash));
        let revision = story.revisions.get(&newest).await.expect("currentRevision names a ControllerRevision");
        assert_eq!(revision.labels()[HASH], hash);
        seen.push((newest, hash));
    }
    assert_eq!(seen[0].0, format!("agent-{}", seen[0].1));
    assert_eq!(seen[1].0, format!("agent-{}", seen[1].1));
    assert_ne!(seen[0].1, seen[1].1);
    // They differ in patches alone: pods that no patch is for are the same, and so is their hash.
    assert_eq!(seen[2].1, seen[1].1);
    assert_ne!(seen[2].0, seen[1].0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_253_characters_works() {
    let story = Story::new("long-name").await;
    // With a dot where a shorter name might be cut off.
    let name = format!("{}.{}", "a".repeat(46), "b".repeat(206));
    assert_eq!(name.len(), 253);
    let set = |image: &str, value: &str| {
        let strategy = rolling(json!({"maxUnavailable": 3}));
        let mut set = story.set(image, json!({"patches": [cache("large", value)], "updateStrategy": strategy}));
        set["metadata"]["name"] = json!(name);
        set
    };
    let is_done = |set: &Value, status: &Value| {
        status["observedGeneration"] == set["metadata"]["generation"]
            && status["updatedNumberScheduled"] == 6
            && status["numberAvailable"] == 6
    };
    let mut before = ByNode::new();
    for (image, value, others) in [("agent:1", "2Ti", 6), ("agent:2", "2Ti", 6), ("agent:2", "4Ti", 2)] {
        story.apply(&set(image, value)).await;
        let has_it = |seen: &ByNode| seen.values().filter(|pod| pod.image == image).count() == 6;
        let has_it = |seen: &ByNode| has_it(seen) && changed(&before, seen).len() == others;
        before = story.pods_are("all have it", has_it).await;
        eventually("long-name: the status is written", || async {
            let set = serde_json::to_value(story.sets.get(&name).await.map_err(|error| error.to_string())?).unwrap();
            let current = set["status"]["currentRevision"].as_str().unwrap_or_default();
            if !is_done(&set, &set["status"]) {
                return Err(set["status"].to_string());
            }
            story.revisions.get(current).await.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
    }
    assert_eq!(story.revisions.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_node_with_a_pod_is_misscheduled_and_one_without_is_nothing() {
    let story = Story::new("closed").await;
    story.add_nodes("shut", 1, json!({})).await;
    let taint = json!({"spec": {"taints": [{"key": "example.com/full", "effect": "NoSchedule"}]}});
    story.change_node("shut-000", taint.clone()).await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let first = story.have_image(6, "agent:1").await;
    story.change_node("small-000", taint).await;
    let is_told = |status: &Value| {
        ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady"]
            .iter()
            .all(|field| status[*field] == 5)
            && status["numberMisscheduled"] == 1
            && status["numberUnavailable"].as_i64().unwrap_or(0) == 0
    };
    story.status("as Kubernetes counts", is_told).await;
    story.nothing_changes(&first).await;
    // It stays what it is: the one that would come after it could not start.
    story.apply(&story.set("agent:2", json!({}))).await;
    let is_new = |(_, pod): &&(String, Pod)| look_at(pod).image == "agent:2" && is_ready(pod);
    let pods = story.every_pod("the others follow", |pods| pods.iter().filter(is_new).count() == 5).await;
    let left = pods.iter().find(|(node, _)| node == "small-000").map(|(_, pod)| pod.uid().unwrap_or_default());
    assert_eq!(left.as_ref(), Some(&first["small-000"].uid));
}
