//! All nodes with the pods of one DaemonSet, kept up to date event by event.
//!
//! The fleet is made once from everything there is, and then told of each pod and each node that changes: that costs the
//! same whatever the number of nodes. It remembers nothing that the cluster does not say, except how often pods ended on a
//! node: made anew, it decides the same.
//!
//! Invariants, tested below as properties:
//! - Told of changes one by one, it stands as if it had been made anew.
//! - Never two live pods on a node outside a surge, once what is decided has happened.
//! - Updates never make more nodes unwell than the budget allows, whatever was down before, and whatever makes them unwell:
//!   see [`super::touched`]. Pods that are down already are replaced within the budget too: a fleet that is briefly not
//!   ready must not be swept away at once.
//! - Nodes that are held back are not touched. What is not held back arrives in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::cell::{Act, Mode, NodeState, PodState, Rank, Rules, Why};
use super::inplace::Difference;
use super::judge::{Cell, Chore, Verdict};
use super::placement::{Holding, Limits, Placement, Prospect};
use super::renderings::Renderings;
use super::tally::{Sets, Tally};
use crate::health::Health;
use crate::mutant::{Mutant, is_on};

/// The first wait before a pod that ended is made anew, and the longest, in seconds.
const RETRY: (i64, i64) = (1, 900);
/// So many seconds after a pod ended it is forgotten.
const FORGIVEN: i64 = 2 * RETRY.1;

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Action {
    /// On which node.
    pub node: Arc<str>,
    /// To which pod; none where one is to be made.
    pub pod: Option<Arc<str>>,
    /// What.
    pub act: Act,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Each for its own node, or for one of its pods.
    pub actions: Vec<Action>,
    /// Whether there is more, which waits for the next time.
    pub has_more: bool,
}

/// All nodes and their pods.
#[derive(Debug)]
pub struct Fleet {
    rules: Rules,
    limits: Option<Limits>,
    /// The number of nodes that the limits were last worked out for.
    limited_to: Option<usize>,
    placement: Placement,
    /// By name of a node. Nobody walks over them, so their order does not matter.
    cells: HashMap<Arc<str>, Cell>,
    /// By name of a pod: its node.
    pods: HashMap<Arc<str>, Arc<str>>,
    /// Pods of nodes that are gone.
    strays: BTreeMap<Arc<str>, (Arc<str>, PodState)>,
    renderings: Renderings,
    tally: Tally,
    variants: Vec<Tally>,
    sets: Sets,
    /// When the rollout last came on.
    progressed_at: i64,
    /// Nodes to be judged again.
    dirty: Vec<Arc<str>>,
    /// By node: how often a pod ended there, and when that was last.
    ended: BTreeMap<Arc<str>, (u32, i64)>,
}

impl Fleet {
    /// A fleet without nodes.
    pub fn new(rules: Rules, placement: Placement, renderings: Renderings) -> Self {
        Self {
            progressed_at: rules.rollout.began,
            rules,
            limits: None,
            limited_to: None,
            placement,
            cells: HashMap::new(),
            pods: HashMap::new(),
            strays: BTreeMap::new(),
            renderings,
            tally: Tally::default(),
            variants: Vec::new(),
            sets: Sets::default(),
            dirty: Vec::new(),
            ended: BTreeMap::new(),
        }
    }

    /// With limits that are shares of the nodes: they follow their number.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Takes over what an earlier one remembers: how often pods ended.
    pub fn remembering(mut self, earlier: &Self) -> Self {
        self.ended = earlier.ended.clone();
        for (node, (count, at)) in &self.ended {
            if let Some(cell) = self.cells.get_mut(node) {
                cell.retry_at = at + pause(*count);
            }
        }
        self
    }

    /// What is known of many nodes at once.
    pub fn put_all(&mut self, prospects: Vec<Prospect>) {
        let states = self.placement.put_all(prospects);
        states.into_iter().for_each(|state| self.set_node(state));
        self.gather_strays();
    }

    /// A node is as told now.
    pub fn put(&mut self, prospect: Prospect) {
        let states = self.placement.put(prospect);
        states.into_iter().for_each(|state| self.set_node(state));
        self.gather_strays();
    }

