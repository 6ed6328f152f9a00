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

pub mod ahead;
mod asked;
mod driven_off;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::cell::{Act, Mode, NodeState, PodState, Rank, Rules, Why};
use super::driven_off::DrivenOff;
use super::judge::{Cell, Chore, Verdict};
use super::placement::{Holding, Limits, Placement, Prospect};
use super::renderings::Renderings;
use super::tally::{Sets, Tally};
use crate::backoff;
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
    /// By node: when it was noted in the cluster that a taint has driven the rollout's pod off.
    driven_off: DrivenOff,
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
            driven_off: DrivenOff::new(),
        }
    }

    /// With limits that are shares of the nodes: they follow their number.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Takes over what an earlier one remembers: how often pods ended, and where taints drove them off.
    pub fn remembering(mut self, earlier: &Self) -> Self {
        self.ended = earlier.ended.clone();
        for (node, (count, at)) in &self.ended {
            if let Some(cell) = self.cells.get_mut(node) {
                cell.retry_at = at + pause(*count);
            }
        }
        self.driven_off_since(earlier);
        self
    }

    /// What is known of many nodes at once.
    pub fn put_all(&mut self, prospects: Vec<Prospect>) {
        let states = self.placement.put_all(prospects);
        self.cells.reserve(states.len());
        self.pods.reserve(states.len());
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

    /// What holds for a node has changed.
    pub(crate) fn set_node(&mut self, state: NodeState) {
        let name = state.name.clone();
        match self.cells.remove(&name) {
            Some(cell) if cell.node == state => _ = self.cells.insert(name, cell),
            Some(mut cell) => {
                self.unfile(&cell);
                let is_other = cell.node.newest != state.newest;
                (cell.node, cell.verdict, cell.is_dirty) = (state, Verdict::default(), false);
                self.cells.insert(name.clone(), cell);
                self.touch(&name);
                if is_other {
                    // Its pod may be what the newest revision gives it now, or be so no more.
                    self.hold_again(&name);
                }
            }
            None => {
                let driven_off = self.driven_off.get(&name).copied();
                self.cells.insert(name.clone(), Cell { driven_off, is_dirty: false, ..Cell::new(state) });
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
            let place = cell.pods.iter().position(|pod| pod.name == *name);
            let pod = place.map(|place| cell.pods.remove(place));
            if let Some(pod) = pod.filter(|_| now.is_none()) {
                self.lost(node, &pod);
            }
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
        // One whose node has other labels since is of the newest revision, though not what the node should have of it.
        let is_newest = |pod: &PodState| {
            pod.is_right(&cell.node.newest, &self.rules) || pod.number == Some(self.rules.rollout.newest)
        };
        let holding = Holding {
            has_pod: !cell.pods.is_empty(),
            has_newest: cell.pods.iter().any(|pod| pod.is_live() && is_newest(pod)),
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
        // One that is down for reasons of its own takes nothing from `maxUnavailable` that it has not taken already. But it
        // may be the next one that a bad revision costs: no more are touched and not well than the budget.
        let touched = if self.rules.mode == Mode::Surge { taken } else { sets.touched.len() };
        let slots = (room - updates.len()).min(limit.saturating_sub(touched)).min(most - updates.len());
        let broken: Vec<Action> = sets.broken.iter().rev().filter_map(take).take(slots).collect();
        let taken = if self.rules.mode == Mode::Surge { taken + broken.len() } else { taken };
        updates.extend(broken);
        let slots = (room - updates.len()).min(limit.saturating_sub(taken)).min(most - updates.len());
        // Nodes that are ill for reasons of their own may never be well again: they come when nobody else waits.
        let is_end = sets.broken.is_empty() && sets.whole.is_empty();
        let last = sets.last.iter().rev().filter(|_| is_end);
        updates.extend(sets.whole.iter().rev().chain(last).filter_map(take).take(slots));
        updates
    }

    /// Judges again what was touched, and what time has changed.
    fn refresh(&mut self, now: i64) {
        self.placement.share().into_iter().for_each(|state| self.set_node(state));
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
    backoff::wait(RETRY, ended)
}

#[cfg(test)]
#[path = "fleet_properties.rs"]
mod properties;
#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
