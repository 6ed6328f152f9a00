//! All nodes with the pods of one DaemonSet, kept up to date event by event.
//!
//! The fleet is made once from everything there is, and then told of each pod that changes: that costs the same whatever
//! the number of nodes. It remembers nothing that the cluster does not say, except how often pods ended on a node: made
//! anew, it decides the same.
//!
//! Invariants, tested below as properties:
//! - Told of changes one by one, it stands as if it had been made anew.
//! - Never two live pods on a node outside a surge, once what is decided has happened.
//! - Updates never make more nodes unavailable than the budget allows, whatever was down before. Pods that are down
//!   already are replaced within the budget too: a fleet that is briefly not ready must not be swept away at once.
//! - Nodes that are held back are not touched. What is not held back arrives in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::cell::{Act, Mode, NodeState, PodState, Rules, Why};
use super::inplace::Difference;
use super::judge::{Cell, Chore, Counts, Verdict};
use super::renderings::Renderings;
use crate::mutant::{Mutant, is_on};

/// The first wait before a pod that ended is made anew, and the longest, in seconds.
const RETRY: (i64, i64) = (1, 900);
/// So many seconds after a pod ended it is forgotten.
const FORGIVEN: i64 = 2 * RETRY.1;

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
    fn change(&mut self, counts: Counts, by: impl Fn(&mut usize)) {
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
    /// In the order of the rollout: the last is the first to be updated.
    cells: Vec<Cell>,
    /// By name of a node, and of a pod. Nobody walks over them, so their order does not matter.
    places: HashMap<Arc<str>, usize>,
    pods: HashMap<Arc<str>, usize>,
    /// Pods of nodes that are gone.
    strays: BTreeMap<Arc<str>, (Arc<str>, PodState)>,
    renderings: Renderings,
    tally: Tally,
    variants: Vec<Tally>,
    sets: Sets,
    /// Cells to be judged again.
    touched: Vec<usize>,
    /// By node: how often a pod ended there, and when that was last.
    ended: BTreeMap<Arc<str>, (u32, i64)>,
}

/// Places of cells by what is true of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sets {
    chores: BTreeSet<usize>,
    /// Candidates that are down already.
    broken: BTreeSet<usize>,
    /// Candidates that are in service.
    whole: BTreeSet<usize>,
    down: BTreeSet<usize>,
    moving: BTreeSet<usize>,
    surging: BTreeSet<usize>,
    behind: BTreeSet<usize>,
    /// Behind, and not well or closed to new pods.
    unreachable: BTreeSet<usize>,
    lagging: BTreeSet<usize>,
    wakes: BTreeSet<(i64, usize)>,
}

impl Sets {
    /// Files a cell under its new verdict. Sets it stays in, or out of, are not looked into: most of them, most times.
    fn file(&mut self, place: usize, before: &Verdict, after: &Verdict) {
        let is_broken = |verdict: &Verdict| verdict.candidate.is_some() && verdict.is_down;
        let is_whole = |verdict: &Verdict| verdict.candidate.is_some() && !verdict.is_down;
        let mut put = |set: fn(&mut Self) -> &mut BTreeSet<usize>, is_in: &dyn Fn(&Verdict) -> bool| match (
            is_in(before),
            is_in(after),
        ) {
            (false, true) => _ = set(self).insert(place),
            (true, false) => _ = set(self).remove(&place),
            _ => {}
        };
        put(|sets| &mut sets.chores, &|verdict| !verdict.chores.is_empty());
        put(|sets| &mut sets.broken, &is_broken);
        put(|sets| &mut sets.whole, &is_whole);
        put(|sets| &mut sets.down, &|verdict| verdict.is_down);
        put(|sets| &mut sets.moving, &|verdict| verdict.is_moving);
        put(|sets| &mut sets.surging, &|verdict| verdict.is_surging);
        put(|sets| &mut sets.behind, &|verdict| verdict.is_behind);
        put(|sets| &mut sets.unreachable, &|verdict| verdict.is_unreachable);
        put(|sets| &mut sets.lagging, &|verdict| verdict.is_lagging);
        if before.wake != after.wake {
            before.wake.map(|at| self.wakes.remove(&(at, place)));
            after.wake.map(|at| self.wakes.insert((at, place)));
        }
    }
}

impl Fleet {
    /// A fleet of these nodes, the last of which is the first to be updated.
    pub fn new(rules: Rules, nodes: Vec<NodeState>, renderings: Renderings) -> Self {
        let places = nodes.iter().enumerate().map(|(place, node)| (node.name.clone(), place)).collect();
        let variants = nodes.iter().map(|node| node.variant + 1).max().unwrap_or(0);
        Self {
            rules,
            touched: (0..nodes.len()).collect(),
            cells: nodes.into_iter().map(Cell::new).collect(),
            places,
            pods: HashMap::new(),
            strays: BTreeMap::new(),
            renderings,
            tally: Tally::default(),
            variants: vec![Tally::default(); variants],
            sets: Sets::default(),
            ended: BTreeMap::new(),
        }
    }

