//! What nodes are to probe: a NodePodProbe for each node with pods that markers have probed, owned by the Node.
//!
//! Invariants:
//! - It is written on change only, and names the version that was seen; once a second for a node at most, and fifty a second in all.
//! - An event of a pod concerns its node alone.
//! - What was made for a Node that is gone is not taken for that of another Node of its name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_api::kinds::NODE_POD_PROBE;
use dapple_api::marker::{NodePodProbe, NodePodProbeSpec};
use dapple_plan::marker::probing::{self, Probed, node_probes};
use dapple_plan::marker::rule::{Rule, Rules};
use kube::Client;
use kube::api::{Api, Patch};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::asked::AskedProbes;
use super::askers::{Askers, asking};
use super::cache::{Marker, NodeResults};
use super::view::is_live;
use crate::caches::Subscription;
use crate::caches::store::{Change, Store};
use crate::env::Backoff;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::{FamilyMetrics, Metrics};
use crate::pacer::{Pace, Pacer};
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer, exactly};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };
/// What is probed on a node is written no more often.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// Between two writes for any nodes: fifty a second.
const BETWEEN_NODES: Duration = Duration::from_millis(20);
/// Our own write is seen by then, mostly.
const ECHO: Duration = Duration::from_millis(250);

/// What is counted.
pub(super) struct ProbeMetrics {
    writes: Counter,
    beyond: Gauge,
}

impl FamilyMetrics for ProbeMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self { writes: Counter::default(), beyond: Gauge::default() };
        registry.register("marker_probe_writes", "Times that what a node probes was written", metrics.writes.clone());
        registry.register("marker_probes_beyond", "Probes that are more than their node runs", metrics.beyond.clone());
        metrics
    }
}

/// The controller. Its keys are nodes.
pub(super) struct NodePodProbes {
    client: Client,
    recorder: Arc<Recorder>,
    counted: Arc<ProbeMetrics>,
    markers: Subscription<Marker>,
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    probes: Subscription<NodeResults>,
    askers: Arc<Askers>,
    pacer: Pacer,
    paces: Pace<Key>,
    /// Nodes that more probes are asked of than they run, with how many more.
    beyond: Mutex<BTreeMap<Arc<str>, usize>>,
}

/// Adds the nodes to the queue that a change concerns.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
    askers: Arc<Askers>,
    pods: Arc<Store<Pod>>,
}

impl Adder {
    fn add(&self, node: &Arc<str>) {
        if self.queue.add(Key { namespace: Arc::from(""), name: node.clone() }, Urgency::Change) {
            self.metrics.queue_added(NodePodProbes::NAME);
        }
    }

    fn on_marker(&self, markers: &Store<Marker>, change: &Change<Marker>) {
        let Change::Object { key, .. } = change else { return };
        let rule = markers.get(key).and_then(|marker| Rule::of(&marker.object).ok());
        if self.askers.ask(key, rule) {
            self.pods.in_namespace(&key.namespace).iter().filter_map(|pod| bound(pod)).for_each(|node| self.add(node));
        }
    }

    fn on_pod(&self, change: &Change<Pod>) {
        let Change::Object { key, old, new, .. } = change else { return };
        if !self.askers.are_in(&key.namespace) || !is_news(old.as_deref(), new.as_deref()) {
            return;
        }
        let (before, after) = (old.as_deref().and_then(bound), new.as_deref().and_then(bound));
        before.filter(|before| Some(*before) != after).into_iter().chain(after).for_each(|node| self.add(node));
    }

    fn on_node(&self, change: &Change<Node>) {
        let Change::Object { key, old, new, .. } = change else { return };
        let is_same = |old: &Node, new: &Node| old.labels == new.labels && old.meta.uid == new.meta.uid;
        if !old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| is_same(old, new)) && self.askers.are_there() {
            self.add(&key.name);
        }
    }

    /// Results are none of this controller's business; what is asked for is its own.
    fn on_probes(&self, change: &Change<NodeResults>) {
        let Change::Object { key, old, new, .. } = change else { return };
        let is_same = |old: &NodeResults, new: &NodeResults| {
            old.asked == new.asked && old.owners == new.owners && old.meta.uid == new.meta.uid
        };
        if !old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| is_same(old, new)) {
            self.add(&key.name);
        }
    }
}

