//! The commands and flags about what works on a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ConnectArgs, LogFormat};

/// Where containerd listens, unless told otherwise.
const CONTAINERD: &str = "/run/containerd/containerd.sock";

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Run the probes of PodMarkers on this node.
    ///
    /// It reads the NodePodProbe of its node and nothing else, and writes results into its status. `dapple up --cluster
    /// --prober-image` installs it on every node, with the permissions that it needs.
    Prober(Box<ProberArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ProberArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The name of this node.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node_name: String,
    /// Run exec probes too: commands in containers, by the runtime's socket. Whoever has that is root on the node.
    #[arg(long)]
    pub(crate) exec: bool,
    /// Where the runtime listens.
    #[arg(long, value_name = "FILE", default_value = CONTAINERD, requires = "exec")]
    pub(crate) runtime_socket: PathBuf,
    /// Where /healthz, /readyz and /metrics are served: on the loopback address, since the prober is on the node's network.
    #[arg(long, default_value = "127.0.0.1:9445", value_parser = loopback)]
    pub(crate) listen: SocketAddr,
    /// What to log, such as `info` or `dapple_node=debug,info`.
    #[arg(long, default_value = "info,kube_client=off", env = "DAPPLE_LOG")]
    pub(crate) log: String,
    /// How to log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// The prober, as it is installed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prober")]
pub(crate) struct InstallProberArgs {
    /// With --cluster: run the prober of PodMarkers on every node, from an image that has this program as its entrypoint.
    #[arg(long, value_name = "IMAGE", requires = "cluster", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) prober_image: Option<String>,
    /// Have it run exec probes too, by this runtime's socket. Whoever has that is root on the node, and no policy on pods/exec
    /// and no audit log sees what it does.
    #[arg(long, value_name = "RUNTIME", value_enum, requires = "prober_image")]
    pub(crate) prober_exec: Option<Runtime>,
}

/// What runs containers on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    /// containerd
    Containerd,
    /// CRI-O
    #[value(name = "cri-o")]
    CriO,
    /// k3s and RKE2, with the containerd that they bring
    K3s,
}

impl Runtime {
    /// The folder that its socket is in, and the socket. The folder is mounted: a runtime that restarts makes a new socket.
    pub(crate) const fn socket(self) -> (&'static str, &'static str) {
        match self {
            Self::Containerd => ("/run/containerd", CONTAINERD),
            Self::CriO => ("/run/crio", "/run/crio/crio.sock"),
            Self::K3s => ("/run/k3s/containerd", "/run/k3s/containerd/containerd.sock"),
        }
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        _ => Err("give a loopback address with a port, such as 127.0.0.1:9445".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prober_is_reached_from_its_own_node_only() {
        for good in ["127.0.0.1:1", "127.8.8.8:9445", "[::1]:9445"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:9445", "[::]:9445", "10.0.0.1:9445", "127.0.0.1", "localhost:9445"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sockets_are_in_the_folders_that_are_mounted() {
        for runtime in Runtime::value_variants() {
            let (folder, socket) = runtime.socket();
            assert_eq!(std::path::Path::new(socket).parent(), Some(std::path::Path::new(folder)));
        }
    }
}
