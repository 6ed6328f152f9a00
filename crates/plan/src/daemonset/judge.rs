//! What becomes of one node and the pods of a DaemonSet on it.
//!
//! A cell is judged alone: what must be done whatever the rest of the fleet does (its *chores*), and what may be done
//! once the budget allows it (its *candidate*). The fleet adds the cells up and hands out the budget.
//!
//! Invariants, tested as properties of the fleet:
//! - A pod that is live and in service is only touched as a candidate, unless it may not run on its node any more or
//!   another one on the node is in service.
//! - Work that was begun on a pod goes on whatever the budget says: it is counted as down from its first step.

use std::sync::Arc;

use super::cell::{Act, Gate, Hold, Mode, NodeState, PodState, Rules, Why};
use super::inplace::{GATE, Intent, Progress};
use super::lifecycle::{NOT_READY_GATE, State};
use super::resume::resume;
use crate::mutant::{Mutant, is_on};

/// So many seconds a node must have been out of reach before a rollout is complete without it.
const PASSED_OVER: i64 = 600;

impl PodState {
    pub(crate) fn is_live(&self) -> bool {
        self.leaving_since.is_none() && !self.has_ended
    }

    /// When it is available, if it stays ready. The condition has whole seconds: it counts from the end of its own. Where
    /// no time has to pass, no clock is asked: ours may be behind the one that told since when it is ready.
    fn available_at(&self, rules: &Rules) -> Option<i64> {
        self.ready_since.map(|since| if rules.min_ready == 0 { i64::MIN } else { since + 1 + rules.min_ready })
    }

    fn is_available(&self, rules: &Rules, now: i64) -> bool {
        self.is_live() && self.available_at(rules).is_some_and(|at| at <= now)
    }

    pub(super) fn is_in_service(&self, rules: &Rules, now: i64) -> bool {
        self.is_available(rules, now) && !self.is_begun()
    }

    /// Whether it is what this names.
    pub(super) fn is_right(&self, hash: &Arc<str>, rules: &Rules) -> bool {
        self.hash == *hash || (rules.ignores_patches && self.template.as_ref() == Some(hash))
    }

    /// Whether we have begun to take it out of service, for an update or for good.
    pub(super) fn is_begun(&self) -> bool {
        self.gate == Gate::Closed
            || self.edit != Progress::Done
            || self.intent == Intent::Pending
            || matches!(self.state, State::PreparingDelete | State::PreparingUpdate | State::Updating)
    }
}

/// A pod's part of a cell's judgement: the pod and what to do with it. A pod that is yet to be made has no name.
pub(super) type Chore = (Option<Arc<str>>, Act);

/// What counts of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) desired: bool,
    pub(super) current: bool,
    pub(super) ready: bool,
    pub(super) available: bool,
    pub(super) updated: bool,
    pub(super) updated_ready: bool,
    pub(super) misscheduled: bool,
}

/// When a node's turn comes, among those that may be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The rollout has touched it, and it is not well: first, and without a further slot.
    First,
    /// Its pod is down for reasons of its own: before those that serve, in a slot of what the rollout may touch.
    Broken,
    /// Its pod serves.
    Whole,
    /// Its Node is not Ready for reasons of its own: after all the rest.
    Last,
}

/// What becomes of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Verdict {
    pub(super) counts: Counts,
    /// It takes from `maxUnavailable`.
    pub(super) is_down: bool,
    /// Something is on its way there: gone, going, coming, or being changed. So many at once as the budget says.
    pub(super) is_moving: bool,
    /// It takes from `maxSurge`: it has two pods, or the rollout has touched it and it is not well.
    pub(super) is_surging: bool,
    /// The rollout has touched it, and it is not well.
    pub(super) is_touched: bool,
    /// The rollout has touched it, and its Node is not Ready, or has a taint that keeps pods away since.
    pub(super) is_ill: bool,
    /// A taint drives the rollout's pod off, and the cluster does not remember it yet.
    pub(super) is_to_be_noted: bool,
    /// The rollout has not reached it: its pod is not what the newest revision says, and no hold is on it.
    pub(super) is_behind: bool,
    /// It is behind, and nothing can be done about it now.
    pub(super) is_unreachable: bool,
    /// It may have a pod, and has none of the newest revision, whatever the reason.
    pub(super) is_lagging: bool,
    /// It should have a pod of the newest revision and be well, and is not.
    pub(super) is_unfinished: bool,
    /// It is unfinished, and from this time on the rollout is complete without it.
    pub(super) passed_over_at: Option<i64>,
    /// It waits for a pod of which nobody knows whether the API server takes it.
    pub(super) is_tried: bool,
    /// When the rollout last came on there.
    pub(super) progressed_at: Option<i64>,
    pub(super) chores: Vec<Chore>,
    /// What to do first, once its turn comes and the budget allows it.
    pub(super) candidate: Option<(Turn, Chore)>,
    /// When time alone may change the judgement.
    pub(super) wake: Option<i64>,
}

