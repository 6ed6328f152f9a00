//! What somebody wants of a cluster.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    error::Result,
    files::{clusters_root, temporary_root, unique},
    process::Lifetime,
};

/// What a cluster shall be like. Start from [`ClusterSpec::new`] or [`ClusterSpec::temporary`] and change fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterSpec {
    /// Its name, in the kubeconfig and in messages.
    pub name: String,
    /// Its folder: state, certificates, data and logs. Belongs to the cluster alone.
    pub dir: PathBuf,
    /// Whether it ends with this process.
    pub lifetime: Lifetime,
    /// Whether dropping it leaves `logs/`, for an error that points there; they go with the next start or stop there.
    pub keeps_logs: bool,
    /// Whether kube-controller-manager and kube-scheduler run. Without them no namespace, owned object or service account
    /// is looked after, so that pods are refused.
    pub controllers: bool,
    /// Whether kwok plays the kubelet of nodes annotated `kwok.x-k8s.io/node: fake`.
    pub kwok: bool,
    /// How long a kwok node's lease lasts; 200 for more than 2,000 nodes, or heartbeats load both cores.
    pub node_lease_seconds: u32,
    /// The API server's port; a free one where none is given.
    pub api_port: Option<u16>,
    /// A `KubeSchedulerConfiguration`, for extenders and profiles; connection and leader election are filled in.
    pub scheduler_config: Option<Value>,
    /// The range of service addresses.
    pub service_cidr: String,
    /// More arguments for kube-apiserver; they come last and so win.
    pub api_args: Vec<String>,
}

impl ClusterSpec {
    /// A cluster under its name in the user's state folder, ending with this process.
    pub fn new(name: &str) -> Result<Self> {
        Ok(Self { keeps_logs: true, ..Self::at(name, clusters_root()?.join(name)) })
    }

    /// A cluster in a fresh temporary folder, ending with this process: for tests.
    pub fn temporary() -> Self {
        let name = format!("t-{}", unique());
        let dir = temporary_root().join(&name);
        Self::at(&name, dir)
    }

    /// As [`ClusterSpec::temporary`], of etcd and kube-apiserver alone: where no pod runs and nothing is deleted with its owner or
    /// its namespace, this starts in half the time.
    pub fn api_server() -> Self {
        Self { controllers: false, kwok: false, ..Self::temporary() }
    }

    /// A cluster in a folder of the caller's choice.
    pub fn at(name: &str, dir: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            dir,
            lifetime: Lifetime::WithParent,
            keeps_logs: false,
            controllers: true,
            kwok: true,
            node_lease_seconds: 40,
            api_port: None,
            scheduler_config: None,
            service_cidr: "10.96.0.0/16".to_owned(),
            api_args: Vec::new(),
        }
    }

    /// The first address of the service range: the `kubernetes` service.
    pub(crate) fn service_ip(&self) -> String {
        let network = self.service_cidr.split('/').next().unwrap_or_default();
        match network.parse::<std::net::Ipv4Addr>() {
            Ok(address) => std::net::Ipv4Addr::from(u32::from(address).wrapping_add(1)).to_string(),
            Err(_) => network.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_service_has_the_first_address() {
        let mut spec = ClusterSpec::temporary();
        assert_eq!(spec.service_ip(), "10.96.0.1");
        spec.service_cidr = "10.200.255.0/24".into();
        assert_eq!(spec.service_ip(), "10.200.255.1");
    }

    #[test]
    fn temporary_clusters_never_share_a_folder() {
        assert_ne!(ClusterSpec::temporary().dir, ClusterSpec::temporary().dir);
    }
}
