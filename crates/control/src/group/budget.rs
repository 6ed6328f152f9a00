//! What holds repair back in all applications: how much is done in the cluster, how soon after a change of leader, and whether the
//! last step of an application has helped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::group::open::Taken;
use dapple_plan::group::repair::Stage;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::room::Requests;
use tokio::time::Instant;

use super::application::ApplicationKey;
use super::quiet::Quiet;
use crate::caches::store::Store;
use crate::family::RepairLimits;
use crate::pacer::Pace;
use crate::slim::Pod;

/// An application is looked at no more often.
pub(super) const PACE: Duration = Duration::from_secs(2);
/// A leader does nothing before it has led for so long.
const LEADS_SINCE: Duration = Duration::from_secs(60);
/// The limit of steps in the cluster is counted over this time.
const MINUTE: Duration = Duration::from_secs(60);
/// An application whose last step has not helped is left alone for so long.
const FUTILE: Duration = Duration::from_secs(600);
/// A workload that rolls out for so long is worth telling people, if something is held back by it.
const LONG: Duration = Duration::from_secs(300);
/// What was not so for this long has ended, and begins anew.
const ENDED: Duration = Duration::from_secs(60);
/// A step that is not seen by then was not done: a watch that has gone silent ends before, and what was missed is told.
const SEEN_WITHIN: Duration = Duration::from_secs(330);
/// What was asked for is done by then, or never: an API server gives each request a minute.
const DONE_WITHIN: Duration = Duration::from_secs(90);

/// What is done to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// It is moved to another group.
    Move,
    /// It gets another edition.
    Edition,
}

/// What holds repair back.
pub(super) struct Budget {
    limits: RepairLimits,
    quiet: Arc<Quiet>,
    looks: Pace<ApplicationKey>,
    memory: Mutex<Memory>,
    /// Whoever takes a step has it.
    turn: tokio::sync::Mutex<()>,
}

/// What is remembered from look to look, and only while this process leads.
#[derive(Default)]
struct Memory {
    term: u64,
    leads_since: Option<Instant>,
    /// When steps were taken in the last minute.
    steps: VecDeque<Instant>,
    /// How applications stood when a step was last taken, and when that was.
    last: BTreeMap<(ApplicationKey, Step), (Stage, Instant)>,
    /// The UIDs of pods that were evicted, or may have been changed, until that is seen.
    unseen: BTreeMap<Arc<str>, Unseen>,
    /// Applications of which something is held back since their workload rolls out: since when, and when that was last so.
    changing: BTreeMap<ApplicationKey, (Instant, Instant)>,
    /// Steps that may be open, by the group that they were for.
    open: BTreeMap<(Arc<str>, ApplicationKey), Vec<Open>>,
}

/// What was done to a pod, or may have been.
#[derive(Clone, Copy)]
struct Unseen {
    at: Instant,
    /// The version that was to be changed: what is newer tells what has become of it. None of an eviction: before a pod leaves,
    /// other things are written to it.
    version: Option<u64>,
}

impl Unseen {
    fn is_over(self) -> bool {
        let within = if is_on(Mutant::SilenceForgotten) { Duration::from_secs(30) } else { SEEN_WITHIN };
        self.at.elapsed() >= within
    }

    /// Whether what was done is seen by now, if this is the pod.
    fn is_seen(self, pod: &Pod) -> bool {
        self.version.is_some_and(|version| pod.meta.version > version)
    }
}

/// A step that may be open.
struct Open {
    taken: Taken,
    /// What the pod asks for that comes in the place of one that was evicted.
    requests: Option<Requests>,
}

impl Memory {
    fn note_step(&mut self, key: (Arc<str>, ApplicationKey), open: Open) {
        self.steps.push_back(Instant::now());
        self.open.entry(key).or_default().push(open);
    }
}

