//! What the stories share: a cluster with a manager, nodes and a namespace of their own, and looking at pods.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use dapple_control::install::install_crds;
use dapple_testbed::progress::Quiet;
use dapple_testbed::{Cluster, ClusterSpec, Fleet, Need, Upstream};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{eventually, http_get, manager};

/// One story: its nodes are labelled `story`, its objects are in a namespace of its name.
pub(super) struct Story {
    pub(super) name: String,
    pub(super) cluster: Arc<Cluster>,
    pub(super) sets: Api<DynamicObject>,
    pub(super) pods: Api<Pod>,
    pub(super) nodes: Api<Node>,
    pub(super) events: Api<Event>,
    pub(super) revisions: Api<ControllerRevision>,
}

/// A pod as stories look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) image: String,
    /// The value of its variable `CACHE`.
    pub(super) cache: String,
}

/// By node, without the story's name.
pub(super) type ByNode = BTreeMap<String, Seen>;

/// Where the manager of all stories serves its metrics.
static MANAGER: OnceLock<SocketAddr> = OnceLock::new();

/// The cluster of all stories, with a manager, both in a thread of their own.
pub(crate) async fn cluster() -> Arc<Cluster> {
    static SLOT: OnceLock<watch::Receiver<Option<Arc<Cluster>>>> = OnceLock::new();
    let mut slot = SLOT
        .get_or_init(|| {
            let (sender, receiver) = watch::channel(None);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                runtime.unwrap().block_on(async {
                    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await.unwrap();
                    // Should the machine stand still for a minute, its nodes are not to be taken for dead.
                    let mut spec = ClusterSpec::temporary();
                    spec.node_lease_seconds = 200;
                    let cluster = Cluster::start(spec, &binaries, &Quiet).await.unwrap();
                    install_crds(&cluster.client().await.unwrap()).await.unwrap();
                    let manager = manager(&cluster, "stories").await;
                    MANAGER.get_or_init(|| manager.address);
                    sender.send_replace(Some(Arc::new(cluster)));
                    std::future::pending::<()>().await;
                });
            });
            receiver
        })
        .clone();
    slot.wait_for(Option::is_some).await.expect("the cluster starts").clone().expect("just waited for")
}

impl Story {
    /// Four nodes with small disks and two with large ones.
    pub(super) async fn new(name: &str) -> Self {
        let story = Self::empty(name, cluster().await).await;
        story.add_nodes("small", 4, json!({"disk": "small"})).await;
        story.add_nodes("large", 2, json!({"disk": "large"})).await;
        story
    }

    /// Without nodes, on the cluster of all stories.
    pub(super) async fn without_nodes(name: &str) -> Self {
        Self::empty(name, cluster().await).await
    }

    /// Without nodes, on this cluster.
    pub(super) async fn empty(name: &str, cluster: Arc<Cluster>) -> Self {
        let client = cluster.client().await.unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let gvk = GroupVersionKind::gvk("apps.kruise.io", "v1beta1", "DaemonSet");
        Self {
            name: name.to_owned(),
            sets: Api::namespaced_with(client.clone(), name, &ApiResource::from_gvk(&gvk)),
            pods: Api::namespaced(client.clone(), name),
            events: Api::namespaced(client.clone(), name),
            revisions: Api::namespaced(client.clone(), name),
            nodes: Api::all(client),
            cluster,
        }
    }

    /// Adds nodes `<kind>-000` and so on.
    pub(super) async fn add_nodes(&self, kind: &str, count: usize, labels: Value) {
        let mut labels = labels;
        labels["story"] = json!(self.name);
        let kinds = json!({"kinds": [{"name": format!("{}-{kind}", self.name), "count": count, "labels": labels}]});
        let fleet = Fleet::from_yaml(&kinds.to_string(), "fleet").unwrap();
        self.cluster.apply_fleet(&fleet).await.unwrap();
    }

    /// Adds a node that nobody plays: pods for it stay pending.
    pub(super) async fn add_bare_node(&self, short: &str) {
        let labels = json!({"story": self.name});
        let node = serde_json::from_value(json!({"metadata": {"name": self.node(short), "labels": labels}})).unwrap();
        self.nodes.create(&PostParams::default(), &node).await.expect("the node is created");
    }

