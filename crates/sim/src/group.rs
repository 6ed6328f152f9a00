//! NodeGroups in the simulator.

mod binding;
mod placing;
pub mod properties;
pub mod script;

/// The resource, as the server names it.
pub const GROUPS: &str = "nodegroups.groupmanagement.kubeedge.io";
