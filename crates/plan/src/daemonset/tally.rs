//! Sums over nodes, and nodes by what is true of them.

use std::collections::BTreeSet;

use super::cell::Rank;
use super::judge::{Counts, Turn, Verdict};

/// Sums over nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Nodes that should run a pod.
    pub desired: usize,
    /// Of these, those that do.
    pub current: usize,
    /// Of these, those with a ready one.
    pub ready: usize,
    /// Of these, those with one that is available.
    pub available: usize,
    /// Of these, those with one of the newest revision.
    pub updated: usize,
    /// Of these, those with one of the newest revision that is ready.
    pub updated_ready: usize,
    /// Nodes that run a pod and should not.
    pub misscheduled: usize,
}

impl Tally {
    pub(super) fn change(&mut self, counts: Counts, by: impl Fn(&mut usize)) {
        let Counts { desired, current, ready, available, updated, updated_ready, misscheduled } = counts;
        let fields = [
            (desired, &mut self.desired),
            (current, &mut self.current),
            (ready, &mut self.ready),
            (available, &mut self.available),
            (updated, &mut self.updated),
            (updated_ready, &mut self.updated_ready),
            (misscheduled, &mut self.misscheduled),
        ];
        fields.into_iter().filter(|(counts, _)| *counts).for_each(|(_, field)| by(field));
    }
}

/// Nodes by what is true of them, in the order of the rollout: the last is the first to be updated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sets {
    pub(super) chores: BTreeSet<Rank>,
    /// Candidates by when their turn comes.
    pub(super) first: BTreeSet<Rank>,
    pub(super) broken: BTreeSet<Rank>,
    pub(super) whole: BTreeSet<Rank>,
    pub(super) last: BTreeSet<Rank>,
    pub(super) down: BTreeSet<Rank>,
    pub(super) moving: BTreeSet<Rank>,
    pub(super) surging: BTreeSet<Rank>,
    /// Touched, and not well.
    pub(super) touched: BTreeSet<Rank>,
    /// Touched, and the Node is not Ready.
    pub(super) ill: BTreeSet<Rank>,
    /// A taint drives the rollout's pod off, and the cluster does not remember it yet.
    pub(super) unnoted: BTreeSet<Rank>,
    /// How many are behind.
    pub(super) behind: usize,
    /// Behind, and nothing can be done about it.
    pub(super) unreachable: BTreeSet<Rank>,
    /// How many lag.
    pub(super) lagging: usize,
    /// How many are unfinished.
    pub(super) unfinished: usize,
    /// Unfinished, with the time from which on the rollout is complete without them.
    pub(super) passed_over: BTreeSet<(i64, Rank)>,
    /// Waiting for a pod that the API server may refuse.
    pub(super) tried: BTreeSet<Rank>,
    pub(super) wakes: BTreeSet<(i64, Rank)>,
}

impl Sets {
    /// Files a node under its new verdict. Sets it stays in, or out of, are not looked into: most of them, most times.
    pub(super) fn file(&mut self, rank: &Rank, before: &Verdict, after: &Verdict) {
        let turn = |verdict: &Verdict| verdict.candidate.as_ref().map(|(turn, _)| *turn);
        let mut put = |set: fn(&mut Self) -> &mut BTreeSet<Rank>, is_in: &dyn Fn(&Verdict) -> bool| match (
            is_in(before),
            is_in(after),
        ) {
            (false, true) => _ = set(self).insert(rank.clone()),
            (true, false) => _ = set(self).remove(rank),
            _ => {}
        };
        put(|sets| &mut sets.chores, &|verdict| !verdict.chores.is_empty());
        put(|sets| &mut sets.first, &|verdict| turn(verdict) == Some(Turn::First));
        put(|sets| &mut sets.broken, &|verdict| turn(verdict) == Some(Turn::Broken));
        put(|sets| &mut sets.whole, &|verdict| turn(verdict) == Some(Turn::Whole));
        put(|sets| &mut sets.last, &|verdict| turn(verdict) == Some(Turn::Last));
        put(|sets| &mut sets.down, &|verdict| verdict.is_down);
        put(|sets| &mut sets.moving, &|verdict| verdict.is_moving);
        put(|sets| &mut sets.surging, &|verdict| verdict.is_surging);
        put(|sets| &mut sets.touched, &|verdict| verdict.is_touched);
        put(|sets| &mut sets.ill, &|verdict| verdict.is_ill);
        put(|sets| &mut sets.unnoted, &|verdict| verdict.is_to_be_noted);
        put(|sets| &mut sets.unreachable, &|verdict| verdict.is_unreachable);
        put(|sets| &mut sets.tried, &|verdict| verdict.is_tried);
        recount(&mut self.behind, before.is_behind, after.is_behind);
        recount(&mut self.lagging, before.is_lagging, after.is_lagging);
        recount(&mut self.unfinished, before.is_unfinished, after.is_unfinished);
        at(&mut self.passed_over, rank, before.passed_over_at, after.passed_over_at);
        at(&mut self.wakes, rank, before.wake, after.wake);
    }
}

fn recount(count: &mut usize, before: bool, after: bool) {
    *count = *count + usize::from(after) - usize::from(before);
}

fn at(times: &mut BTreeSet<(i64, Rank)>, rank: &Rank, before: Option<i64>, after: Option<i64>) {
    if before != after {
        before.map(|at| times.remove(&(at, rank.clone())));
        after.map(|at| times.insert((at, rank.clone())));
    }
}
