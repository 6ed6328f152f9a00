//! Which pod of an application is moved next, if any: pods that were placed when dapple was away, or by another policy.
//!
//! Invariants, whatever the facts are:
//! - An available pod is moved only while fewer pods of the application than allowed are unavailable, whatever made them so.
//! - While a pod that is well placed is unavailable, the successor of the last one among them, no more are moved than allowed: a
//!   move that does harm is the last.
//! - Every move brings the counts one closer to the shares, and goes only to a group that has a node for the pod.
//!
//! All of it is read from the cluster, so that a new leader decides the same.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::division::Division;
use crate::mutant::{Mutant, is_on};

/// The kinds whose pods are moved: those that make another for one that is evicted.
pub const MOVED: [&str; 4] = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"];
/// Annotation of a policy: so many pods of an application may be away at once, by default one.
pub const ROLLOUT_MAX: &str = "dapple.dev/rollout-max";

/// A pod of an application's newest revision that lives, as far as repair goes by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// Its name.
    pub name: Arc<str>,
    /// The group that it says, by its place in the policy; none if it says none, or one that is not listed.
    pub group: Option<usize>,
    /// If it says none: the listed groups that its node is in. It counts for one of them.
    pub near: Vec<usize>,
    /// Its ordinal, if its owner numbers its pods: that is its seat.
    pub ordinal: Option<usize>,
    /// The seat that it was given.
    pub seat: Option<usize>,
    /// Whether it is available.
    pub is_available: bool,
    /// Whether it is yet to be placed: it is unavailable, and not misplaced.
    pub is_gated: bool,
    /// Whether somebody has said that it must not be evicted.
    pub is_protected: bool,
    /// Whether it has no node, and waits for others than its group has by now: the group selects its nodes by other labels than it did
    /// when the pod was placed, and no pod that is placed can be told so.
    pub is_stale: bool,
    /// The groups that its volumes allow, by their places in the policy; none if they allow all, or that is not known.
    pub reach: Option<BTreeSet<usize>>,
}

impl PodState {
    /// Whether its volumes can follow it to a group.
    fn can_go(&self, to: usize) -> bool {
        self.reach.as_ref().is_none_or(|reach| reach.contains(&to))
    }
}

/// An application.
#[derive(Debug, Clone)]
pub struct Facts {
    /// How many pods it should have.
    pub desired: usize,
    /// How many are available, as its owner counts them.
    pub available: usize,
    /// Its pods.
    pub pods: Vec<PodState>,
    /// How many pods are leaving nodes that are not well. They count as unavailable: the last move may have made the node so.
    pub stranded: usize,
    /// So many of its pods may be away at once.
    pub most_away: usize,
}

/// A pod that is not where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The pod, by its place in the facts.
    pub pod: usize,
    /// The group that should have it, by its place in the policy: its own if it waits for nodes that this does not have any more.
    pub to: usize,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: every pod is where it belongs, or cannot be moved to where it does.
    Rest,
    /// Nothing yet: too many pods are unavailable.
    Wait,
    /// A pod is evicted.
    Evict(Move),
}

/// How an application stands when a pod of it is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// UID and generation of its policy.
    pub policy: (Arc<str>, Option<i64>),
    /// How many pods it should have.
    pub desired: usize,
    /// How many are not where they belong.
    pub misplaced: usize,
}

impl Stage {
    /// Whether the move that was made then has helped, or what is asked for has changed since. If not, something else puts pods
    /// where they do not belong, and moving on would go on for ever.
    #[must_use]
    pub fn has_helped(&self, now: &Self) -> bool {
        let is_same = (&self.policy, self.desired) == (&now.policy, now.desired);
        !is_same || now.misplaced < self.misplaced
    }
}

/// Which pods are not where they belong, and where each should be. As many as the counts differ from the shares, and no more, but for
/// those that wait for nodes which their group does not have any more. Volumes come before seats: a pod belongs where it is while its
/// volumes cannot follow it to where its seat is.
#[must_use]
pub fn misplaced(division: &mut Division, pods: &[PodState]) -> Vec<Move> {
    let placed: Vec<usize> = (0..pods.len()).filter(|pod| !pods[*pod].is_gated).collect();
    if pods.iter().any(|pod| pod.ordinal.is_some()) {
        let belongs = |pod: usize| {
            let to = division.group_at(pods[pod].ordinal?)?;
            let is_there = pods[pod].group == Some(to) || pods[pod].near.contains(&to);
            let is_elsewhere = !is_there && pods[pod].can_go(to);
            (is_elsewhere || pods[pod].is_stale).then_some(Move { pod, to })
        };
        return placed.into_iter().filter_map(belongs).collect();
    }
    let (groups, counts) = counted(division, pods);
    // Those that wait have seats too: their groups are not short of them.
    let wanted = wanted(division, &counts, pods.len());
    let mut leaving: Vec<usize> = placed.iter().copied().filter(|pod| groups[*pod].is_none()).collect();
    for group in 0..counts.len() {
        let mut own: Vec<usize> = placed.iter().copied().filter(|pod| groups[*pod] == Some(group)).collect();
        // First those that are of no use where they are. Then those that say no group: where they count is a guess, which placing
        // may make otherwise, and their successors say one, so that it ends. Then the last seats.
        own.sort_by_key(|pod| {
            let PodState { is_available, group, seat, name, .. } = &pods[*pod];
            (*is_available, group.is_some(), Reverse(*seat), name.clone())
        });
        leaving.extend(own.into_iter().take(counts[group].saturating_sub(wanted[group])));
    }
    let short =
        (0..counts.len()).flat_map(|group| std::iter::repeat_n(group, wanted[group].saturating_sub(counts[group])));
    let moves = leaving.into_iter().zip(short).map(|(pod, to)| Move { pod, to });
    let mut moves: Vec<Move> = moves.filter(|known| pods[known.pod].can_go(known.to)).collect();
    let moved: BTreeSet<usize> = moves.iter().map(|known| known.pod).collect();
    let stale = placed.into_iter().filter(|pod| pods[*pod].is_stale && !moved.contains(pod));
    moves.extend(stale.filter_map(|pod| Some(Move { pod, to: groups[pod]? })));
    moves
}

