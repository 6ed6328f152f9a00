//! The commands and flags about the scheduler extender.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use dapple_extend::SECRET;
use dapple_extend::config::WEIGHT;

use super::{ConnectArgs, NAMESPACE, https_url, namespace_name};

/// The scheduler extender, as the manager serves it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduler extender")]
pub(crate) struct ServeExtenderArgs {
    /// Where a scheduler is told in which groups pods belong that come without the gate, such as 0.0.0.0:9444. Without it there
    /// is no extender.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) extender_listen: Option<SocketAddr>,
    /// The Secret, in the manager's namespace, that keeps its certificates.
    #[arg(long, value_name = "NAME", default_value = SECRET, requires = "extender_listen")]
    pub(crate) extender_secret: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExtenderArgs {
    #[command(subcommand)]
    pub(crate) command: ExtenderCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExtenderCommand {
    /// Print a KubeSchedulerConfiguration by which kube-scheduler asks a manager that has --extender-listen.
    ///
    /// It has everything in it: the authority to trust, and a certificate and key by which the scheduler is let in. Keep it as
    /// you keep a kubeconfig. Each run makes another certificate, which is kept nowhere else; all hold until the authority
    /// ends, which is said in the first line.
    Config(ExtenderConfigArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExtenderConfigArgs {
    /// How the scheduler reaches the manager: the Service dapple-extender, unless told otherwise. Any address will do, since
    /// the certificate goes by name.
    #[arg(long, value_name = "URL", value_parser = https_url)]
    pub(crate) url: Option<String>,
    /// How much its scores count beside those of the scheduler's own plugins. From 121 on, they decide alone which group a pod
    /// goes to, and the plugins which of its nodes.
    #[arg(long, default_value_t = WEIGHT, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) weight: u32,
    /// The manager's namespace.
    #[arg(long, default_value = NAMESPACE, value_parser = namespace_name)]
    pub(crate) namespace: String,
    /// The Secret with the certificates, which the manager knows as --extender-secret.
    #[arg(long, value_name = "NAME", default_value = SECRET)]
    pub(crate) secret: String,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}
