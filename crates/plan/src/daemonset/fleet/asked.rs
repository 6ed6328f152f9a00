//! What people ask about a fleet.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::super::cell::{NodeState, Rank, Rules};
use super::super::inplace::Difference;
use super::super::placement::Prospect;
use super::super::tally::Tally;
use super::{FORGIVEN, Fleet};
use crate::mutant::{Mutant, is_on};

impl Fleet {
    /// When time alone may change what is to be done.
    pub fn next_wake(&self) -> Option<i64> {
        let forgiven = self.ended.values().filter(|(count, _)| *count > 1).map(|(_, last)| last + FORGIVEN + 1);
        self.sets.wakes.first().map(|(at, _)| *at).into_iter().chain(forgiven).min()
    }

    /// The sums over all nodes, as of the last decision.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The sums over the nodes of each variant.
    pub fn variants(&self) -> &[Tally] {
        &self.variants
    }

    /// What a DaemonSet says about its pods.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.cells.get(name).map(|cell| &cell.node)
    }

    /// What a node may get.
    pub fn prospect(&self, name: &str) -> Option<&Prospect> {
        self.placement.prospect(name)
    }

    /// What to change of a pod to bring it to another hash.
    pub fn difference(&mut self, from: &str, to: &str) -> Option<Arc<Difference>> {
        self.renderings.between(from, to)
    }

    /// Whether every node has what the newest revision gives it and is well, and none is held back at another. Passed over
    /// are nodes that do not count and were out of reach for long, if they are fewer than those that have it.
    pub fn is_complete(&self, now: i64) -> bool {
        let (unfinished, passed_over) = (self.sets.unfinished, &self.sets.passed_over);
        let is_over = passed_over.last().is_none_or(|(at, _)| *at <= now);
        let is_alone = unfinished == passed_over.len() && is_over && unfinished < self.tally.updated;
        unfinished == 0 || is_alone || (is_on(Mutant::CurrentTooSoon) && self.sets.behind == 0)
    }

    /// When the rollout last came on: the newest revision was given to a node, or one that has it became well.
    pub fn progressed_at(&self) -> i64 {
        self.progressed_at
    }

    /// Nodes that the rollout has still to reach.
    pub fn behind(&self) -> usize {
        self.sets.behind
    }

    /// Nodes that have not got the newest revision, whatever the reason.
    pub fn lagging(&self) -> usize {
        self.sets.lagging
    }

    /// Whether nothing of the rollout is under way, and all that it has still to reach is out of reach.
    pub fn is_out_of_reach(&self) -> bool {
        self.sets.behind == self.sets.unreachable.len() && self.sets.down.is_empty() && self.sets.surging.is_empty()
    }

    /// Nodes that the rollout has touched and that are not Ready.
    pub fn ill(&self) -> usize {
        self.sets.ill.len()
    }

    /// Nodes that hold the budget, with what each waits for; at most so many.
    pub fn holding(&self, most: usize, now: i64) -> Vec<String> {
        self.told(self.sets.down.iter().take(most), now)
    }

    /// Nodes that the rollout waits for, with what each waits for: those that hold the budget, those that are ill before
    /// all; at most so many.
    pub fn waiting(&self, most: usize, now: i64) -> Vec<String> {
        let others = self.sets.down.union(&self.sets.surging).filter(|rank| !self.sets.ill.contains(rank));
        self.told(self.sets.ill.iter().chain(others).take(most), now)
    }

    /// Nodes that the rollout cannot reach, because they are not well or no pod may start there; at most so many.
    pub fn unreachable(&self, most: usize, now: i64) -> Vec<String> {
        self.told(self.sets.unreachable.iter().take(most), now)
    }

    fn told<'a>(&self, ranks: impl Iterator<Item = &'a Rank>, now: i64) -> Vec<String> {
        ranks.filter_map(|rank| self.cells.get(&rank.name)).map(|cell| cell.told(now)).collect()
    }

    /// Nodes where pods keep ending, with how often.
    pub fn failing(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.ended.iter().filter(|(_, (count, _))| *count > 1).map(|(node, (count, _))| (node, *count))
    }

    /// What pods of one label are to become: their label, their template and the next one, for all that are known.
    pub fn moves(&self) -> Vec<(Arc<str>, Arc<Value>, Arc<Value>)> {
        let cells = self.cells.values().filter(|cell| cell.verdict.is_lagging);
        let all: BTreeSet<(&Arc<str>, &Arc<str>, &Arc<str>)> = cells
            .flat_map(|cell| cell.pods.iter().map(|pod| (&pod.label, &pod.hash, &cell.node.newest)))
            .filter(|(_, from, to)| from != to)
            .collect();
        let known = &self.renderings;
        all.into_iter()
            .filter_map(|(label, from, to)| Some((label.clone(), known.get(from)?.clone(), known.get(to)?.clone())))
            .collect()
    }
}
