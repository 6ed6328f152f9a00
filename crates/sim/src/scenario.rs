//! What is simulated of a family: its scripts, and what must hold.

use dapple_control::families;
use dapple_control::family::Family;

use crate::script::Script;
use crate::sim::Properties;
use crate::{daemonset, group, marker, pool};

/// A family in the simulator.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Which.
    pub family: &'static Family,
    /// The script that follows from a seed.
    pub script: fn(u64) -> Script,
    /// The one that followed from it before there were stories, and applications in pools.
    pub second: fn(u64) -> Script,
    /// And the one before there were faults of the second kind.
    pub plain: fn(u64) -> Script,
    /// What must hold.
    pub properties: fn() -> Box<dyn Properties>,
}

/// What is simulated of DaemonSets.
pub const DAEMON_SET: Scenario = Scenario {
    family: families::DAEMON_SET,
    script: daemonset::script::script,
    second: daemonset::script::second,
    plain: daemonset::script::plain,
    properties: || Box::<daemonset::properties::DaemonSetProperties>::default(),
};

/// What is simulated of markers.
pub const MARKER: Scenario = Scenario {
    family: families::MARKER,
    script: marker::script::script,
    second: marker::script::script,
    plain: marker::script::plain,
    properties: || Box::<marker::properties::MarkerProperties>::default(),
};

/// What is simulated of groups.
pub const GROUP: Scenario = Scenario {
    family: families::GROUP,
    script: group::script::script,
    second: group::script::script,
    plain: group::script::plain,
    properties: || Box::<group::properties::GroupProperties>::default(),
};

/// What is simulated of pools.
pub const POOL: Scenario = Scenario {
    family: families::POOL,
    script: pool::script::script,
    second: pool::script::nodes,
    plain: pool::script::plain,
    properties: || Box::<pool::properties::PoolProperties>::default(),
};

/// All of them. That there is one of every family is a test.
pub const ALL: [Scenario; 4] = [DAEMON_SET, MARKER, GROUP, POOL];

/// The scenario of the family of this name.
pub fn find(name: &str) -> Result<Scenario, String> {
    let known = ALL.map(|scenario| scenario.family.name).join(", ");
    let found = ALL.into_iter().find(|scenario| scenario.family.name == name);
    found.ok_or_else(|| format!("no scenario {name:?}; there is: {known}"))
}
