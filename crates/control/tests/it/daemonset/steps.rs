//! What people do to a set and its pods in a story, and looking at single pods.

use std::time::Duration;

use dapple_testbed::Readiness;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::story::{ByNode, Story};
use crate::support::eventually;

/// How long to look on where nothing may happen.
const QUIET: Duration = Duration::from_secs(2);

impl Story {
    pub(super) async fn delete_pod(&self, name: &str) {
        self.pods.delete(name, &DeleteParams::default()).await.expect("the pod is deleted");
    }

    /// Changes a pod, as whoever holds it does.
    pub(super) async fn change_pod(&self, name: &str, patch: Value) {
        self.pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("the pod is changed");
    }

    /// New pods on these nodes become ready this much later; those that are ready stay so.
    pub(super) async fn delay(&self, nodes: &[&str], by: Duration) {
        let nodes: Vec<String> = nodes.iter().map(|node| self.node(node)).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        self.cluster.hold_readiness(&self.name, &nodes, Readiness::Delay(by)).await.unwrap();
    }

    /// Pods on these nodes are not ready, and do not become so.
    pub(super) async fn fail(&self, nodes: &[&str]) {
        let nodes: Vec<String> = nodes.iter().map(|node| self.node(node)).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        self.cluster.hold_readiness(&self.name, &nodes, Readiness::Fail).await.unwrap();
    }

    pub(super) async fn release(&self) {
        self.cluster.release_readiness(&self.name).await.unwrap();
    }

    /// Waits until the message of a condition has all of these, and returns it.
    pub(super) async fn message(&self, (kind, status, reason): (&str, &str, &str), parts: &[&str]) -> String {
        let has_all = |message: &str| parts.iter().all(|part| message.contains(part));
        let is_it = |known: &Value| {
            known["type"] == kind
                && known["status"] == status
                && known["reason"] == reason
                && known["message"].as_str().is_some_and(has_all)
        };
        let find = |found: &Value| -> Option<Value> {
            found["conditions"].as_array()?.iter().find(|known| is_it(known)).cloned()
        };
        let found = self.status(&format!("{kind} says {parts:?}"), |status| find(status).is_some()).await;
        find(&found).expect("just found")["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The name of the newest revision.
    pub(super) async fn newest(&self) -> String {
        let all = self.revisions.list(&ListParams::default()).await.unwrap();
        all.iter().max_by_key(|known| known.revision).map(ResourceExt::name_any).expect("there is a revision")
    }

    /// Waits until nodes would be held back at the newest revision, and returns its name.
    pub(super) async fn newest_is_current(&self) -> String {
        let newest = self.newest().await;
        self.status("the newest revision is current", |status| status["currentRevision"] == json!(newest)).await;
        newest
    }

    /// Returns once the controller knows all that was done to nodes before: a node that came after that had its pod, and
    /// is gone again.
    pub(super) async fn nodes_are_seen(&self) {
        let is_there = |pods: &[(String, Pod)]| pods.iter().any(|(node, _)| node == "later-000");
        self.add_nodes("later", 1, json!({})).await;
        self.every_pod("a later node has its pod", is_there).await;
        self.nodes.delete(&self.node("later-000"), &DeleteParams::default()).await.expect("the node is deleted");
        self.every_pod("the later node's pod is gone", |pods| !is_there(pods)).await;
    }

    /// The live pods on a node.
    pub(super) async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, String> {
        let node = self.node(node);
        let pods = self.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let is_there = |pod: &Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&node)
                && pod.metadata.deletion_timestamp.is_none()
        };
        Ok(pods.into_iter().filter(is_there).collect())
    }

    /// Waits until some live pod on a node is as it should be.
    pub(super) async fn pod_on(&self, node: &str, what: &str, is_right: impl Fn(&Pod) -> bool) -> Pod {
        eventually(&format!("{}: {what} on {node}", self.name), || async {
            let pods = self.pods_on(node).await?;
            let told: Vec<String> =
                pods.iter().map(|pod| format!("{} {:?} {:?}", pod.name_any(), pod.labels(), pod.status)).collect();
            pods.into_iter().find(&is_right).ok_or_else(|| format!("{told:?}"))
        })
        .await
    }

    /// Pods stay the same ones, of the same images, though the controller has seen what was asked.
    pub(super) async fn nothing_changes(&self, before: &ByNode) {
        self.status("it is seen", |_| true).await;
        tokio::time::sleep(QUIET).await;
        assert_eq!(self.settled().await.as_ref(), Ok(before));
    }
}

/// The image of a pod's container.
pub(super) fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()).unwrap_or_default()
}

/// Nodes whose pod has this image.
pub(super) fn with_image(seen: &ByNode, image: &str) -> Vec<String> {
    seen.iter().filter(|(_, pod)| pod.image == image).map(|(node, _)| node.clone()).collect()
}

/// The status of a pod's condition.
pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|is| is.type_ == kind).map(|is| is.status.as_str())
}
