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

use super::cell::{Act, Gate, Mode, NodeState, PodState, Rules, Why};
use super::inplace::{GATE, Intent, Progress};
use super::lifecycle::{NOT_READY_GATE, State};
use super::resume::resume;

impl PodState {
    pub(crate) fn is_live(&self) -> bool {
        !self.is_terminating && !self.has_ended
    }

    fn is_available(&self, rules: &Rules, now: i64) -> bool {
        // Where no time has to pass, no clock is asked: ours may be behind the one that told since when it is ready.
        let is_long_enough = |since: i64| rules.min_ready == 0 || since + rules.min_ready <= now;
        self.is_live() && self.ready_since.is_some_and(is_long_enough)
    }

    fn is_in_service(&self, rules: &Rules, now: i64) -> bool {
        self.is_available(rules, now) && !self.is_begun()
    }

    /// Whether we have begun to take it out of service, for an update or for good.
    fn is_begun(&self) -> bool {
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

/// What becomes of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Verdict {
    pub(super) counts: Counts,
    /// Nothing there is in service, and it takes from the budget.
    pub(super) is_down: bool,
    /// It is down because something is on its way: gone, going, coming, or being changed.
    pub(super) is_moving: bool,
    /// It has two pods, as a surge makes them.
    pub(super) is_surging: bool,
    /// The rollout has not reached it: its pod is not what the newest revision says, and no hold is on it.
    pub(super) is_behind: bool,
    /// It is behind, and nothing can be done about it now.
    pub(super) is_unreachable: bool,
    /// It may have a pod, and has none of the newest revision, whatever the reason.
    pub(super) is_lagging: bool,
    pub(super) chores: Vec<Chore>,
    /// What to do first, once the budget allows it.
    pub(super) candidate: Option<Chore>,
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
    pub(super) verdict: Verdict,
    /// Whether it is to be judged again. A new one is.
    pub(super) is_touched: bool,
}

impl Cell {
    pub(super) fn new(node: NodeState) -> Self {
        let verdict = Verdict::default();
        Self { node, pods: Vec::new(), unseen: 0, retry_at: i64::MIN, set_back: i64::MIN, verdict, is_touched: true }
    }

    /// Judges the cell. `can_edit` says whether a pod with one hash can be given another where it runs.
    pub(super) fn judge(&self, rules: &Rules, now: i64, can_edit: impl FnOnce(&str, &str) -> bool) -> Verdict {
        let counts = self.counts(rules, now);
        let is_lagging = self.node.can_start && !counts.updated;
        let mut verdict = Verdict { counts, is_lagging, ..Verdict::default() };
        let is_counted = self.node.can_start && self.node.is_ready;
        if self.unseen > 0 {
            // Whatever we did there, it counts as down until we see what came of it.
            verdict.is_down = is_counted;
            verdict.is_moving = is_counted;
            verdict.is_surging = rules.mode == Mode::Surge;
            verdict.is_behind = is_lagging && self.node.hold.is_none();
            return verdict;
        }
        let waits = self.pods.iter().filter_map(|pod| pod.ready_since).map(|since| since + rules.min_ready);
        verdict.wake = waits.filter(|at| *at > now).min();
        self.clear_away(&mut verdict, now);
        if self.node.can_stay {
            self.judge_live(rules, now, can_edit, &mut verdict);
            resume(&self.pods, &mut verdict);
        }
        verdict.is_down = is_counted && !self.pods.iter().any(|pod| pod.is_in_service(rules, now));
        // A pod that is down on its own, and is not what it should be, is not on its way anywhere.
        let is_idle = |pod: &PodState| pod.is_live() && !pod.is_begun() && !is_right(pod, &self.node.newest, rules);
        verdict.is_moving = verdict.is_down && !self.pods.iter().any(is_idle);
        verdict.is_unreachable = verdict.is_behind && !is_counted;
        if self.set_back > now {
            verdict.chores.clear();
            verdict.candidate = None;
            verdict.wake = earlier(verdict.wake, self.set_back);
        }
        verdict
    }

    fn counts(&self, rules: &Rules, now: i64) -> Counts {
        let has = |test: &dyn Fn(&PodState) -> bool| self.pods.iter().any(|pod| pod.is_live() && test(pod));
        let has_any = has(&|_| true);
        let desired = self.node.can_start || (self.node.can_stay && has_any);
        Counts {
            desired,
            current: desired && has_any,
            ready: desired && has(&|pod| pod.ready_since.is_some()),
            available: desired && has(&|pod| pod.is_available(rules, now)),
            updated: desired && has(&|pod| is_right(pod, &self.node.newest, rules)),
            updated_ready: desired && has(&|pod| is_right(pod, &self.node.newest, rules) && pod.ready_since.is_some()),
            misscheduled: !self.node.can_stay && has_any,
        }
    }

    /// Takes away what may not be there, and what ended.
    fn clear_away(&self, verdict: &mut Verdict, now: i64) {
        for pod in self.pods.iter().filter(|pod| !pod.is_terminating) {
            if !self.node.can_stay {
                verdict.chores.extend(removal(pod, Why::Misplaced));
            } else if pod.has_ended && self.retry_at > now {
                verdict.wake = earlier(verdict.wake, self.retry_at);
            } else if pod.has_ended {
                verdict.chores.push((Some(pod.name.clone()), Act::Delete(Why::Ended)));
            }
        }
    }