    /// Takes over what an earlier one remembers: how often pods ended.
    pub fn remembering(mut self, earlier: &Self) -> Self {
        self.ended = earlier.ended.clone();
        for (node, (count, at)) in &self.ended {
            if let Some(place) = self.places.get(node) {
                self.cells[*place].retry_at = at + pause(*count);
            }
        }
        self
    }

    /// A pod is as told now, or gone.
    pub fn observe(&mut self, name: &Arc<str>, now: Option<(&Arc<str>, PodState)>) {
        self.strays.remove(name);
        if let Some(place) = self.pods.remove(name) {
            self.cells[place].pods.retain(|pod| pod.name != *name);
            self.touch(place);
        }
        let Some((node, pod)) = now else { return };
        let Some(place) = self.places.get(node).copied() else {
            self.strays.insert(name.clone(), (node.clone(), pod));
            return;
        };
        let cell = &mut self.cells[place];
        cell.pods.push(pod);
        cell.pods.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        self.pods.insert(name.clone(), place);
        self.touch(place);
    }

    /// Whether a node is well has changed.
    pub fn observe_node(&mut self, node: &str, is_ready: bool) {
        if let Some(place) = self.places.get(node).copied() {
            self.cells[place].node.is_ready = is_ready;
            self.touch(place);
        }
    }

    /// We wrote something about this node that the view does not include yet.
    pub fn wrote(&mut self, node: &str) {
        if let Some(place) = self.places.get(node).copied() {
            self.cells[place].unseen += 1;
            self.touch(place);
        }
    }

    /// The view includes one more of our writes.
    pub fn saw(&mut self, node: &str) {
        if let Some(place) = self.places.get(node).copied() {
            let unseen = &mut self.cells[place].unseen;
            *unseen = unseen.saturating_sub(1);
            self.touch(place);
        }
    }

    /// Something was refused there: nothing is tried before this time.
    pub fn set_back(&mut self, node: &str, until: i64) {
        if let Some(place) = self.places.get(node).copied() {
            self.cells[place].set_back = until;
            self.touch(place);
        }
    }

    /// A pod that ended was taken away: the next one to end so soon waits longer.
    pub fn took_ended(&mut self, node: &Arc<str>, now: i64) {
        let (count, last) = self.ended.get(node).copied().unwrap_or_default();
        let count = if now - last > FORGIVEN { 0 } else { count };
        self.ended.insert(node.clone(), (count + 1, now));
        if let Some(place) = self.places.get(node).copied() {
            self.cells[place].retry_at = now + pause(count + 1);
            self.touch(place);
        }
    }

    fn touch(&mut self, place: usize) {
        let cell = &mut self.cells[place];
        if !std::mem::replace(&mut cell.is_touched, true) {
            self.touched.push(place);
        }
    }

    /// Whether there are pods on nodes that are not known, which nobody deletes yet.
    pub fn has_strays(&self) -> bool {
        self.strays.values().any(|(_, pod)| !pod.is_terminating)
    }

    /// A pod as it was told last.
    pub fn pod(&self, name: &str) -> Option<&PodState> {
        let placed =
            self.pods.get(name).and_then(|place| self.cells[*place].pods.iter().find(|pod| *pod.name == *name));
        placed.or_else(|| self.strays.get(name).map(|(_, pod)| pod))
    }

