//! What holds repair back in all applications: how much is done in the cluster, how soon after a change of leader, and whether the
//! last step of an application has helped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::group::repair::Stage;
use tokio::time::Instant;

use super::application::ApplicationKey;
use super::pacer::Pace;
use super::quiet::Quiet;
use crate::caches::store::Store;
use crate::family::RepairLimits;
use crate::slim::Pod;

/// An application is looked at no more often.
pub(super) const PACE: Duration = Duration::from_secs(2);
/// A leader does nothing before it has led for so long.
const LEADS_SINCE: Duration = Duration::from_secs(60);
/// The limit of steps in the cluster is counted over this time.
const MINUTE: Duration = Duration::from_secs(60);
/// An application whose last step has not helped is left alone for so long.
const FUTILE: Duration = Duration::from_secs(600);
/// A step that is not seen by then was not done.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

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
    /// The UIDs of pods that were evicted, until that is seen.
    evicted: BTreeMap<Arc<str>, Instant>,
}

impl Budget {
    pub(super) fn new(limits: RepairLimits, quiet: Arc<Quiet>) -> Self {
        Self { limits, quiet, looks: Pace::new(PACE), memory: Mutex::default() }
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
    }

    /// An application is to be looked at: how long to wait, if it was a moment ago.
    pub(super) fn note_look(&self, at: &ApplicationKey) -> Option<Duration> {
        self.looks.note_look(at)
    }

    /// How long until anything may be done; none if now.
    pub(super) fn wait(&self) -> Option<Duration> {
        let mut memory = self.memory();
        let led = memory.leads_since.map_or(Duration::ZERO, |since| since.elapsed());
        let first = LEADS_SINCE.min(self.limits.after).saturating_sub(led);
        if !first.is_zero() {
            return Some(first);
        }
        while memory.steps.front().is_some_and(|at| at.elapsed() >= MINUTE) {
            memory.steps.pop_front();
        }
        if memory.steps.len() < self.limits.per_minute {
            return None;
        }
        memory.steps.front().map(|at| MINUTE.saturating_sub(at.elapsed()))
    }

    /// How long until pods may be moved for these groups, of which nodes may have come or gone; none if now.
    pub(super) fn wait_for_groups(&self, groups: &[Arc<str>]) -> Option<Duration> {
        self.quiet.wait(groups, self.limits.after)
    }

    /// Whether some of these pods were changed or evicted a moment ago, and still seem to be as they were.
    pub(super) fn is_behind(&self, pods: &[Arc<Pod>], store: &Store<Pod>) -> bool {
        let mut memory = self.memory();
        memory.evicted.retain(|_, at| at.elapsed() < SEEN_WITHIN);
        pods.iter().any(|pod| memory.evicted.contains_key(&pod.meta.uid) || !store.caught_up(&pod.meta.key))
    }

    /// A pod was evicted, or may have been.
    pub(super) fn note_eviction(&self, at: &ApplicationKey, step: Step, pod: &Pod, stage: Stage) {
        let mut memory = self.memory();
        memory.evicted.insert(pod.meta.uid.clone(), Instant::now());
        memory.steps.push_back(Instant::now());
        memory.last.insert((at.clone(), step), (stage, Instant::now()));
    }

    /// Containers of a pod are restarted.
    pub(super) fn note_restart(&self) {
        self.memory().steps.push_back(Instant::now());
    }

    /// If the last step of an application has not helped: how it stood then, and how long to leave it alone.
    pub(super) fn futile(&self, at: &ApplicationKey, step: Step, now: &Stage) -> Option<(Stage, Duration)> {
        let last = self.memory().last.get(&(at.clone(), step)).cloned();
        let (before, since) = last.filter(|(before, _)| !before.has_helped(now))?;
        Some((before, FUTILE.saturating_sub(since.elapsed()))).filter(|(_, rest)| !rest.is_zero())
    }
}
