//! What is kept of a marker between looks, for as long as this process leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::marker::allowance::{Allowance, Limit, counts};
use dapple_plan::marker::carry::{Begun, Carrying};
use dapple_plan::marker::choice::{Changes, Choice};
use dapple_plan::marker::clash::Cause;
use dapple_plan::marker::pace::{Answer, Pace};
use dapple_plan::marker::refusals::Refusals;
use dapple_plan::marker::rest::Rests;
use dapple_plan::marker::rule::{Rule, Rules};
use dapple_plan::marker::standing::Marks;

use super::cache::Marker;
use super::job::{Job, Task};
use super::view::{Seen, View};
use crate::slim::{Key, Pod};

/// So many pods are looked at first, to find one that may be changed now.
const FEW: usize = 32;
/// A patch that came too late is not tried again for so long, unless the pod is seen to have changed.
const BEHIND: Duration = Duration::from_secs(1);

/// What is kept of a marker.
pub(super) struct Memory {
    /// UID of the marker: one that is made again is another.
    pub(super) uid: Arc<str>,
    /// By which edition of the rules all pods were told; none before they were.
    pub(super) told: Option<u64>,
    pub(super) choice: Choice,
    pub(super) allowance: Allowance,
    pub(super) rests: Rests,
    pub(super) pace: Pace,
    pub(super) refusals: Refusals,
    pub(super) carrying: Option<(i64, Carrying)>,
    /// Pods with a patch of this marker of which it is not seen yet what came of it.
    open: BTreeMap<Arc<str>, Open>,
    /// Pods that were refused, or rest: names by UID.
    passed: BTreeMap<Arc<str>, Arc<str>>,
    /// Patches under way that count.
    under_way: usize,
    /// Whether it was found out which marked pods ended while nobody led.
    has_looked_back: bool,
}

/// A patch of which it is not seen yet what came of it.
struct Open {
    uid: Arc<str>,
    /// The version of the pod that it is for.
    version: u64,
    state: State,
}

/// How far a patch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is sent, and counts as done: then the pod has these marks.
    Sent(Marks),
    /// It is done, and to be seen.
    Done(Marks),
    /// Nobody knows what came of it. It counts as done.
    Unknown(Marks),
    /// It was too late. Nothing is sent to that version of the pod before this time.
    Behind(Duration),
}

/// What is known of a patch that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    /// The pod is patched.
    Done,
    /// It is refused.
    Refused,
    /// Nothing was sent, or nothing was done: it may be tried again.
    NotNow,
    /// The pod is another one by now, or gone.
    Late,
    /// Nobody knows.
    Unknown,
}

/// What may be done next.
#[derive(Default)]
pub(super) struct Next {
    /// The pod, and what becomes of it.
    pub(super) found: Option<(Arc<Pod>, Task)>,
    /// Whether the view is behind: pods wait until it is not.
    pub(super) is_behind: bool,
    /// Whether pods wait since as many were changed in this minute as may be.
    pub(super) is_held: bool,
}

impl Memory {
    /// Of a marker that nothing is known of yet. `since` is when this process began to lead, in seconds since 1970 and by the view's
    /// clock.
    pub(super) fn new(uid: Arc<str>, rule: &Rule, since: (i64, Duration)) -> Self {
        Self {
            uid,
            told: None,
            choice: Choice::new(rule.replicas, since.0),
            allowance: Allowance::new(since.1),
            rests: Rests::default(),
            pace: Pace::default(),
            refusals: Refusals::default(),
            carrying: None,
            open: BTreeMap::new(),
            passed: BTreeMap::new(),
            under_way: 0,
            has_looked_back: false,
        }
    }

    /// Markers that are older and set other values on pods that match this one.
    pub(super) fn outdone_by(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.choice.causes().iter().filter_map(|(cause, count)| match cause {
            Cause::Marker(older) => Some((older, *count)),
            _ => None,
        })
    }

    /// A pod that lives is told of. Returns whether that is news.
    pub(super) fn tell(&mut self, view: &View, seen: &Seen, rule: &Rule, rules: &Rules) -> bool {
        let (name, uid, now) = (&seen.pod.meta.key.name, &seen.pod.meta.uid, view.now());
        let is_seen = self.open.get(name).is_some_and(|open| open.is_seen(view, &seen.pod));
        if is_seen {
            self.open.remove(name);
        }
        let mut standing = seen.standing(rule, rules);
        if let Some(marks) = self.open.get(name).filter(|open| open.uid == *uid).and_then(Open::marks) {
            standing.marks = marks;
        }
        let is_fixed = self.refusals.is_passed_over(uid, now) || self.rests.until(uid, now).is_some();
        self.choice.put((name, uid), &standing, is_fixed, now) || is_seen
    }