impl Budget {
    pub(super) fn new(limits: RepairLimits, quiet: Arc<Quiet>) -> Self {
        Self { limits, quiet, looks: Pace::new(PACE), memory: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process leads from now on.
    pub(super) fn begin(&self, term: u64) {
        let mut memory = self.memory();
        if term != 0 && memory.term != term {
            *memory = Memory { term, leads_since: Some(Instant::now()), ..Memory::default() };
        }
    }

    /// An application is gone.
    pub(super) fn forget(&self, at: &ApplicationKey) {
        self.looks.forget(at);
        let mut memory = self.memory();
        memory.last.retain(|(known, _), _| known != at);
        memory.changing.remove(at);
        memory.open.retain(|(_, known), _| known != at);
    }

    /// An application is to be looked at: how long to wait, if it was a moment ago.
    pub(super) fn note_look(&self, at: &ApplicationKey) -> Option<Duration> {
        self.looks.note_look(at)
    }

    /// Something is held back of an application since its workload rolls out or scales. Tells whether that has been so for long.
    pub(super) fn has_changed_for_long(&self, at: &ApplicationKey) -> bool {
        let (mut memory, now) = (self.memory(), Instant::now());
        let (since, last) = memory.changing.entry(at.clone()).or_insert((now, now));
        if now.duration_since(*last) >= ENDED {
            *since = now;
        }
        *last = now;
        now.duration_since(*since) >= LONG
    }

    /// How long until anything may be done; none if now.
    pub(super) fn wait(&self) -> Option<Duration> {
        let mut memory = self.memory();
        let led = memory.leads_since.map_or(Duration::ZERO, |since| since.elapsed());
        let first = LEADS_SINCE.min(self.limits.after).saturating_sub(led);
        if !first.is_zero() && !is_on(Mutant::FirstMinuteForgotten) {
            return Some(first);
        }
        while memory.steps.front().is_some_and(|at| at.elapsed() >= MINUTE) {
            memory.steps.pop_front();
        }
        if memory.steps.len() < self.limits.per_minute || is_on(Mutant::MinuteForgotten) {
            return None;
        }
        memory.steps.front().map(|at| MINUTE.saturating_sub(at.elapsed()))
    }

    /// How long until a pod may be changed that follows the groups of its node, if that may have joined or left some; none if now.
    pub(super) fn wait_for_node(&self, node: &str) -> Option<Duration> {
        self.quiet.wait_for_node(node, self.limits.after)
    }

    /// How long until pods may be moved or changed for these groups, of which nodes may have come or gone; none if now.
    pub(super) fn wait_for_groups<'g>(&self, groups: impl IntoIterator<Item = &'g str>) -> Option<Duration> {
        self.quiet.wait(groups, self.limits.after)
    }

    /// Those of some pods that were changed or evicted a moment ago, and still seem to be as they were.
    pub(super) fn behind(&self, pods: &[Arc<Pod>], store: &Store<Pod>) -> BTreeSet<Arc<str>> {
        let mut memory = self.memory();
        memory.unseen.retain(|_, unseen| !unseen.is_over());
        let is_unseen = |pod: &Pod| memory.unseen.get(&pod.meta.uid).is_some_and(|unseen| !unseen.is_seen(pod));
        let behind = pods.iter().filter(|pod| is_unseen(pod) || !store.caught_up(&pod.meta.key));
        behind.map(|pod| pod.meta.uid.clone()).collect()
    }

    /// Those of some pods that still seem to be as they were long after they were evicted, or may have been changed.
    pub(super) fn overdue(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let memory = self.memory();
        let is_overdue = |pod: &&Arc<Pod>| {
            let unseen = memory.unseen.get(&pod.meta.uid);
            unseen.is_some_and(|unseen| unseen.at.elapsed() >= DONE_WITHIN && !unseen.is_seen(pod))
        };
        pods.iter().filter(is_overdue).cloned().collect()
    }

    /// Nothing has come of what was tried with a pod.
    pub(super) fn note_undone(&self, pod: &Pod) {
        self.memory().unseen.remove(&pod.meta.uid);
    }

    /// Whether nothing is decided about these pods yet: some were changed or evicted a moment ago, and still seem to be as they were;
    /// or pods are being listed, and some are older in the view than others.
    pub(super) fn is_behind(&self, pods: &[Arc<Pod>], store: &Store<Pod>) -> bool {
        store.is_listing() || !self.behind(pods, store).is_empty()
    }

    /// Waits for the turn to take a step: nobody else takes one until it is dropped, so that no limit is exceeded.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A pod was evicted, or may have been, for a group.
    pub(super) fn note_eviction(
        &self,
        (at, step, stage): (&ApplicationKey, Step, Stage),
        pod: &Pod,
        (to, taken, requests): (&Arc<str>, Taken, Requests),
    ) {
        let mut memory = self.memory();
        memory.unseen.insert(pod.meta.uid.clone(), Unseen { at: Instant::now(), version: None });
        memory.last.insert((at.clone(), step), (stage, Instant::now()));
        memory.note_step((to.clone(), at.clone()), Open { taken, requests: Some(requests) });
    }

    /// Containers of a pod are restarted, or may be, for a group.
    pub(super) fn note_restart(&self, at: &ApplicationKey, to: &str, taken: Taken) {
        self.memory().note_step((Arc::from(to), at.clone()), Open { taken, requests: None });
    }

    /// Nobody knows whether a pod was changed.
    pub(super) fn note_doubt(&self, pod: &Pod) {
        let unseen = Unseen { at: Instant::now(), version: Some(pod.meta.version) };
        self.memory().unseen.insert(pod.meta.uid.clone(), unseen);
    }

    /// The applications with steps for a group that may be open.
    pub(super) fn applications_for(&self, group: &str) -> BTreeSet<ApplicationKey> {
        let memory = self.memory();
        memory.open.keys().filter(|(to, _)| **to == *group).map(|(_, at)| at.clone()).collect()
    }

    /// Keeps those steps of an application for a group that are open yet, and tells when they were taken.
    pub(super) fn keep_open(
        &self,
        group: &str,
        at: &ApplicationKey,
        still_open: impl FnOnce(&[Taken]) -> Vec<usize>,
    ) -> Vec<i64> {
        let mut memory = self.memory();
        let key = (Arc::from(group), at.clone());
        let Some(known) = memory.open.remove(&key) else { return Vec::new() };
        let taken: Vec<Taken> = known.iter().map(|open| open.taken.clone()).collect();
        let kept: BTreeSet<usize> = still_open(&taken).into_iter().collect();
        let known: Vec<Open> =
            known.into_iter().enumerate().filter(|(number, _)| kept.contains(number)).map(|(_, open)| open).collect();
        let seconds = known.iter().map(|open| open.taken.at).collect();
        if !known.is_empty() {
            memory.open.insert(key, known);
        }
        seconds
    }

    /// The evictions for a group that may be open, oldest first, with what the pods ask for that come instead.
    pub(super) fn evicted_for(&self, group: &str) -> BTreeMap<ApplicationKey, Vec<(Taken, Requests)>> {
        let memory = self.memory();
        let own = memory.open.iter().filter(|((to, _), _)| **to == *group);
        let evicted = |open: &Open| Some((open.taken.clone(), open.requests.clone()?));
        own.map(|((_, at), open)| (at.clone(), open.iter().filter_map(evicted).collect())).collect()
    }

    /// If the last step of an application has not helped: how it stood then, and how long to leave it alone.
    pub(super) fn futile(&self, at: &ApplicationKey, step: Step, now: &Stage) -> Option<(Stage, Duration)> {
        let last = self.memory().last.get(&(at.clone(), step)).cloned();
        let (before, since) = last.filter(|(before, _)| !before.has_helped(now))?;
        let rest = FUTILE.saturating_sub(since.elapsed());
        (!rest.is_zero() && !is_on(Mutant::FutileForgotten)).then_some((before, rest))
    }
}

#[cfg(test)]
mod tests {
    use dapple_api::kinds::POD;
    use serde_json::json;

