//! Where pods go that wait behind the gate: the pods of one owner revision, all in one decision.
//!
//! A gated pod is a request in the cluster, and the write that takes its gate off is the decision: nothing else need be
//! remembered. What is kept here can be made anew from the pods at any time.
//!
//! Invariants: told of pods one by one, it decides as if made anew of all of them. A pod is placed only where it gets the
//! group's selector, so no gate goes off without one. The cost of a change does not depend on the number of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{NodeGroupSpec, PropagationPolicySpec};

use super::binding::{Pair, Situation};
use super::costs::{DELETION_COST, cost_of, seat_of};
use super::division::Division;
use super::edition::EDITION;
use super::label;
use super::seating::{Place, Placed, Seating, Suits, Waiting};
use super::why::Why;
use crate::mutant::{Mutant, is_on};
use crate::node::Labels;

/// The scheduling gate, and the label of a pod that names its group.
pub const GATE: &str = "dapple.dev/group";

/// A pod, as far as placing goes by it.
#[derive(Clone, Copy)]
pub struct PodFacts<'p> {
    /// Whether it has our gate.
    pub is_gated: bool,
    /// Whether it runs, or is yet to: it is neither being deleted nor finished.
    pub is_live: bool,
    /// Its labels.
    pub labels: &'p dyn Labels,
    /// Its annotations.
    pub annotations: &'p dyn Labels,
    /// What it wants of its node's labels itself.
    pub node_selector: &'p dyn Labels,
    /// The groups of the node that it is on.
    pub groups_of_node: &'p BTreeSet<Arc<str>>,
    /// Its ordinal, if its owner numbers its pods.
    pub ordinal: Option<usize>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
}

/// What is done about a pod that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It goes to a group.
    Place(Placement),
    /// It is deleted behind the gate, and its owner makes another: it was made by the edition of another group, and cannot be
    /// corrected.
    Replace,
    /// It stays behind the gate.
    Wait(Why),
}

/// What is known beside the pods of an owner.
pub struct Known<'k> {
    /// What the nodes of a group are selected by; none if there is no such group.
    pub selector_of: &'k dyn Fn(&str) -> Option<BTreeMap<String, String>>,
    /// How a pod that names this edition suits each group, in the order of the policy.
    pub suits: &'k dyn Fn(Option<&str>) -> Vec<Suits>,
    /// Groups that have no edition that renders, and why.
    pub unrendered: &'k BTreeMap<Arc<str>, String>,
    /// The only groups that the volumes of a pod allow, by their places in the policy; of pods that have such volumes.
    pub allowed: &'k BTreeMap<Arc<str>, BTreeSet<usize>>,
    /// Whether a group, by its place in the policy, has room for a pod, beside so many pods of the same decision.
    pub has_room: &'k dyn Fn(&str, usize, usize) -> bool,
    /// Whether pods must not be replaced by others: those of Jobs, which count them as failed, and those that nothing owns.
    pub are_kept: bool,
}

/// Where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The group.
    pub group: Arc<str>,
    /// What its node has to have.
    pub selector: BTreeMap<String, String>,
    /// What deleting it costs: less for those that are to go first. None if it has a cost of its own, or no seat.
    pub cost: Option<i32>,
    /// Whether it has a cost of its own, which is left alone.
    pub has_own_cost: bool,
    /// How the edition that it was made by suits the group. One that suits it never goes there as it is: it must be kept.
    pub suits: Suits,
}

/// What the labels of an application say of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodRule<'l> {
    /// They are divided by this policy.
    Divide(&'l str),
    /// They wait until a policy is confirmed.
    Hold {
        /// Of which kind.
        pair: Pair,
        /// Its name.
        policy: &'l str,
    },
    /// They go anywhere.
    Release,
}

impl<'l> PodRule<'l> {
    /// By the labels of an application.
    #[must_use]
    pub fn of(labels: &'l dyn Labels) -> Self {
        for pair in Pair::ALL.into_iter().filter(|_| !is_on(Mutant::HeldReleased)) {
            if let Situation::Asked(policy) | Situation::Differs { policy, .. } = pair.situation(labels) {
                return Self::Hold { pair, policy };
            }
        }
        match Pair::Propagation.situation(labels) {
            Situation::Bound(policy) => Self::Divide(policy),
            _ => Self::Release,
        }
    }
}

/// What pods of a group select their nodes by: its own labels if it names no nodes, else the label that its nodes are given.
/// Of a group that asks for no nodes, no node has that: without a selector, its pods would go anywhere.
#[must_use]
pub fn selector(group: &str, spec: &NodeGroupSpec) -> BTreeMap<String, String> {
    if spec.nodes.is_empty() && !spec.match_labels.is_empty() {
        return spec.match_labels.clone();
    }
    BTreeMap::from([(label::label(group), label::VALUE.to_owned())])
}

/// Whether a pod that selects its nodes by these labels goes to nodes of a group alone.
#[must_use]
pub fn is_for_group(own: &dyn Labels, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| own.get(key) == Some(value))
}

