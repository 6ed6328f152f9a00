//! The commands and flags about tenants.

use clap::{Args, Subcommand, ValueEnum};
use dapple_api::partition::{Action, TenantLabel};

use super::{ConnectArgs, NAMESPACE, Output, namespace_name};

#[derive(Debug, Args)]
pub(crate) struct TenancyArgs {
    #[command(subcommand)]
    pub(crate) command: TenancyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenancyCommand {
    /// List the DaemonSets that are not the system tenant's, and change nothing.
    ///
    /// Ends with 0 if there are none, 1 if there are some, 2 for an error.
    Check(CheckArgs),
    /// Have the API server keep the rule from now on, or keep it in another way.
    ///
    /// First says which DaemonSets break the rule today. With --as deny, they keep running, but can only be deleted: that
    /// is asked about. Ends with 0 if it is done, 1 if the answer was no, 2 for an error.
    Enforce(EnforceArgs),
    /// Remove dapple's policies and bindings for tenants, and nothing of anybody else.
    Off(OffArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) label: LabelArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EnforceArgs {
    /// What happens to a request that breaks the rule.
    #[arg(long = "as", value_name = "ACTION", value_enum, default_value_t = EnforceAs::Deny)]
    pub(crate) action: EnforceAs,
    #[command(flatten)]
    pub(crate) label: LabelArgs,
    /// The manager's namespace: it writes the status of every tenant's DaemonSets.
    #[arg(long, value_name = "NAME", default_value = NAMESPACE, value_parser = namespace_name)]
    pub(crate) manager_namespace: String,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OffArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// How tenants are told apart.
#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// Label of namespaces that names their tenant; otherwise the one that is enforced, or dapple.dev/tenant.
    #[arg(long, value_name = "KEY")]
    pub(crate) tenant_label: Option<TenantLabel>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnforceAs {
    /// It passes, and the API server's audit log has it.
    Audit,
    /// It passes, and whoever sent it is warned.
    Warn,
    /// It is refused.
    Deny,
}

impl From<EnforceAs> for Action {
    fn from(chosen: EnforceAs) -> Self {
        match chosen {
            EnforceAs::Audit => Self::Audit,
            EnforceAs::Warn => Self::Warn,
            EnforceAs::Deny => Self::Deny,
        }
    }
}
