//! NodePools in the simulator.

pub mod properties;
pub mod script;

/// The resource, as the server names it.
pub const POOLS: &str = "nodepools.apps.openyurt.io";
