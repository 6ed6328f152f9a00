//! NodeGroups in the simulator.

mod asking;
mod binding;
mod crowd;
mod editions;
mod halted;
mod moves;
mod placing;
pub mod properties;
mod replaced;
pub mod script;
mod seats;
mod targets;
mod trial;
mod vain;
mod workloads;

pub(crate) use seats::{is_live, owner_of};

/// The resource, as the server names it.
pub const GROUPS: &str = "nodegroups.groupmanagement.kubeedge.io";
