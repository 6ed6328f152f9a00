//! Where pods can go by their volumes, as far as those were read: whoever asks for a plan need read none but those that matter to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::World;
use super::read::text;
use crate::group::division::Division;
use crate::group::repair::{PodState, misplaced};
use crate::group::volumes::{Claims, Reach, claims_of, reach};
use crate::group::why::Why;
use crate::group::workload::Groups;

/// Pods that wait, by name: those that may go to some groups only, and those that wait for a claim.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) allowed: BTreeMap<Arc<str>, BTreeSet<usize>>,
    pub(super) unbound: BTreeMap<Arc<str>, Why>,
}

/// What is known of the volumes of pods that a policy divides.
pub(super) struct Volumes<'w> {
    world: &'w World,
    groups: &'w Groups,
    /// The groups that the policy lists.
    listed: Vec<Arc<str>>,
    claims: &'w Claims,
    /// Claims that were asked about, and of which nothing is known.
    pub(super) unread: BTreeSet<Arc<str>>,
}

impl<'w> Volumes<'w> {
    pub(super) fn new(world: &'w World, (groups, listed): (&'w Groups, &[Arc<str>]), claims: &'w Claims) -> Self {
        Self { world, groups, listed: listed.to_vec(), claims, unread: BTreeSet::new() }
    }

    /// Where a pod can go: to all groups, while nothing is known of a claim of it.
    fn reach(&mut self, pod: &Value) -> Reach {
        let own = claims_of(pod);
        let unread = own.iter().filter(|claim| !self.claims.contains_key(*claim));
        let unread: Vec<Arc<str>> = unread.cloned().collect();
        if !unread.is_empty() {
            self.unread.extend(unread);
            return Reach::All;
        }
        reach(&own, self.claims, |are_usable| {
            let mut allowed = BTreeSet::new();
            for node in self.world.nodes().filter(|node| are_usable(*node)) {
                let is_in = |group: &Arc<str>| self.groups.get(&**group).is_some_and(|nodes| nodes.contains(node.name));
                let there = self.listed.iter().enumerate().filter(|(_, group)| is_in(group));
                allowed.extend(there.map(|(number, _)| number));
            }
            allowed
        })
    }

    /// Has pods say which groups their volumes allow, those that are not where their seats are.
    pub(super) fn pin(&mut self, division: &mut Division, states: &mut [PodState], pods: &[&Value]) {
        // One that has no node yet may have volumes that are bound where it gets one.
        let is_bound = |number: &usize| pods[*number]["spec"]["nodeName"].is_string();
        let elsewhere: Vec<usize> =
            misplaced(division, states).into_iter().map(|known| known.pod).filter(is_bound).collect();
        for number in elsewhere {
            if let Reach::Only(allowed) = self.reach(pods[number]) {
                states[number].reach = Some(allowed);
            }
        }
    }

    /// What the claims of pods that wait come to.
    pub(super) fn of_waiting<'p>(&mut self, waiting: impl Iterator<Item = &'p Value>) -> Waiting {
        let mut known = Waiting::default();
        for pod in waiting {
            let name = Arc::from(text(pod, "/metadata/name"));
            match self.reach(pod) {
                Reach::All => {}
                Reach::Only(groups) => _ = known.allowed.insert(name, groups),
                Reach::Unbound(claim) => _ = known.unbound.insert(name, Why::Unbound { claim }),
            }
        }
        known
    }
}
