//! What the API server refuses now though pods of it ran before: as in admission, a typo that was stored before anybody checked
//! must not keep a pod that is lost from coming back.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::gate::own_cluster;
use super::refused::{allow, forbid_on, is_forbidden};
use super::story::{ByNode, Story, changed};
use super::unanswered::complains;
use crate::support::{Manager, eventually, manager};

/// A pod of this hash on a node, as if it had been made before.
async fn make_pod(story: &Story, node: &str, hash: &Value) {
    let made = story.sets.get("agent").await.unwrap();
    let owner = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": "agent", "uid": made.uid(),
        "controller": true, "blockOwnerDeletion": true});
    let labels = json!({"app": "agent", "controller-revision-hash": hash});
    let pod = json!({
        "metadata": {"name": "agent-of-before", "ownerReferences": [owner], "labels": labels},
        "spec": {"nodeName": story.node(node), "containers": [{"name": "agent", "image": "agent:1"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    // The namespace's service account comes a moment after the namespace.
    eventually("the pod is taken", || async {
        story.pods.create(&PostParams::default(), &pod).await.map_err(|error| error.to_string())
    })
    .await;
}

/// Has so many nodes run what the API server refuses, as it does once one of them ran it before.
async fn run_what_is_refused(story: &Story, nodes: usize) -> ByNode {
    story.add_nodes("n", nodes, json!({})).await;
    let mut set = story.set("agent:1", json!({}));
    set["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = json!("Never");
    story.apply(&set).await;
    complains(story, &["imagePullPolice"]).await;
    assert_eq!(story.all_pods().await.len(), 0, "no pod is made of what is refused");
    let status = story.status("the revision is told", |status| status["updateRevision"].is_string()).await;
    assert_eq!(status["variants"][0]["ran"], Value::Null, "{status}");
    make_pod(story, "n-000", &status["updateRevision"]).await;
    let first = story.have_image(nodes, "agent:1").await;
    story.condition("Degraded", "False", "AsExpected").await;
    first
}

/// Waits until every node has another pod than it had.
async fn all_are_back(story: &Story, first: &ByNode) {
    let is_back = |seen: &ByNode| seen.len() == first.len() && changed(first, seen).len() == first.len();
    story.pods_are("all are back", is_back).await;
    story.condition("Degraded", "False", "AsExpected").await;
}

/// A story on a cluster of its own, with its manager.
async fn alone(name: &str) -> (Story, Manager) {
    let story = Story::empty(name, own_cluster().await).await;
    let manager = manager(&story.cluster, name).await;
    (story, manager)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_excused_though_the_api_server_refuses_it_now() {
    let story = Story::without_nodes("ran-before").await;
    let first = run_what_is_refused(&story, 3).await;
    story.delete_pod(&first["n-000"].name).await;
    let back = story.pods_are("it is back", |seen| seen.len() == 3 && seen["n-000"].uid != first["n-000"].uid).await;
    assert_eq!(changed(&first, &back), ["n-000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_comes_back_under_another_manager_though_no_pod_of_it_is_left() {
    let (story, before) = alone("all-lost").await;
    let first = run_what_is_refused(&story, 3).await;
    story.status("it is told", |status| status["variants"][0]["ran"] == true).await;
    before.end().await;
    for pod in first.values() {
        story.delete_pod(&pod.name).await;
    }
    eventually("all pods are gone", || async {
        let left = story.all_pods().await.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} pods")) }
    })
    .await;
    let _next = manager(&story.cluster, "all-lost-next").await;
    all_are_back(&story, &first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_comes_back_after_a_refusal_that_passes() {
    let (story, _manager) = alone("refused-once").await;
    let first = run_what_is_refused(&story, 1).await;
    story.status("it is told", |status| status["variants"][0]["ran"] == true).await;
    // Nothing but a probe.
    forbid_on(&story, "refused-once", ("", "v1", "pods"), "CREATE", "object.metadata.name == 'probe'").await;
    let other = json!({"metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "c"}]}});
    let other: Pod = serde_json::from_value(other).unwrap();
    let only_asking = PostParams { dry_run: true, ..PostParams::default() };
    eventually("it is forbidden", || async { is_forbidden(story.pods.create(&only_asking, &other).await) }).await;
    story.delete_pod(&first["n-000"].name).await;
    story.event(&["not here", &story.node("n-000")]).await;
    allow(&story, "refused-once").await;
    all_are_back(&story, &first).await;
}
