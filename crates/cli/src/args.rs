//! Every command and flag, in one place.

mod adopt;
mod extender;
mod marker;
mod node;
mod rollout;
mod tenancy;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dapple_control::families;
use dapple_control::gates::Gates;
use dapple_control::lease::LENGTHS;

use crate::target::Target;

pub(crate) use adopt::{AdoptArgs, AdoptFamily};
pub(crate) use extender::{ExtenderArgs, ExtenderCommand, ExtenderConfigArgs, ServeExtenderArgs};
pub(crate) use marker::MarkerArgs;
pub(crate) use node::{InstallProberArgs, NodeArgs, NodeCommand, ProberArgs};
pub(crate) use rollout::{
    DryRun, GetArgs, GetOutput, HistoryArgs, ObjectArgs, RolloutArgs, RolloutCommand, StatusOfArgs, UndoArgs,
};
pub(crate) use tenancy::{CheckArgs, EnforceArgs, OffArgs, TenancyArgs, TenancyCommand};

/// Where the manager's lease is, unless told otherwise.
pub(crate) const NAMESPACE: &str = "dapple-system";
/// The manager's lease, unless told otherwise.
pub(crate) const LEASE: &str = "dapple-manager";
/// The Secret with the webhooks' certificates, unless told otherwise. The manager's role names it.
pub(crate) const WEBHOOK_SECRET: &str = "dapple-webhook-certificates";

/// Runs one application across unlike nodes on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "dapple", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a real local cluster with dapple and an example fleet, or install dapple into yours.
    Up(UpArgs),
    /// Stop what `dapple up` started, and leave nothing behind.
    Down(DownArgs),
    /// Show what runs.
    Status(StatusArgs),
    /// Show what each kind of node would get of workloads and policies in files, and what becomes of the pods there are;
    /// with a cluster, also which pods a PodMarker would mark and unmark.
    ///
    /// Ends with 0 if nothing differs, 1 if something does, 2 for an error. Without a cluster (--nodes), what differs is
    /// some node's rendering from the template; with one, what runs.
    Plan(PlanArgs),
    /// Show why a node, a pod or a pool's workload has what it has: every field that a rule changed, with the rule. Of a
    /// PodMarker: why each pod is marked, is not, or waits.
    Explain(Box<ExplainArgs>),
    /// Show what two nodes, or two revisions, do not have in common: ends with 0 if they are the same, 1 if not.
    Diff(Box<DiffArgs>),
    /// Show DaemonSets of apps.kruise.io, variant by variant, applications in pools, pool by pool, and what they wait for;
    /// also PodMarkers, NodePools, and replacements.
    Get(Box<GetArgs>),
    /// Follow and steer the rollout of a DaemonSet of apps.kruise.io, a YurtAppSet or a YurtAppDaemon.
    Rollout(Box<RolloutArgs>),
    /// Take kinds over from another product, with their objects and pods, so that nothing restarts.
    ///
    /// Says what it found and what it will do, and refuses while something stands in the way. Ends with 0 if it is done,
    /// or could be (--dry-run), 1 if the answer was no, 2 if it was refused or failed.
    Adopt(AdoptArgs),
    /// Keep DaemonSets in the system tenant: they run on every tenant's nodes.
    Tenancy(Box<TenancyArgs>),
    /// Run the controllers.
    Manager(Box<ManagerArgs>),
    /// Have kube-scheduler ask where pods belong that come without the gate of node groups.
    Extender(ExtenderArgs),
    /// Run what works on a node, beside its kubelet.
    Node(NodeArgs),
    /// Print the CustomResourceDefinitions of every kind.
    Crds(CrdsArgs),
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
}