    /// A pod ended, or is about to. Returns whether that is news.
    pub(super) fn ended(&mut self, view: &View, pod: &Pod) -> bool {
        let (name, uid) = (&pod.meta.key.name, &pod.meta.uid);
        if self.open.get(name).is_some_and(|open| open.uid == *uid && !matches!(open.state, State::Sent(_))) {
            self.open.remove(name);
        }
        if let Some((_, carrying)) = &mut self.carrying {
            carrying.done(name);
        }
        self.refusals.forget(uid);
        self.rests.forget(uid);
        self.passed.remove(uid);
        self.choice.ended(name, uid, view.now())
    }

    /// What is to be changed now is what a change of the spec asks for, if it is new; else nothing is added to that.
    pub(super) fn carry(&mut self, marker: &Marker, rule: &Rule, now: Duration) {
        let generation = marker.generation();
        let is_known = self.carrying.as_ref().is_some_and(|(known, _)| *known == generation);
        if !is_known {
            // A marker that is suspended will carry it out once it is not.
            self.choice.ask(rule.replicas, false);
            let changes = self.choice.changes(now, usize::MAX);
            self.choice.ask(rule.replicas, rule.is_suspended);
            let begun = Begun::of(generation, marker.object.status.as_ref());
            self.carrying = Some((generation, Carrying::new(generation, begun, &changes)));
        } else if !rule.is_suspended
            && let Some((_, carrying)) = self.carrying.as_mut().filter(|(_, carrying)| carrying.told().is_some())
        {
            let changes = self.choice.changes(now, usize::MAX);
            let names: BTreeSet<&str> = in_order(&changes).map(|(name, _)| &**name).collect();
            carrying.keep(|pod| names.contains(pod));
        }
    }

    /// Of marked pods that ended while nobody led, seats are kept as of others. All pods are told of by now; only the first time that
    /// this is asked matters.
    pub(super) fn look_back(&mut self, marker: &Marker, second: i64, now: Duration) {
        let status = marker.object.status.as_ref();
        let is_first = !std::mem::replace(&mut self.has_looked_back, true);
        let Some(before) = status.filter(|_| is_first) else { return };
        if Begun::of(marker.generation(), status) == Begun::New {
            return;
        }
        let told = usize::try_from(before.succeeded).unwrap_or(0);
        let missed = told.saturating_sub(self.choice.with_marks()).min(self.choice.numbers().desired);
        // Their marks were set no later than it was told that all are marked; else nobody knows.
        let all_marked = before.conditions.iter().find(|known| known.type_ == "Marked" && known.status == "True");
        let set_at = all_marked.map_or(second, |known| known.last_transition_time.0.as_second());
        (0..missed).for_each(|_| self.choice.missed(set_at, now));
    }

    /// Pods that are not passed over any more, by name.
    pub(super) fn rested(&mut self, now: Duration) -> Vec<Arc<str>> {
        self.rests.tidy(now);
        let Self { refusals, rests, passed, .. } = self;
        let is_fixed = |uid: &str| refusals.is_passed_over(uid, now) || rests.until(uid, now).is_some();
        let over: Vec<Arc<str>> =
            passed.iter().filter(|(uid, _)| !is_fixed(uid)).map(|(_, name)| name.clone()).collect();
        let refused: BTreeSet<Arc<str>> = refusals.due(now).cloned().collect();
        passed.retain(|uid, _| is_fixed(uid) || refused.contains(uid));
        over
    }

    /// Of pods that were refused and may be tried again, those are forgotten at which nothing is to be changed any more.
    pub(super) fn forget_refusals(&mut self, now: Duration) {
        if self.refusals.is_empty() {
            return;
        }
        let changes = self.choice.changes(now, usize::MAX);
        let names: BTreeSet<&Arc<str>> = in_order(&changes).map(|(name, _)| name).collect();
        let due: Vec<Arc<str>> = self.refusals.due(now).cloned().collect();
        for uid in due {
            if self.passed.get(&uid).is_none_or(|name| !names.contains(name)) {
                self.refusals.forget(&uid);
                self.passed.remove(&uid);
            }
        }
    }

    /// What may be done next, in this namespace.
    pub(super) fn next(&mut self, view: &View, namespace: &Arc<str>, limit: Limit) -> Next {
        let now = view.now();
        let of_minute = limit.of(self.choice.numbers().matched);
        let left = self.allowance.left(of_minute, now).saturating_sub(self.under_way);
        let mut next = Next::default();
        for most in [FEW, usize::MAX] {
            let changes = self.choice.changes(now, most);
            next = self.first(view, namespace, &changes, left);
            let is_all = [&changes.unmark, &changes.amend, &changes.mark].iter().all(|names| names.len() < most);
            if next.found.is_some() || is_all {
                break;
            }
        }
        next
    }

    fn first(&self, view: &View, namespace: &Arc<str>, changes: &Changes, left: usize) -> Next {
        let (mut next, now, second) = (Next::default(), view.now(), view.second());
        for (name, task) in in_order(changes) {
            let key = Key { namespace: namespace.clone(), name: name.clone() };
            let is_open = self.open.get(name).is_some_and(|open| open.holds(now));
            let Some(pod) = view.pods.get(&key).filter(|_| !is_open && view.pods.caught_up(&key)) else {
                next.is_behind = true;
                continue;
            };
            if view.pods.is_malformed(&key) {
                continue;
            }
            if left == 0 && !self.is_carried(name) && counts(pod.created, second) {
                next.is_held = true;
                continue;
            }
            next.found = Some((pod, task));
            return next;
        }
        next
    }

