//! What the tests share: the program, clusters of their own, managers as processes, and waiting.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dapple_admit::install::install_configurations;
use dapple_api::group::NodeGroup;
use dapple_control::install::{apply, apply_yaml, install_crds};
pub(crate) use dapple_testbed::testing::eventually;
use dapple_testbed::testing::start;
use dapple_testbed::{Cluster, ClusterSpec};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::api::Api;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The program under test.
pub(crate) const DAPPLE: &str = env!("CARGO_BIN_EXE_dapple");

/// The manager's rights, and no others.
pub(crate) const MANAGER_USER: &str = "system:serviceaccount:dapple-system:dapple-manager";

/// Runs the program to its end.
pub(crate) fn dapple(args: &[&str]) -> Output {
    Command::new(DAPPLE).args(args).stdin(Stdio::null()).output().expect("dapple starts")
}

/// Runs the program to its end, with a state folder of its own.
pub(crate) fn dapple_in(state: &Path, args: &[&str]) -> Output {
    Command::new(DAPPLE).args(args).env("XDG_STATE_HOME", state).stdin(Stdio::null()).output().expect("dapple starts")
}

/// What a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A control plane of one's own with our APIs and permissions in it, without kwok.
pub(crate) async fn own_cluster() -> (Cluster, Client) {
    let mut spec = ClusterSpec::temporary();
    spec.kwok = false;
    installed(spec).await
}

/// As [`own_cluster`], with kwok.
pub(crate) async fn own_cluster_with_kwok() -> (Cluster, Client) {
    installed(ClusterSpec::temporary()).await
}

/// As [`own_cluster`], of etcd and kube-apiserver alone.
pub(crate) async fn own_api_server() -> (Cluster, Client) {
    installed(ClusterSpec::api_server()).await
}

/// A control plane with our APIs and permissions in it.
pub(crate) async fn installed(spec: ClusterSpec) -> (Cluster, Client) {
    let cluster = start(spec).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    apply_yaml(&client, include_str!("../../../../config/rbac.yaml")).await.unwrap();
    install_configurations(&client).await.unwrap();
    (cluster, client)
}

/// A manager process; dropping it kills it.
pub(crate) struct Manager {
    child: Child,
    pub(crate) log: PathBuf,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Manager {
    /// Starts a manager. Its lease outlasts an API server that stands still for some seconds.
    pub(crate) fn start(kubeconfig: &Path, log: PathBuf) -> Self {
        Self::with(kubeconfig, log, &["--listen", "127.0.0.1:0"])
    }

    /// As [`Manager::start`], with more flags.
    pub(crate) fn with(kubeconfig: &Path, log: PathBuf, flags: &[&str]) -> Self {
        let file = std::fs::File::create(&log).unwrap();
        let child = Command::new(DAPPLE)
            .args(["manager", "--lease-duration", "15s", "--log", "debug,hyper_util=info,tower=info", "--kubeconfig"])
            .arg(kubeconfig)
            .args(flags)
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the manager starts");
        Self { child, log }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Whether this process is the one that the lease names.
    pub(crate) fn is(&self, holder: &str) -> bool {
        holder.contains(&format!("_{}_", self.child.id()))
    }

    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// The lease record.
pub(crate) async fn lease(client: &Client) -> LeaseSpec {
    let api = Api::<Lease>::namespaced(client.clone(), "dapple-system");
    let found = api.get_opt("dapple-manager").await.unwrap();
    found.and_then(|lease| lease.spec).unwrap_or_default()
}

/// Waits until this manager holds the lease.
pub(crate) async fn leads(client: &Client, manager: &Manager) {
    eventually("the manager leads", || async {
        let holder = lease(client).await.holder_identity.unwrap_or_default();
        if manager.is(&holder) { Ok(()) } else { Err(format!("led by {holder:?}; its log:\n{}", manager.log_text())) }
    })
    .await;
}

/// A node that nobody plays.
pub(crate) async fn node(client: &Client, name: &str, zone: &str) {
    let labels: Value = json!({"zone": zone});
    apply(client, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}))
        .await
        .unwrap();
}

/// A group of the nodes in one zone.
pub(crate) async fn group(client: &Client, name: &str, zone: &str) {
    let spec = json!({"matchLabels": {"zone": zone}});
    let group = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup", "metadata": {"name": name}, "spec": spec});
    apply(client, &group).await.unwrap();
}

/// Waits until a group's status names exactly these nodes.
pub(crate) async fn group_has(client: &Client, name: &str, nodes: &[&str]) -> NodeGroup {
    let api = Api::<NodeGroup>::all(client.clone());
    eventually(&format!("group {name} has {nodes:?}"), || async {
        let group = api.get(name).await.map_err(|error| error.to_string())?;
        let contained = group.status.clone().unwrap_or_default().contained_nodes;
        if contained == nodes { Ok(group) } else { Err(format!("{contained:?}")) }
    })
    .await
}