/// The name of a local cluster.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// Name of the local cluster; several can run side by side.
    #[arg(long, default_value = "default", value_parser = cluster_name)]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Number of nodes; the example fleet's kinds keep their proportions.
    #[arg(long, value_name = "N", conflicts_with = "cluster", value_parser = node_count)]
    pub(crate) nodes: Option<usize>,
    /// A fleet description to use instead of the example's.
    #[arg(long, value_name = "FILE", conflicts_with = "cluster")]
    pub(crate) fleet: Option<PathBuf>,
    /// Add this machine as a real node: containerd, kubelet and kube-proxy. Needs root.
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) real_node: bool,
    /// Return once everything runs, and leave it running until `dapple down`.
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) detach: bool,
    /// Start nothing: install dapple's APIs and permissions into the cluster that KUBECONFIG names, after asking.
    #[arg(long)]
    pub(crate) cluster: bool,
    /// With --cluster: the namespace for dapple. Give `dapple manager` the same.
    #[arg(long, requires = "cluster", default_value = NAMESPACE, value_parser = namespace_name)]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) prober: InstallProberArgs,
    /// With --cluster: do not ask.
    #[arg(long, requires = "cluster")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// Stop nothing: take dapple's webhooks, policies and permissions out of the cluster that KUBECONFIG names, after asking.
    /// APIs, objects and pods stay.
    #[arg(long)]
    pub(crate) cluster: bool,
    /// With --cluster: the namespace that dapple is in.
    #[arg(long, requires = "cluster", default_value = NAMESPACE, value_parser = namespace_name)]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// With --cluster: do not ask.
    #[arg(long, requires = "cluster")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// Where the objects come from.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Files, or folders of files, with workloads, policies, groups and pools; - for standard input.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// Nodes from a file instead of the cluster: Node objects, or a fleet description. No cluster is asked then.
    #[arg(long, value_name = "FILE", requires = "filename")]
    pub(crate) nodes: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("filename", |arg| arg.required(true)))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Have the API server itself look at every object and every kind of pod, by dry runs.
    #[arg(long, conflicts_with = "nodes")]
    pub(crate) server: bool,
    /// How to print it; wide has every node, field and pod, name only what differs.
    #[arg(short, long, value_enum, default_value_t = PlanOutput::Text)]
    pub(crate) output: PlanOutput,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// What to explain: a workload, such as daemonset/agent, a pod that runs, such as pod/agent-x7k2p, a Deployment or
    /// StatefulSet that a pool has, such as deployment/web-beijing-x7k2p, or a PodMarker, such as podmarker/canary. Also as
    /// KIND NAME.
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    pub(crate) target: Vec<String>,
    /// The node, for a workload; not for one that a pool has.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// One field only, such as spec.containers[0].env[CACHE].
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<String>,
    /// The namespace.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = ViewOutput::Text)]
    pub(crate) output: ViewOutput,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The workload, such as daemonset/agent.
    #[arg(value_name = "KIND/NAME")]
    pub(crate) target: Target,
    /// Two nodes to compare.
    #[arg(value_name = "NODE", num_args = 0..=2, conflicts_with = "revision")]
    pub(crate) nodes_to_compare: Vec<String>,
    /// A revision to compare; give two.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) revision: Vec<i64>,
    /// The namespace.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = ViewOutput::Text)]
    pub(crate) output: ViewOutput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanOutput {
    Text,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViewOutput {
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

/// Which cluster to talk to.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// Kubeconfig file; otherwise KUBECONFIG, ~/.kube/config, or the pod's own service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ManagerArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Families of APIs to serve.
    #[arg(long, value_delimiter = ',', default_values_t = families::ALL.map(|family| family.name.to_owned()))]
    pub(crate) families: Vec<String>,
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, default_value = "127.0.0.1:9440")]
    pub(crate) listen: SocketAddr,
    /// The manager's namespace: of its lease, its Service and its Secret.
    #[arg(long, default_value = NAMESPACE, value_parser = namespace_name)]
    pub(crate) namespace: String,
    /// Name of the lease by which one of several managers leads.
    #[arg(long, default_value = LEASE)]
    pub(crate) lease: String,
    /// How long the lease lasts: a manager that dies is replaced after this time.
    #[arg(long, default_value = "15s", value_parser = seconds)]
    pub(crate) lease_duration: Duration,
    /// Objects that each controller works on at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// Features to switch on or off, such as AdvancedDaemonSetNodeLabelPatches=false.
    #[arg(long, value_name = "NAME=BOOL,...", default_value = "", value_parser = families::gates)]
    pub(crate) feature_gates: Gates,
    /// Requests to the API server per second in the long run.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) kube_api_qps: u32,
    /// Requests to the API server at once after a quiet time.
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) kube_api_burst: u32,
    /// Pods that are moved to the group that should have them, in the whole cluster in a minute.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repair_per_minute: u16,
    /// How long the nodes of a group have to be the same before pods are moved to or from it.
    #[arg(long, default_value = "300s", value_parser = seconds)]
    pub(crate) repair_after: Duration,
    /// Nodes that are written for their pools, in the whole cluster in a second.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) pool_node_writes_per_second: u16,
    #[command(flatten)]
    pub(crate) marker: MarkerArgs,
    #[command(flatten)]
    pub(crate) webhooks: WebhookArgs,
    #[command(flatten)]
    pub(crate) extender: ServeExtenderArgs,
    /// What to log, such as `info` or `dapple_control=debug,info`.
    #[arg(long, default_value = "info,kube_client=off", env = "DAPPLE_LOG")]
    pub(crate) log: String,
    /// How to log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// Admission webhooks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Admission webhooks")]