/// A node and its pods.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) node: NodeState,
    /// Oldest first.
    pub(super) pods: Vec<PodState>,
    /// Writes of ours that the view does not include yet. Nothing is decided before they are seen.
    pub(super) unseen: u32,
    /// Not before this time is another pod made in place of one that ended.
    pub(super) retry_at: i64,
    /// Not before this time is anything done there: the API server has refused it.
    pub(super) set_back: i64,
    /// When it was noted in the cluster that a taint has driven the rollout's pod off, if it was.
    pub(super) driven_off: Option<i64>,
    /// Whether that was seen to happen.
    pub(super) was_driven_off: bool,
    pub(super) verdict: Verdict,
    /// Whether it is to be judged again. A new one is.
    pub(super) is_dirty: bool,
}

impl Cell {
    pub(super) fn new(node: NodeState) -> Self {
        Self {
            node,
            pods: Vec::new(),
            unseen: 0,
            retry_at: i64::MIN,
            set_back: i64::MIN,
            driven_off: None,
            was_driven_off: false,
            verdict: Verdict::default(),
            is_dirty: true,
        }
    }

    /// Judges the cell. `can_edit` says whether a pod with one hash can be given another where it runs.
    pub(super) fn judge(&self, rules: &Rules, now: i64, can_edit: impl FnOnce(&str, &str) -> bool) -> Verdict {
        let counts = self.counts(rules, now);
        let is_lagging = self.node.can_start && !counts.updated;
        let is_to_be_noted = self.is_to_be_noted(rules, now);
        let mut verdict = Verdict { counts, is_lagging, is_to_be_noted, ..Verdict::default() };
        if self.unseen > 0 {
            verdict.is_behind = is_lagging && self.node.hold.is_none();
        } else {
            self.judge_pods(rules, now, can_edit, &mut verdict);
        }
        self.count(rules, now, &mut verdict);
        verdict
    }

    /// What is to be done about the pods.
    fn judge_pods(&self, rules: &Rules, now: i64, can_edit: impl FnOnce(&str, &str) -> bool, verdict: &mut Verdict) {
        let waits = self.pods.iter().filter_map(|pod| pod.available_at(rules));
        verdict.wake = waits.filter(|at| *at > now).min();
        self.clear_away(verdict, now);
        let mut candidate = None;
        if self.node.can_stay {
            candidate = self.judge_live(rules, now, can_edit, verdict);
            resume(&self.pods, verdict, &mut candidate);
        }
        let is_new = |chore: &Chore| chore.1 == Act::Create;
        if self.node.health.is_unknown() && !is_on(Mutant::UnknownTouched) {
            // Whatever is asked of a kubelet that does not answer happens when the network heals, everywhere at once.
            verdict.chores.retain(is_new);
            candidate = None;
        }
        // Given up for a pod that may be refused, it would be missed.
        let is_risk = |chore: &Chore| chore.1 == Act::Create || is_removal(&chore.1);
        if self.node.is_unproven && self.is_served(rules, now) {
            candidate = candidate.filter(|chore| !is_risk(chore));
        }
        let has = |is_so: &dyn Fn(&PodState) -> bool| self.pods.iter().any(|pod| pod.is_live() && is_so(pod));
        let has_next = has(&|pod| pod.is_right(&self.node.wanted, rules));
        if self.node.is_unproven && !has_next && has(&|pod| pod.ready_since.is_some()) {
            // Begun or not: nothing might come in its place.
            verdict.chores.retain(|chore| chore.1 != Act::Delete(Why::Outdated));
        }
        verdict.is_tried = self.node.is_unproven && verdict.chores.iter().any(is_new);
        if verdict.is_to_be_noted {
            verdict.chores.retain(|chore| !is_removal(&chore.1));
        }
        if self.set_back > now {
            verdict.chores.clear();
            candidate = None;
            verdict.wake = earlier(verdict.wake, self.set_back);
        }
        verdict.candidate = candidate.map(|chore| (self.turn(rules, now), chore));
    }

    fn turn(&self, rules: &Rules, now: i64) -> Turn {
        let (is_ill, is_down) = (self.is_unwell_by_rollout(rules, now), self.is_down(rules, now));
        match () {
            () if is_ill => Turn::First,
            () if is_down => Turn::Broken,
            () if self.node.health.is_ready() => Turn::Whole,
            () => Turn::Last,
        }
    }

