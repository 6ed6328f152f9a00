//! What the stories of pools share: nodes, pools, and what is asked of them.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dapple_control::install::install_crds;
use dapple_testbed::testing::start;
use dapple_testbed::{Cluster, ClusterSpec};
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::support::eventually;

/// Longer than whatever must not happen would take.
pub(super) const QUIET: Duration = Duration::from_secs(4);

pub(super) const PREVIOUS: &str = "nodepool.openyurt.io/previous-attributes";
pub(super) const REPLACED: &str = "dapple.dev/pool-replaced";
pub(super) const CONFIRM: &str = "dapple.dev/confirm-removal";
pub(super) const LABEL: &str = "apps.openyurt.io/nodepool";

/// A cluster of its own: managers of other stories would write its nodes as well.
pub(super) struct Story {
    pub(super) cluster: Cluster,
    pub(super) client: Client,
}

impl Story {
    pub(super) async fn new(spec: ClusterSpec) -> Self {
        let cluster = start(spec).await.expect("the cluster starts");
        let client = cluster.client().await.unwrap();
        install_crds(&client).await.unwrap();
        Self { cluster, client }
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
    }

    pub(super) fn nodes(&self) -> Api<DynamicObject> {
        self.api("", "v1", "Node")
    }

    pub(super) fn pools(&self) -> Api<DynamicObject> {
        self.api("apps.openyurt.io", "v1beta1", "NodePool")
    }

    /// A node that nobody plays.
    pub(super) async fn node(&self, name: &str, labels: Value, taints: Value) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints}});
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    pub(super) async fn pool(&self, name: &str, spec: Value) {
        let pool = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool", "metadata": {"name": name},
            "spec": spec});
        self.pools().create(&PostParams::default(), &serde_json::from_value(pool).unwrap()).await.unwrap();
    }

    pub(super) async fn patch_node(&self, name: &str, patch: Value) {
        self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(super) async fn patch_pool(&self, name: &str, patch: Value) {
        self.pools().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(super) async fn annotate_pool(&self, name: &str, key: &str, value: Option<&str>) {
        self.patch_pool(name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    /// Puts a node into a pool, or takes it out.
    pub(super) async fn put(&self, node: &str, pool: Option<&str>) {
        self.patch_node(node, json!({"metadata": {"labels": {LABEL: pool}}})).await;
    }

    pub(super) async fn delete_pool(&self, name: &str) {
        self.pools().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// A node as it is, without what the API server counts.
    pub(super) async fn read(&self, name: &str) -> Value {
        let mut node = serde_json::to_value(self.nodes().get(name).await.unwrap()).unwrap();
        for field in ["resourceVersion", "managedFields"] {
            node["metadata"].as_object_mut().unwrap().remove(field);
        }
        // The API server gives every new node one, and takes it away when the kubelet speaks.
        if let Some(taints) = node["spec"]["taints"].as_array_mut() {
            taints.retain(|taint| !taint["key"].as_str().unwrap().starts_with("node.kubernetes.io/"));
        }
        node
    }

    /// Waits until a node is like this.
    pub(super) async fn until(&self, node: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{node} {what}"), || async {
            let found = self.read(node).await;
            if is_so(&found) { Ok(found) } else { Err(format!("{} {}", found["metadata"], found["spec"])) }
        })
        .await
    }

    /// Waits until a condition of a pool has this reason, and returns its message.
    pub(super) async fn says(&self, pool: &str, kind: &str, reason: &str) -> String {
        eventually(&format!("{pool} says {kind} {reason}"), || async {
            let found = self.pools().get(pool).await.map_err(|error| error.to_string())?;
            let status = found.data["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let told = conditions.into_iter().find(|known| known["type"] == kind && known["reason"] == reason);
            let is_now = status["observedGeneration"] == json!(found.metadata.generation);
            match told.filter(|_| is_now) {
                Some(told) => Ok(told["message"].as_str().unwrap_or_default().to_owned()),
                None => Err(status.to_string()),
            }
        })
        .await
    }

    /// The messages of Events about a node with this reason.
    pub(super) async fn events(&self, reason: &str) -> Vec<String> {
        let events = Api::<k8s_openapi::api::core::v1::Event>::all(self.client.clone());
        let found = events.list(&Default::default()).await.unwrap();
        let such = found.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        such.filter_map(|event| event.message).collect()
    }
}

/// Every version of every node, as a watch tells them.
pub(super) struct Versions {
    seen: Arc<Mutex<Vec<(Instant, DynamicObject)>>>,
    watching: AbortHandle,
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Versions {
    pub(super) fn watch(story: &Story) -> Self {
        let (nodes, seen) = (story.nodes(), Arc::new(Mutex::new(Vec::new())));
        let told = seen.clone();
        let watching = tokio::spawn(async move {
            // With pauses after errors: one that comes at once, as when the test ends, would be asked for without end.
            let mut events = pin!(watcher(nodes, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(node) | Event::InitApply(node)) = event {
                    told.lock().unwrap().push((Instant::now(), node));
                }
            }
        });
        Self { seen, watching: watching.abort_handle() }
    }

    /// How often a node has changed so far; seen anew it counts once more.
    pub(super) fn of(&self, node: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|(_, known)| known.metadata.name.as_deref() == Some(node)).count()
    }

    /// When versions of nodes were seen of which this holds.
    pub(super) fn times(&self, is_such: impl Fn(&Value) -> bool) -> Vec<Instant> {
        let seen = self.seen.lock().unwrap();
        let such = seen.iter().filter(|(_, node)| is_such(&serde_json::to_value(node).unwrap()));
        such.map(|(at, _)| *at).collect()
    }
}
