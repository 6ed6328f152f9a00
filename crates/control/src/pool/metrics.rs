//! Metrics of pools.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::metrics::FamilyMetrics;

/// What is counted.
pub(super) struct PoolMetrics {
    pub(super) writes: Counter,
    pub(super) repairs: Counter,
    pub(super) contested: Counter,
    pub(super) executed: Counter,
    pub(super) held: Counter,
    pub(super) gone: Counter,
}

impl FamilyMetrics for PoolMetrics {
    fn register(registry: &mut Registry) -> Self {
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            writes: counter("pool_node_writes", "Nodes that were written for their pools"),
            repairs: counter("pool_repairs", "Nodes on which something was put right that others had changed"),
            contested: counter("pool_contested", "Times a node was left alone because others keep changing it"),
            executed: counter("pool_no_execute", "Nodes that got taints with the effect NoExecute"),
            held: counter(
                "pool_removals_held",
                "Times nothing was undone on a node because many left its pool at once",
            ),
            gone: counter("pool_gone", "Times a node was found whose label names no NodePool"),
        }
    }
}