    /// Nodes that came take in the pods that were there before them.
    fn gather_strays(&mut self) {
        let found: Vec<Arc<str>> = self
            .strays
            .iter()
            .filter(|(_, (node, _))| self.cells.contains_key(node))
            .map(|(pod, _)| pod.clone())
            .collect();
        for name in found {
            if let Some((node, pod)) = self.strays.remove(&name) {
                self.observe(&name, Some((&node, pod)));
            }
        }
    }

    /// A node is gone.
    pub fn drop_node(&mut self, name: &Arc<str>) {
        let states = self.placement.remove(name);
        if let Some(cell) = self.cells.remove(name) {
            self.unfile(&cell);
            for pod in cell.pods {
                self.pods.remove(&pod.name);
                self.strays.insert(pod.name.clone(), (name.clone(), pod));
            }
        }
        self.ended.remove(name);
        states.into_iter().for_each(|state| self.set_node(state));
    }

    /// How a Node itself is has changed.
    pub fn observe_health(&mut self, name: &Arc<str>, health: Health) {
        self.placement.set_health(name, health);
        if let Some(cell) = self.cells.get_mut(name) {
            cell.node.health = health;
            self.touch(name);
        }
    }

    /// What holds for a node has changed.
    pub(super) fn set_node(&mut self, state: NodeState) {
        let name = state.name.clone();
        match self.cells.remove(&name) {
            Some(cell) if cell.node == state => _ = self.cells.insert(name, cell),
            Some(mut cell) => {
                self.unfile(&cell);
                (cell.node, cell.verdict, cell.is_dirty) = (state, Verdict::default(), false);
                self.cells.insert(name.clone(), cell);
                self.touch(&name);
            }
            None => {
                self.cells.insert(name.clone(), Cell { is_dirty: false, ..Cell::new(state) });
                self.touch(&name);
            }
        }
    }

    /// Takes a node out of all sums.
    fn unfile(&mut self, cell: &Cell) {
        let none = Verdict::default();
        self.sets.file(&cell.node.rank(), &cell.verdict, &none);
        let variant = self.variants.get_mut(cell.node.variant);
        for tally in [Some(&mut self.tally), variant].into_iter().flatten() {
            tally.change(cell.verdict.counts, |count| *count -= 1);
        }
    }

    /// A pod is as told now, or gone.
    pub fn observe(&mut self, name: &Arc<str>, now: Option<(&Arc<str>, PodState)>) {
        self.strays.remove(name);
        let before = self.pods.remove(name);
        if let Some(node) = &before
            && let Some(cell) = self.cells.get_mut(node)
        {
            cell.pods.retain(|pod| pod.name != *name);
            self.touch(node);
        }
        let after = now.as_ref().map(|(node, _)| (*node).clone());
        if let Some((node, pod)) = now {
            match self.cells.get_mut(node) {
                None => _ = self.strays.insert(name.clone(), (node.clone(), pod)),
                Some(cell) => {
                    cell.pods.push(pod);
                    cell.pods.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
                    self.pods.insert(name.clone(), node.clone());
                    self.touch(node);
                }
            }
        }
        let moved = before.filter(|before| after.as_ref() != Some(before));
        moved.into_iter().chain(after).for_each(|node| self.hold_again(&node));
    }

    /// Who is held back may follow from which nodes have which pods.
    fn hold_again(&mut self, node: &Arc<str>) {
        let Some(cell) = self.cells.get(node) else { return };
        let holding = Holding {
            has_pod: !cell.pods.is_empty(),
            has_newest: cell.pods.iter().any(|pod| pod.is_live() && pod.is_right(&cell.node.newest, &self.rules)),
            is_replaced: !cell.pods.iter().any(PodState::is_live),
        };
        let states = self.placement.hold(node, holding);
        states.into_iter().for_each(|state| self.set_node(state));
    }

    /// We wrote something about this node that the view does not include yet.
    pub fn wrote(&mut self, node: &str) {
        self.with_cell(node, |cell| cell.unseen += 1);
    }

    /// The view includes one more of our writes.
    pub fn saw(&mut self, node: &str) {
        self.with_cell(node, |cell| cell.unseen = cell.unseen.saturating_sub(1));
    }