pub(crate) struct WebhookArgs {
    /// Where admission webhooks are served, such as 0.0.0.0:9443. Without it there are none.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) webhook_listen: Option<SocketAddr>,
    /// The Service, in the manager's namespace, by which the API server reaches them.
    #[arg(long, value_name = "NAME", default_value = "dapple-webhook", requires = "webhook_listen")]
    pub(crate) webhook_service: String,
    /// The port of that Service.
    #[arg(long, value_name = "PORT", default_value_t = 443, requires = "webhook_listen")]
    pub(crate) webhook_service_port: u16,
    /// A URL by which the API server reaches them instead, such as https://127.0.0.1:9443.
    #[arg(long, value_name = "URL", requires = "webhook_listen", value_parser = https_url)]
    pub(crate) webhook_url: Option<String>,
    /// The Secret, in the manager's namespace, that keeps the certificates that dapple makes.
    #[arg(long, value_name = "NAME", default_value = WEBHOOK_SECRET, requires = "webhook_listen")]
    pub(crate) webhook_secret: String,
    /// How long an authority for certificates lasts. It is replaced when a third of that is left.
    #[arg(long, value_name = "TIME", default_value = "1825d", value_parser = lifetime, requires = "webhook_listen")]
    pub(crate) webhook_ca_lifetime: Duration,
    /// How long a certificate lasts. It is replaced when a third of that is left.
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = lifetime, requires = "webhook_listen")]
    pub(crate) webhook_cert_lifetime: Duration,
    /// A folder with tls.crt, tls.key and ca.crt that somebody else keeps, such as a mounted Secret of cert-manager. It is
    /// read again when it changes, and dapple makes no certificates.
    #[arg(long, value_name = "DIR", requires = "webhook_listen")]
    pub(crate) webhook_cert_dir: Option<PathBuf>,
    /// Certificates, in PEM, of the authorities that sign callers' certificates: whoever shows none of theirs is refused,
    /// except for conversions. It is read again when it changes. An API server sends one if it is told to.
    #[arg(long, value_name = "FILE", requires = "webhook_listen")]
    pub(crate) webhook_client_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Write one file per kind into this folder instead.
    #[arg(long, value_name = "DIR")]
    pub(crate) write: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// The name becomes a folder's.
fn cluster_name(text: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if !text.is_empty() && text.len() <= 40 && text.chars().all(fits) && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err("use 1 to 40 lower-case letters, digits and dashes, not starting with a dash".to_owned())
    }
}

/// The name of a namespace.
fn namespace_name(text: &str) -> Result<String, String> {
    dapple_api::syntax::dns_label(text).map(|()| text.to_owned())
}

/// As many nodes as two cores can play.
fn node_count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=20_000).contains(count))
        .ok_or_else(|| "give a number from 1 to 20000".to_owned())
}

/// Only TLS is spoken.
fn https_url(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").filter(|rest| !rest.is_empty() && !rest.starts_with(['/', ':']));
    host.map(|_| text.trim_end_matches('/').to_owned()).ok_or_else(|| "give a URL that begins with https://".to_owned())
}

/// A time such as 90d, 24h, 15m or 60s.
fn lifetime(text: &str) -> Result<Duration, String> {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let read = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    match read {
        Some(seconds) if (20..=100 * 365 * 86_400).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a time from 20s to 36500d, such as 90d, 24h or 15m".to_owned()),
    }
}

/// Whole seconds, as Lease records have them.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<u64>();
    match number {
        Ok(count) if LENGTHS.contains(&count) => Ok(Duration::from_secs(count)),
        _ => Err("give whole seconds from 3s to 3600s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_and_times_are_checked() {
        assert!(cluster_name("a-1").is_ok());
        for bad in ["", "-a", "A", "a/b", "..", &"a".repeat(41)] {
            assert!(cluster_name(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("15s"), Ok(Duration::from_secs(15)));
        for bad in ["2s", "x", "-1", "1h"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(lifetime("90d"), Ok(Duration::from_secs(90 * 86_400)));
        for bad in ["19s", "90", "d", "-1d", "99999999999d"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
        assert_eq!(https_url("https://127.0.0.1:9443/"), Ok("https://127.0.0.1:9443".to_owned()));
        for bad in ["http://x", "https://", "https:///x", "x"] {
            assert!(https_url(bad).is_err(), "{bad}");
        }
    }
}
