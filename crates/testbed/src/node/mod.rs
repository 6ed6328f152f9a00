//! A real node on this machine: containerd, kubelet and kube-proxy, in namespaces of their own.
//!
//! One process holds mount, network and pid namespaces, and everything of the node runs inside. When that process ends,
//! the kernel ends all the others and takes down their mounts, bridges and network namespaces: there is nothing to
//! forget. Only control groups live outside, and those are recorded and removed.

mod archive;
mod config;
mod images;
mod inside;
mod network;
mod packages;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use inside::{Inside, children, named};
use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    certs::{CLUSTER, Use},
    cluster::Cluster,
    error::{Error, Result, kube_error},
    files::{make_dir, remove_dir, write_atomically},
    kubeconfig,
    process::ProcessId,
    progress::Progress,
    state::{Record, Recorded, Role},
    stop,
    upstream::{Binaries, Binary},
};

/// What a real node leaves outside its namespaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) name: String,
    /// The control group below which its pods' are, in every hierarchy.
    pub(crate) cgroup: String,
}

/// What a real node shall be like.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RealNodeSpec {
    /// The node's name.
    pub name: String,
    /// More labels.
    pub labels: Vec<(String, String)>,
    /// Whether kube-proxy runs, for services.
    pub kube_proxy: bool,
}

impl RealNodeSpec {
    /// A node with kube-proxy and no labels of its own.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), labels: Vec::new(), kube_proxy: true }
    }
}

/// A real node that runs.
#[derive(Debug, Clone)]
pub struct RealNode {
    /// Its name.
    pub name: String,
    /// Its address, reachable from this machine only.
    pub address: String,
    /// The range of its pods' addresses, reachable from this machine too.
    pub pod_cidr: String,
    /// containerd's socket, for CRI clients outside.
    pub containerd_socket: PathBuf,
    /// The kubelet itself.
    pub kubelet: ProcessId,
}

/// Where everything of one node is.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
    pub(crate) cgroup: String,
}

impl Layout {
    fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    fn api_socket(&self) -> PathBuf {
        self.dir.join("api.sock")
    }
}

/// Whether this process may start a real node at all.
pub fn can_start_real_node() -> Result<()> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot) }
}

impl Cluster {
    /// Starts a real node and waits until it is ready; `binaries` must have been obtained with `Need::RealNode`.
    ///
    /// Images on it are `dapple.local/busybox:1` and `:2`; none can be pulled. Needs root; Debian packages that are
    /// missing are installed by the project's script.
    pub async fn start_real_node(
        &self,
        spec: &RealNodeSpec,
        binaries: &Binaries,
        progress: &dyn Progress,
    ) -> Result<RealNode> {
        can_start_real_node()?;
        packages::ensure(self.dir(), progress)?;
        let cgroup = format!("dapple-{}", crate::files::unique());
        let layout = Layout { dir: self.dir().join("nodes").join(&spec.name), name: spec.name.clone(), cgroup };
        self.record_node(&layout)?;
        progress.started(&format!("starting node {}", spec.name));
        let node = self.bring_up_node(spec, &layout, binaries, progress).await;
        progress.finished();
        if node.is_err() {
            self.end_node(&spec.name)?;
        }
        node
    }

