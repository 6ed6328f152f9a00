//! `dapple adopt`.

use clap::{Args, ValueEnum};
use dapple_plan::adopt::pool::{NODE_POOLS, Taken, YURT_APP_DAEMONS, YURT_APP_SETS};

use super::ConnectArgs;

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The family of APIs to adopt.
    #[arg(value_enum)]
    pub(crate) family: AdoptFamily,
    /// Say what was found and what would be done, and change nothing.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Adopt objects too whose pods dapple would replace, since what runs is not what they say.
    #[arg(long)]
    pub(crate) allow_restarts: bool,
    /// With pool: the kinds to adopt; all three unless told otherwise.
    #[arg(long, value_enum, value_name = "KIND,...", value_delimiter = ',')]
    pub(crate) kinds: Vec<PoolKind>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// Families that another product may serve under the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdoptFamily {
    /// DaemonSets of OpenKruise.
    Daemonset,
    /// NodePools, YurtAppSets and YurtAppDaemons of OpenYurt 1.4.
    Pool,
}

/// Kinds that OpenYurt serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolKind {
    /// Pools of nodes.
    #[value(name = "nodepools", aliases = ["nodepool", "np"])]
    NodePools,
    /// Applications in pools that they name.
    #[value(name = "yurtappsets", aliases = ["yurtappset", "yas"])]
    YurtAppSets,
    /// Applications in pools that they select.
    #[value(name = "yurtappdaemons", aliases = ["yurtappdaemon", "yad"])]
    YurtAppDaemons,
}

impl PoolKind {
    /// What is taken over.
    pub(crate) fn taken(self) -> &'static Taken {
        match self {
            Self::NodePools => &NODE_POOLS,
            Self::YurtAppSets => &YURT_APP_SETS,
            Self::YurtAppDaemons => &YURT_APP_DAEMONS,
        }
    }
}
