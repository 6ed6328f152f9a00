//! Invariants checked on every event of a watch, in the order in which they happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use super::story::{Story, is_ready};

/// What must hold at every moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Invariants {
    /// Nodes that should each have a ready pod, and how many of them may be without one.
    pub(super) budget: Option<usize>,
    /// Live pods that a node may have at once.
    pub(super) most_on_a_node: usize,
    /// Nodes, by their short name, whose pods stay what they are.
    pub(super) untouched: Vec<&'static str>,
}

/// A watch under way.
pub(super) struct Watched {
    seen: Arc<Mutex<Record>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Record {
    events: usize,
    most_down: usize,
    most_on_a_node: usize,
    most_doubled: usize,
    most_moving: usize,
    made: usize,
    order: Vec<String>,
    broken: Vec<String>,
}

/// Starts to watch. Every pod that is there now must be ready.
pub(super) async fn watch(story: &Story, invariants: Invariants) -> Watched {
    let list = story.pods.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.clone().unwrap();
    let pods: BTreeMap<String, Pod> = list.items.into_iter().map(|pod| (pod.name_any(), pod)).collect();
    let seen = Arc::new(Mutex::new(Record::default()));
    let untouched = invariants.untouched.iter().map(|node| story.node(node)).collect();
    let state =
        State { nodes: pods.values().filter_map(node_of).collect(), first: pods.clone(), pods, untouched, invariants };
    let task = tokio::spawn(follow(story.pods.clone(), version, state, seen.clone()));
    Watched { seen, task }
}

impl Watched {
    /// The most nodes that had more than one live pod at once.
    pub(super) fn most_doubled(&self) -> usize {
        self.seen.lock().unwrap().most_doubled
    }

    /// Nodes in the order in which the pods that they had at first were taken away or changed.
    pub(super) fn order(&self, story: &Story) -> Vec<String> {
        self.seen.lock().unwrap().order.iter().map(|node| story.short(node)).collect()
    }

    /// The most nodes that were on their way at once: without the pod that they had, as it was, and without a ready one.
    pub(super) fn most_moving(&self) -> usize {
        self.seen.lock().unwrap().most_moving
    }

    /// How many pods were made.
    pub(super) fn made(&self) -> usize {
        self.seen.lock().unwrap().made
    }

    /// Ends the watch: nothing may have been broken, and something must have happened. Returns the most nodes that were
    /// down at once, and the most live pods that a node had at once.
    pub(super) fn finish(self) -> (usize, usize) {
        assert!(!self.task.is_finished(), "the watch ended early");
        self.task.abort();
        let record = self.seen.lock().unwrap();
        assert!(record.broken.is_empty(), "{:#?}", record.broken);
        assert!(record.events > 0, "nothing happened");
        (record.most_down, record.most_on_a_node)
    }
}

struct State {
    nodes: BTreeSet<String>,
    first: BTreeMap<String, Pod>,
    pods: BTreeMap<String, Pod>,
    untouched: BTreeSet<String>,
    invariants: Invariants,
}

async fn follow(api: Api<Pod>, version: String, mut state: State, seen: Arc<Mutex<Record>>) {
    let mut version = version;
    loop {
        let events = api.watch(&WatchParams::default().timeout(290), &version).await.expect("the watch starts");
        let mut events = events.boxed();
        while let Some(event) = events.try_next().await.expect("the watch goes on") {
            let is_new = matches!(event, WatchEvent::Added(_));
            let pod = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    state.pods.insert(pod.name_any(), pod.clone());
                    pod
                }
                WatchEvent::Deleted(pod) => {
                    state.pods.remove(&pod.name_any());
                    pod
                }
                _ => continue,
            };
            version = pod.resource_version().unwrap_or_default();
            let mut record = seen.lock().unwrap();
            record.made += usize::from(is_new);
            state.note_order(&pod, &mut record);
            state.check(&pod, &mut record);
        }
    }
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}

impl State {
    /// Whether a pod is as it was at first.
    fn is_as_it_was(&self, pod: &Pod) -> bool {
        let hash = |pod: &Pod| pod.labels().get("controller-revision-hash").cloned();
        let is_it = |first: &Pod| first.uid() == pod.uid() && hash(first) == hash(pod);
        is_live(pod) && self.first.get(&pod.name_any()).is_some_and(is_it)
    }

    fn note_order(&self, changed: &Pod, record: &mut Record) {
        let was_there = self.first.get(&changed.name_any()).is_some_and(|first| first.uid() == changed.uid());
        let Some(node) = node_of(changed).filter(|_| was_there) else { return };
        if !self.is_as_it_was(changed) && !record.order.contains(&node) {
            record.order.push(node);
        }
    }

    /// Nodes without the pod that they had, as it was, and without a ready one.
    fn moving(&self, up: &BTreeSet<String>) -> usize {
        let kept = self.pods.values().filter(|pod| self.is_as_it_was(pod)).filter_map(node_of);
        let still: BTreeSet<String> = kept.chain(up.iter().cloned()).collect();
        self.nodes.difference(&still).count()
    }

    fn check(&self, changed: &Pod, record: &mut Record) {
        record.events += 1;
        let at = format!("at version {:?}, {}", changed.resource_version(), changed.name_any());
        let up: BTreeSet<String> =
            self.pods.values().filter(|pod| is_live(pod) && is_ready(pod)).filter_map(node_of).collect();
        let down = self.nodes.difference(&up).count();
        record.most_down = record.most_down.max(down);
        if self.invariants.budget.is_some_and(|budget| down > budget) {
            record.broken.push(format!("{at}: {down} nodes are down: {:?}", self.nodes.difference(&up)));
        }
        record.most_moving = record.most_moving.max(self.moving(&up));
        let mut live: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| is_live(pod)) {
            live.entry(node_of(pod).unwrap_or_default()).or_default().push(pod);
        }
        // Those that the scheduler has not placed yet belong to different nodes.
        live.remove("");
        record.most_doubled = record.most_doubled.max(live.values().filter(|pods| pods.len() > 1).count());
        for (node, pods) in &live {
            record.most_on_a_node = record.most_on_a_node.max(pods.len());
            if pods.len() > self.invariants.most_on_a_node.max(1) {
                record.broken.push(format!("{at}: {} live pods on {node}", pods.len()));
            }
            let hashes: BTreeSet<&String> =
                pods.iter().filter_map(|pod| pod.labels().get("controller-revision-hash")).collect();
            if hashes.len() < pods.len() {
                record.broken.push(format!("{at}: two live pods of one revision on {node}"));
            }
        }
        if let Some(node) = node_of(changed).filter(|node| self.untouched.contains(node)) {
            let before =
                self.first.values().find(|pod| node_of(pod).as_ref() == Some(&node)).and_then(ResourceExt::uid);
            let now = live.get(&node).and_then(|pods| pods.first()).and_then(|pod| pod.uid());
            if before != now {
                record.broken.push(format!("{at}: the pod on {node} is another one"));
            }
        }
    }
}
