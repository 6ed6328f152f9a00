//! The label of groups that name nodes, kept on their nodes: `group.dapple.dev/NAME`.
//!
//! Labels come at once, and go late: see [`dapple_plan::group::label`]. Before one goes, the API server itself is asked for the
//! pods of the node. Writes are few a second: a group of 5,000 names must not keep the API server from other work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::group::label::{LEAVES_AFTER, LabelChange, PREFIX, VALUE};
use dapple_plan::group::{Membership, Rule};
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, ListParams, Patch};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use super::{BACKOFF, Group};
use crate::caches::Subscription;
use crate::caches::store::{Change, Store};
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::pacer::Pacer;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Node, Pod, StringMap};
use crate::worker::Reconcile;
use crate::writes::outcome::{Outcome, Writer};

/// Between two writes of labels.
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
/// How soon to look again at a node of which our view is behind.
const ECHO: Duration = Duration::from_secs(1);

/// The controller. Its keys are nodes.
pub(super) struct NodeLabels {
    client: Client,
    groups: Subscription<Group>,
    nodes: Subscription<Node>,
    pods: Subscription<Pod>,
    /// Groups that name nodes, and their members.
    known: Arc<Mutex<Membership>>,
    /// Since when nodes have a label that they may lose, by node and label.
    leaving: Mutex<BTreeMap<Key, BTreeMap<String, Instant>>>,
    /// The term in which that was seen.
    term: AtomicU64,
    pacer: Pacer,
}

impl NodeLabels {
    /// Subscribes to groups, nodes and pods. Returns the controller and the queue of nodes to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let known = Arc::<Mutex<Membership>>::default();
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone() };
        let (groups, nodes) = (context.caches.open(), context.caches.open());
        let pods = context.caches.open().indexed_by([Pod::BY_NODE]);
        let on_group = on_group(nodes.store(), known.clone(), adder.clone());
        let on_node = on_node(nodes.store(), known.clone(), adder.clone());
        let (groups, nodes) = (groups.subscribe(&context.stop, on_group), nodes.subscribe(&context.stop, on_node));
        let pods = pods.subscribe(&context.stop, move |change| on_pod(&adder, change));
        let client = context.client.clone();
        let (leaving, term, pacer) = (Mutex::default(), AtomicU64::default(), Pacer::new(BETWEEN_WRITES));
        (Arc::new(Self { client, groups, nodes, pods, known, leaving, term, pacer }), queue)
    }

    /// Labels of groups that pods on a node select on.
    fn selected(&self, node: &str) -> BTreeSet<Arc<str>> {
        let pods = self.pods.find(Pod::BY_NODE, node);
        pods.iter().filter(|pod| !has_ended(&pod.phase)).flat_map(|pod| group_labels(&pod.node_selector)).collect()
    }

    /// All labels that pods on a node select on, by the API server itself: our view of pods may be behind.
    async fn selected_now(&self, node: &str) -> Result<BTreeSet<Arc<str>>, kube::Error> {
        let pods: Api<v1::Pod> = Api::all(self.client.clone());
        let there = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await?;
        let phase = |pod: &v1::Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let running = there.iter().filter(|pod| !has_ended(&phase(pod)));
        let selectors = running.filter_map(|pod| pod.spec.as_ref()?.node_selector.as_ref());
        Ok(selectors.flat_map(|selector| selector.keys().map(|key| Arc::from(key.as_str()))).collect())
    }

    /// Leaves those labels that a node may lose now, and says how long to wait for the next of the others.
    fn wait_before_leaving(&self, key: &Key, remove: &mut BTreeSet<String>) -> Option<Duration> {
        let mut leaving = lock(&self.leaving);
        if remove.is_empty() {
            leaving.remove(key);
            return None;
        }
        let since = leaving.entry(key.clone()).or_default();
        since.retain(|label, _| remove.contains(label));
        let now = Instant::now();
        let due = remove.iter().map(|label| {
            let since = *since.entry(label.clone()).or_insert(now);
            (label.clone(), LEAVES_AFTER.saturating_sub(now.duration_since(since)))
        });
        let (due, waiting): (Vec<_>, Vec<_>) = due.partition(|(_, wait)| wait.is_zero());
        *remove = due.into_iter().map(|(label, _)| label).collect();
        waiting.into_iter().map(|(_, wait)| wait).min()
    }

    /// Writes labels onto the very version that was looked at.
    async fn write(&self, node: &Node, change: &LabelChange) -> Result<Ended, kube::Error> {
        let (key, meta) = (&node.meta.key, &node.meta);
        let add = change.add.iter().map(|label| (label.clone(), json!(VALUE)));
        let labels: serde_json::Map<String, Value> =
            add.chain(change.remove.iter().map(|label| (label.clone(), Value::Null))).collect();
        let only = json!({"uid": &*meta.uid, "resourceVersion": meta.version.to_string(), "labels": labels});
        let writer = Writer::new(&self.client, &Api::<v1::Node>::all(self.client.clone()));
        match writer.patch(&key.name, None, &Patch::Merge(json!({"metadata": only}))).await {
            Outcome::Written(version) => self.nodes.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // It is another one by now: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        info!(node = %key, added = ?change.add, removed = ?change.remove, "labels of groups written");
        Ok(Ended::Done)
    }
}

