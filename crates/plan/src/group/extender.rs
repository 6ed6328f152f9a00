//! What a scheduler is told of nodes, for pods that come without a group: which of them may have the pod, and which rather.
//!
//! A pod is divided by the PropagationPolicy that is confirmed for its application. Of the groups that the policy lists, those
//! that have not enough pods pass, and the more a group lacks the better. Where the pod has gone is seen a moment later, and
//! the next pod of a burst is asked about before: so whoever answers remembers for a while which group each pod was let pass
//! to ([`Passes`]), and counts it there.
//!
//! Invariants: no node passes of a group that has its share, counting pods that were let pass and are not seen yet. One group
//! alone has the best score, and a pod that is let pass counts there until it is seen, so that a scheduler that goes by the
//! score puts no more pods into a group than its share. As long as pods are seen in time, one that has a seat is not refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::binding::{Pair, Situation};
use super::placing::Placing;
use super::{Membership, Rule};
use crate::node::Labels;

/// For so long, a pod that was let pass counts for its group though nobody has seen it there.
pub const REMEMBERED: Duration = Duration::from_secs(30);

/// The best score. Schedulers know no better one.
pub const BEST: u8 = 10;

/// Why no node, or not this one, may have a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Its policy is asked for and not confirmed.
    NotConfirmed {
        /// The policy.
        policy: String,
    },
    /// A policy is asked for, and another was confirmed.
    Differs {
        /// The one that is asked for.
        policy: String,
        /// The one that was confirmed.
        bound: String,
    },
    /// The policy is confirmed, and not there, or does not say how to divide pods.
    NoPolicy {
        /// The policy.
        policy: String,
    },
    /// The node is in no group that the policy lists.
    Outside {
        /// The policy.
        policy: String,
    },
    /// The node's group has its share.
    Full {
        /// The group.
        group: Arc<str>,
        /// How many pods are its share.
        desired: usize,
        /// The policy.
        policy: String,
    },
}

impl fmt::Display for Reason {
    /// As it stands behind a number of nodes in an Event of the scheduler.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfirmed { policy } => write!(f, "PropagationPolicy {policy:?} is asked for and not confirmed"),
            Self::Differs { policy, bound } => {
                write!(f, "PropagationPolicy {policy:?} is asked for and {bound:?} confirmed")
            }
            Self::NoPolicy { policy } => write!(f, "PropagationPolicy {policy:?} is confirmed and not there"),
            Self::Outside { policy } => write!(f, "in no group of PropagationPolicy {policy:?}"),
            Self::Full { group, desired, policy } => {
                write!(f, "group {group} has its {desired} of PropagationPolicy {policy:?}")
            }
        }
    }
}

/// What is asked about a pod, by the labels of its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question<'l> {
    /// Nothing: every node may have it.
    None,
    /// No node may have it.
    Refused(Reason),
    /// Where this policy wants it.
    Divide(&'l str),
}

impl<'l> Question<'l> {
    /// By the labels of an application. Only those of PropagationPolicies count.
    #[must_use]
    pub fn of(labels: &'l dyn Labels) -> Self {
        match Pair::Propagation.situation(labels) {
            Situation::Asked(policy) => Self::Refused(Reason::NotConfirmed { policy: policy.to_owned() }),
            Situation::Differs { policy, bound } => {
                Self::Refused(Reason::Differs { policy: policy.to_owned(), bound: bound.to_owned() })
            }
            Situation::Bound(policy) => Self::Divide(policy),
            Situation::None => Self::None,
        }
    }
}

