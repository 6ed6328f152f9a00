//! What the stories of markers share: nodes, pods and markers, and what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dapple_control::install::install_crds;
use dapple_testbed::testing::start;
use dapple_testbed::{Cluster, ClusterSpec};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::support::eventually;

/// Longer than whatever must not happen would take.
pub(super) const QUIET: Duration = Duration::from_secs(4);
pub(super) const MARKED_BY: &str = "kruise.io/marked-by-podmarker";
pub(super) const MARKS: &str = "dapple.dev/marks";
/// Where pods and markers are.
pub(super) const HERE: &str = "here";

/// A cluster of its own: managers of other stories would mark its pods as well.
pub(super) struct Story {
    pub(super) cluster: Cluster,
    pub(super) client: Client,
}

impl Story {
    pub(super) async fn new(spec: ClusterSpec) -> Self {
        let cluster = start(spec).await.expect("the cluster starts");
        let client = cluster.client().await.unwrap();
        install_crds(&client).await.unwrap();
        let story = Self { cluster, client };
        story.create("v1", "Namespace", json!({"metadata": {"name": HERE}})).await;
        story
    }

    /// Of etcd and kube-apiserver alone: whatever pods there are, nobody runs them.
    pub(super) async fn of_objects() -> Self {
        let story = Self::new(ClusterSpec::api_server()).await;
        // Without controllers nobody makes it, and no pod is taken without.
        story.create("v1", "ServiceAccount", json!({"metadata": {"name": "default"}})).await;
        story
    }

    pub(super) fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "Namespace" | "Node" | "NodePodProbe" | "CustomResourceDefinition" => {
                Api::all_with(self.client.clone(), &resource)
            }
            _ => Api::namespaced_with(self.client.clone(), HERE, &resource),
        }
    }

    pub(super) fn pods(&self) -> Api<DynamicObject> {
        self.api("v1", "Pod")
    }

    pub(super) fn markers(&self) -> Api<DynamicObject> {
        self.api("apps.kruise.io/v1alpha1", "PodMarker")
    }

    pub(super) async fn try_create(&self, version: &str, kind: &str, mut object: Value) -> Result<(), String> {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.api(version, kind).create(&PostParams::default(), &object).await;
        made.map(|_| ()).map_err(|error| error.to_string())
    }

    pub(super) async fn create(&self, version: &str, kind: &str, object: Value) {
        self.try_create(version, kind, object).await.unwrap();
    }

    /// A node that nobody plays.
    pub(super) async fn node(&self, name: &str, labels: Value) {
        self.create("v1", "Node", json!({"metadata": {"name": name, "labels": labels}})).await;
    }

    /// A pod on a node, which is ready or not.
    pub(super) async fn pod(&self, name: &str, node: &str, labels: Value, is_ready: bool) {
        let spec = json!({"nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "web:1"}, {"name": "sidecar", "image": "side:1"}]});
        self.create("v1", "Pod", json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
        let run = |name: &str| {
            json!({"name": name, "image": "x", "imageID": "x", "restartCount": 0, "ready": is_ready,
                "containerID": container_id(name), "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
        };
        let status = if is_ready { "True" } else { "False" };
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": status}],
            "containerStatuses": [run("c"), run("sidecar")]});
        let patch = Patch::Merge(json!({"status": status}));
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn patch_pod(&self, name: &str, patch: Value) {
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Deletes a pod at once, as a kubelet does once its containers have ended.
    pub(super) async fn delete_pod(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    pub(super) async fn marker(&self, name: &str, spec: Value) {
        self.create("apps.kruise.io/v1alpha1", "PodMarker", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub(super) async fn patch_marker(&self, name: &str, patch: Value) {
        self.markers().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn mark(&self, name: &str, replicas: Value) {
        self.patch_marker(name, json!({"spec": {"strategy": {"replicas": replicas}}})).await;
    }

    /// A pod as it is.
    pub(super) async fn read(&self, name: &str) -> DynamicObject {
        self.pods().get(name).await.unwrap()
    }

    /// The pods that have a label with a value.
    pub(super) async fn with(&self, label: &str, value: &str) -> BTreeSet<String> {
        let params = ListParams::default().labels(&format!("{label}={value}"));
        self.pods().list(&params).await.unwrap().items.into_iter().map(|pod| pod.name_any()).collect()
    }

    /// Waits until these pods, and no others, have a label with a value.
    pub(super) async fn are_marked(&self, label: &str, value: &str, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        eventually(&format!("{wanted:?} have {label}={value}"), || async {
            let found = self.with(label, value).await;
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    /// Waits until the status of a marker is of its spec, and like this.
    pub(super) async fn says(&self, marker: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{marker} says {what}"), || async {
            let found = self.markers().get(marker).await.map_err(|error| error.to_string())?;
            let status = &found.data["status"];
            let is_now = status["observedGeneration"] == json!(found.metadata.generation);
            if is_now && is_so(status) { Ok(status.clone()) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Waits until a condition of a marker has this reason, and returns its message.
    pub(super) async fn reason(&self, marker: &str, kind: &str, reason: &str) -> String {
        let status = self.says(marker, reason, |status| condition(status, kind)["reason"] == reason).await;
        condition(&status, kind)["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a marker has marked as many pods as it should, and nothing waits.
    pub(super) async fn is_done(&self, marker: &str, succeeded: i64) -> Value {
        let what = format!("that {succeeded} are marked");
        self.says(marker, &what, |status| status["succeeded"] == succeeded && status["waiting"] == 0).await
    }

    /// The UIDs of all pods, by name.
    pub(super) async fn uids(&self) -> BTreeMap<String, String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect()
    }
}

/// Which run of a container of the stories' pods it is.
pub(super) fn container_id(container: &str) -> String {
    format!("containerd://{container}")
}

/// A condition of a marker; null if it has none of this type.
pub(super) fn condition(status: &Value, kind: &str) -> Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.rfind(|known| known["type"] == kind).cloned().unwrap_or_default()
}
