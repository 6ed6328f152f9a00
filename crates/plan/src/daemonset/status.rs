//! What the status of a DaemonSet says.

use std::collections::BTreeMap;

use dapple_api::daemonset::DaemonSetStatus;

use super::pods::{NodeState, PodState};

/// What the counts are of.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The nodes.
    pub nodes: &'a [NodeState],
    /// The pods.
    pub pods: &'a [PodState],
    /// By node, the hash that the newest revision gives it.
    pub newest: &'a BTreeMap<String, String>,
    /// Names of pods that are ready.
    pub ready: &'a std::collections::BTreeSet<String>,
}

/// The status, from the one before it.
pub fn status(facts: Facts<'_>, before: &DaemonSetStatus, generation: Option<i64>) -> DaemonSetStatus {
    let mut counts = DaemonSetStatus {
        observed_generation: generation,
        collision_count: before.collision_count,
        current_revision: before.current_revision.clone(),
        update_revision: before.update_revision.clone(),
        conditions: before.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    let mut available = 0;
    for node in facts.nodes {
        let live: Vec<&PodState> = facts.pods.iter().filter(|pod| pod.node == node.name && pod.is_live()).collect();
        if !node.can_start {
            counts.number_misscheduled += i32::from(!live.is_empty() && !node.can_stay);
            if !node.can_stay || live.is_empty() {
                continue;
            }
        }
        counts.desired_number_scheduled += 1;
        counts.current_number_scheduled += i32::from(!live.is_empty());
        counts.number_ready += i32::from(live.iter().any(|pod| facts.ready.contains(&pod.name)));
        available += i32::from(live.iter().any(|pod| pod.is_available));
        let is_updated = |pod: &&&PodState| facts.newest.get(&node.name) == Some(&pod.hash);
        counts.updated_number_scheduled += i32::from(live.iter().find(is_updated).is_some());
    }
    counts.number_available = Some(available);
    counts.number_unavailable = Some(counts.desired_number_scheduled - available);
    counts
}

/// Whether every node that gets a pod has what the newest revision gives it: then there is nothing to be held back at.
pub fn is_settled(facts: Facts<'_>) -> bool {
    facts.nodes.iter().filter(|node| node.can_start).all(|node| {
        let mut live = facts.pods.iter().filter(|pod| pod.node == node.name && pod.is_live());
        live.any(|pod| facts.newest.get(&node.name) == Some(&pod.hash))
    })
}
