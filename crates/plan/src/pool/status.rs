//! What the status of a NodePool says.
//!
//! Equal facts give an equal status, so that nothing is written when nothing changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::NodePoolStatus;

/// What the status of a pool is made from.
#[derive(Debug, Clone, Default)]
pub struct PoolFacts {
    /// `metadata.generation` of the pool.
    pub generation: Option<i64>,
    /// Its nodes by name, and whether each is ready.
    pub nodes: BTreeMap<Arc<str>, bool>,
}

/// The status of a pool.
#[must_use]
pub fn pool_status(facts: &PoolFacts) -> NodePoolStatus {
    let ready = facts.nodes.values().filter(|is_ready| **is_ready).count();
    NodePoolStatus {
        ready_node_num: number(ready),
        unready_node_num: number(facts.nodes.len() - ready),
        nodes: facts.nodes.keys().map(ToString::to_string).collect(),
        observed_generation: facts.generation,
        conditions: Vec::new(),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
