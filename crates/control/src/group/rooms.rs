//! How many more pods a group has room for, as the caches have its nodes and the pods on them.
//!
//! It is asked while pods are placed, so it must not look at the whole fleet for each of them: which nodes of a group fit an owner's
//! pods, and that a group has no room, is found out once a second, and a group with room is looked at only until enough is found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::group::NodeGroupSpec;
use dapple_plan::fit::{self, Fit};
use dapple_plan::group::is_member;
use dapple_plan::group::placing::{GATE, selector};
use dapple_plan::health::Health;
use dapple_plan::room::{Requests, Room};
use serde_json::Value;
use tokio::time::Instant;

use super::owner::{OwnerKey, is_gated, is_live};
use super::seated::Stores;
use crate::caches::store::Store;
use crate::slim::{Index, Key, Node, Pod};

/// What was found out is believed for so long.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// Pods that have a group and no node yet, by group: they will take room there.
pub(super) const UNBOUND: Index<Pod> = Index {
    name: "unbound",
    values: |pod, add| {
        if !pod.is_bound && !is_gated(pod) && is_live(pod) {
            pod.labels.get_shared(GATE).into_iter().for_each(add);
        }
    },
};

/// What was found out.
pub(super) struct Rooms {
    stores: Stores,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    found: BTreeMap<(OwnerKey, Arc<str>), Found>,
    /// Pods that were placed and still wait behind the gate, as far as the view goes, with their groups.
    placed: BTreeMap<Key, Arc<str>>,
}

/// What is known of a group, for pods of one owner.
struct Found {
    at: Instant,
    /// What its pods are made of.
    template: Arc<Value>,
    /// The names of nodes that fit.
    nodes: Arc<[Key]>,
    /// What pods asked for that it had no room for.
    full_for: Option<Requests>,
}

/// Whether a pod takes room on its node, or will.
fn takes_room(pod: &Pod) -> bool {
    !["Succeeded", "Failed"].contains(&&*pod.phase)
}

impl Rooms {
    pub(super) fn new(stores: Stores) -> Self {
        Self { stores, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod was placed, or may have been: until that is seen, it takes room all the same.
    pub(super) fn note_placed(&self, pod: &Key, group: &Arc<str>) {
        self.state().placed.insert(pod.clone(), group.clone());
    }

    /// How many more pods that ask for this a group has room for; not more than `most` are counted.
    pub(super) fn count(
        &self,
        at: &OwnerKey,
        group: &Arc<str>,
        (template, wanted): (&Arc<Value>, &Requests),
        most: usize,
    ) -> usize {
        let key = (at.clone(), group.clone());
        let mut state = self.state();
        state.found.retain(|_, found| found.at.elapsed() < BELIEVED_FOR);
        if state.found.get(&key).is_none_or(|found| found.template != *template) {
            let nodes = fitting(&self.stores, group, template).iter().map(|node| node.meta.key.clone()).collect();
            let found = Found { at: Instant::now(), template: template.clone(), nodes, full_for: None };
            state.found.insert(key.clone(), found);
        }
        let Some(found) = state.found.get(&key) else { return 0 };
        if found.full_for.as_ref() == Some(wanted) {
            return 0;
        }
        let nodes = found.nodes.clone();
        let coming = self.coming(&mut state, group);
        let count = self.count_on(&nodes, coming, wanted, most);
        if count == 0
            && let Some(found) = state.found.get_mut(&key)
        {
            found.full_for = Some(wanted.clone());
        }
        count
    }

    /// Pods that will take room on nodes of a group.
    fn coming(&self, state: &mut State, group: &Arc<str>) -> Vec<Arc<Pod>> {
        let pods = &self.stores.pods;
        state.placed.retain(|key, _| !pods.caught_up(key));
        let placed = state.placed.iter().filter(|(_, of)| *of == group);
        let mut coming = pods.find(UNBOUND, group);
        coming.extend(placed.filter_map(|(key, _)| pods.get(key)).filter(|pod| is_gated(pod)));
        coming
    }

    fn count_on(&self, nodes: &[Key], mut coming: Vec<Arc<Pod>>, wanted: &Requests, most: usize) -> usize {
        let mut known = Known::default();
        let mut count = 0_usize;
        for node in nodes.iter().filter_map(|key| self.stores.nodes.get(key)) {
            let mut room = left_on(&node, &self.stores.pods, &mut known);
            // Nobody knows which nodes they will take: the first ones, for us.
            coming.retain(|pod| {
                let requests = known.requests(pod);
                let goes_here = room.holds(requests) > 0;
                if goes_here {
                    room.take(requests);
                }
                !goes_here
            });
            count = count.saturating_add(room.holds(wanted));
            if count >= most {
                return most;
            }
        }
        count
    }
}

/// What a node has left beside the pods that are there.
pub(super) fn left_on(node: &Node, pods: &Store<Pod>, known: &mut Known) -> Room {
    let mut room = Room::of(&serde_json::from_str(&node.allocatable).unwrap_or_default());
    let there = pods.find(Pod::BY_NODE, node.name());
    there.iter().filter(|pod| takes_room(pod)).for_each(|pod| room.take(known.requests(pod)));
    room
}

/// What pods ask for, found out once for those that ask alike.
#[derive(Default)]
pub(super) struct Known(BTreeMap<String, Requests>);

impl Known {
    fn requests(&mut self, pod: &Pod) -> &Requests {
        let mut key = pod.requests_besides.to_string();
        pod.containers.iter().for_each(|container| {
            key.push('\n');
            key.push_str(&container.resources);
        });
        self.0.entry(key).or_insert_with(|| Requests::of(&pod.asking_spec()))
    }
}

/// The nodes of a group that are Ready and take new pods, and that pods of this template may go to.
pub(super) fn fitting(stores: &Stores, group: &str, template: &Value) -> Vec<Arc<Node>> {
    let Some(found) = stores.groups.get(&Key::new("", group)) else { return Vec::new() };
    let mut template = template.clone();
    for (key, value) in selector(group, &found.spec) {
        template["spec"]["nodeSelector"][key] = value.into();
    }
    let wanted = Fit::of(&template);
    let mut nodes = members(stores, &found.spec);
    nodes.retain(|node| {
        let taints: Vec<fit::Taint> = node.taints.iter().map(|taint| taint.as_fit()).collect();
        let seen = fit::Node { name: node.name(), labels: &node.labels, taints: &taints };
        node.health == Health::Ready && !node.unschedulable && wanted.judge(seen).is_ok()
    });
    nodes
}

/// The nodes of a group, by name.
fn members(stores: &Stores, group: &NodeGroupSpec) -> Vec<Arc<Node>> {
    if group.match_labels.is_empty() {
        let named: BTreeSet<&String> = group.nodes.iter().collect();
        return named.into_iter().filter_map(|name| stores.nodes.get(&Key::new("", name))).collect();
    }
    let mut names = Vec::new();
    stores.nodes.for_each(|node| {
        if is_member(group, node.name(), &node.labels) {
            names.push(node.meta.key.clone());
        }
    });
    names.iter().filter_map(|key| stores.nodes.get(key)).collect()
}
