//! A prober as the stories play it: it reads what its node is to probe, and writes results of that and its Lease, and nothing else.

use dapple_api::marker::PROBER_NAMESPACE;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::story::{Story, container_id};
use crate::support::eventually;

/// The node of the stories' pods.
pub(super) const NODE: &str = "n";

pub(super) fn probe() -> Value {
    json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "initialDelaySeconds": 5, "periodSeconds": 5})
}

/// The specification's second marker.
pub(super) fn spec() -> Value {
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

/// The node, which answers, with pods of these names.
pub(super) async fn pods(story: &Story, names: &[&str]) {
    story.node(NODE, json!({"arch": "x86"})).await;
    let ready = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    story.api("v1", "Node").patch_status(NODE, &PatchParams::default(), &ready).await.unwrap();
    for name in names {
        story.pod(name, NODE, json!({"app": "nginx"}), true).await;
    }
}

pub(super) fn probes(story: &Story) -> Api<DynamicObject> {
    story.api("dapple.dev/v1alpha1", "NodePodProbe")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Waits until the node is to run as many probes in each of these pods, and none in others. Returns the object.
pub(super) async fn asked(story: &Story, expected: &[(&str, usize)]) -> DynamicObject {
    eventually(&format!("{expected:?} are to be probed"), || async {
        let found = probes(story).get_opt(NODE).await.map_err(|error| error.to_string())?;
        let object = found.ok_or("nothing is to be probed")?;
        let pods = list(&object.data["spec"]["podProbes"]);
        let counts: Vec<(&str, usize)> =
            pods.iter().map(|pod| (pod["name"].as_str().unwrap_or_default(), list(&pod["probes"]).len())).collect();
        if counts == expected { Ok(object) } else { Err(object.data["spec"].to_string()) }
    })
    .await
}

/// Writes a result of each probe that the node is to run: what it is of a pod and its probe.
pub(super) async fn tell(story: &Story, object: &DynamicObject, result: impl Fn(&Value, &Value) -> Value) {
    let of_pod = |pod: &Value| {
        let states: Vec<Value> = list(&pod["probes"]).iter().map(|probe| result(pod, probe)).collect();
        json!({"name": pod["name"], "namespace": pod["namespace"], "uid": pod["uid"], "probeStates": states})
    };
    let told: Vec<Value> = list(&object.data["spec"]["podProbes"]).iter().map(of_pod).collect();
    let patch = Patch::Merge(json!({"status": {"podProbeStatuses": told}}));
    probes(story).patch_status(NODE, &PatchParams::default(), &patch).await.unwrap();
}

/// Says of pods what the probe says in both containers of each, in these runs of them. No other pod is to be probed.
pub(super) async fn say(story: &Story, results: &[(&str, [&str; 2])], run: fn(&str) -> String) {
    let both: Vec<(&str, usize)> = results.iter().map(|(pod, _)| (*pod, 2)).collect();
    let object = asked(story, &both).await;
    tell(story, &object, |pod, probe| {
        let (_, states) = results.iter().find(|(name, _)| pod["name"] == *name).unwrap();
        let container = probe["containerName"].as_str().unwrap();
        assert_eq!(probe["containerID"], container_id(container));
        let state = states[usize::from(container != "c")];
        json!({"name": probe["name"], "containerID": run(container), "state": state})
    })
    .await;
}

/// The prober renews its Lease.
pub(super) async fn renew(story: &Story, time: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
    let leases: Api<DynamicObject> = Api::namespaced_with(story.client.clone(), PROBER_NAMESPACE, &resource);
    let spec = json!({"holderIdentity": NODE, "renewTime": time});
    if leases.get_opt(NODE).await.unwrap().is_some() {
        leases.patch(NODE, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
        return;
    }
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NODE}, "spec": spec});
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}
