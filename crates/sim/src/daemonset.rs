//! The DaemonSet in the simulator.

pub mod properties;
pub mod script;
mod view;

/// The namespace of everything.
pub const NAMESPACE: &str = "default";
/// The name of the set.
pub const NAME: &str = "agent";
/// Its API group.
pub const GROUP: &str = "apps.kruise.io/";
/// The resource, as the server names it.
pub const SETS: &str = "daemonsets.apps.kruise.io";