    /// What the node counts for, among all nodes.
    fn count(&self, rules: &Rules, now: i64, verdict: &mut Verdict) {
        let is_ill = self.is_unwell_by_rollout(rules, now);
        verdict.is_down = self.is_down(rules, now);
        let is_pair = rules.mode == Mode::Surge && self.pods.iter().filter(|pod| pod.is_live()).count() > 1;
        // Nobody waits for a node that is lost for good: a second pod there may never come up.
        verdict.is_surging = is_ill || (is_pair && !self.node.is_out_of_service);
        verdict.is_surging &= rules.mode == Mode::Surge;
        // A pod that is down on its own, and is not what it should be, is not on its way anywhere; nor is one that was to be
        // changed, where another is to be made beside it.
        let is_left = |pod: &PodState| !pod.is_begun() || rules.mode == Mode::Surge;
        let is_idle = |pod: &PodState| pod.is_live() && is_left(pod) && !pod.is_right(&self.node.newest, rules);
        let is_at_rest = self.unseen == 0 && !is_pair && self.pods.iter().any(is_idle);
        verdict.is_moving = (verdict.is_down || verdict.is_surging) && !is_at_rest;
        let is_shut = !self.node.can_start || self.node.health.is_unknown();
        verdict.is_unreachable = verdict.is_behind && !verdict.is_down && is_shut;
        verdict.is_touched = is_ill;
        verdict.is_ill = is_ill && self.is_ill();
        if let Some(at) = self.soaked_at(rules).filter(|at| *at > now) {
            verdict.wake = earlier(verdict.wake, at);
        }
        self.count_end(rules, now, verdict);
    }

    /// Whether a rollout is complete as far as this node goes, and when it came on there last.
    fn count_end(&self, rules: &Rules, now: i64, verdict: &mut Verdict) {
        let (node, is_well) = (&self.node, self.is_well(rules, now));
        let has_any = self.pods.iter().any(PodState::is_live);
        let is_meant = node.is_selected && (self.should_have_pod() || (node.can_stay && has_any));
        let is_updated = self.pods.iter().any(|pod| pod.is_live() && pod.is_right(&node.newest, rules));
        // Where nobody knows what a node should have, nothing is complete: else the newest would be what it is held back at.
        verdict.is_unfinished = (is_meant && !(is_updated && is_well)) || (node.is_left_without && !is_updated);
        let is_held = node.hold.is_some() && !is_updated;
        if verdict.is_unfinished && !is_held && !verdict.is_down && !verdict.is_surging {
            let since = node.health.since().or_else(|| (!node.can_start).then_some(rules.rollout.began));
            verdict.passed_over_at = since.map(|since| since.saturating_add(PASSED_OVER));
            if let Some(at) = verdict.passed_over_at.filter(|at| *at > now) {
                verdict.wake = earlier(verdict.wake, at);
            }
        }
        let news = self.pods.iter().filter(|pod| pod.is_right(&node.newest, rules));
        let steps = news.flat_map(|pod| [Some(pod.last_touched()), pod.ready_since.filter(|_| is_well)]);
        verdict.progressed_at = steps.flatten().max();
    }

    fn counts(&self, rules: &Rules, now: i64) -> Counts {
        let has = |test: &dyn Fn(&PodState) -> bool| self.pods.iter().any(|pod| pod.is_live() && test(pod));
        let has_any = has(&|_| true);
        // Where nobody knows what it should have, what it runs is what it should.
        let is_kept = self.node.hold == Some(Hold::Unrendered) && self.node.can_stay && has_any;
        let desired = self.node.can_start || is_kept;
        let is_right = |pod: &PodState| pod.is_right(&self.node.newest, rules);
        Counts {
            desired,
            current: desired && has_any,
            ready: desired && has(&|pod| pod.ready_since.is_some()),
            available: desired && has(&|pod| pod.is_available(rules, now)),
            updated: desired && has(&is_right),
            updated_ready: desired && has(&|pod| is_right(pod) && pod.ready_since.is_some()),
            // As Kubernetes counts: one that a taint keeps new pods from, and that still runs one, among them.
            misscheduled: !desired && self.pods.iter().any(|pod| !(pod.leaving_since.is_some() && pod.has_ended)),
        }
    }

