//! What kwok does to pods.

use std::time::Duration;

use dapple_testbed::{Cluster, Fleet, Readiness};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{eventually, holds, shared};

/// How late readiness comes, in seconds: long enough to be seen missing on a machine that stands still for some.
const LATE: u64 = 15;

/// The shared cluster with three nodes of this test's own.
async fn nodes(prefix: &str) -> (std::sync::Arc<Cluster>, Client) {
    let cluster = shared().await;
    let text = format!("kinds: [{{name: {prefix}, count: 3, taints: [{{key: {prefix}, effect: NoSchedule}}]}}]");
    cluster.apply_fleet(&Fleet::from_yaml(&text, "inline").unwrap()).await.unwrap();
    let client = cluster.client().await.unwrap();
    (cluster, client)
}

async fn create(client: &Client, name: &str, node: &str, more: Value) -> Api<Pod> {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "app:1"}, {"name": "b", "image": "side:1"}]},
    });
    merge(&mut pod, more);
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    // The ServiceAccount is there once the cluster is ready.
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn condition(pod: &Pod, kind: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == kind)?.status.clone())
}

async fn wait_for(pods: &Api<Pod>, name: &str, kind: &str, status: &str) -> Pod {
    eventually(&format!("{name} has {kind}={status}"), async || {
        let pod = pods.get(name).await.unwrap();
        holds(condition(&pod, kind).as_deref() == Some(status), &pod.status).map(|()| pod)
    })
    .await
}

fn containers(pod: &Pod) -> Vec<Value> {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    statuses.iter().map(|status| serde_json::to_value(status).unwrap()).collect()
}

