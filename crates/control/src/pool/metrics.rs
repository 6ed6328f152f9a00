//! Metrics of pools: what was written to nodes, and how the workloads of applications are.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dapple_api::pool::PoolState;
use dapple_plan::pool::application::{Decision, Seat};
use dapple_plan::pool::removal::Fate;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::FamilyMetrics;
use crate::slim::Key;

/// What is counted.
pub(super) struct PoolMetrics {
    pub(super) writes: Counter,
    pub(super) repairs: Counter,
    pub(super) contested: Counter,
    pub(super) executed: Counter,
    pub(super) held: Counter,
    pub(super) gone: Counter,
    pub(super) workload_repairs: Counter,
    pub(super) renderings: Counter,
    workloads: Family<[(&'static str, String); 1], Gauge>,
    stopped: Gauge,
    workloads_contested: Gauge,
    workloads_held: Gauge,
    /// By controller and application, as of the last look at each.
    applications: Mutex<BTreeMap<(&'static str, Key), Numbers>>,
}

/// What is counted of an application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    states: BTreeMap<PoolState, i64>,
    stopped: i64,
    contested: i64,
    held: i64,
}

impl FamilyMetrics for PoolMetrics {
    fn register(registry: &mut Registry) -> Self {
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let metrics = Self {
            writes: counter("pool_node_writes", "Nodes that were written for their pools"),
            repairs: counter("pool_repairs", "Nodes on which something was put right that others had changed"),
            contested: counter("pool_contested", "Times a node was left alone because others keep changing it"),
            executed: counter("pool_no_execute", "Nodes that got taints with the effect NoExecute"),
            held: counter(
                "pool_removals_held",
                "Times nothing was undone on a node because many left its pool at once",
            ),
            gone: counter("pool_gone", "Times a node was found whose label names no NodePool"),
            workload_repairs: counter(
                "pool_workload_repairs",
                "Workloads of applications that were put right after others had changed them",
            ),
            renderings: counter("pool_renderings", "Times it was worked out what a pool gets of an application"),
            workloads: Family::default(),
            stopped: Gauge::default(),
            workloads_contested: Gauge::default(),
            workloads_held: Gauge::default(),
            applications: Mutex::default(),
        };
        let help = "Workloads of applications in pools, by how far they are";
        registry.register("pool_workloads", help, metrics.workloads.clone());
        registry.register("pool_rollouts_stopped", "Applications whose rollout is stopped", metrics.stopped.clone());
        let help = "Workloads that are left alone because others keep changing them";
        registry.register("pool_workloads_contested", help, metrics.workloads_contested.clone());
        let help = "Workloads that stay, though their pools have left, because many left at once";
        registry.register("pool_workload_removals_held", help, metrics.workloads_held.clone());
        metrics.count(&BTreeMap::new());
        metrics
    }
}

impl Numbers {
    /// Of what was decided.
    pub(super) fn of(decision: &Decision) -> Self {
        let mut states: BTreeMap<PoolState, i64> = BTreeMap::new();
        for pool in &decision.status.pools {
            *states.entry(pool.state).or_default() += 1;
        }
        let count = |is_such: &dyn Fn(&Seat) -> bool| {
            i64::try_from(decision.seats.iter().filter(|seat| is_such(seat)).count()).unwrap_or(i64::MAX)
        };
        Self {
            states,
            stopped: i64::from(decision.status.stopped.is_some()),
            contested: count(&|seat| seat.repair_pause.is_some()),
            held: count(&|seat| seat.fate == Some(Fate::Held)),
        }
    }
}

impl PoolMetrics {
    /// How an application of a controller is; none if it is gone.
    pub(super) fn note(&self, controller: &'static str, key: &Key, numbers: Option<Numbers>) {
        let mut known = self.applications.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match &numbers {
            Some(numbers) => known.insert((controller, key.clone()), numbers.clone()),
            None => known.remove(&(controller, key.clone())),
        };
        if before != numbers {
            self.count(&known);
        }
    }

    /// Nothing is known of a controller's applications any more: another process leads, or their kind is not served.
    pub(super) fn forget(&self, controller: &str) {
        let mut known = self.applications.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| *of != controller);
        self.count(&known);
    }

    fn count(&self, known: &BTreeMap<(&'static str, Key), Numbers>) {
        let sum = |number: &dyn Fn(&Numbers) -> i64| known.values().map(number).sum::<i64>();
        for state in PoolState::ALL {
            let count = sum(&|numbers| numbers.states.get(&state).copied().unwrap_or_default());
            self.workloads.get_or_create(&[("state", format!("{state:?}"))]).set(count);
        }
        self.stopped.set(sum(&|numbers| numbers.stopped));
        self.workloads_contested.set(sum(&|numbers| numbers.contested));
        self.workloads_held.set(sum(&|numbers| numbers.held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_counted_over_applications_until_they_are_gone() {
        let mut registry = Registry::default();
        let metrics = PoolMetrics::register(&mut registry);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let says = |wanted: &[&str]| {
            let text = text();
            wanted
                .iter()
                .for_each(|line| assert!(text.lines().any(|known| known == *line), "{line} is not in\n{text}"));
        };
        let numbers = |done: i64, stopped: i64| Numbers {
            states: BTreeMap::from([(PoolState::Done, done), (PoolState::Late, stopped)]),
            stopped,
            contested: 1,
            held: 2,
        };
        says(&["pool_workloads{state=\"Done\"} 0", "pool_rollouts_stopped 0"]);
        let (one, other) = (Key::new("a", "web"), Key::new("b", "web"));
        metrics.note("yurtappset", &one, Some(numbers(3, 1)));
        metrics.note("yurtappset", &other, Some(numbers(2, 0)));
        metrics.note("yurtappdaemon", &one, Some(numbers(1, 0)));
        says(&["pool_workloads{state=\"Done\"} 6", "pool_workloads{state=\"Late\"} 1", "pool_rollouts_stopped 1"]);
        says(&["pool_workloads_contested 3", "pool_workload_removals_held 6"]);
        metrics.note("yurtappset", &one, None);
        says(&["pool_workloads{state=\"Done\"} 3", "pool_rollouts_stopped 0"]);
        metrics.forget("yurtappset");
        says(&["pool_workloads{state=\"Done\"} 1"]);
    }
}
