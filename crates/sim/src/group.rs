//! NodeGroups in the simulator.

pub mod properties;
pub mod script;

/// The resource, as the server names it.
pub const GROUPS: &str = "nodegroups.groupmanagement.kubeedge.io";