    fn judge_live(&self, rules: &Rules, now: i64, can_edit: impl FnOnce(&str, &str) -> bool, verdict: &mut Verdict) {
        let (node, is_available) = (&self.node, |pod: &PodState| pod.is_available(rules, now));
        let mut live: Vec<&PodState> = self.pods.iter().filter(|pod| pod.is_live()).collect();
        // One in service stays before one that is not, an available one before one that is being changed and does not say
        // so yet, a ready one before one that is not even that, one that is what it should be before one that is not, and the
        // older before the younger.
        let is_wrong = |pod: &PodState| !is_right(pod, &node.wanted, rules);
        live.sort_by_key(|pod| {
            let service = (!pod.is_in_service(rules, now), !is_available(pod), pod.ready_since.is_none());
            (service, is_wrong(pod), pod.created, &pod.name)
        });
        let Some(first) = live.first().copied() else {
            // What is on its way out still holds its ports and its place.
            let waits = rules.partitioned_scaling && node.is_partitioned;
            if self.pods.is_empty() && node.can_start && !waits {
                verdict.chores.push((None, Act::Create));
            }
            verdict.is_behind = node.can_start && node.hold.is_none();
            return;
        };
        let pair = live.iter().find(|pod| is_right(pod, &node.wanted, rules) != is_right(first, &node.wanted, rules));
        let second = pair.copied().filter(|_| rules.mode == Mode::Surge && node.hold.is_none());
        let doubles = live[1..].iter().filter(|pod| second.is_none_or(|second| second.name != pod.name));
        verdict.chores.extend(doubles.filter_map(|pod| removal(pod, Why::Double)));
        verdict.is_behind = node.hold.is_none() && !is_right(first, &node.wanted, rules);
        if let Some(second) = second {
            verdict.is_surging = true;
            // The new one is up, or both are down and nothing is lost by waiting.
            if is_right(first, &node.wanted, rules) && is_available(first) {
                verdict.chores.extend(removal(second, Why::Outdated));
            } else {
                let new = if is_right(first, &node.wanted, rules) { first } else { second };
                verdict.chores.extend(finish(new, rules));
            }
            return;
        }
        self.judge_single(first, rules, now, can_edit, verdict);
        if rules.mode == Mode::Surge && self.pods.len() > 1 {
            // Two are enough: what is one too many, or on its way out, is gone before the next one comes.
            verdict.candidate = None;
            verdict.is_surging = live.len() > 1;
        }
    }

    fn judge_single(
        &self,
        pod: &PodState,
        rules: &Rules,
        now: i64,
        can_edit: impl FnOnce(&str, &str) -> bool,
        verdict: &mut Verdict,
    ) {
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
        let stays = is_left_alone || is_right(pod, &node.wanted, rules);
        if pod.state == State::PreparingDelete {
            verdict.chores.extend(removal(pod, Why::Outdated).or_else(|| set_unready(pod, rules.unready.0)));
        } else if is_stuck && node.can_start && (!is_left_alone || is_half_done(pod)) {
            // One that is left alone and serves goes on as it is.
            verdict.chores.extend(removal(pod, Why::Stuck));
        } else if stays {
            verdict.chores.extend(finish(pod, rules));
        } else if node.can_start && node.is_ready {
            let next = match rules.mode {
                Mode::Surge => Some((None, Act::Create)),
                Mode::InPlace if can_edit(&pod.hash, &node.wanted) => match change(pod) {
                    Some(act) => Some((name(), act)),
                    None => set_unready(pod, rules.unready.1),
                },
                _ => removal(pod, Why::Outdated),
            };
            // What was begun goes on; what is whole waits for the budget.
            if pod.is_begun() && rules.mode != Mode::Surge {
                verdict.chores.extend(next);
            } else {
                verdict.candidate = next;
            }
        }
    }
}

/// Whether a pod was left out of service by a change in place, or without the amounts that its label says.
fn is_half_done(pod: &PodState) -> bool {
    pod.gate == Gate::Closed || pod.intent == Intent::Pending
}

/// Whether a pod is what this hash says.
fn is_right(pod: &PodState, hash: &Arc<str>, rules: &Rules) -> bool {
    pod.hash == *hash || (rules.ignores_patches && pod.template.as_ref() == Some(hash))
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

/// What people are told.
impl Cell {
    /// What the node waits for.
    pub(super) fn told(&self) -> String {
        let node = &self.node;
        let because = |pod: &PodState| pod.trouble.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        if !node.is_ready {
            return format!("{}: the node is not ready", node.name);
        }
        if self.unseen > 0 {
            return format!("{}: what was just written has not come back yet", node.name);
        }
        if !node.can_start {
            return format!("{}: no pod may start there", node.name);
        }
        let live = || self.pods.iter().rev().filter(|pod| pod.is_live());
        let starting = live().find(|pod| pod.ready_since.is_none());
        let Some(pod) = starting.or_else(|| live().next()).or(self.pods.last()) else {
            return format!("{}: its pod is to be made", node.name);
        };
        let what = match pod {
            _ if pod.is_terminating => "is being deleted".to_owned(),
            _ if pod.has_ended => "ended, and is to be made anew".to_owned(),
            _ if pod.state == State::PreparingDelete && pod.held.from_deletion => "is held by preDelete".to_owned(),
            _ if pod.state == State::PreparingUpdate => "is held by inPlaceUpdate".to_owned(),
            _ if pod.edit != Progress::Done => format!("is being updated in place{}", because(pod)),
            _ if pod.is_begun() => "is taken out of service".to_owned(),
            _ if pod.ready_since.is_some() => "is ready, but not for minReadySeconds yet".to_owned(),
            _ => format!("is not ready{}", because(pod)),
        };
        format!("{}: pod {} {what}", node.name, pod.name)
    }
}
