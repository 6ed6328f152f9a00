//! NodeGroups in the simulator.

mod asking;
mod binding;
mod editions;
mod moves;
mod placing;
pub mod properties;
pub mod script;
mod seats;
mod targets;
mod workloads;

/// The resource, as the server names it.
pub const GROUPS: &str = "nodegroups.groupmanagement.kubeedge.io";
