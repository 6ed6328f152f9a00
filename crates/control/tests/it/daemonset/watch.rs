//! Invariants checked on every event of a watch, in the order in which they happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

use super::story::{Story, is_ready};
use crate::support::eventually;

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
    pods: Api<Pod>,
    seen: Arc<Mutex<Record>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Record {
    /// The pods as far as the watch has come.
    known: Versions,
    events: usize,
    most_down: usize,
    most_on_a_node: usize,
    most_doubled: usize,
    most_moving: usize,
    made: usize,
    order: Vec<String>,
    broken: Vec<String>,
}

/// The version of each pod that is there, by its name.
type Versions = BTreeMap<String, Option<String>>;

fn versions<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Versions {
    pods.into_iter().map(|pod| (pod.name_any(), pod.resource_version())).collect()
}

/// Starts to watch. Every pod that is there now must be ready.
pub(super) async fn watch(story: &Story, invariants: Invariants) -> Watched {
    let list = story.pods.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.clone().unwrap();
    let pods: BTreeMap<String, Pod> = list.items.into_iter().map(|pod| (pod.name_any(), pod)).collect();
    let seen = Arc::new(Mutex::new(Record { known: versions(pods.values()), ..Record::default() }));
    let untouched = invariants.untouched.iter().map(|node| story.node(node)).collect();
    let state =
        State { nodes: pods.values().filter_map(node_of).collect(), first: pods.clone(), pods, untouched, invariants };
    let task = tokio::spawn(follow(story.pods.clone(), version, state, seen.clone()));
    Watched { pods: story.pods.clone(), seen, task }
}

impl Watched {
    /// Waits until the watch has come as far as the cluster: events arrive after a list shows what they tell.
    async fn caught_up(&self) {
        eventually("the watch has come to the pods that are there", || async {
            assert!(!self.task.is_finished(), "the watch ended early");
            let list = self.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let (there, known) = (versions(&list.items), self.seen.lock().unwrap().known.clone());
            if there == known { Ok(()) } else { Err(format!("{known:?} instead of {there:?}")) }
        })
        .await;
    }

    async fn reaches(&self, what: &str, count: usize, of: impl Fn(&Record) -> usize) {
        eventually(&format!("{count} {what} at once"), || async {
            let most = of(&self.seen.lock().unwrap());
            if most >= count { Ok(()) } else { Err(format!("{most} at most")) }
        })
        .await;
    }

    /// Waits until so many nodes were down at once.
    pub(super) async fn sees_down(&self, count: usize) {
        self.reaches("nodes down", count, |record| record.most_down).await;
    }

    /// Waits until so many nodes had more than one live pod at once.
    pub(super) async fn sees_doubled(&self, count: usize) {
        self.reaches("nodes with two pods", count, |record| record.most_doubled).await;
    }

    /// The most nodes that had more than one live pod at once.
    pub(super) async fn most_doubled(&self) -> usize {
        self.caught_up().await;
        self.seen.lock().unwrap().most_doubled
    }

    /// Nodes in the order in which the pods that they had at first were taken away or changed.
    pub(super) async fn order(&self, story: &Story) -> Vec<String> {
        self.caught_up().await;
        self.seen.lock().unwrap().order.iter().map(|node| story.short(node)).collect()
    }

    /// The most nodes that were on their way at once: without the pod that they had, as it was, and without a ready one.
    pub(super) async fn most_moving(&self) -> usize {
        self.caught_up().await;
        self.seen.lock().unwrap().most_moving
    }

    /// How many pods were made.
    pub(super) async fn made(&self) -> usize {
        self.caught_up().await;
        self.seen.lock().unwrap().made
    }

    /// Ends the watch: nothing may have been broken, and something must have happened. Returns the most nodes that were
    /// down at once, and the most live pods that a node had at once.
    pub(super) async fn finish(self) -> (usize, usize) {
        self.caught_up().await;
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
                // Where to go on from, should the watch end before another pod changes.
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(_) => continue,
            };
            version = pod.resource_version().unwrap_or_default();
            let mut record = seen.lock().unwrap();
            record.known = versions(state.pods.values());
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