/// The group that each pod counts for, by its place in the policy.
#[must_use]
pub fn groups_of(division: &mut Division, pods: &[PodState]) -> Vec<Option<usize>> {
    counted(division, pods).0
}

/// How many pods each group has, and how many it should have once all are placed and moved.
#[must_use]
pub fn counts(division: &mut Division, pods: &[PodState]) -> Vec<(usize, usize)> {
    let (_, counts) = counted(division, pods);
    let wanted = if pods.iter().any(|pod| pod.ordinal.is_some()) {
        let mut wanted = vec![0; counts.len()];
        let ordinals = pods.iter().filter_map(|pod| pod.ordinal);
        ordinals.filter_map(|ordinal| division.group_at(ordinal)).for_each(|group| wanted[group] += 1);
        wanted
    } else {
        wanted(division, &counts, pods.len())
    };
    counts.into_iter().zip(wanted).collect()
}

/// The group that each pod counts for, and how many each group has. One that says none counts for the group of its node with most
/// free seats, of equal ones for the first.
fn counted(division: &mut Division, pods: &[PodState]) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut counts = vec![0_usize; division.groups().len()];
    let mut groups: Vec<Option<usize>> = pods.iter().map(|pod| pod.group.filter(|_| !pod.is_gated)).collect();
    groups.iter().flatten().for_each(|group| counts[*group] += 1);
    let shares = division.counts(pods.len());
    let mut strays: Vec<usize> = (0..pods.len()).filter(|pod| groups[*pod].is_none() && !pods[*pod].is_gated).collect();
    strays.sort_by_key(|pod| (pods[*pod].near.len(), pods[*pod].name.clone()));
    for pod in strays {
        let free = |group: &usize| shares[*group].saturating_sub(counts[*group]);
        groups[pod] = pods[pod].near.iter().copied().min_by_key(|group| (Reverse(free(group)), *group));
        groups[pod].into_iter().for_each(|group| counts[group] += 1);
    }
    (groups, counts)
}

/// How many pods each group should have. By weight, its share. By range, what it has, within its least and greatest number: that
/// they are even is for placing.
fn wanted(division: &mut Division, counts: &[usize], pods: usize) -> Vec<usize> {
    if !division.is_by_range() {
        return division.counts(pods);
    }
    let (least, most): (Vec<usize>, Vec<usize>) =
        (0..counts.len()).map(|group| (division.least(group), division.most(group))).unzip();
    // Not all can have their least number: the first on the list do.
    if pods < least.iter().sum() {
        return division.counts(pods);
    }
    let mut wanted: Vec<usize> = counts.iter().zip(&most).map(|(count, most)| *count.min(most)).collect();
    let mut over = pods - wanted.iter().sum::<usize>().min(pods);
    for group in 0..counts.len() {
        while wanted[group] < least[group] {
            if over > 0 {
                over -= 1;
            } else {
                let richest = (0..counts.len())
                    .filter(|other| wanted[*other] > least[*other])
                    .max_by_key(|other| (wanted[*other] - least[*other], Reverse(*other)));
                let Some(richest) = richest else { return wanted };
                wanted[richest] -= 1;
            }
            wanted[group] += 1;
        }
    }
    for _ in 0..over {
        let open = (0..counts.len()).filter(|group| wanted[*group] < most[*group]);
        let Some(group) = open.min_by_key(|group| wanted[*group]) else { break };
        wanted[group] += 1;
    }
    wanted
}

/// What is done next about an application. `fits` says whether a group has a node for a pod.
#[must_use]
pub fn next(division: &mut Division, facts: &Facts, fits: impl Fn(&PodState, usize) -> bool) -> Next {
    let Facts { desired, available, pods, stranded, most_away } = facts;
    let mut moves = misplaced(division, pods);
    let is_moved = |pod: usize| moves.iter().any(|known| known.pod == pod);
    let missing = desired.saturating_sub(pods.len()) + stranded;
    let is_down = |pod: &usize| !pods[*pod].is_available;
    let well_placed_down = missing + (0..pods.len()).filter(is_down).filter(|pod| !is_moved(*pod)).count();
    let down = (missing + (0..pods.len()).filter(is_down).count()).max(desired.saturating_sub(*available));
    moves.retain(|known| !pods[known.pod].is_protected || is_on(Mutant::ProtectedMoved));
    moves.sort_by_key(|known| pods[known.pod].is_available);
    let (groups, _) = counted(division, pods);
    let may_go = |known: &Move| {
        let is_beside = |pod: &usize| groups[*pod] == groups[known.pod];
        let away = match pods[known.pod].is_available {
            true if is_on(Mutant::BudgetPerGroup) => (0..pods.len()).filter(is_down).filter(is_beside).count(),
            true => down,
            false => well_placed_down,
        };
        away < *most_away || is_on(Mutant::MoveWithoutBudget)
    };
    let helps = |known: &Move| fits(&pods[known.pod], known.to) || is_on(Mutant::MoveWithoutTarget);
    let mut is_held = false;
    for known in moves {
        if !may_go(&known) {
            is_held = true;
        } else if helps(&known) {
            return Next::Evict(known);
        }
    }
    if is_held { Next::Wait } else { Next::Rest }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
