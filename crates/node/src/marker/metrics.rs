//! What a prober counts.

use std::collections::BTreeMap;

use dapple_api::marker::ProbeState;
use dapple_control::metrics::FamilyMetrics;
use dapple_plan::marker::schedule::Answer;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Two = [(&'static str, &'static str); 2];

/// The counters.
pub(super) struct ProberMetrics {
    runs: Family<Two, Counter>,
    probes: Family<Two, Gauge>,
    late: Counter,
    writes: Family<Two, Counter>,
    is_stretched: Gauge,
}

impl FamilyMetrics for ProberMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            runs: Family::default(),
            probes: Family::default(),
            late: Counter::default(),
            writes: Family::default(),
            is_stretched: Gauge::default(),
        };
        registry.register("prober_runs", "Runs of probes, by kind and what they told", metrics.runs.clone());
        registry.register("prober_probes", "Probes, by kind and result", metrics.probes.clone());
        let help = "Times that probes became unknown because they had not run for three periods";
        registry.register("prober_late", help, metrics.late.clone());
        let help = "Writes of results and of the Lease, and how they ended";
        registry.register("prober_writes", help, metrics.writes.clone());
        let help = "1 while probes run more seldom than they ask for, since they are too many";
        registry.register("prober_stretched", help, metrics.is_stretched.clone());
        metrics
    }
}

const fn result(state: ProbeState) -> &'static str {
    match state {
        ProbeState::Succeeded => "succeeded",
        ProbeState::Failed => "failed",
        ProbeState::Unknown => "unknown",
    }
}

impl ProberMetrics {
    /// A probe was run.
    pub(super) fn ran(&self, kind: &'static str, answer: &Answer) {
        let told = match answer {
            Answer::Succeeded => "succeeded",
            Answer::Failed(_) => "failed",
            Answer::Error(_) => "error",
        };
        self.runs.get_or_create(&[("kind", kind), ("answer", told)]).inc();
    }

    /// Some probes are late.
    pub(super) fn were_late(&self) {
        self.late.inc();
    }

    /// Something was written, or not.
    pub(super) fn wrote(&self, what: &'static str, is_done: bool) {
        let how = if is_done { "done" } else { "failed" };
        self.writes.get_or_create(&[("what", what), ("how", how)]).inc();
    }

    /// These probes there are, with these results.
    pub(super) fn counts(&self, counts: &BTreeMap<(&'static str, ProbeState), usize>, is_stretched: bool) {
        self.probes.clear();
        for ((kind, state), count) in counts {
            let gauge = self.probes.get_or_create(&[("kind", *kind), ("result", result(*state))]);
            gauge.set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        self.is_stretched.set(is_stretched.into());
    }
}