/// The number of a node's name, of which thousands come with every question: eight bytes at a time. Whoever makes nodes is trusted
/// not to choose names that have the same.
fn number_of_name(name: &str) -> u64 {
    const ODD: u128 = 0x9E37_79B9_7F4A_7C15;
    let mix = |state: u64, word: u64| {
        let mixed = u128::from(state.rotate_left(29) ^ word).wrapping_mul(ODD);
        (mixed as u64) ^ ((mixed >> 64) as u64)
    };
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    let state = words.iter().fold(0, |state, word| mix(state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(state, u64::from_le_bytes(last) ^ (name.len() as u64).rotate_right(8))
}

/// Takes numbers of names as they are.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The kind of the node, or nodes, whose name has a number.
#[derive(Debug, Clone, Copy)]
enum Entry {
    Kind(usize),
    /// Several nodes: their names tell.
    Several,
}

/// Nodes by name, each with the groups that it is in. Nodes of the same groups are of one kind, and judged once.
///
/// Names are looked up by their number, so that none but those of the question are read. A node that nobody knows is taken for
/// another if their names have the same, which no fleet is large enough for.
#[derive(Debug, Default)]
pub struct Roster {
    membership: Membership,
    entries: HashMap<u64, Entry, BuildHasherDefault<AsItIs>>,
    kinds: Vec<BTreeSet<Arc<str>>>,
    number_of: BTreeMap<BTreeSet<Arc<str>>, usize>,
}

impl Roster {
    /// A node has come, or has these labels now.
    pub fn node_changed(&mut self, node: &str, labels: &dyn Labels) {
        let is_known = self.membership.nodes.contains_key(node);
        self.membership.node_changed(node, labels);
        let kind = self.kind(self.membership.groups_of(node));
        self.enter(number_of_name(node), kind, is_known);
    }

    /// A node is gone.
    pub fn node_removed(&mut self, node: &str) {
        let (number, is_known) = (number_of_name(node), self.membership.nodes.contains_key(node));
        self.membership.node_removed(node);
        if is_known && let Some(Entry::Kind(_)) = self.entries.get(&number) {
            self.entries.remove(&number);
        }
    }

    /// A group selects this now. `fleet` is called to visit every node.
    pub fn group_changed(&mut self, group: &str, rule: Rule, fleet: impl FnOnce(&mut dyn FnMut(&str, &dyn Labels))) {
        self.membership.group_changed(group, rule, fleet);
        self.sort_anew();
    }

    /// A group is gone.
    pub fn group_removed(&mut self, group: &str) {
        self.membership.group_removed(group);
        self.sort_anew();
    }

    fn sort_anew(&mut self) {
        self.entries.clear();
        self.kinds.clear();
        self.number_of.clear();
        let nodes: Vec<(u64, BTreeSet<Arc<str>>)> =
            self.membership.nodes.iter().map(|(node, groups)| (number_of_name(node), groups.clone())).collect();
        for (number, groups) in nodes {
            let kind = self.kind(groups);
            self.enter(number, kind, false);
        }
    }

    /// The number of the kind of nodes that are in these groups.
    fn kind(&mut self, groups: BTreeSet<Arc<str>>) -> usize {
        self.number_of.get(&groups).copied().unwrap_or_else(|| {
            self.kinds.push(groups.clone());
            self.number_of.insert(groups, self.kinds.len() - 1);
            self.kinds.len() - 1
        })
    }

    /// Enters a node by the number of its name: one that is known already, or another.
    fn enter(&mut self, number: u64, kind: usize, is_known: bool) {
        let entry = match self.entries.get(&number) {
            Some(Entry::Several) => Entry::Several,
            Some(Entry::Kind(_)) if !is_known => Entry::Several,
            _ => Entry::Kind(kind),
        };
        self.entries.insert(number, entry);
    }

    fn kind_of(&self, node: &str) -> Option<usize> {
        match self.entries.get(&number_of_name(node))? {
            Entry::Kind(kind) => Some(*kind),
            Entry::Several => self.number_of.get(self.membership.nodes.get(node)?).copied(),
        }
    }
}

/// How many pods a group has, and how many are its share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The group.
    pub group: Arc<str>,
    /// How many it has, those included that were let pass to it.
    pub current: usize,
    /// How many it should have.
    pub desired: usize,
}

impl Share {
    fn need(&self) -> usize {
        self.desired.saturating_sub(self.current)
    }
}

/// What becomes of nodes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// They may have the pod, for this group.
    Passes(usize),
    /// This group has its share, and so has every other that they are in.
    Full(usize),
    /// They are in no group of the policy.
    Outside,
}

