//! Workloads whose pods a policy divides, beside the pods that there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::group::REQUIRED_PROPAGATION_LABEL;
use dapple_api::kinds;
use serde_json::Value;

use super::World;
use super::read::{labels_of, text};
use super::volumes::Volumes;
use crate::group::division::Division;
use crate::group::repair::{MOVED, PodState, counts, misplaced};
use crate::group::standing::{Around, is_live, state_of};
use crate::group::volumes::Claims;
use crate::variant::ObjectName;

/// How the pods of a workload are divided now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Divided {
    /// Each group of the policy, in its order, and how many pods it has.
    pub current: Vec<(String, usize)>,
    /// The pods that are not where they belong, and will be moved.
    pub moves: Vec<Moved>,
    /// Claims of which nothing is known, of pods that may be where they belong after all.
    pub unread: BTreeSet<Arc<str>>,
}

/// A pod that is not where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The pod.
    pub pod: String,
    /// The group that it counts for, if that is one of the policy.
    pub from: Option<String>,
    /// The group that should have it.
    pub to: String,
}

impl World {
    /// How a workload's pods are divided now, by its policy in this world. None if no policy divides them. Pods of several revisions
    /// are not moved before the rollout is over. Volumes come before seats, as far as claims are known.
    pub fn divided(&self, object: &ObjectName, pods: &[Value], claims: &Claims) -> Option<Divided> {
        let workload = self.natives.get(object)?;
        let group = text(workload, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        let kind = kinds::find_native(group, text(workload, "/kind"))?.at;
        if kind == kinds::NATIVE_DAEMON_SET.at {
            return None;
        }
        let policy = labels_of(workload).remove(REQUIRED_PROPAGATION_LABEL)?;
        let policy = self.propagation_policies.get(&(object.namespace.clone(), policy))?;
        let mut division = Division::of(&policy.spec)?;
        let start = workload.pointer("/spec/ordinals/start").and_then(Value::as_u64);
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        let (groups, selector_of) = (self.groups(), |group: &str| self.selector_of_group(group));
        let live: Vec<&Value> = pods.iter().filter(|pod| is_live(pod)).collect();
        let mut states: Vec<PodState> = {
            let owner_kind = kind.kind;
            let around = Around { division: &division, groups: &groups, selector_of: &selector_of, owner_kind, start };
            live.iter().map(|pod| state_of(pod, &around)).collect()
        };
        let revisions: BTreeSet<String> = live.iter().map(|pod| revision_of(pod)).collect();
        let is_moved = revisions.len() <= 1 && MOVED.contains(&kind.kind);
        let mut volumes = Volumes::new(self, (&groups, division.groups()), claims);
        let moves = if is_moved {
            volumes.pin(&mut division, &mut states, &live);
            misplaced(&mut division, &states)
        } else {
            Vec::new()
        };
        let name = |group: usize| division.groups()[group].to_string();
        let moves = moves.iter().map(|known| {
            let state = &states[known.pod];
            let from = state.group.or(state.near.first().copied()).map(name);
            Moved { pod: state.name.to_string(), from, to: name(known.to) }
        });
        let moves = moves.collect();
        let current = counts(&mut division, &states);
        let current = division.groups().iter().zip(current).map(|(group, (pods, _))| (group.to_string(), pods));
        Some(Divided { current: current.collect(), moves, unread: volumes.unread })
    }
}

/// What tells pods of one revision from those of another.
fn revision_of(pod: &Value) -> String {
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owner = owners.into_iter().find(|owner| owner["controller"] == true);
    let hash = ["pod-template-hash", "controller-revision-hash"]
        .iter()
        .find_map(|key| pod["metadata"]["labels"][*key].as_str())
        .unwrap_or_default();
    format!("{}/{hash}", owner.and_then(|owner| owner["uid"].as_str()).unwrap_or_default())
}
