//! Metrics of placing and moving pods.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics::FamilyMetrics;

/// What is counted.
pub(super) struct GroupMetrics {
    placements: Counter,
    moves: Counter,
    changes: Counter,
    refused: Counter,
    gated: Gauge,
    oldest: Gauge<f64, AtomicU64>,
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

    /// A pod was evicted to be placed where it belongs.
    pub(super) fn moved(&self) {
        self.moves.inc();
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