/// The pods of one owner revision under one policy.
#[derive(Debug)]
pub struct Placing {
    policy: String,
    seating: Seating,
    live: BTreeSet<Arc<str>>,
    waiting: BTreeMap<Arc<str>, Gated>,
}

/// A pod that waits.
#[derive(Debug, Clone)]
struct Gated {
    created: i64,
    ordinal: Option<usize>,
    edition: Option<Arc<str>>,
    node_selector: BTreeMap<String, String>,
    has_cost: bool,
}

impl Gated {
    /// What a group's selector wants that the pod's own contradicts.
    fn contradicted<'s>(&self, selector: &'s BTreeMap<String, String>) -> Option<(&'s String, &'s String)> {
        selector.iter().find(|(key, value)| self.node_selector.get(*key).is_some_and(|own| own != *value))
    }
}

impl Placing {
    /// No pods yet. None if the policy does not say how to divide them.
    #[must_use]
    pub fn new(policy: &str, spec: &PropagationPolicySpec) -> Option<Self> {
        let seating = Seating::new(Division::of(spec)?);
        Some(Self { policy: policy.to_owned(), seating, live: BTreeSet::new(), waiting: BTreeMap::new() })
    }

    /// These pods live, and are told next. How many there are says which seats are believed.
    pub fn expect(&mut self, live: impl Iterator<Item = Arc<str>>) {
        self.live.extend(live);
        self.seating.set_live(self.live.len());
    }

    /// The groups that pods are divided among, in lower case.
    #[must_use]
    pub fn groups(&self) -> &[Arc<str>] {
        self.seating.division().groups()
    }

    /// Whether no pod is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Whether some pod waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a pod lives, as far as it was told.
    #[must_use]
    pub fn is_known(&self, pod: &str) -> bool {
        self.live.contains(pod)
    }

    /// Whether a pod counts for a group.
    #[must_use]
    pub fn has_place(&self, pod: &str) -> bool {
        self.seating.has(pod)
    }

    /// How many pods each group has, and how many are its share, if so many live besides.
    pub fn counts(&mut self, besides: usize) -> Vec<(usize, usize)> {
        self.seating.counts_with(besides)
    }

    /// A pod is as this says.
    pub fn put(&mut self, pod: &Arc<str>, facts: &PodFacts<'_>) {
        if !facts.is_live {
            return self.remove(pod);
        }
        self.live.insert(pod.clone());
        self.seating.set_live(self.live.len());
        self.waiting.remove(pod);
        if facts.is_gated {
            self.seating.remove(pod);
            let mut node_selector = BTreeMap::new();
            facts.node_selector.each(&mut |key, value| _ = node_selector.insert(key.to_owned(), value.to_owned()));
            let gated = Gated {
                created: facts.created,
                ordinal: facts.ordinal.filter(|_| !is_on(Mutant::NumberForgotten)),
                edition: facts.annotations.get(EDITION).map(Arc::from),
                node_selector,
                has_cost: facts.annotations.get(DELETION_COST).is_some(),
            };
            self.waiting.insert(pod.clone(), gated);
            return;
        }
        let group = match facts.labels.get(GATE) {
            Some(group) => self.number_of(group),
            None => self.freest(facts.groups_of_node),
        };
        let seat = seat_of(facts.annotations).or(facts.ordinal);
        if is_on(Mutant::SeatGivenTwice) {
            return self.seating.remove(pod);
        }
        self.seating.put(pod, Placed { group, seat });
    }

    /// A pod is gone.
    pub fn remove(&mut self, pod: &Arc<str>) {
        self.live.remove(pod);
        self.waiting.remove(pod);
        self.seating.set_live(self.live.len());
        self.seating.remove(pod);
    }

    /// A pod was placed: it does not wait any more, and has its seat until it is told otherwise.
    pub fn note_placed(&mut self, pod: &Arc<str>, placement: &Placement) {
        if !self.live.contains(pod) {
            return;
        }
        self.waiting.remove(pod);
        let seat = placement.cost.and_then(|cost| usize::try_from(cost.checked_neg()?).ok());
        let group = self.number_of(&placement.group);
        self.seating.put(pod, Placed { group, seat });
    }

    /// What is done about every pod that waits, oldest first. Nothing is remembered of it: what is done is to be noted.
    pub fn decide(&mut self, known: &Known<'_>) -> Vec<(Arc<str>, Decision)> {
        let mut waiting: Vec<(&Arc<str>, &Gated)> = self.waiting.iter().collect();
        waiting.sort_by_key(|(name, gated)| (gated.created, (*name).clone()));
        // One answer for all pods of one edition: there are few of them.
        let mut suits: BTreeMap<Option<&str>, Vec<Suits>> = BTreeMap::new();
        let mut asked: Vec<(Arc<str>, Waiting)> = Vec::with_capacity(waiting.len());
        for (name, gated) in &waiting {
            let edition = gated.edition.as_deref();
            let suits = suits.entry(edition).or_insert_with(|| (known.suits)(edition)).clone();
            let allowed = known.allowed.get(*name).cloned();
            let (ordinal, barred) = (gated.ordinal, self.barred(gated, known));
            asked.push(((*name).clone(), Waiting { ordinal, suits, is_kept: known.are_kept, allowed, barred }));
        }
        let has_room = |pod: usize, group: usize, besides: usize| (known.has_room)(&asked[pod].0, group, besides);
        let places = self.seating.place(&asked, &has_room);
        for (name, _) in &asked {
            self.seating.remove(name);
        }
        let decided = waiting.into_iter().zip(&asked).zip(places);
        decided
            .map(|(((name, gated), (_, waits)), place)| (name.clone(), self.judge(gated, waits, place, known)))
            .collect()
    }