    /// Takes away what may not be there, and what ended.
    fn clear_away(&self, verdict: &mut Verdict, now: i64) {
        for pod in self.pods.iter().filter(|pod| pod.leaving_since.is_none()) {
            if !self.node.can_stay {
                verdict.chores.extend(removal(pod, Why::Misplaced));
            } else if pod.has_ended && self.retry_at > now {
                verdict.wake = earlier(verdict.wake, self.retry_at);
            } else if pod.has_ended {
                verdict.chores.push((Some(pod.name.clone()), Act::Delete(Why::Ended)));
            }
        }
    }

    /// What to do about pods that live; returned is what waits for its turn.
    fn judge_live(
        &self,
        rules: &Rules,
        now: i64,
        can_edit: impl FnOnce(&str, &str) -> bool,
        verdict: &mut Verdict,
    ) -> Option<Chore> {
        let (node, is_available) = (&self.node, |pod: &PodState| pod.is_available(rules, now));
        let mut live: Vec<&PodState> = self.pods.iter().filter(|pod| pod.is_live()).collect();
        // One in service stays before one that is not, one that is not on its way out before one that is, an available one
        // before one that is being changed and does not say so yet, a ready one before one that is not even that, one that is what it should be before one that is not, and the
        // older before the younger.
        let is_right = |pod: &PodState| pod.is_right(&node.wanted, rules);
        live.sort_by_key(|pod| {
            let is_going = pod.state == State::PreparingDelete;
            let service = (!pod.is_in_service(rules, now), is_going, !is_available(pod), pod.ready_since.is_none());
            (service, !is_right(pod), pod.created, &pod.name)
        });
        let Some(first) = live.first().copied() else {
            // What is on its way out still holds its ports and its place.
            let waits = rules.partitioned_scaling && node.is_partitioned;
            if self.pods.is_empty() && node.can_start && !waits {
                verdict.chores.push((None, Act::Create));
            }
            verdict.is_behind = node.can_start && node.hold.is_none();
            return None;
        };
        let pair = live.iter().find(|pod| is_right(pod) != is_right(first));
        let second = pair.copied().filter(|_| rules.mode == Mode::Surge && node.hold.is_none());
        let doubles = live[1..].iter().filter(|pod| second.is_none_or(|second| second.name != pod.name));
        verdict.chores.extend(doubles.filter_map(|pod| removal(pod, Why::Double)));
        verdict.is_behind = node.hold.is_none() && !is_right(first);
        if let Some(second) = second {
            // The new one is up, or both are down and nothing is lost by waiting.
            if is_right(first) && is_available(first) {
                verdict.chores.extend(removal(second, Why::Outdated));
            } else {
                let new = if is_right(first) { first } else { second };
                // It was to give way to the other, and is what is asked for again.
                let is_back = new.state == State::PreparingDelete;
                let kept = is_back.then(|| (Some(new.name.clone()), take_back(new)));
                verdict.chores.extend(kept.or_else(|| finish(new, rules)));
            }
            return None;
        }
        let next = self.judge_single(first, rules, now, can_edit, verdict);
        if live.len() > 1 {
            // Taken away together with those that are too many, it would leave the node without any.
            let is_first = |pod: &Option<Arc<str>>| pod.as_ref() == Some(&first.name);
            verdict.chores.retain(|(pod, act)| !is_first(pod) || !is_removal(act));
        }
        // What is one too many, or on its way out, is gone before the next one comes, or goes.
        next.filter(|_| self.pods.len() == 1)
    }

    fn judge_single(
        &self,
        pod: &PodState,
        rules: &Rules,
        now: i64,
        can_edit: impl FnOnce(&str, &str) -> bool,
        verdict: &mut Verdict,
    ) -> Option<Chore> {
        let node = &self.node;
        let name = || Some(pod.name.clone());
        let is_stuck = match pod.edit {
            Progress::Stuck => true,
            Progress::Until(at) if at > now => {
                verdict.wake = earlier(verdict.wake, at);
                false
            }
            Progress::Until(_) => true,
            Progress::Done | Progress::Waiting => false,
        };
        let is_left_alone = node.hold.is_some() || rules.mode == Mode::OnDelete;
        let is_right = pod.is_right(&node.wanted, rules);
        let stays = is_left_alone || is_right;
        let is_kept = is_right || node.is_left_without || matches!(rules.mode, Mode::Surge | Mode::OnDelete);
        if pod.state == State::PreparingDelete && is_kept {
            // It was to give way to another, and is the better one by now; or it waits for somebody to delete it.
            verdict.chores.push((name(), take_back(pod)));
        } else if pod.state == State::PreparingDelete {
            verdict.chores.extend(removal(pod, Why::Outdated).or_else(|| set_unready(pod, rules.unready.0)));
        } else if is_stuck && node.can_start && (!is_left_alone || is_half_done(pod)) {
            // One that is left alone and serves goes on as it is.
            verdict.chores.extend(removal(pod, Why::Stuck));
        } else if stays {
            verdict.chores.extend(finish(pod, rules));
        } else if node.can_start || self.is_broken_by_rollout(rules) {
            let next = match rules.mode {
                // Where a rollout has closed its node to new pods, none can start beside it.
                Mode::Surge if node.can_start => Some((None, Act::Create)),
                Mode::InPlace if can_edit(&pod.hash, &node.wanted) => match change(pod) {
                    Some(act) => Some((name(), act)),
                    None => set_unready(pod, rules.unready.1),
                },
                _ => removal(pod, Why::Outdated),
            };
            // What was begun goes on; what is whole waits for its turn.
            if !pod.is_begun() || rules.mode == Mode::Surge {
                return next;
            }
            verdict.chores.extend(next);
        }
        None
    }
}

