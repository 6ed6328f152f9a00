//! Taints with the effect NoExecute: Kubernetes deletes pods by them, so they come only when asked for, one after another.

use std::time::Duration;

use dapple_testbed::ClusterSpec;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::story::{LABEL, QUIET, Story, Versions};
use crate::support::{eventually, manager};

fn has_taint(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().any(|taint| taint["key"] == "drain")
}

/// How many pods are there, and not on their way out.
async fn pods(story: &Story) -> usize {
    let found = Api::<Pod>::namespaced(story.client.clone(), "default").list(&Default::default()).await.unwrap();
    found.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_evicted_unasked_and_then_one_node_after_another() {
    let story = Story::new(ClusterSpec::temporary()).await;
    let _manager = manager(&story.cluster, "pool-execute").await;
    for name in ["a", "b"] {
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {LABEL: "beijing"}}});
        story.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let is_ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|known| known["type"] == "Ready" && known["status"] == "True")
        };
        story.until(name, "is ready", is_ready).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{name}")}, "spec": {
            "nodeName": name, "containers": [{"name": "c", "image": "c:1"}]}});
        let api = Api::<Pod>::namespaced(story.client.clone(), "default");
        eventually("the pod is made", || async {
            let made = api.create(&PostParams::default(), &serde_json::from_value(pod.clone()).unwrap()).await;
            made.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
    }
    let taint = json!({"key": "drain", "value": "now", "effect": "NoExecute"});
    story.pool("beijing", json!({"labels": {"zone": "a"}, "taints": [taint]})).await;
    let message = story.says("beijing", "Applied", "NoExecuteHeld").await;
    assert!(message.contains("dapple.dev/allow-no-execute"), "{message}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(pods(&story).await, 2);
    assert_eq!(story.read("a").await["metadata"]["labels"]["zone"], "a", "the rest is given");

    a_workload_holds_it(&story).await;
    let versions = Versions::watch(&story);
    eventually("both nodes have it", || async {
        let has = (has_taint(&story.read("a").await), has_taint(&story.read("b").await));
        if has == (true, true) { Ok(()) } else { Err(format!("{has:?}")) }
    })
    .await;
    let first = |name: &str| {
        versions.times(|node| node["metadata"]["name"] == name && has_taint(node)).into_iter().min().unwrap()
    };
    let (a, b) = (first("a"), first("b"));
    assert!(a.max(b) - a.min(b) > Duration::from_secs(20), "one after another");
    eventually("their pods are deleted", || async {
        let left = pods(&story).await;
        if left == 0 { Ok(()) } else { Err(format!("{left} are there")) }
    })
    .await;
    // Somebody takes one off: that is no reason to delete pods again.
    story.patch_node("a", json!({"spec": {"taints": null}})).await;
    let message = story.says("beijing", "Applied", "NoExecuteHeld").await;
    assert!(message.contains("never put on again"), "{message}");
    tokio::time::sleep(QUIET).await;
    assert!(!has_taint(&story.read("a").await));
    story.cluster.stop().await.unwrap();
}

/// A workload of a YurtAppDaemon that does not tolerate it keeps it off every node of the pool.
async fn a_workload_holds_it(story: &Story) {
    let owner = json!([{"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppDaemon", "name": "agent",
        "uid": made_daemon(story).await, "controller": true}]);
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "agent-beijing", "ownerReferences": owner,
            "labels": {"apps.openyurt.io/pool-name": "beijing"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}});
    let api = Api::<k8s_openapi::api::apps::v1::Deployment>::namespaced(story.client.clone(), "default");
    api.create(&PostParams::default(), &serde_json::from_value(workload).unwrap()).await.unwrap();
    story.annotate_pool("beijing", "dapple.dev/allow-no-execute", Some("true")).await;
    eventually("the workload holds it", || async {
        let message = story.says("beijing", "Applied", "NoExecuteHeld").await;
        if message.contains("does not tolerate drain:NoExecute") { Ok(()) } else { Err(message) }
    })
    .await;
    assert_eq!(pods(story).await, 2);
    let tolerations = json!([{"key": "drain", "operator": "Exists"}]);
    let tolerant = json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}});
    api.patch("agent-beijing", &Default::default(), &kube::api::Patch::Merge(tolerant)).await.unwrap();
}

/// Makes a YurtAppDaemon that nothing is written for: it selects no pool, and its controller would delete what is said to be its
/// workload some minutes later. Returns its UID.
async fn made_daemon(story: &Story) -> String {
    let template = json!({"metadata": {"labels": {"app": "agent"}}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": {"metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}});
    let daemon = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppDaemon",
        "metadata": {"name": "agent", "namespace": "default", "annotations": {"dapple.dev/suspend": "true"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "nodepoolSelector": {"matchLabels": {"none": "such"}},
            "workloadTemplate": {"deploymentTemplate": template}}});
    let kind = kube::core::GroupVersionKind::gvk("apps.openyurt.io", "v1alpha1", "YurtAppDaemon");
    let api = Api::<kube::api::DynamicObject>::namespaced_with(
        story.client.clone(),
        "default",
        &kube::api::ApiResource::from_gvk(&kind),
    );
    api.create(&PostParams::default(), &serde_json::from_value(daemon).unwrap()).await.unwrap().metadata.uid.unwrap()
}
