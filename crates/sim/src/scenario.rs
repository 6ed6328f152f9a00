//! What is simulated of a family: its scripts, and what must hold.

use dapple_control::family::Family;

use crate::script::Script;
use crate::sim::Properties;
use crate::{daemonset, group};

/// A family in the simulator.
pub struct Scenario {
    /// Which.
    pub family: Family,
    /// The script that follows from a seed.
    pub script: fn(u64) -> Script,
    /// The one that followed from it before there were stories.
    pub second: fn(u64) -> Script,
    /// And the one before there were faults of the second kind.
    pub plain: fn(u64) -> Script,
    /// What must hold.
    pub properties: fn() -> Box<dyn Properties>,
}

impl Scenario {
    /// What is simulated of a family.
    pub fn of(family: Family) -> Self {
        match family {
            Family::DaemonSet => Self {
                family,
                script: daemonset::script::script,
                second: daemonset::script::second,
                plain: daemonset::script::plain,
                properties: || Box::<daemonset::properties::DaemonSetProperties>::default(),
            },
            Family::Group => Self {
                family,
                script: group::script::script,
                second: group::script::script,
                plain: group::script::plain,
                properties: || Box::<group::properties::GroupProperties>::default(),
            },
        }
    }
}