/// The node that a pod is bound to.
fn bound(pod: &Pod) -> Option<&Arc<str>> {
    pod.node.as_ref().filter(|_| pod.is_bound)
}

/// Whether anything of a pod has changed by which it is probed.
fn is_news(old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    old.meta.uid != new.meta.uid
        || bound(old) != bound(new)
        || is_live(old) != is_live(new)
        || old.ip != new.ip
        || old.probed != new.probed
        || old.labels != new.labels
        || old.annotations != new.annotations
}

/// What is to be probed on a node.
struct Wanted {
    /// Whether any marker has any pod probed there, though its containers may not run just now.
    is_asked: bool,
    spec: NodePodProbeSpec,
    beyond: usize,
}

fn wanted(pods: &[Arc<Pod>], node: &Node, askers: &Askers, before: Option<&AskedProbes>) -> Wanted {
    let mut rules: BTreeMap<Arc<str>, Rules> = BTreeMap::new();
    let live: Vec<&Pod> = pods.iter().map(|pod| &**pod).filter(|pod| is_live(pod)).collect();
    for pod in &live {
        let namespace = &pod.meta.key.namespace;
        rules.entry(namespace.clone()).or_insert_with(|| askers.of(namespace));
    }
    let mut asked: Vec<(Probed<'_>, Vec<&Rule>)> = Vec::new();
    for pod in live {
        let asking = rules.get(&pod.meta.key.namespace).map(|rules| asking(rules, pod, node)).unwrap_or_default();
        if !asking.is_empty() {
            asked.push((probed(pod), asking));
        }
    }
    let is_asked = !asked.is_empty();
    let is_known = |uid: &str, probe: &str| before.is_some_and(|before| before.has(uid, probe));
    let probing::NodeProbes { spec, beyond } = node_probes(asked, &is_known);
    Wanted { is_asked, spec, beyond: beyond.len() }
}

fn probed(pod: &Pod) -> Probed<'_> {
    Probed {
        namespace: &pod.meta.key.namespace,
        name: &pod.meta.key.name,
        uid: &pod.meta.uid,
        ip: pod.ip.as_deref(),
        containers: &pod.probed,
    }
}

/// The spec as a merge patch that replaces the whole.
fn replacing(spec: &NodePodProbeSpec) -> Value {
    json!({"podProbes": spec.pod_probes, "beyond": spec.beyond})
}

/// The Node as the owner of what belongs to it.
fn owner(node: &Node) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": &*node.meta.uid})
}

/// The object of a node that has none yet.
fn made(node: &Node, spec: &NodePodProbeSpec) -> Value {
    json!({
        "apiVersion": NODE_POD_PROBE.at.api_version(),
        "kind": NODE_POD_PROBE.at.kind,
        "metadata": {"name": node.name(), "ownerReferences": [owner(node)]},
        "spec": spec,
    })
}

