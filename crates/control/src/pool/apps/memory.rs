//! What a controller of applications keeps from one look to the next: only what saves questions, and what failed a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dapple_plan::pool::learned::Target;
use jiff::Timestamp;
use tokio::time::Instant;

use super::PACE;
use super::explain::{Changers, Said};
use super::failed::Failed;
use super::judged::Judged;
use super::learn::{Autoscaled, Sought};
use super::recalled::Recalled;
use super::replacements::Paced;

/// What saves questions, and no more.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) recalled: Recalled,
    /// Pools whose last write was refused, with what was to be rolled out, the reason, and until when that counts.
    pub(super) refused: BTreeMap<String, Refusal>,
    /// Workloads that a write of ours may have changed, by UID.
    pub(super) doubts: BTreeMap<String, Doubt>,
    /// Pools of whose last write nobody knows what has come.
    pub(super) unanswered: BTreeSet<String>,
    /// What failed besides, and is not tried again at once.
    pub(super) failed: Failed,
    /// When workloads that nobody owned were taken in, by UID.
    pub(super) taken_in: BTreeMap<String, Vec<Timestamp>>,
    /// Whether workloads that differ are as another webhook makes them.
    pub(super) judged: Judged,
    /// What autoscalers set the number of pods of.
    pub(super) autoscaled: Option<Autoscaled>,
    /// Whether there is what replacements have pods refer to.
    pub(super) targets: BTreeMap<Target, Sought>,
    /// What pods said of pools that are not done.
    pub(super) pods: BTreeMap<String, Said>,
    /// Who else changes workloads that are left alone for that.
    pub(super) changers: BTreeMap<String, Changers>,
    /// When the status was last written.
    pub(super) told: Option<Instant>,
    /// When those of replacements were.
    pub(super) paced: Paced,
}

impl Memory {
    /// Forgets what counts no more.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.refused.retain(|_, refusal| now < refusal.until);
        self.doubts.retain(|_, doubt| now < doubt.until);
        self.failed.forget(now);
    }

    /// How long the status is not written yet.
    pub(super) fn rest(&self) -> Option<Duration> {
        self.told.map(|told| PACE.saturating_sub(told.elapsed())).filter(|rest| !rest.is_zero())
    }
}

/// A write of which nobody knows whether it was done.
pub(super) struct Doubt {
    /// The version that was to be changed: the write changes no other.
    pub(super) version: String,
    pub(super) until: Timestamp,
}

pub(super) struct Refusal {
    pub(super) revision: String,
    pub(super) reason: String,
    pub(super) until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_once_a_second() {
        let mut memory = Memory::default();
        assert_eq!(memory.rest(), None);
        memory.told = Some(Instant::now());
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(memory.rest(), Some(Duration::from_millis(600)));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(memory.rest(), None);
    }
}