    /// Something was refused there: nothing is tried before this time.
    pub fn set_back(&mut self, node: &str, until: i64) {
        self.with_cell(node, |cell| cell.set_back = until);
    }

    /// A pod that ended was taken away: the next one to end so soon waits longer.
    pub fn took_ended(&mut self, node: &Arc<str>, now: i64) {
        let (count, last) = self.ended.get(node).copied().unwrap_or_default();
        let count = if now - last > FORGIVEN { 0 } else { count };
        self.ended.insert(node.clone(), (count + 1, now));
        self.with_cell(node, |cell| cell.retry_at = now + pause(count + 1));
    }

    fn with_cell(&mut self, node: &str, act: impl FnOnce(&mut Cell)) {
        if let Some(cell) = self.cells.get_mut(node) {
            act(cell);
            let name = cell.node.name.clone();
            self.touch(&name);
        }
    }

    /// Has a node judged again.
    fn touch(&mut self, node: &Arc<str>) {
        if let Some(cell) = self.cells.get_mut(node)
            && !std::mem::replace(&mut cell.is_dirty, true)
        {
            self.dirty.push(node.clone());
        }
    }

    /// Whether there are pods on nodes that are not known, which nobody deletes yet.
    pub fn has_strays(&self) -> bool {
        self.strays.values().any(|(_, pod)| pod.leaving_since.is_none())
    }

    /// A pod as it was told last.
    pub fn pod(&self, name: &str) -> Option<&PodState> {
        let placed = self.pods.get(name).and_then(|node| self.cells.get(node));
        let placed = placed.and_then(|cell| cell.pods.iter().find(|pod| *pod.name == *name));
        placed.or_else(|| self.strays.get(name).map(|(_, pod)| pod))
    }

    /// What is to be done at this time.
    pub fn decide(&mut self, now: i64) -> Decision {
        self.refresh(now);
        let mut actions: Vec<Action> = Vec::new();
        let gone = self.strays.iter().filter(|(_, (_, pod))| pod.leaving_since.is_none() && !is_on(Mutant::StraysLeft));
        actions.extend(gone.map(|(name, (node, _))| Action {
            node: node.clone(),
            pod: Some(name.clone()),
            act: Act::Delete(Why::NodeGone),
        }));
        let limit = self.rules.burst.max(1);
        // Of pods that the API server may refuse, one is tried at a time.
        let mut is_tried = false;
        for rank in &self.sets.chores {
            if actions.len() > limit {
                break;
            }
            let may_try = !self.sets.tried.contains(rank) || !std::mem::replace(&mut is_tried, true);
            let chores = self.cells.get(&rank.name).map(|cell| cell.verdict.chores.as_slice()).unwrap_or_default();
            let chores = chores.iter().filter(|(_, act)| may_try || *act != Act::Create);
            actions.extend(chores.map(|chore| action(rank, chore)));
        }
        if actions.len() <= limit {
            let left = limit + 1 - actions.len();
            actions.extend(self.updates(left));
        }
        let has_more = actions.len() > limit;
        actions.truncate(limit);
        Decision { actions, has_more }
    }

    /// Updates that the budget allows, at most so many.
    fn updates(&self, most: usize) -> Vec<Action> {
        let sets = &self.sets;
        let take = |rank: &Rank| {
            let (_, chore) = self.cells.get(&rank.name)?.verdict.candidate.as_ref()?;
            Some(action(rank, chore))
        };
        let (limit, taken) = match self.rules.mode {
            Mode::Surge => (self.rules.surge + usize::from(is_on(Mutant::SurgeOffByOne)), sets.surging.len()),
            _ if is_on(Mutant::OutagesUncounted) => (self.rules.budget, sets.moving.len()),
            _ => (self.rules.budget + usize::from(is_on(Mutant::BudgetOffByOne)), sets.down.len()),
        };
        // What counts already costs nobody anything more, and so comes first; but no more of it at once than the budget.
        let room = limit.saturating_sub(sets.moving.len());
        let mut updates: Vec<Action> = sets.first.iter().rev().filter_map(take).take(room.min(most)).collect();
        let slots = (room - updates.len()).min(limit.saturating_sub(taken)).min(most - updates.len());
        // Nodes that are ill for reasons of their own may never be well again: they come when nobody else waits.
        let is_end = sets.broken.is_empty() && sets.whole.is_empty();
        let last = sets.last.iter().rev().filter(|_| is_end);
        let rest = sets.broken.iter().rev().chain(sets.whole.iter().rev()).chain(last);
        updates.extend(rest.filter_map(take).take(slots));
        updates
    }