/// What a policy says of nodes, for one pod.
pub struct Judged<'r> {
    roster: &'r Roster,
    policy: String,
    shares: Vec<Share>,
    fates: Vec<Fate>,
}

/// Which of some nodes may have a pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Filtered {
    /// For each node, in the order in which they were named: the number of the reason why not.
    pub nodes: Vec<Option<usize>>,
    /// Why nodes may not have it.
    pub reasons: Vec<Reason>,
    /// The group that the pod goes to if the scheduler goes by the score; none if no node passes.
    pub group: Option<Arc<str>>,
}

impl<'r> Judged<'r> {
    /// By how many pods each group of a policy has, in the policy's order.
    #[must_use]
    pub fn new(roster: &'r Roster, policy: &str, shares: Vec<Share>) -> Self {
        let listed: BTreeMap<&str, usize> =
            shares.iter().enumerate().map(|(number, share)| (&*share.group, number)).collect();
        let fate = |groups: &BTreeSet<Arc<str>>| {
            let own = groups.iter().filter_map(|group| listed.get(&**group).copied());
            match neediest(&shares, own) {
                None => Fate::Outside,
                Some(group) if shares[group].need() == 0 => Fate::Full(group),
                Some(group) => Fate::Passes(group),
            }
        };
        let fates = roster.kinds.iter().map(fate).collect();
        Self { roster, policy: policy.to_owned(), shares, fates }
    }

    fn fate(&self, node: &str) -> Fate {
        // One that is not known here yet is in no group that is.
        self.roster.kind_of(node).map_or(Fate::Outside, |kind| self.fates[kind])
    }

    /// Which of these nodes may have the pod.
    #[must_use]
    pub fn filter<'n>(&self, nodes: impl Iterator<Item = &'n str>) -> Filtered {
        let mut reasons = vec![Reason::Outside { policy: self.policy.clone() }];
        reasons.extend(self.shares.iter().map(|share| Reason::Full {
            group: share.group.clone(),
            desired: share.desired,
            policy: self.policy.clone(),
        }));
        let mut is_open = vec![false; self.shares.len()];
        let judged = nodes.map(|node| match self.fate(node) {
            Fate::Passes(group) => {
                is_open[group] = true;
                None
            }
            Fate::Full(group) => Some(group + 1),
            Fate::Outside => Some(0),
        });
        let nodes = judged.collect();
        let best = neediest(&self.shares, (0..self.shares.len()).filter(|group| is_open[*group]));
        Filtered { nodes, reasons, group: best.map(|group| self.shares[group].group.clone()) }
    }

    /// The score of each of these nodes, and the group with the best.
    #[must_use]
    pub fn scores<'n>(&self, nodes: impl Iterator<Item = &'n str>) -> (Vec<u8>, Option<Arc<str>>) {
        let mut is_open = vec![false; self.shares.len()];
        let fates: Vec<Fate> = nodes.map(|node| self.fate(node)).collect();
        for fate in &fates {
            if let Fate::Passes(group) = fate {
                is_open[*group] = true;
            }
        }
        let best = neediest(&self.shares, (0..self.shares.len()).filter(|group| is_open[*group]));
        let most = best.map_or(0, |group| self.shares[group].need());
        let score = |group: usize| match best {
            Some(best) if best == group => BEST,
            // Less than the best one, also if they lack as many: where a pod goes is to follow from the scores.
            _ => scaled(self.shares[group].need(), most).min(BEST - 1),
        };
        let scores: Vec<u8> = (0..self.shares.len()).map(score).collect();
        let score_of = |fate: &Fate| match fate {
            Fate::Passes(group) => scores[*group],
            Fate::Full(_) | Fate::Outside => 0,
        };
        (fates.iter().map(score_of).collect(), best.map(|group| self.shares[group].group.clone()))
    }
}

/// Of some groups the one that lacks most pods, then the first that the policy lists.
fn neediest(shares: &[Share], among: impl Iterator<Item = usize>) -> Option<usize> {
    among.min_by_key(|group| (std::cmp::Reverse(shares[*group].need()), *group))
}

