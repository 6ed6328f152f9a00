//! The DaemonSet in the simulator.

mod forbidden;
mod gone;
mod haste;
mod held;
pub mod properties;
mod rollout;
pub mod script;
mod story;
mod view;

/// The namespace of everything.
pub const NAMESPACE: &str = "default";
/// The name of the set.
pub const NAME: &str = "agent";
/// Its API group.
pub const GROUP: &str = "apps.kruise.io/";
/// The resource, as the server names it.
pub const SETS: &str = "daemonsets.apps.kruise.io";