    /// Stops a real node and takes its Node object out of the cluster.
    pub async fn stop_real_node(&self, name: &str) -> Result<()> {
        self.end_node(name)?;
        let nodes: Api<Node> = Api::all(self.client().await?);
        match nodes.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()).map_err(kube_error(format!("cannot delete node {name}"))),
        }
    }

    /// Ends all of one node, keeping only its logs.
    fn end_node(&self, name: &str) -> Result<()> {
        let suffix = named("", name);
        let is_its = |process: &Recorded| process.role != Role::Attached && process.name.ends_with(&suffix);
        let mut record = self.state().get();
        record.processes.retain(is_its);
        record.nodes.retain(|node| node.name == name);
        record.ports.clear();
        stop::end_processes(&record)?;
        self.state().change(|state| {
            state.processes.retain(|process| !is_its(process));
            state.nodes.retain(|node| node.name != name);
        })?;
        remove_dir(&self.dir().join("nodes").join(name))
    }

    /// Writes down a node before it starts; its name can be had once.
    fn record_node(&self, layout: &Layout) -> Result<()> {
        let record = NodeRecord { name: layout.name.clone(), cgroup: layout.cgroup.clone() };
        self.state().change(|state| {
            if state.nodes.iter().any(|node| node.name == record.name) {
                return Err(Error::NodeRunning { name: record.name });
            }
            state.nodes.push(record);
            Ok(())
        })?
    }

    async fn bring_up_node(
        &self,
        spec: &RealNodeSpec,
        layout: &Layout,
        binaries: &Binaries,
        progress: &dyn Progress,
    ) -> Result<RealNode> {
        make_dir(&layout.dir)?;
        config::make_cgroups(&layout.cgroup)?;

        progress.detail("namespaces");
        let init = self.start_namespaces(layout).await?;
        let network = network::Network::choose()?;
        network.connect(&init)?;
        let kubeconfigs = self.write_node_users(layout, &network)?;
        let inside = Inside { cluster: self, layout, init: &init };

        progress.detail("containerd");
        self.start_forwarders(&inside)?;
        self.start_containerd(&inside, binaries, &network).await?;
        progress.detail("kubelet");
        let args = config::kubelet(layout, spec, &self.certs(), &network, &kubeconfigs.kubelet)?;
        let kubelet = inside.run("kubelet", binaries.path(Binary::Kubelet)?, &args, None)?;
        if spec.kube_proxy {
            let args = config::kube_proxy(layout, &network, &kubeconfigs.proxy)?;
            inside.run("kube-proxy", binaries.path(Binary::KubeProxy)?, &args, None)?;
        }
        self.publish_api().await?;
        self.wait_until_node_ready(&inside).await?;
        let kubelet = inside.child_of(&kubelet).unwrap_or(kubelet);
        let (name, containerd_socket) = (spec.name.clone(), layout.socket());
        Ok(RealNode {
            name,
            address: network.node.to_string(),
            pod_cidr: network.pod_cidr(),
            containerd_socket,
            kubelet,
        })
    }

    /// Starts containerd and gives it the images.
    async fn start_containerd(
        &self,
        inside: &Inside<'_>,
        binaries: &Binaries,
        network: &network::Network,
    ) -> Result<()> {
        let containerd = binaries.path(Binary::Containerd)?;
        // The shim and runc are looked up in PATH.
        let shims = binaries.path(Binary::ContainerdShim)?.parent().unwrap_or(Path::new("/")).to_owned();
        let config = config::containerd(inside.layout, network)?;
        inside.run("containerd", containerd, &[format!("--config={}", config.display())], Some(&shims))?;
        let ctr = binaries.path(Binary::Ctr)?.to_owned();
        self.wait_for(&inside.log_name("containerd"), async || {
            inside.ctr(&ctr, &["version"]).map_err(|error| error.to_string())
        })
        .await?;
        for archive in images::make(&inside.layout.dir)? {
            inside.ctr(&ctr, &["--namespace=k8s.io", "images", "import", "--local", &archive.display().to_string()])?;
        }
        Ok(())
    }

    /// Starts the process that holds the node's namespaces, and returns the first process inside.
    async fn start_namespaces(&self, layout: &Layout) -> Result<ProcessId> {
        let script = layout.dir.join("init");
        write_atomically(&script, include_bytes!("../../scripts/node-init"))?;
        let mut args: Vec<String> =
            ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private", "sh"]
                .map(str::to_owned)
                .to_vec();
        args.extend([script.display().to_string(), layout.dir.display().to_string()]);
        let name = named("namespaces", &layout.name);
        let holder = self.launch(&name, Role::Node, Path::new("/usr/bin/unshare"), &args, &[])?;
        let marker = layout.dir.join("initialised");
        self.wait_for(&name, async || if marker.exists() { Ok(()) } else { Err("initialising".to_owned()) }).await?;
        let init = children(&holder).into_iter().next();
        let init = init.ok_or(Error::Interrupted { what: "starting the node's first process" })?;
        // Recorded too: when it is gone, all of the node is.
        self.record_process(&named("init", &layout.name), Role::Runtime, Path::new("/bin/sh"), init.clone())?;
        Ok(init)
    }

    fn write_node_users(&self, layout: &Layout, network: &network::Network) -> Result<Kubeconfigs> {
        let (certs, name) = (self.certs(), &layout.name);
        let (kubelet, proxy) = (format!("node-{name}"), format!("proxy-{name}"));
        certs.issue(CLUSTER, &kubelet, &format!("system:node:{name}"), &["system:nodes"], &Use::Client)?;
        certs.issue(CLUSTER, &proxy, "system:kube-proxy", &[], &Use::Client)?;
        let names = [name.as_str(), &network.node.to_string()];
        certs.issue(
            CLUSTER,
            &format!("kubelet-{name}"),
            &format!("system:node:{name}"),
            &["system:nodes"],
            &Use::Server(&names),
        )?;
        let server = format!("https://127.0.0.1:{}", network::API_PORT);
        let write = |user: &str| -> Result<PathBuf> {
            let path = layout.dir.join(format!("{user}.kubeconfig"));
            kubeconfig::write(&path, &certs, user, user, "node", &server)?;
            Ok(path)
        };
        Ok(Kubeconfigs { kubelet: write(&kubelet)?, proxy: write(&proxy)? })
    }

    /// The API server listens on the loopback address outside; a socket file carries connections from inside to it.
    fn start_forwarders(&self, inside: &Inside<'_>) -> Result<()> {
        let socket = inside.layout.api_socket().display().to_string();
        let outside = [
            format!("UNIX-LISTEN:{socket},fork,mode=600,unlink-early"),
            format!("TCP:127.0.0.1:{}", self.state().get().api_port),
        ];
        let socat = Path::new("/usr/bin/socat");
        self.launch(&inside.log_name("api-outside"), Role::Node, socat, &outside, &[])?;
        let within = [format!("TCP-LISTEN:{},fork,reuseaddr", network::API_PORT), format!("UNIX-CONNECT:{socket}")];
        inside.run("api-inside", socat, &within, None).map(|_| ())
    }

    /// Gives the `kubernetes` service an address that every real node has for itself, so that pods reach the API.
    async fn publish_api(&self) -> Result<()> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client().await?, "default");
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [network::API_ADDRESS], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": network::API_PORT, "protocol": "TCP"}],
        });
        let params = PatchParams::apply("dapple-testbed").force();
        let applied = slices.patch("kubernetes", &params, &Patch::Apply(&slice)).await;
        applied.map(|_| ()).map_err(kube_error("cannot publish the API server's address"))
    }

    async fn wait_until_node_ready(&self, inside: &Inside<'_>) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        self.wait_for(&inside.log_name("kubelet"), async || {
            let node = nodes.get(&inside.layout.name).await.map_err(|error| error.to_string())?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
                Some(ready) if ready.status == "True" => Ok(()),
                Some(ready) => Err(ready.message.unwrap_or_default()),
                None => Err("no condition yet".to_owned()),
            }
        })
        .await
    }
}

struct Kubeconfigs {
    kubelet: PathBuf,
    proxy: PathBuf,
}

/// Removes what nodes left outside their namespaces; called when their processes are gone.
pub(crate) fn clean_up(record: &Record) {
    for node in &record.nodes {
        config::remove_cgroups(&node.cgroup, Duration::from_secs(5));
    }
}