    /// Judges again what was touched, and what time has changed.
    fn refresh(&mut self, now: i64) {
        self.ended.retain(|_, (_, last)| now - *last <= FORGIVEN);
        // One that stays due is filed again, at another time or not at all.
        let due = self.sets.wakes.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<Arc<str>> = due.map(|(_, rank)| rank.name.clone()).collect();
        due.iter().for_each(|name| self.touch(name));
        for name in std::mem::take(&mut self.dirty) {
            let (rules, renderings) = (&self.rules, &mut self.renderings);
            let Some(cell) = self.cells.get_mut(&name) else { continue };
            cell.is_dirty = false;
            let verdict = cell.judge(rules, now, |from, to| renderings.between(from, to).is_some());
            let before = std::mem::replace(&mut cell.verdict, verdict);
            let (after, variant) = (&cell.verdict, cell.node.variant);
            if self.variants.len() <= variant {
                self.variants.resize(variant + 1, Tally::default());
            }
            for tally in [&mut self.tally, &mut self.variants[variant]] {
                tally.change(before.counts, |count| *count -= 1);
                tally.change(after.counts, |count| *count += 1);
            }
            self.progressed_at = after.progressed_at.map_or(self.progressed_at, |at| at.max(self.progressed_at));
            self.sets.file(&cell.node.rank(), &before, after);
        }
        let desired = Some(self.tally.desired);
        if let Some(limits) = self.limits.as_ref().filter(|_| desired != self.limited_to) {
            limits.apply(&mut self.rules, self.tally.desired);
            self.limited_to = desired;
        }
    }
}

fn action(rank: &Rank, (pod, act): &Chore) -> Action {
    Action { node: rank.name.clone(), pod: pod.clone(), act: *act }
}

/// How long to wait after so many ends in a row.
fn pause(ended: u32) -> i64 {
    RETRY.0.checked_shl(ended.saturating_sub(1)).filter(|pause| *pause > 0).unwrap_or(RETRY.1).min(RETRY.1)
}

/// What people ask about a fleet.
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

    /// What to change of a pod to bring it to another hash.
    pub fn difference(&mut self, from: &str, to: &str) -> Option<Arc<Difference>> {
        self.renderings.between(from, to)
    }

    /// Whether it is known what a hash stands for.
    pub fn knows(&self, hash: &str) -> bool {
        self.renderings.knows(hash)
    }

    /// Whether every node has what the newest revision gives it and is well, and none is held back at another. Passed over
    /// are nodes that do not count and were out of reach for long, if they are fewer than those that have it.
    pub fn is_complete(&self, now: i64) -> bool {
        let (unfinished, passed_over) = (&self.sets.unfinished, &self.sets.passed_over);
        let is_over = passed_over.last().is_none_or(|(at, _)| *at <= now);
        let is_alone = unfinished.len() == passed_over.len() && is_over && unfinished.len() < self.tally.updated;
        unfinished.is_empty() || is_alone || (is_on(Mutant::CurrentTooSoon) && self.sets.behind.is_empty())
    }

    /// When the rollout last came on: the newest revision was given to a node, or one that has it became well.
    pub fn progressed_at(&self) -> i64 {
        self.progressed_at
    }

    /// Nodes that the rollout has still to reach.
    pub fn behind(&self) -> usize {
        self.sets.behind.len()
    }

    /// Nodes that have not got the newest revision, whatever the reason.
    pub fn lagging(&self) -> usize {
        self.sets.lagging.len()
    }

    /// Whether nothing of the rollout is under way, and all that it has still to reach is out of reach.
    pub fn is_out_of_reach(&self) -> bool {
        self.sets.behind.len() == self.sets.unreachable.len()
            && self.sets.down.is_empty()
            && self.sets.surging.is_empty()
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
        let cells = self.sets.lagging.iter().filter_map(|rank| self.cells.get(&rank.name));
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

#[cfg(test)]
#[path = "fleet_properties.rs"]
mod properties;
#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