impl Reconcile for NodeLabels {
    type Key = Key;
    const NAME: &'static str = "group-labels";

    async fn ready(&self, term: u64) {
        // What was seen before this term began, another leader may have changed since.
        if self.term.swap(term, Ordering::Relaxed) != term {
            lock(&self.leaving).clear();
        }
        self.groups.synced(term).await;
        self.nodes.synced(term).await;
        self.pods.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        let Some(node) = self.nodes.get(key) else {
            lock(&self.leaving).remove(key);
            return Ok(Ended::Done);
        };
        if !self.nodes.caught_up(key) {
            return Ok(Ended::Again(ECHO));
        }
        let groups = lock(&self.known).groups_of(&key.name);
        let selected = self.selected(&key.name);
        let mut change = LabelChange::of(&node.labels, &groups, &selected);
        let mut wait = self.wait_before_leaving(key, &mut change.remove);
        if !change.remove.is_empty() {
            let due = change.remove.len();
            let now = self.selected_now(&key.name).await?;
            let still = LabelChange::of(&node.labels, &groups, &now).remove;
            change.remove.retain(|label| still.contains(label));
            // There are pods that our view has not seen. It may never see them go either, so nothing would tell.
            if change.remove.len() < due {
                wait = Some(wait.map_or(LEAVES_AFTER, |wait| wait.min(LEAVES_AFTER)));
            }
        }
        if !change.is_empty() {
            self.pacer.turn().await;
            if let Ended::Failed = self.write(&node, &change).await? {
                return Ok(Ended::Failed);
            }
        }
        Ok(wait.map_or(Ended::Done, Ended::Again))
    }

    /// A node says nothing of its labels: the log and the metrics do.
    async fn tell_failure(&self, _: &Key, _: &Failure) {}
}

/// Adds nodes to the queue.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
}

impl Adder {
    fn add(&self, node: &Arc<str>) {
        if self.queue.add(Key { namespace: Arc::from(""), name: node.clone() }, Urgency::Change) {
            self.metrics.queue_added(NodeLabels::NAME);
        }
    }
}

/// What a change of a group means: look at the nodes that come and go with it.
fn on_group(
    nodes: Arc<Store<Node>>,
    known: Arc<Mutex<Membership>>,
    adder: Adder,
) -> impl FnMut(&Change<Group>) + Send + 'static {
    move |change| {
        let Change::Object { key, new, .. } = change else { return };
        let mut known = lock(&known);
        let before = known.members(&key.name);
        match new {
            Some(group) if !group.spec.nodes.is_empty() => {
                known.group_changed(&key.name, Rule::from(&group.spec), |visit| {
                    nodes.for_each(|node| visit(node.name(), &node.labels));
                })
            }
            _ => known.group_removed(&key.name),
        };
        let after = known.members(&key.name);
        drop(known);
        before.symmetric_difference(&after).for_each(|node| adder.add(node));
    }
}

/// What a change of a node means: look at it, if its labels are others.
fn on_node(
    nodes: Arc<Store<Node>>,
    known: Arc<Mutex<Membership>>,
    adder: Adder,
) -> impl FnMut(&Change<Node>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        if let (Some(old), Some(new)) = (old, new)
            && old.labels == new.labels
        {
            return;
        }
        // As it is now: a group that came meanwhile was held against that, and must not see an older one after it.
        match nodes.get(key) {
            Some(node) => lock(&known).node_changed(&key.name, &node.labels),
            None => lock(&known).node_removed(&key.name),
        };
        adder.add(&key.name);
    }
}

/// What a change of a pod means: look at its node, if it selects on a label of ours.
fn on_pod(adder: &Adder, change: &Change<Pod>) {
    let Change::Object { old, new, .. } = change else { return };
    let told = |pod: &Option<Arc<Pod>>| {
        let pod = pod.as_ref().filter(|pod| pod.is_bound && !has_ended(&pod.phase))?;
        group_labels(&pod.node_selector).next()?;
        pod.node.clone()
    };
    let (before, after) = (told(old), told(new));
    if before != after {
        before.iter().chain(after.iter()).for_each(|node| adder.add(node));
    }
}

/// The labels of groups that a selector names.
fn group_labels(selector: &StringMap) -> impl Iterator<Item = Arc<str>> {
    selector.iter_shared().map(|(key, _)| key).filter(|key| key.starts_with(PREFIX))
}

/// Whether a pod does not run any more, for good.
fn has_ended(phase: &str) -> bool {
    ["Succeeded", "Failed"].contains(&phase)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
