//! Which pods of a DaemonSet are made and which are taken away.
//!
//! Two decisions, each a function of what is there: [`place`] gives every node that fits its pod, and takes away what
//! does not belong; [`replace`] brings pods to what their nodes should have now, a few at a time.
//!
//! Invariants, tested below as properties:
//! - Never two live pods on a node, once what is decided has happened.
//! - [`replace`] never makes more nodes unavailable than the budget allows, whatever was down before. Pods that are down
//!   already are replaced within the budget too: a fleet that is briefly not ready must not be swept away at once.
//! - What is decided depends on the world alone, not on the order in which nodes and pods are listed.

use std::collections::BTreeMap;

/// A node, as this DaemonSet sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    /// Its name.
    pub name: String,
    /// Whether a pod may start there.
    pub can_start: bool,
    /// Whether one that runs may stay.
    pub can_stay: bool,
    /// Whether the node itself is well. One that is not can hold up nobody: it neither takes from the budget nor waits
    /// for it.
    pub is_ready: bool,
    /// What its pod should be: the hash of the rendering.
    pub wanted: String,
    /// Whether a rollout leaves it alone: held back by the partition or the selector, or paused.
    pub is_held: bool,
}

/// A pod of the DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// What it is: the hash of its rendering.
    pub hash: String,
    /// Whether it has been ready long enough.
    pub is_available: bool,
    /// Whether it is on its way out.
    pub is_terminating: bool,
    /// Whether it ended and will not start again.
    pub has_ended: bool,
    /// When it was made, for telling the older of two.
    pub created: i64,
}

impl PodState {
    pub(crate) fn is_live(&self) -> bool {
        !self.is_terminating && !self.has_ended
    }
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Make a pod on this node.
    Create {
        /// The node.
        node: String,
    },
    /// Take this pod away.
    Delete {
        /// The pod.
        pod: String,
        /// Why.
        why: Why,
    },
}

/// Why a pod is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its node is gone.
    NodeGone,
    /// Pods may not run on its node any more.
    Misplaced,
    /// It ended, and another is to start.
    Ended,
    /// Another pod of the DaemonSet is on the node.
    Double,
    /// It is not what it should be.
    Outdated,
}

/// The pods of each node, oldest first.
fn by_node(pods: &[PodState]) -> BTreeMap<&str, Vec<&PodState>> {
    let mut all: BTreeMap<&str, Vec<&PodState>> = BTreeMap::new();
    for pod in pods {
        all.entry(&pod.node).or_default().push(pod);
    }
    for pods in all.values_mut() {
        pods.sort_by_key(|pod| (pod.created, &pod.name));
    }
    all
}

/// Gives every node its pod, and takes away what does not belong. Actions come sorted.
pub fn place(nodes: &[NodeState], pods: &[PodState]) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut on_nodes = by_node(pods);
    let delete = |pod: &PodState, why: Why| Action::Delete { pod: pod.name.clone(), why };
    for node in nodes {
        let here = on_nodes.remove(node.name.as_str()).unwrap_or_default();
        if !node.can_stay {
            actions.extend(here.iter().filter(|pod| !pod.is_terminating).map(|pod| delete(pod, Why::Misplaced)));
            continue;
        }
        let ended = here.iter().filter(|pod| pod.has_ended && !pod.is_terminating);
        actions.extend(ended.map(|pod| delete(pod, Why::Ended)));
        let mut live: Vec<&PodState> = here.iter().copied().filter(|pod| pod.is_live()).collect();
        // One that is what it should be stays before one that is not, an available one before one that is not, and the
        // older before the younger.
        live.sort_by_key(|pod| (pod.hash != node.wanted, !pod.is_available, pod.created, pod.name.clone()));
        actions.extend(live.iter().skip(1).map(|pod| delete(pod, Why::Double)));
        // What is on its way out still holds its ports and its place.
        if here.is_empty() && node.can_start {
            actions.push(Action::Create { node: node.name.clone() });
        }
    }
    let strays = on_nodes.into_values().flatten().filter(|pod| !pod.is_terminating);
    actions.extend(strays.map(|pod| delete(pod, Why::NodeGone)));
    actions.sort();
    actions
}

/// How a rollout stands, and what it does next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replacing {
    /// Pods to take away now.
    pub delete: Vec<String>,
    /// Nodes whose pods wait for the budget, in the order in which they will be taken.
    pub waiting: Vec<String>,
    /// Nodes that hold the budget: their pods are not available.
    pub holding: Vec<String>,
}

/// Picks the pods to replace next, in the order of `nodes`.
pub fn replace(nodes: &[NodeState], pods: &[PodState], max_unavailable: usize) -> Replacing {
    let on_nodes = by_node(pods);
    let (mut down, mut in_flight) = (0, 0);
    let mut replacing = Replacing::default();
    let (mut broken, mut healthy) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| node.can_start && node.is_ready) {
        let here = on_nodes.get(node.name.as_str()).map_or(&[][..], Vec::as_slice);
        let live = here.iter().copied().find(|pod| pod.is_live());
        let is_available = live.is_some_and(|pod| pod.is_available);
        let is_outdated = live.is_some_and(|pod| pod.hash != node.wanted);
        if !is_available {
            down += 1;
            replacing.holding.push(node.name.clone());
        }
        // On its way: gone, going, or new and not there yet.
        if !is_available && !is_outdated {
            in_flight += 1;
        }
        if let (Some(pod), true, false) = (live, is_outdated, node.is_held) {
            if is_available { healthy.push((node, pod)) } else { broken.push((node, pod)) }
        }
    }
    // What is down already costs nobody anything more, and so comes first; but no more of it at once than the budget.
    for (node, pod) in broken {
        if in_flight < max_unavailable {
            in_flight += 1;
            replacing.delete.push(pod.name.clone());
        } else {
            replacing.waiting.push(node.name.clone());
        }
    }
    for (node, pod) in healthy {
        if down < max_unavailable && in_flight < max_unavailable {
            down += 1;
            in_flight += 1;
            replacing.delete.push(pod.name.clone());
        } else {
            replacing.waiting.push(node.name.clone());
        }
    }
    replacing
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