    /// The full name of one of its nodes.
    pub(super) fn node(&self, short: &str) -> String {
        format!("{}-{short}", self.name)
    }

    /// Changes one of its nodes.
    pub(super) async fn change_node(&self, short: &str, patch: Value) {
        let patch = Patch::Merge(&patch);
        self.nodes.patch(&self.node(short), &PatchParams::default(), &patch).await.expect("the node is changed");
    }

    /// A set `agent` for the story's nodes, with what `spec` says besides.
    pub(super) fn set(&self, image: &str, spec: Value) -> Value {
        let mut set = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
                    "nodeSelector": {"story": self.name},
                    "containers": [{"name": "agent", "image": image, "env": [{"name": "CACHE", "value": "500Gi"}]}]}},
            },
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            set["spec"][field] = value.clone();
        }
        set
    }

    pub(super) async fn apply(&self, set: &Value) {
        let params = PatchParams::apply("test").force();
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        self.sets.patch(name, &params, &Patch::Apply(set)).await.expect("the set is taken");
    }

    /// Every pod, by the short name of its node or of the one that it waits for.
    pub(super) async fn all_pods(&self) -> Vec<(String, Pod)> {
        let pods = self.pods.list(&ListParams::default()).await.unwrap();
        pods.into_iter().map(|pod| (self.short(&wanted_node(&pod).unwrap_or_default()), pod)).collect()
    }

    /// Waits until all pods, by the short name of their node, are as they should be: also those that are not ready.
    pub(super) async fn every_pod(
        &self,
        what: &str,
        is_right: impl Fn(&[(String, Pod)]) -> bool,
    ) -> Vec<(String, Pod)> {
        eventually(&format!("{}: {what}", self.name), || async {
            let pods = self.all_pods().await;
            let told = || pods.iter().map(|(node, pod)| format!("{node}: {}", look_at(pod).image)).collect::<Vec<_>>();
            if is_right(&pods) { Ok(pods) } else { Err(format!("{:?}", told())) }
        })
        .await
    }

    /// A node's name without the story's.
    pub(super) fn short(&self, node: &str) -> String {
        node.strip_prefix(&format!("{}-", self.name)).unwrap_or(node).to_owned()
    }

    /// The pods by node, if every one is ready and none is going or being changed.
    pub(super) async fn settled(&self) -> Result<ByNode, String> {
        let pods = self.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let mut seen = BTreeMap::new();
        for pod in pods {
            if !is_ready(&pod) || !is_at_rest(&pod) || pod.metadata.deletion_timestamp.is_some() {
                return Err(format!("{} is not there yet: {}", pod.name_any(), state_of(&pod)));
            }
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            let node = self.short(&node);
            if seen.insert(node.clone(), look_at(&pod)).is_some() {
                return Err(format!("two pods on {node}"));
            }
        }
        Ok(seen)
    }

    /// Waits until the pods are as they should be.
    pub(super) async fn pods_are(&self, what: &str, is_right: impl Fn(&ByNode) -> bool) -> ByNode {
        eventually(&format!("{}: {what}", self.name), || async {
            let seen = self.settled().await?;
            if is_right(&seen) { Ok(seen) } else { Err(format!("{seen:?}")) }
        })
        .await
    }

    /// Waits until so many nodes have a pod of this image, and all pods are ready.
    pub(super) async fn have_image(&self, count: usize, image: &str) -> ByNode {
        let what = format!("{count} nodes have {image}");
        self.pods_are(&what, |seen| seen.values().filter(|pod| pod.image == image).count() == count).await
    }

    /// Waits until the status of this generation is as it should be.
    pub(super) async fn status(&self, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{}: {what}", self.name), || async {
            let set = self.sets.get("agent").await.map_err(|error| error.to_string())?;
            let is_fresh = set.data["status"]["observedGeneration"] == json!(set.metadata.generation);
            if is_fresh && is_right(&set.data["status"]) {
                Ok(set.data["status"].clone())
            } else {
                Err(format!("{}", set.data["status"]))
            }
        })
        .await
    }

    /// Waits until a condition of the status is so, and returns its reason and message.
    pub(super) async fn condition(&self, kind: &str, status: &str, reason: &str) -> String {
        let find = |found: &Value| -> Option<Value> {
            let is_it =
                |known: &&Value| known["type"] == kind && known["status"] == status && known["reason"] == reason;
            found["conditions"].as_array()?.iter().find(is_it).cloned()
        };
        let found = self.status(&format!("{kind} is {status}: {reason}"), |status| find(status).is_some()).await;
        find(&found).expect("just found")["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits for an event whose note has all of these.
    pub(super) async fn event(&self, parts: &[&str]) -> String {
        eventually(&format!("{}: an event with {parts:?}", self.name), || async {
            let all = self.events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let notes: Vec<String> = all.iter().filter_map(|event| event.note.clone()).collect();
            let found = notes.iter().find(|note| parts.iter().all(|part| note.contains(part)));
            found.cloned().ok_or_else(|| format!("{notes:?}"))
        })
        .await
    }
}

impl Story {
    /// The metrics of the manager of all stories.
    pub(super) async fn metrics(&self) -> String {
        metrics().await
    }
}

/// What the manager of all stories counts.
pub(crate) async fn metrics() -> String {
    let address = MANAGER.get().expect("a story begins with a manager");
    http_get(*address, "/metrics").await.expect("metrics are served").1
}

/// As agents of nodes are written: their pods start wherever they should run, on nodes that are not ready too.
pub(super) fn tolerant(mut set: Value) -> Value {
    set["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    set
}

/// Whether a pod is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|is| is.type_ == "Ready" && is.status == "True")
}

/// Whether no change in place is under way: what runs is what should, and its gates are open. That the pod is not ready
/// meanwhile its node says only later.
fn is_at_rest(pod: &Pod) -> bool {
    let conditions = || pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let statuses = || pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    pod.spec.as_ref().is_some_and(|spec| {
        let mut gates = spec.readiness_gates.iter().flatten();
        let are_open = gates.all(|gate| conditions().any(|is| is.type_ == gate.condition_type && is.status == "True"));
        let runs = |name: &str, image: &str| statuses().any(|is| is.name == name && is.image == image);
        are_open && spec.containers.iter().all(|known| runs(&known.name, known.image.as_deref().unwrap_or_default()))
    })
}

/// What tells why a pod is not at rest.
fn state_of(pod: &Pod) -> String {
    let (meta, status) = (&pod.metadata, pod.status.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let (node, image) = (wanted_node(pod), look_at(pod).image);
    let (labels, asked) = (&meta.labels, &meta.deletion_timestamp);
    format!("of {image} on {node:?}, labels {labels:?}, deletion {asked:?}, {conditions:?}")
}

/// The node of a pod, or the one that it waits for.
pub(super) fn wanted_node(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let named = || {
        let required = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = required.required_during_scheduling_ignored_during_execution.as_ref()?;
        required.node_selector_terms.first()?.match_fields.as_ref()?.first()?.values.as_ref()?.first().cloned()
    };
    spec.node_name.clone().or_else(named)
}

pub(super) fn look_at(pod: &Pod) -> Seen {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let variable = container.and_then(|known| known.env.iter().flatten().find(|variable| variable.name == "CACHE"));
    Seen {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        image: container.and_then(|known| known.image.clone()).unwrap_or_default(),
        cache: variable.and_then(|variable| variable.value.clone()).unwrap_or_default(),
    }
}

/// Nodes whose pod is another one.
pub(super) fn changed(before: &ByNode, after: &ByNode) -> Vec<String> {
    let is_other = |(node, seen): &(&String, &Seen)| before.get(*node).map(|known| &known.uid) != Some(&seen.uid);
    after.iter().filter(is_other).map(|(node, _)| node.clone()).collect()
}

/// Another value of `CACHE` for nodes with this disk.
pub(super) fn cache(disk: &str, value: &str) -> Value {
    let env = json!([{"name": "CACHE", "value": value}]);
    json!({"selector": {"matchLabels": {"disk": disk}}, "patch": {"spec": {"containers": [{"name": "agent", "env": env}]}}})
}

/// An update strategy.
pub(super) fn rolling(more: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": more})
}