impl Cell {
    /// Whether a rollout has made its Node NotReady, and so closed to new pods: what takes its pod away mends it, and the
    /// next one starts when the Node is Ready again.
    fn is_broken_by_rollout(&self, rules: &Rules) -> bool {
        let node = &self.node;
        node.is_barred_for_now && !node.health.is_ready() && self.is_of_rollout(rules)
    }
}

/// Whether a pod was left out of service by a change in place, or without the amounts that its label says.
fn is_half_done(pod: &PodState) -> bool {
    pod.gate == Gate::Closed || pod.intent == Intent::Pending
}

/// Whether it takes a pod away, or begins to.
fn is_removal(act: &Act) -> bool {
    matches!(act, Act::Delete(_) | Act::Mark(State::PreparingDelete))
}

/// The next step to take a pod away; nothing while a hook holds it and knows that it does.
fn removal(pod: &PodState, why: Why) -> Option<Chore> {
    let act = match (pod.held.from_deletion, pod.state) {
        (true, State::PreparingDelete) => return None,
        (true, _) => Act::Mark(State::PreparingDelete),
        (false, _) => Act::Delete(why),
    };
    Some((Some(pod.name.clone()), act))
}

/// The next step to change a pod where it runs; nothing while a hook holds it and knows that it does.
fn change(pod: &PodState) -> Option<Act> {
    match (pod.held.from_update, pod.state) {
        (true, State::PreparingUpdate) => None,
        (true, State::Normal | State::Unknown | State::Updated) => Some(Act::Mark(State::PreparingUpdate)),
        _ if matches!(pod.gate, Gate::Open | Gate::Unset) => Some(Act::Gate { condition: GATE, opens: false }),
        // The kubelet has not said yet that it is out of service. Said later, it would count as down when it is back, and
        // another beside it.
        _ if pod.gate == Gate::Closed && pod.ready_since.is_some() => None,
        _ => Some(Act::Edit),
    }
}

/// Takes a pod that a hook holds out of service, if the hook asks for it.
fn set_unready(pod: &PodState, is_asked: bool) -> Option<Chore> {
    let closes = is_asked && matches!(pod.service, Gate::Open | Gate::Unset);
    closes.then(|| (Some(pod.name.clone()), Act::Gate { condition: NOT_READY_GATE, opens: false }))
}

/// The next step to keep a pod that was to be deleted.
fn take_back(pod: &PodState) -> Act {
    match pod.service {
        Gate::Closed => Act::Gate { condition: NOT_READY_GATE, opens: true },
        _ => Act::Mark(State::Normal),
    }
}

/// The next step to put a pod that is what it should be into service.
fn finish(pod: &PodState, rules: &Rules) -> Option<Chore> {
    if pod.edit != Progress::Done || pod.intent != Intent::None {
        return None;
    }
    let open = |condition| Act::Gate { condition, opens: true };
    let is_back = !rules.has_update_hook || pod.held.again || pod.state == State::PreparingUpdate;
    let act = match pod.state {
        _ if matches!(pod.gate, Gate::Unset | Gate::Closed) => open(GATE),
        _ if pod.service == Gate::Unset => open(NOT_READY_GATE),
        // Whoever holds it may wait until it is ready before holding it again.
        State::PreparingUpdate | State::Updating | State::Updated if pod.service == Gate::Closed => {
            open(NOT_READY_GATE)
        }
        State::PreparingUpdate | State::Updating | State::Updated if is_back => Act::Mark(State::Normal),
        State::Updating => Act::Mark(State::Updated),
        _ => return None,
    };
    Some((Some(pod.name.clone()), act))
}

fn earlier(known: Option<i64>, at: i64) -> Option<i64> {
    Some(known.map_or(at, |known| known.min(at)))
}
