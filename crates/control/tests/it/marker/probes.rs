//! What results of probes do to marks. The prober is played: its results and its Lease are written by the story.

use dapple_plan::marker::probe::{filled, name};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::story::{QUIET, Story, container_id};
use crate::support::manager;

const PROBERS: &str = "dapple-probers";

fn probe() -> Value {
    json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "initialDelaySeconds": 5, "periodSeconds": 5})
}

/// The specification's second marker.
fn spec() -> Value {
    json!({
        "strategy": {"replicas": "50%", "confilctPolicy": "Overwrite"},
        "matchRequirements": {
            "podSelector": {"matchLabels": {"app": "nginx"}},
            "nodeSelector": {"matchLabels": {"arch": "x86"}},
            "podProbes": [{"containers": [{"name": "c"}, {"name": "sidecar"}], "probe": probe(), "expectation": "succeeded"}],
        },
        "markItems": {"labels": {"rollback": "lastRevision"}, "annotations": {"markRollbackUsingPodMarker": "marker"}},
    })
}

/// A node that answers, with pods of these names.
async fn pods(story: &Story, names: &[&str]) {
    story.node("n", json!({"arch": "x86"})).await;
    let ready = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    story.api("v1", "Node").patch_status("n", &PatchParams::default(), &ready).await.unwrap();
    for name in names {
        story.pod(name, "n", json!({"app": "nginx"}), true).await;
    }
}

/// Says of pods what the probe says in both containers of each, in these runs of them.
async fn say(story: &Story, results: &[(&str, [&str; 2])], run: fn(&str) -> String) {
    let probe = filled(&probe()).unwrap();
    let mut told = Vec::new();
    for (pod, states) in results {
        let uid = story.read(pod).await.uid().unwrap();
        let states = ["c", "sidecar"].into_iter().zip(states).map(|(container, state)| {
            json!({"name": &*name(container, &probe), "containerID": run(container), "state": state})
        });
        let states: Vec<Value> = states.collect();
        told.push(json!({"name": pod, "namespace": "here", "uid": uid, "probeStates": states}));
    }
    let probes = story.api("dapple.dev/v1alpha1", "NodePodProbe");
    if probes.get_opt("n").await.unwrap().is_none() {
        story.create("dapple.dev/v1alpha1", "NodePodProbe", json!({"metadata": {"name": "n"}, "spec": {}})).await;
    }
    let patch = Patch::Merge(json!({"status": {"podProbeStatuses": told}}));
    probes.patch_status("n", &PatchParams::default(), &patch).await.unwrap();
}

/// The prober of the node renews its Lease.
async fn renew(story: &Story, time: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
    let leases: Api<DynamicObject> = Api::namespaced_with(story.client.clone(), PROBERS, &resource);
    let spec = json!({"holderIdentity": "n", "renewTime": time});
    if leases.get_opt("n").await.unwrap().is_some() {
        leases.patch("n", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
        return;
    }
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n"}, "spec": spec});
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}

/// Half of those in which the probe succeeds in both containers are marked; where it fails in one of them, the mark goes.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_those_are_marked_where_the_probe_succeeds_in_both_containers() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-probes").await;
    pods(&story, &["a", "b", "c", "d"]).await;
    story.marker("m", spec()).await;
    // Nobody has probed anything yet.
    let message = story.reason("m", "ProbesKnown", "PodsUnknown").await;
    assert!(message.contains("4 on nodes whose prober is not heard"), "{message}");
    let good = ["Succeeded", "Succeeded"];
    say(&story, &[("a", good), ("b", good), ("c", good), ("d", ["Succeeded", "Failed"])], container_id).await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("rollback", "lastRevision", &[]).await;
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    let status = story.is_done("m", 2).await;
    assert_eq!([&status["matched"], &status["desired"], &status["unknown"]], [&json!(3), &json!(2), &json!(0)]);
    story.are_marked("rollback", "lastRevision", &["a", "b"]).await;
    // The file is removed in one of two containers, and made again.
    say(&story, &[("a", ["Succeeded", "Failed"]), ("b", good), ("c", good), ("d", good)], container_id).await;
    story.are_marked("rollback", "lastRevision", &["b", "c"]).await;
    say(&story, &[("a", good), ("b", good), ("c", good), ("d", good)], container_id).await;
    story.says("m", "that all match", |status| status["matched"] == 4).await;
    tokio::time::sleep(QUIET).await;
    story.are_marked("rollback", "lastRevision", &["b", "c"]).await;
    story.cluster.stop().await.unwrap();
}

/// What is not known changes no mark: results of another run of a container, errors, and those that are not heard after a takeover.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_changes_no_mark() {
    let story = Story::of_objects().await;
    let first = manager(&story.cluster, "marker-unknown").await;
    pods(&story, &["a", "b"]).await;
    let good = ["Succeeded", "Succeeded"];
    say(&story, &[("a", good), ("b", good)], container_id).await;
    let mut marker = spec();
    marker["strategy"]["replicas"] = json!("100%");
    story.marker("m", marker).await;
    // Whoever leads hears of what comes from then on.
    story.reason("m", "ProbesKnown", "PodsUnknown").await;
    renew(&story, "2026-01-01T00:00:00.000000Z").await;
    story.is_done("m", 2).await;
    let is_unknown = async |count: i64, why: &str| {
        let message = story.reason("m", "ProbesKnown", "PodsUnknown").await;
        assert!(message.contains(why), "{message}");
        story.says("m", "how many are unknown", |status| status["unknown"] == count).await;
        tokio::time::sleep(QUIET).await;
        story.are_marked("rollback", "lastRevision", &["a", "b"]).await;
    };
    say(&story, &[("a", ["Unknown", "Succeeded"]), ("b", good)], container_id).await;
    is_unknown(1, "1 where a probe could not be run").await;
    // A failure of a run of the container that is over.
    let failed = ["Failed", "Failed"];
    say(&story, &[("a", failed), ("b", failed)], |container| format!("containerd://old-{container}")).await;
    is_unknown(2, "2 where a probe has not run yet").await;
    say(&story, &[("a", good), ("b", good)], container_id).await;
    story.is_done("m", 2).await;
    // Whoever leads next has heard nobody yet; what it is told is old until a Lease is renewed.
    first.end().await;
    let _second = manager(&story.cluster, "marker-unknown").await;
    say(&story, &[("a", failed), ("b", good)], container_id).await;
    is_unknown(2, "2 on nodes whose prober is not heard").await;
    renew(&story, "2026-01-01T00:01:00.000000Z").await;
    story.are_marked("rollback", "lastRevision", &["b"]).await;
    story.cluster.stop().await.unwrap();
}

/// A container that a pod lacks makes it no match, and so does a port; a pod without prober is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_the_container_does_not_match() {
    let story = Story::of_objects().await;
    let _manager = manager(&story.cluster, "marker-lacks").await;
    pods(&story, &["a"]).await;
    for (marker, containers, probe) in [
        ("container", json!([{"name": "c"}, {"name": "absent"}]), probe()),
        ("port", json!([{"name": "c"}]), json!({"tcpSocket": {"port": "absent"}})),
    ] {
        let mut object = spec();
        object["matchRequirements"]["podProbes"] = json!([{"containers": containers, "probe": probe}]);
        story.marker(marker, object).await;
        let status = story.is_done(marker, 0).await;
        assert_eq!([&status["matched"], &status["unknown"]], [&json!(0), &json!(0)], "{marker}: {status}");
    }
    story.cluster.stop().await.unwrap();
}