impl NodePodProbes {
    /// Subscribes to all that probes follow from. Returns the controller and the queue of nodes to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let (markers, nodes) = (context.caches.open::<Marker>(), context.caches.open::<Node>());
        let pods = context.caches.open::<Pod>().indexed_by([Pod::BY_NODE]);
        let (probes, askers) = (context.caches.open::<NodeResults>(), Arc::<Askers>::default());
        let adder = Adder {
            queue: queue.clone(),
            metrics: context.metrics.clone(),
            askers: askers.clone(),
            pods: pods.store(),
        };
        let (of_markers, of_pods, of_nodes, known) = (adder.clone(), adder.clone(), adder.clone(), markers.store());
        let stop = &context.stop;
        let controller = Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            counted: context.metrics.of_family(),
            markers: markers.subscribe(stop, move |change| of_markers.on_marker(&known, change)),
            pods: pods.subscribe(stop, move |change| of_pods.on_pod(change)),
            nodes: nodes.subscribe(stop, move |change| of_nodes.on_node(change)),
            probes: probes.subscribe(stop, move |change| adder.on_probes(change)),
            askers,
            pacer: Pacer::new(BETWEEN_NODES),
            paces: Pace::new(BETWEEN_WRITES),
            beyond: Mutex::default(),
        };
        (Arc::new(controller), queue)
    }

    /// Whether some objects are newer in the view than others.
    fn is_listing(&self) -> bool {
        self.markers.is_listing() || self.pods.is_listing() || self.nodes.is_listing() || self.probes.is_listing()
    }

    fn writer(&self) -> Writer {
        Writer::new(&self.client, &Api::<NodePodProbe>::all(self.client.clone()))
    }

    /// What is to be written of a node, if anything is.
    fn decide(&self, key: &Key) -> Option<Write> {
        let found = self.probes.get(key);
        // What belongs to a Node that is gone goes with it.
        let Some(node) = self.nodes.get(key) else {
            self.note_beyond(&key.name, 0);
            return None;
        };
        let of_another =
            found.clone().filter(|found| !found.owners.is_empty() && !found.owners.contains(&node.meta.uid));
        if let Some(found) = of_another {
            return Some(Write::Delete(found));
        }
        let pods = self.pods.find(Pod::BY_NODE, &key.name);
        let wanted = wanted(&pods, &node, &self.askers, found.as_ref().map(|found| &found.asked));
        self.note_beyond(&key.name, wanted.beyond);
        match (found, wanted.is_asked) {
            (None, false) => None,
            (None, true) => (!wanted.spec.pod_probes.is_empty()).then(|| Write::Create(made(&node, &wanted.spec))),
            (Some(found), false) => Some(Write::Delete(found)),
            (Some(found), true) if found.asked == AskedProbes::of(&wanted.spec) && !found.owners.is_empty() => None,
            (Some(found), true) => {
                let only = json!({"uid": &*found.meta.uid, "resourceVersion": found.meta.version.to_string(),
                    "ownerReferences": [owner(&node)]});
                Some(Write::Change(json!({"metadata": only, "spec": replacing(&wanted.spec)})))
            }
        }
    }

    fn note_beyond(&self, node: &Arc<str>, beyond: usize) {
        let mut all = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if beyond == 0 { all.remove(node) } else { all.insert(node.clone(), beyond) };
        if before.unwrap_or_default() != beyond {
            warn!(node = &**node, beyond, "how many probes are asked for beyond what the node runs");
            self.counted.beyond.set(i64::try_from(all.values().sum::<usize>()).unwrap_or(i64::MAX));
        }
    }

    async fn write(&self, key: &Key, write: &Write) -> Result<Ended, kube::Error> {
        let writer = self.writer();
        let outcome = match write {
            Write::Create(object) => writer.create(object.to_string().into_bytes()).await,
            Write::Delete(found) => writer.delete(&key.name, Some(exactly(&found.meta))).await,
            Write::Change(patch) => writer.patch(&key.name, None, &Patch::Merge(patch)).await,
        };
        match outcome {
            Outcome::Written(version) => self.probes.wrote(key, version),
            // It is seen to be gone before it is decided about again: its watch adds it.
            Outcome::Gone => {}
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // The world moved on between look and write: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        self.counted.writes.inc();
        debug!(node = &*key.name, "what the node is to probe was written");
        Ok(Ended::Done)
    }
}

/// What is written of a node.
enum Write {
    Create(Value),
    Change(Value),
    Delete(Arc<NodeResults>),
}

impl Reconcile for NodePodProbes {
    type Key = Key;
    const NAME: &'static str = "marker-probes";

    async fn ready(&self, term: u64) {
        self.markers.synced(term).await;
        self.nodes.synced(term).await;
        self.pods.synced(term).await;
        self.probes.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        if self.probes.is_malformed(key) || self.nodes.is_malformed(key) {
            return Ok(Ended::Done);
        }
        if !self.probes.caught_up(key) || self.is_listing() {
            return Ok(Ended::Again(ECHO));
        }
        if self.decide(key).is_none() {
            if self.nodes.get(key).is_none() {
                self.paces.forget(key);
            }
            return Ok(Ended::Done);
        }
        if let Some(pause) = self.paces.note_look(key) {
            return Ok(Ended::Again(pause));
        }
        self.pacer.turn().await;
        // As it is by now: others may have waited for their turn too.
        match self.decide(key) {
            Some(write) => self.write(key, &write).await,
            None => Ok(Ended::Done),
        }
    }

    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        warn!(node = &*key.name, why = failure.text, "what a node is to probe cannot be written");
        let Some(found) = self.probes.get(key) else { return };
        self.recorder.report(Report {
            about: NODE_POD_PROBE.at,
            key: key.clone(),
            uid: found.meta.uid.to_string(),
            event_type: EventType::Warning,
            action: "Probing",
            reason: "FailedProbing",
            note: format!("what the node is to probe cannot be written: {}", failure.text),
        });
    }
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
