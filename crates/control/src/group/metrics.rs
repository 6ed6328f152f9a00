//! Metrics of placing and moving pods, and what was decided about single ones lately.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::application::Asking;
use super::notes::Notes;
use super::pinned::Pinned;
use crate::metrics::FamilyMetrics;

/// What is counted.
pub(super) struct GroupMetrics {
    placements: Counter,
    moves: Counter,
    changes: Counter,
    refused: Counter,
    gated: Gauge,
    oldest: Gauge<f64, AtomicU64>,
    /// What is told of single pods, where their policies say how they stand.
    pub(super) notes: Notes,
    /// What is known of pods that their volumes may keep where they are.
    pub(super) pinned: Pinned,
}

impl FamilyMetrics for GroupMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            placements: Counter::default(),
            moves: Counter::default(),
            changes: Counter::default(),
            refused: Counter::default(),
            gated: Gauge::default(),
            oldest: Gauge::default(),
            notes: Notes::default(),
            pinned: Pinned::default(),
        };
        registry.register("group_placements", "Pods that were given a group", metrics.placements.clone());
        registry.register("group_moves", "Pods evicted to be placed where they belong", metrics.moves.clone());
        let help = "Running pods that were given another edition, where they run or by eviction";
        registry.register("group_edition_changes", help, metrics.changes.clone());
        let help = "Evictions and restarts of pods that a PodDisruptionBudget refused";
        registry.register("group_evictions_refused", help, metrics.refused.clone());
        registry.register("group_gated_pods", "Pods that wait behind the scheduling gate", metrics.gated.clone());
        let help = "Age of the oldest pod that waits behind the scheduling gate";
        registry.register_with_unit("group_gated_oldest", help, Unit::Seconds, metrics.oldest.clone());
        metrics
    }
}

impl GroupMetrics {
    /// A pod was given a group.
    pub(super) fn placed(&self) {
        self.placements.inc();
    }

    /// A pod of an application was evicted from one group, if it was in one, to be placed in another, at this second.
    pub(super) fn moved(&self, asking: &Asking, pod: &str, groups: (Option<&str>, &str), second: i64) {
        self.moves.inc();
        self.notes.moved(asking, pod, groups, second);
    }

    /// A running pod was given another edition.
    pub(super) fn changed(&self) {
        self.changes.inc();
    }

    /// A pod may not be evicted.
    pub(super) fn refused(&self) {
        self.refused.inc();
    }

    /// So many pods wait, the oldest for so many seconds.
    pub(super) fn waiting(&self, pods: usize, oldest: i64) {
        self.gated.set(i64::try_from(pods).unwrap_or(i64::MAX));
        self.oldest.set(oldest as f64);
    }
}