/// A number of pods as a score, if so many get the best.
fn scaled(need: usize, most: usize) -> u8 {
    let scaled = need.saturating_mul(usize::from(BEST)).checked_div(most).unwrap_or(0);
    u8::try_from(scaled).unwrap_or(BEST).min(BEST)
}

/// A pod that is asked about.
#[derive(Debug, Clone, Copy)]
pub struct PodName<'p> {
    /// Its UID: another pod of its name is another.
    pub uid: &'p str,
    /// Its name.
    pub name: &'p str,
}

/// Pods that were let pass and are not seen yet, by owner. Times are since any beginning.
#[derive(Debug)]
pub struct Passes<O> {
    by_owner: BTreeMap<O, BTreeMap<Arc<str>, Pass>>,
    owners: BTreeMap<Arc<str>, O>,
    /// In the order in which they end; some were forgotten before.
    ends: VecDeque<(Duration, Arc<str>)>,
}

#[derive(Debug)]
struct Pass {
    name: Arc<str>,
    group: Arc<str>,
    until: Duration,
}

impl<O> Default for Passes<O> {
    fn default() -> Self {
        Self { by_owner: BTreeMap::new(), owners: BTreeMap::new(), ends: VecDeque::new() }
    }
}

impl<O: Ord + Clone> Passes<O> {
    /// How the groups of a policy stand, for a pod of an owner whose others are in `placing`.
    pub fn shares(&self, owner: &O, pod: PodName<'_>, placing: &mut Placing, now: Duration) -> Vec<Share> {
        let passed = self.by_owner.get(owner).into_iter().flatten();
        let passed = passed.filter(|(uid, pass)| ***uid != *pod.uid && pass.until > now);
        let passed: Vec<&Pass> = passed.map(|(_, pass)| pass).filter(|pass| !placing.has_place(&pass.name)).collect();
        let unknown = passed.iter().map(|pass| &*pass.name).chain([pod.name]).filter(|name| !placing.is_known(name));
        let unknown = unknown.count();
        let groups = placing.groups().to_vec();
        let counts = placing.counts(unknown);
        let share = |(group, (pods, desired)): (Arc<str>, (usize, usize))| {
            let on_the_way = passed.iter().filter(|pass| *pass.group == *group).count();
            Share { group, current: pods + on_the_way, desired }
        };
        groups.into_iter().zip(counts).map(share).collect()
    }

    /// A pod was let pass, to this group.
    pub fn note(&mut self, owner: &O, pod: PodName<'_>, group: Arc<str>, now: Duration) {
        self.forget(pod.uid);
        while let Some((until, uid)) = self.ends.front().filter(|(until, _)| *until <= now).cloned() {
            self.ends.pop_front();
            if self.until(&uid) == Some(until) {
                self.forget(&uid);
            }
        }
        let (uid, until) = (Arc::<str>::from(pod.uid), now.saturating_add(REMEMBERED));
        let pass = Pass { name: Arc::from(pod.name), group, until };
        self.by_owner.entry(owner.clone()).or_default().insert(uid.clone(), pass);
        self.owners.insert(uid.clone(), owner.clone());
        self.ends.push_back((until, uid));
    }

    /// A pod that was let pass goes to this group.
    pub fn redirect(&mut self, uid: &str, group: Arc<str>) {
        let Some(owner) = self.owners.get(uid) else { return };
        if let Some(pass) = self.by_owner.get_mut(owner).and_then(|passed| passed.get_mut(uid)) {
            pass.group = group;
        }
    }

    /// A pod is seen where it is, or goes nowhere: what it was let pass to counts no more.
    pub fn forget(&mut self, uid: &str) {
        let Some(owner) = self.owners.remove(uid) else { return };
        if let Some(passed) = self.by_owner.get_mut(&owner) {
            passed.remove(uid);
            if passed.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    fn until(&self, uid: &str) -> Option<Duration> {
        let owner = self.owners.get(uid)?;
        self.by_owner.get(owner)?.get(uid).map(|pass| pass.until)
    }
}

#[cfg(test)]
#[path = "extender_tests.rs"]
mod tests;