async fn set_image(pods: &Api<Pod>, name: &str, image: &str) {
    let patch = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
    pods.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

#[tokio::test]
async fn an_image_changed_in_place_is_followed_and_ready_returns() {
    let (_cluster, client) = nodes("inplace").await;
    let pods = create(&client, "inplace", "inplace-000", json!({})).await;
    let before = containers(&wait_for(&pods, "inplace", "Ready", "True").await);
    assert_eq!(before[0]["image"], "app:1");
    assert!(before[0]["imageID"].as_str().unwrap().starts_with("kwok.local/app:1@sha256:"));

    let version = pods.get("inplace").await.unwrap().resource_version().unwrap();
    set_image(&pods, "inplace", "app:2").await;
    // Every state on the way, from a watch: Ready went and came back.
    let mut seen = Vec::new();
    eventually("Ready returned with the new image", async || {
        let pod = pods.get("inplace").await.unwrap();
        let updated = containers(&pod)[0]["image"] == "app:2";
        holds(updated && condition(&pod, "Ready").as_deref() == Some("True"), &pod.status)
    })
    .await;
    {
        use futures::{StreamExt, pin_mut};
        let watched = kube::api::WatchParams::default().fields("metadata.name=inplace");
        let events = pods.watch(&watched, &version).await.unwrap();
        pin_mut!(events);
        while seen.last().is_none_or(|(image, ready)| image != "app:2" || ready != "True") {
            if let kube::api::WatchEvent::Modified(pod) = events.next().await.unwrap().unwrap() {
                let image = containers(&pod)[0]["image"].as_str().unwrap().to_owned();
                seen.push((image, condition(&pod, "Ready").unwrap()));
            }
        }
    }
    assert!(seen.contains(&("app:2".into(), "False".into())), "{seen:?}");

    let after = containers(&pods.get("inplace").await.unwrap());
    assert!(after[0]["imageID"].as_str().unwrap().starts_with("kwok.local/app:2@sha256:"));
    assert_ne!(before[0]["containerID"], after[0]["containerID"]);
    assert_eq!(after[0]["restartCount"], 1);
    assert_eq!(after[0]["ready"], true);
    assert_eq!(before[1], after[1], "the other container was left alone");
}

#[tokio::test]
async fn readiness_gates_are_respected() {
    let (_cluster, client) = nodes("gated").await;
    let gate = json!({"spec": {"readinessGates": [{"conditionType": "InPlaceUpdateReady"}]}});
    let pods = create(&client, "gated", "gated-000", gate).await;
    let pod = wait_for(&pods, "gated", "ContainersReady", "True").await;
    assert_eq!(condition(&pod, "Ready").as_deref(), Some("False"));
    for status in ["True", "False", "True"] {
        let patch = json!({"status": {"conditions": [{"type": "InPlaceUpdateReady", "status": status}]}});
        pods.patch_status("gated", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
        wait_for(&pods, "gated", "Ready", status).await;
    }
    set_image(&pods, "gated", "app:2").await;
    eventually("the gated pod is ready with its new image", async || {
        let pod = pods.get("gated").await.unwrap();
        let updated = containers(&pod)[0]["image"] == "app:2";
        holds(updated && condition(&pod, "Ready").as_deref() == Some("True"), &pod.status)
    })
    .await;
}

// A busy machine may keep kwok from renewing the lease of a node in time. Then Kubernetes marks its pods.
#[tokio::test]
async fn a_pod_that_was_marked_not_ready_is_ready_again() {
    let (_cluster, client) = nodes("marked").await;
    let pods = create(&client, "marked", "marked-000", json!({})).await;
    wait_for(&pods, "marked", "Ready", "True").await;
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let marked = pods.patch_status("marked", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    assert_eq!(condition(&marked, "Ready").as_deref(), Some("False"));
    wait_for(&pods, "marked", "Ready", "True").await;
}

// kwok writes what it decided upon an older state of the pod: Ready for a gate that opened, after its readiness has failed.
#[tokio::test]
async fn a_pod_whose_readiness_fails_is_not_left_ready() {
    let (_cluster, client) = nodes("belated").await;
    let fails = json!({"metadata": {"annotations": {"testbed.dapple.dev/readiness": "fail"}}});
    let pods = create(&client, "belated", "belated-000", fails).await;
    wait_for(&pods, "belated", "Ready", "False").await;
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let ready = pods.patch_status("belated", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    assert_eq!(condition(&ready, "Ready").as_deref(), Some("True"));
    wait_for(&pods, "belated", "Ready", "False").await;
}

#[tokio::test]
async fn readiness_fails_and_returns_on_chosen_nodes_only() {
    let (cluster, client) = nodes("fails").await;
    let pods = create(&client, "fails-running", "fails-000", json!({})).await;
    create(&client, "fails-beside", "fails-002", json!({})).await;
    wait_for(&pods, "fails-running", "Ready", "True").await;
    wait_for(&pods, "fails-beside", "Ready", "True").await;

    cluster.hold_readiness("broken", &["fails-000", "fails-001"], Readiness::Fail).await.unwrap();
    wait_for(&pods, "fails-running", "Ready", "False").await;
    create(&client, "fails-new", "fails-001", json!({})).await;
    let pod = wait_for(&pods, "fails-new", "ContainersReady", "False").await;
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
    // An image update on a node that fails ends unready, and the others are as they were.
    set_image(&pods, "fails-new", "app:2").await;
    set_image(&pods, "fails-beside", "app:2").await;
    eventually("the pod beside is ready with its new image", async || {
        let pod = pods.get("fails-beside").await.unwrap();
        let updated = containers(&pod)[0]["image"] == "app:2";
        holds(updated && condition(&pod, "Ready").as_deref() == Some("True"), &pod.status)
    })
    .await;
    eventually("the failing pod has its new image", async || {
        let containers = containers(&pods.get("fails-new").await.unwrap());
        holds(containers[0]["image"] == "app:2", &containers)
    })
    .await;
    for name in ["fails-running", "fails-new"] {
        assert_eq!(condition(&pods.get(name).await.unwrap(), "Ready").as_deref(), Some("False"), "{name}");
    }

    cluster.release_readiness("broken").await.unwrap();
    for name in ["fails-running", "fails-new"] {
        wait_for(&pods, name, "Ready", "True").await;
    }
}

#[tokio::test]
async fn readiness_can_come_late_by_node_and_by_annotation() {
    let (cluster, client) = nodes("late").await;
    cluster.hold_readiness("late", &["late-000"], Readiness::Delay(Duration::from_secs(LATE))).await.unwrap();
    let pods = create(&client, "late-node", "late-000", json!({})).await;
    wait_for(&pods, "late-node", "ContainersReady", "False").await;
    wait_for(&pods, "late-node", "Ready", "True").await;
    cluster.release_readiness("late").await.unwrap();

    let delay = format!("{LATE}s");
    let annotations = json!({"testbed.dapple.dev/readiness": "delay", "testbed.dapple.dev/readiness-delay": delay});
    create(&client, "late-pod", "late-001", json!({"metadata": {"annotations": annotations}})).await;
    wait_for(&pods, "late-pod", "ContainersReady", "False").await;
    wait_for(&pods, "late-pod", "Ready", "True").await;

    let annotations = json!({"testbed.dapple.dev/readiness": "fail"});
    create(&client, "late-never", "late-001", json!({"metadata": {"annotations": annotations}})).await;
    wait_for(&pods, "late-never", "ContainersReady", "False").await;
    let cured = json!({"metadata": {"annotations": {"testbed.dapple.dev/readiness": null}}});
    pods.patch("late-never", &PatchParams::default(), &Patch::Merge(cured)).await.unwrap();
    wait_for(&pods, "late-never", "Ready", "True").await;
}

#[tokio::test]
async fn pods_are_deleted_with_and_without_finalizers_unless_they_hang() {
    let (_cluster, client) = nodes("deleted").await;
    let finalizers = json!({"metadata": {"finalizers": ["testbed.dapple.dev/wait"]}});
    let pods = create(&client, "deleted-held", "deleted-000", finalizers).await;
    create(&client, "deleted-free", "deleted-000", json!({})).await;
    let hangs = json!({"metadata": {"annotations": {"testbed.dapple.dev/deletion": "hang"}}});
    create(&client, "deleted-hanging", "deleted-000", hangs).await;
    for name in ["deleted-hanging", "deleted-held", "deleted-free"] {
        wait_for(&pods, name, "Ready", "True").await;
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let gone = async |name: &str| {
        let pod = pods.get_opt(name).await.unwrap();
        holds(pod.is_none(), &pod)
    };
    eventually("the free pod is gone", async || gone("deleted-free").await).await;
    let held = eventually("the held pod has ended", async || {
        let pod = pods.get("deleted-held").await.unwrap();
        holds(pod.metadata.deletion_grace_period_seconds == Some(0), &pod).map(|()| pod)
    })
    .await;
    assert_eq!(held.status.as_ref().unwrap().phase.as_deref(), Some("Failed"));
    assert_eq!(held.finalizers(), ["testbed.dapple.dev/wait"]);
    let freed = json!({"metadata": {"finalizers": null}});
    pods.patch("deleted-held", &PatchParams::default(), &Patch::Merge(freed)).await.unwrap();
    eventually("the held pod is gone", async || gone("deleted-held").await).await;

    // It was deleted before the others.
    let hanging = pods.get("deleted-hanging").await.unwrap();
    assert!(hanging.metadata.deletion_timestamp.is_some() && condition(&hanging, "Ready").as_deref() == Some("True"));
    let ended = json!({"metadata": {"annotations": {"testbed.dapple.dev/deletion": null}}});
    pods.patch("deleted-hanging", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    eventually("the hanging pod is gone", async || gone("deleted-hanging").await).await;
}

#[tokio::test]
async fn jobs_complete_and_nodes_can_be_made_unready() {
    let (_cluster, client) = nodes("jobs").await;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {
        "completions": 3, "parallelism": 2, "template": {"spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": "jobs-000"},
            "tolerations": [{"key": "jobs", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "task:1"}],
        }},
    }});
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "default");
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    eventually("the job completed", async || {
        let status = jobs.get("once").await.unwrap().status.unwrap_or_default();
        holds(status.succeeded == Some(3), &status)
    })
    .await;

    let nodes: Api<Node> = Api::all(client);
    let ready = async |wanted: &str| {
        let node = nodes.get("jobs-001").await.unwrap();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        holds(conditions.iter().any(|c| c.type_ == "Ready" && c.status == wanted), &conditions)
    };
    for (value, status) in [(json!("false"), "False"), (json!("unknown"), "Unknown"), (json!(null), "True")] {
        let patch = json!({"metadata": {"annotations": {"testbed.dapple.dev/ready": value}}});
        nodes.patch("jobs-001", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        eventually("the node follows", async || ready(status).await).await;
    }
    assert!(!nodes.list(&ListParams::default()).await.unwrap().items.is_empty());
}