    /// The groups in which a pod would wait behind the gate. Only by range is it ever sent to another than its own.
    fn barred(&self, gated: &Gated, known: &Known<'_>) -> BTreeSet<usize> {
        let division = self.seating.division();
        let is_barred = |group: &Arc<str>| match (known.selector_of)(group) {
            Some(selector) => known.unrendered.contains_key(group) || gated.contradicted(&selector).is_some(),
            None => true,
        };
        let groups = division.groups().iter().enumerate().filter(|_| division.is_by_range());
        groups.filter(|(_, group)| is_barred(group)).map(|(number, _)| number).collect()
    }

    fn judge(&self, gated: &Gated, waits: &Waiting, place: Option<Place>, known: &Known<'_>) -> Decision {
        let policy = || self.policy.clone();
        if waits.allowed.as_ref().is_some_and(BTreeSet::is_empty) {
            return Decision::Wait(Why::OutOfReach { policy: policy() });
        }
        let Some(Place { group: number, seat }) = place else {
            return Decision::Wait(Why::NoSeat { policy: policy() });
        };
        let group = self.seating.division().groups()[number].clone();
        let Some(mut selector) = (known.selector_of)(&group) else {
            return Decision::Wait(Why::NoGroup { group, policy: policy() });
        };
        if let Some(text) = known.unrendered.get(&group) {
            return Decision::Wait(Why::NoEdition { group, text: text.clone() });
        }
        if is_on(Mutant::SelectorForgotten) {
            selector.clear();
        }
        if let Some((key, value)) = gated.contradicted(&selector) {
            return Decision::Wait(Why::Contradiction { group, key: key.clone(), value: value.clone() });
        }
        let suits = waits.suits(number);
        if suits == Suits::Never && !known.are_kept {
            return Decision::Replace;
        }
        let cost = seat.filter(|_| !gated.has_cost).and_then(cost_of);
        Decision::Place(Placement { group, selector, cost, has_own_cost: gated.has_cost, suits })
    }

    /// A group's place in the policy. Names compare without case.
    fn number_of(&self, group: &str) -> Option<usize> {
        self.seating.division().groups().iter().position(|known| known.eq_ignore_ascii_case(group))
    }

    /// Of the groups that a node is in, the one with most free seats, then the first that the policy lists.
    fn freest(&mut self, groups: &BTreeSet<Arc<str>>) -> Option<usize> {
        if groups.is_empty() {
            return None;
        }
        let listed: Vec<usize> = groups.iter().filter_map(|group| self.number_of(group)).collect();
        let counts = self.seating.counts();
        let free = |group: &usize| counts[*group].1.saturating_sub(counts[*group].0);
        listed.into_iter().min_by_key(|group| (std::cmp::Reverse(free(group)), *group))
    }
}

/// The group that one more pod of an owner will probably get, beside those that are there: so many in each group, as far as that
/// is known. An ordinal is a seat.
pub fn probable_group<'g>(
    division: &mut Division,
    there: impl Iterator<Item = (Option<&'g str>, usize)>,
    ordinal: Option<usize>,
    allowed: Option<&BTreeSet<usize>>,
) -> Option<Arc<str>> {
    let is_allowed = |group: &usize| allowed.is_none_or(|allowed| allowed.contains(group));
    let seated = ordinal.and_then(|ordinal| division.group_at(ordinal)).filter(is_allowed);
    let group = match seated {
        Some(group) => group,
        None if ordinal.is_some() && allowed.is_none() => return None,
        None => {
            let (mut counts, mut pods) = (vec![0; division.groups().len()], 1);
            for (group, count) in there {
                pods += count;
                let found = division
                    .groups()
                    .iter()
                    .position(|known| group.is_some_and(|group| known.eq_ignore_ascii_case(group)));
                found.into_iter().for_each(|group| counts[group] += count);
            }
            let shares = division.counts(pods);
            // One whose ordinal's group is not allowed has no seat.
            let is_open = |group: &usize| ordinal.is_none() && counts[*group] < shares[*group] && is_allowed(group);
            let mut open: Vec<usize> = (0..counts.len()).filter(is_open).collect();
            // Volumes come before seats.
            if open.is_empty() {
                open.extend(allowed.into_iter().flatten().copied().min_by_key(|group| counts.get(*group).copied()));
                open.retain(|group| *group < counts.len());
            }
            let seat = |group: &usize| division.seat_at(*group, counts[*group], pods).unwrap_or(usize::MAX);
            open.into_iter().min_by_key(seat)?
        }
    };
    Some(division.groups()[group].clone())
}

#[cfg(test)]
#[path = "placing_tests.rs"]
mod tests;