    use super::*;
    use crate::slim::{Interner, Key, read};

    fn budget() -> Budget {
        let quiet = Quiet::new(Arc::default(), Arc::default());
        Budget::new(RepairLimits::default(), Arc::new(quiet))
    }

    fn application() -> ApplicationKey {
        ApplicationKey { kind: POD, key: Key::new("here", "web") }
    }

    fn taken(at: i64) -> Taken {
        Taken { at, before: BTreeSet::new() }
    }

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_waits_a_minute() {
        let budget = budget();
        assert_eq!(budget.wait(), Some(LEADS_SINCE), "it does not lead");
        budget.begin(1);
        pass(59).await;
        assert_eq!(budget.wait(), Some(Duration::from_secs(1)));
        pass(1).await;
        assert_eq!(budget.wait(), None);
        budget.begin(1);
        assert_eq!(budget.wait(), None, "it leads as before");
        budget.begin(2);
        assert_eq!(budget.wait(), Some(LEADS_SINCE));
    }

    #[tokio::test(start_paused = true)]
    async fn thirty_a_minute_and_no_more() {
        let budget = budget();
        budget.begin(1);
        pass(60).await;
        for number in 0..30 {
            assert_eq!(budget.wait(), None, "{number} were taken");
            budget.note_restart(&application(), "beijing", taken(number));
            pass(1).await;
        }
        assert_eq!(budget.wait(), Some(Duration::from_secs(30)), "until the first is a minute ago");
        pass(30).await;
        assert_eq!(budget.wait(), None);
        budget.note_restart(&application(), "beijing", taken(90));
        assert_eq!(budget.wait(), Some(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_stays_as_it_was_is_overdue_until_nothing_has_come_of_it() {
        let (budget, store) = (budget(), Store::<Pod>::default());
        let pod = |version: &str| {
            let meta = json!({"name": "web-1", "namespace": "here", "uid": "u", "resourceVersion": version});
            Arc::new(read::<Pod>(&json!({"metadata": meta}), &mut Interner::default()).expect("a pod"))
        };
        let old = [pod("5")];
        budget.note_doubt(&old[0]);
        pass(89).await;
        assert!(budget.overdue(&old).is_empty(), "it may be done yet");
        pass(1).await;
        assert_eq!(budget.overdue(&old).len(), 1);
        assert!(budget.overdue(&[pod("6")]).is_empty(), "it is seen what has become of it");
        assert!(budget.is_behind(&old, &store));
        budget.note_undone(&old[0]);
        assert!(budget.overdue(&old).is_empty() && !budget.is_behind(&old, &store));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollout_that_takes_minutes_is_worth_telling() {
        let budget = budget();
        for _ in 0..60 {
            assert!(!budget.has_changed_for_long(&application()));
            pass(5).await;
        }
        assert!(budget.has_changed_for_long(&application()));
        pass(60).await;
        assert!(!budget.has_changed_for_long(&application()), "another one has begun since");
    }

    #[tokio::test(start_paused = true)]
    async fn one_has_the_turn_at_a_time() {
        let budget = budget();
        let turn = budget.turn().await;
        assert!(tokio::time::timeout(Duration::from_secs(9), budget.turn()).await.is_err());
        drop(turn);
        assert!(tokio::time::timeout(Duration::from_secs(9), budget.turn()).await.is_ok());
    }

    #[test]
    fn steps_are_kept_by_group_until_they_are_not_open() {
        let budget = budget();
        for (number, group) in ["beijing", "beijing", "hangzhou"].into_iter().enumerate() {
            budget.note_restart(&application(), group, taken(number as i64));
        }
        assert_eq!(budget.keep_open("beijing", &application(), |all| (0..all.len()).collect()), [0, 1]);
        assert_eq!(budget.keep_open("beijing", &application(), |_| vec![1]), [1]);
        assert!(budget.keep_open("beijing", &application(), |_| Vec::new()).is_empty());
        assert!(budget.applications_for("beijing").is_empty());
        assert_eq!(budget.applications_for("hangzhou").len(), 1);
        budget.forget(&application());
        assert!(budget.applications_for("hangzhou").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_not_helped_rests() {
        let budget = budget();
        let stage = |misplaced: usize| Stage { policy: (Arc::from("uid"), Some(1)), desired: 5, misplaced };
        budget.memory().last.insert((application(), Step::Move), (stage(3), Instant::now()));
        let futile = |step: Step, misplaced: usize| budget.futile(&application(), step, &stage(misplaced));
        assert_eq!(futile(Step::Move, 2), None, "it has helped");
        assert_eq!(futile(Step::Edition, 3), None, "nothing was done of that kind");
        assert_eq!(futile(Step::Move, 3), Some((stage(3), FUTILE)));
        pass(599).await;
        assert_eq!(futile(Step::Move, 3), Some((stage(3), Duration::from_secs(1))));
        pass(1).await;
        assert_eq!(futile(Step::Move, 3), None);
    }
}
