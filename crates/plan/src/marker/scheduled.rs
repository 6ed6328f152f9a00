//! One probe of one run of a container: when it is next, and what is known of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::marker::{ContainerProbe, ContainerProbeState, ProbeState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::action::{Definition, Means, Timing};
use super::schedule::{Answer, EXEC_IS_OFF, Id, Moment, UNREADABLE};

/// A probe of a run of a container.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) asked: ContainerProbe,
    pub(super) address: Option<Arc<str>>,
    /// Its kind, for metrics.
    pub(super) kind: &'static str,
    /// Nothing if it cannot be run here.
    pub(super) definition: Option<Definition>,
    /// Not before.
    pub(super) ready_at: Duration,
    pub(super) begun_at: Option<Duration>,
    pub(super) running: Option<u64>,
    /// When it last began or ended.
    pub(super) seen_at: Duration,
    /// What was told last, and how often in a row.
    pub(super) streak: (bool, u32),
    /// What is stored of it, or of the container's run before this.
    pub(super) stored: Option<ContainerProbeState>,
}

impl Scheduled {
    pub(super) fn new(
        asked: ContainerProbe,
        address: Option<Arc<str>>,
        stored: Option<ContainerProbeState>,
        now: Moment,
    ) -> Self {
        let definition = Definition::of(&asked.probe);
        let delay = definition.as_ref().map_or(Duration::ZERO, |definition| definition.timing.initial_delay);
        let ready_at = now.steady.saturating_add(remaining(delay, asked.started_at.as_ref(), now.wall));
        Self {
            asked,
            address,
            kind: definition.as_ref().map_or("unreadable", |definition| definition.action.name()),
            definition,
            ready_at,
            begun_at: None,
            running: None,
            seen_at: ready_at,
            streak: (false, 0),
            stored,
        }
    }

    /// Says why it cannot be run here, if it cannot.
    pub(super) fn forbid(&mut self, is_exec_on: bool, now: Timestamp) -> bool {
        let why = match &self.definition {
            None => UNREADABLE,
            Some(definition) if definition.action.means() == Means::Runtime && !is_exec_on => EXEC_IS_OFF,
            Some(_) => return false,
        };
        self.definition = None;
        self.set(ProbeState::Unknown, Some(why.to_owned()), now)
    }

    /// Its times, if it needs these means.
    pub(super) fn of_lane(&self, means: Means) -> Option<Timing> {
        self.definition.as_ref().filter(|definition| definition.action.means() == means).map(|known| known.timing)
    }

    /// When it is next. Probes of equal periods are spread over the period, each always at its own time of it; after one that
    /// began late, the next comes half a period later at the earliest. What is overdue has a time that has passed.
    pub(super) fn next(&self, id: &Id, period: Duration) -> Duration {
        let after_last = self.begun_at.map_or(Duration::ZERO, |begun| begun.saturating_add(period / 2));
        slot(id, period, after_last.max(self.ready_at))
    }

    pub(super) fn judge(&mut self, answer: Answer, timing: Timing, now: Timestamp) -> bool {
        let (has_succeeded, message) = match answer {
            Answer::Succeeded => (true, None),
            Answer::Failed(why) => (false, Some(why)),
            Answer::Error(why) => {
                self.streak = (false, 0);
                return self.set(ProbeState::Unknown, Some(why), now);
            }
        };
        let times = if self.streak.0 == has_succeeded { self.streak.1.saturating_add(1) } else { 1 };
        self.streak = (has_succeeded, times);
        let (needed, state) = if has_succeeded {
            (timing.successes, ProbeState::Succeeded)
        } else {
            (timing.failures, ProbeState::Failed)
        };
        times >= needed && self.set(state, message, now)
    }

    /// What is known of this run of the container.
    pub(super) fn state(&self) -> ProbeState {
        match &self.stored {
            Some(stored) if stored.container_id == self.asked.container_id => stored.state,
            _ => ProbeState::Unknown,
        }
    }

    /// Takes a result, if it is another. Returns whether it is to be stored.
    pub(super) fn set(&mut self, state: ProbeState, message: Option<String>, now: Timestamp) -> bool {
        if self.stored.is_some() && self.state() == state {
            return false;
        }
        self.stored = Some(ContainerProbeState {
            name: self.asked.name.clone(),
            container_id: self.asked.container_id.clone(),
            state,
            last_transition_time: Some(Time(now)),
            message,
        });
        true
    }
}

/// What is left of a delay that began with a container. Both times are by the node's clock.
fn remaining(delay: Duration, started_at: Option<&Time>, now: Timestamp) -> Duration {
    let Some(started_at) = started_at else { return delay };
    let since = u64::try_from(now.as_millisecond().saturating_sub(started_at.0.as_millisecond())).unwrap_or(0);
    delay.saturating_sub(Duration::from_millis(since))
}

/// The first time of a probe's own that is not before another.
fn slot(id: &Id, period: Duration, not_before: Duration) -> Duration {
    let (period, not_before) = (period.as_millis().max(1), not_before.as_millis());
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let own = u128::from(hasher.finish()) % period;
    // How far into its period that is, and how much is left of it then.
    let into = (not_before + period - own) % period;
    let at = not_before + (period - into) % period;
    Duration::from_millis(u64::try_from(at).unwrap_or(u64::MAX))
}