    fn is_carried(&self, pod: &str) -> bool {
        self.carrying.as_ref().is_some_and(|(_, carrying)| carrying.has(pod))
    }

    /// A patch is sent. From now on the pod counts as changed.
    pub(super) fn begin(&mut self, view: &View, job: &mut Job, rules: &Rules) {
        let meta = &job.seen.pod.meta;
        job.is_carried = self.is_carried(&meta.key.name);
        job.counts = !job.is_carried && counts(job.seen.pod.created, view.second());
        self.under_way += usize::from(job.counts);
        self.pace.send();
        let open = Open { uid: meta.uid.clone(), version: meta.version, state: State::Sent(job.marks()) };
        self.open.insert(meta.key.name.clone(), open);
        self.tell(view, &job.seen, &job.rule, rules);
    }

    /// A patch was answered. What becomes of the pod is to be told then.
    pub(super) fn answered(&mut self, view: &View, job: &Job, answer: Answered) {
        let (now, meta) = (view.now(), &job.seen.pod.meta);
        let (name, uid) = (&meta.key.name, &meta.uid);
        self.under_way -= usize::from(job.counts);
        self.pace.answer(
            match answer {
                Answered::Done => Answer::Done,
                Answered::Refused => Answer::Refused,
                Answered::NotNow | Answered::Late | Answered::Unknown => Answer::Neither,
            },
            now,
        );
        let state = match answer {
            Answered::Done => Some(State::Done(job.marks())),
            Answered::Unknown => Some(State::Unknown(job.marks())),
            Answered::Late => Some(State::Behind(now.saturating_add(BEHIND))),
            Answered::Refused | Answered::NotNow => None,
        };
        match state {
            Some(state) => {
                let open = Open { uid: uid.clone(), version: meta.version, state };
                self.open.insert(name.clone(), open);
            }
            None => _ = self.open.remove(name),
        }
        match answer {
            Answered::Done | Answered::Unknown => {
                if job.counts {
                    self.allowance.spend(now);
                }
                if !job.is_carried && self.rests.changed(uid, now).is_some() {
                    self.passed.insert(uid.clone(), name.clone());
                }
                self.refusals.forget(uid);
            }
            Answered::Refused => {
                self.refusals.refused(uid, now);
                self.passed.insert(uid.clone(), name.clone());
            }
            Answered::NotNow | Answered::Late => return,
        }
        if let Some((_, carrying)) = &mut self.carrying {
            carrying.done(name);
        }
    }

    /// Pods of which nobody knows what came of their patch: name, UID and the version that it was for.
    pub(super) fn doubts(&self) -> Vec<(Arc<str>, Arc<str>, u64)> {
        let unknown = self.open.iter().filter(|(_, open)| matches!(open.state, State::Unknown(_)));
        unknown.map(|(name, open)| (name.clone(), open.uid.clone(), open.version)).collect()
    }

    /// What came of a patch that nobody knew of: nothing, or something that the view will tell.
    pub(super) fn cleared(&mut self, pod: &str, is_done: bool) {
        let Some(open) = self.open.get_mut(pod) else { return };
        match open.state {
            State::Unknown(marks) if is_done => open.state = State::Done(marks),
            State::Unknown(_) => _ = self.open.remove(pod),
            State::Sent(_) | State::Done(_) | State::Behind(_) => {}
        }
    }
}

impl Open {
    /// Whether it is seen what came of it: by a pod of its name as it is in the view now.
    fn is_seen(&self, view: &View, pod: &Pod) -> bool {
        let is_another = self.uid != pod.meta.uid || self.version != pod.meta.version;
        match self.state {
            // Whatever happens meanwhile may be this one, or be in its way.
            State::Sent(_) => false,
            State::Done(_) => view.pods.caught_up(&pod.meta.key),
            State::Unknown(_) => is_another,
            State::Behind(until) => is_another || until <= view.now(),
        }
    }

    /// Whether nothing is sent to the pod meanwhile.
    fn holds(&self, now: Duration) -> bool {
        !matches!(self.state, State::Behind(until) if until <= now)
    }

    /// What the pod counts as having of the marks.
    fn marks(&self) -> Option<Marks> {
        match self.state {
            State::Sent(marks) | State::Done(marks) | State::Unknown(marks) => Some(marks),
            State::Behind(_) => None,
        }
    }
}

/// All changes, in the order in which they are made.
fn in_order(changes: &Changes) -> impl Iterator<Item = (&Arc<str>, Task)> {
    let unmark = changes.unmark.iter().map(|name| (name, Task::Unmark));
    let mark = changes.amend.iter().chain(&changes.mark).map(|name| (name, Task::Mark));
    unmark.chain(mark)
}