    /// What is to be done at this time.
    pub fn decide(&mut self, now: i64) -> Decision {
        self.refresh(now);
        let mut actions: Vec<Action> = Vec::new();
        let gone = self.strays.iter().filter(|(_, (_, pod))| !pod.is_terminating && !is_on(Mutant::StraysLeft));
        actions.extend(gone.map(|(name, (node, _))| Action {
            node: node.clone(),
            pod: Some(name.clone()),
            act: Act::Delete(Why::NodeGone),
        }));
        let limit = self.rules.burst.max(1);
        for place in &self.sets.chores {
            if actions.len() > limit {
                break;
            }
            actions.extend(self.cells[*place].verdict.chores.iter().map(|chore| self.action(*place, chore)));
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
        let (broken, whole) = (self.sets.broken.iter().rev(), self.sets.whole.iter().rev());
        let take = |place: &usize| Some(self.action(*place, self.cells[*place].verdict.candidate.as_ref()?));
        if self.rules.mode == Mode::Surge {
            let surge = self.rules.surge + usize::from(is_on(Mutant::SurgeOffByOne));
            let room = surge.saturating_sub(self.sets.surging.len()).min(most);
            return broken.chain(whole).filter_map(take).take(room).collect();
        }
        // What is down already costs nobody anything more, and so comes first; but no more of it at once than the
        // budget.
        let budget = self.rules.budget + usize::from(is_on(Mutant::BudgetOffByOne));
        let room = budget.saturating_sub(self.sets.moving.len());
        let mut updates: Vec<Action> = broken.filter_map(take).take(room.min(most)).collect();
        let down = if is_on(Mutant::OutagesUncounted) { self.sets.moving.len() } else { self.sets.down.len() };
        let room = (room - updates.len()).min(budget.saturating_sub(down));
        updates.extend(whole.filter_map(take).take(room.min(most - updates.len())));
        updates
    }

    fn action(&self, place: usize, (pod, act): &Chore) -> Action {
        Action { node: self.cells[place].node.name.clone(), pod: pod.clone(), act: *act }
    }

    /// Judges again what was touched, and what time has changed.
    fn refresh(&mut self, now: i64) {
        self.ended.retain(|_, (_, last)| now - *last <= FORGIVEN);
        // One that stays due is filed again, at another time or not at all.
        let due: Vec<usize> =
            self.sets.wakes.iter().take_while(|(at, _)| *at <= now).map(|(_, place)| *place).collect();
        due.into_iter().for_each(|place| self.touch(place));
        for place in std::mem::take(&mut self.touched) {
            let renderings = &mut self.renderings;
            let cell = &mut self.cells[place];
            cell.is_touched = false;
            let verdict = cell.judge(&self.rules, now, |from, to| renderings.between(from, to).is_some());
            let before = std::mem::replace(&mut cell.verdict, verdict);
            let (after, variant) = (&cell.verdict, &mut self.variants[cell.node.variant]);
            for tally in [&mut self.tally, variant] {
                tally.change(before.counts, |count| *count -= 1);
                tally.change(after.counts, |count| *count += 1);
            }
            self.sets.file(place, &before, after);
        }
    }
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
        self.places.get(name).map(|place| &self.cells[*place].node)
    }

    /// What to change of a pod to bring it to another hash.
    pub fn difference(&mut self, from: &str, to: &str) -> Option<Arc<Difference>> {
        self.renderings.between(from, to)
    }

    /// Whether it is known what a hash stands for.
    pub fn knows(&self, hash: &str) -> bool {
        self.renderings.knows(hash)
    }

    /// Whether every node that has a pod, or gets one, has what the newest revision gives it.
    pub fn is_settled(&self) -> bool {
        self.sets.lagging.is_empty() && self.tally.updated == self.tally.desired
    }

    /// Nodes that the rollout has still to reach.
    pub fn behind(&self) -> usize {
        self.sets.behind.len()
    }

    /// Nodes that have not got the newest revision, whatever the reason.
    pub fn lagging(&self) -> usize {
        self.sets.lagging.len()
    }

    /// Nodes that hold the budget, with what each waits for; at most so many.
    pub fn holding(&self, most: usize) -> Vec<String> {
        self.sets.down.iter().take(most).map(|place| self.cells[*place].told()).collect()
    }

    /// Nodes that the rollout waits for, with what each waits for: those that hold the budget, and those of a surge
    /// that have an old pod and a new one; at most so many.
    pub fn waiting(&self, most: usize) -> Vec<String> {
        self.sets.down.union(&self.sets.surging).take(most).map(|place| self.cells[*place].told()).collect()
    }

    /// Nodes that the rollout cannot reach, because they are not well or no pod may start there; at most so many.
    pub fn unreachable(&self, most: usize) -> Vec<String> {
        self.sets.unreachable.iter().take(most).map(|place| self.cells[*place].told()).collect()
    }

    /// Nodes where pods keep ending, with how often.
    pub fn failing(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.ended.iter().filter(|(_, (count, _))| *count > 1).map(|(node, (count, _))| (node, *count))
    }

    /// What pods of one hash are to become: their hash, their template and the next one, for all that are known.
    pub fn moves(&self) -> Vec<(Arc<str>, Arc<Value>, Arc<Value>)> {
        let cells = self.sets.lagging.iter().map(|place| &self.cells[*place]);
        let pairs: BTreeSet<(Arc<str>, Arc<str>)> = cells
            .flat_map(|cell| cell.pods.iter().map(|pod| (pod.hash.clone(), cell.node.newest.clone())))
            .filter(|(from, to)| from != to)
            .collect();
        let known = &self.renderings;
        pairs
            .into_iter()
            .filter_map(|(from, to)| Some((from.clone(), known.get(&from)?.clone(), known.get(&to)?.clone())))
            .collect()
    }
}

#[cfg(test)]
#[path = "fleet_properties.rs"]
mod properties;
#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
