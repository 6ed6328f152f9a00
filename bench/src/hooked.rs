//! A control plane whose API server asks the webhooks of our managers, which are processes behind a balancer.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fleet::{Used, until, used};
use anyhow::{Context, ensure};
use dapple_admit::install::install_configurations;
use dapple_control::install::{apply_yaml, install_crds};
use dapple_testbed::balancer::{Backend, Balancer, is_ready};
use dapple_testbed::{Cluster, ClusterSpec, Need, Upstream, progress};
use http::{Method, Request};
use kube::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The manager's rights, and no others.
const MANAGER_USER: &str = "system:serviceaccount:dapple-system:dapple-manager";

/// Where webhook configurations are.
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Our configurations: kind and name, in the order in which they are put back.
const OURS: [(&str, &str); 3] = [
    ("mutatingwebhookconfigurations", "dapple-defaults"),
    ("validatingwebhookconfigurations", "dapple-validator"),
    ("validatingwebhookconfigurations", "daemonset-patches-validator"),
];

/// A cluster and where the replicas of its manager are.
pub struct Hooked {
    pub cluster: Cluster,
    pub client: Client,
    kubeconfig: PathBuf,
    pub backends: Vec<Backend>,
    /// Where the API server comes.
    front: SocketAddr,
    started: AtomicUsize,
    _balancer: Balancer,
}

/// A manager process; dropping it kills it.
pub struct Manager {
    child: Child,
    /// Where it logs.
    pub log: PathBuf,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Manager {
    /// What it has used up.
    pub fn used(&self) -> anyhow::Result<Used> {
        used(self.child.id())
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let ended = tokio::task::spawn_blocking(move || self.child.wait()).await??;
        ensure!(ended.success(), "the manager ended with {ended}");
        Ok(())
    }
}

impl Hooked {
    /// A cluster with our APIs, and room for so many replicas behind a balancer.
    pub async fn start(replicas: usize) -> anyhow::Result<Self> {
        let mut spec = ClusterSpec::temporary();
        spec.kwok = false;
        // Nobody plays our nodes: they must not be taken for dead meanwhile, one after the other.
        spec.node_lease_seconds = 3_600;
        Self::start_with(spec, replicas).await
    }

    /// The same, of another cluster.
    pub async fn start_with(spec: ClusterSpec, replicas: usize) -> anyhow::Result<Self> {
        let binaries = Upstream::obtain(&[Need::ControlPlane], progress::to_stderr()).await?;
        let cluster = Cluster::start(spec, &binaries, &progress::Quiet).await?;
        let client = cluster.client().await?;
        install_crds(&client).await?;
        apply_yaml(&client, include_str!("../../config/rbac.yaml")).await?;
        install_configurations(&client).await?;
        let kubeconfig = cluster.kubeconfig_for(MANAGER_USER, &[]).await?;
        let address = || anyhow::Ok(SocketAddr::from(([127, 0, 0, 1], cluster.choose_port()?)));
        let backend = || anyhow::Ok(Backend { address: address()?, health: address()? });
        let backends = (0..replicas).map(|_| backend()).collect::<anyhow::Result<Vec<Backend>>>()?;
        let front = address()?;
        let balancer = Balancer::start(front, backends.clone()).await?;
        let started = AtomicUsize::new(0);
        Ok(Self { cluster, client, kubeconfig, backends, front, started, _balancer: balancer })
    }

    /// Ends everything.
    pub async fn stop(self) -> anyhow::Result<()> {
        Ok(self.cluster.stop().await?)
    }

    /// What a process of the control plane has used up.
    pub fn used(&self, name: &str) -> anyhow::Result<Used> {
        let processes = self.cluster.processes();
        let (_, id) =
            processes.iter().find(|(known, _)| known == name).with_context(|| format!("no process {name}"))?;
        used(id.pid.unsigned_abs())
    }

    /// Starts a replica.
    pub fn replica(&self, number: usize, flags: &[&str]) -> anyhow::Result<Manager> {
        let (address, url) = (self.backends[number].address.to_string(), format!("https://{}", self.front));
        self.manager(number, &[&["--webhook-listen", &address, "--webhook-url", &url], flags].concat())
    }

    /// Starts a manager without webhooks.
    pub fn manager(&self, number: usize, flags: &[&str]) -> anyhow::Result<Manager> {
        let health = self.backends[number].health;
        let program = std::env::current_exe()?.with_file_name("dapple");
        // One file for each start: what the one before said is of interest too.
        let start = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.cluster.log(&format!("replica-{number}-{start}"));
        let child = Command::new(&program)
            .args(["manager", "--listen", &health.to_string(), "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("{} is not there: run cargo build --release -p dapple", program.display()))?;
        Ok(Manager { child, log })
    }

    /// The sum of what a replica counts under this name, as far as labels contain this.
    pub async fn counted(&self, number: usize, name: &str, label: &str) -> anyhow::Result<f64> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.backends[number].health).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(sum_of(&text, name, label))
    }

    /// Waits until a replica is ready, as a rollout does before it stops the next one.
    pub async fn ready(&self, number: usize) -> anyhow::Result<()> {
        let health = self.backends[number].health;
        until("the replica is ready", || async { Ok(is_ready(health).await) }).await
    }

    /// Waits until webhooks are asked.
    pub async fn asked(&self) -> anyhow::Result<()> {
        let mut wrong = set("probe", json!({"app": "probe"}));
        wrong["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
        until("webhooks are asked", || async {
            let said = self.admit(&wrong).await.err().map(|error| error.to_string()).unwrap_or_default();
            // The reason is ours, so somebody answers.
            Ok(said.contains("must be Always for the pods of a DaemonSet"))
        })
        .await
    }

    /// Has a DaemonSet admitted, and not kept. Returns it as it would be.
    pub async fn admit(&self, set: &Value) -> Result<Value, kube::Error> {
        admit(self.client.clone(), set.to_string().into_bytes()).await
    }

    /// Our configurations as they are.
    pub async fn configurations(&self) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        for (kind, name) in OURS {
            all.push(request(&self.client, Method::GET, &format!("{CONFIGURATIONS}/{kind}/{name}"), None).await?);
        }
        Ok(all)
    }

    /// Deletes our configurations.
    pub async fn remove_configurations(&self) -> anyhow::Result<()> {
        for (kind, name) in OURS {
            request(&self.client, Method::DELETE, &format!("{CONFIGURATIONS}/{kind}/{name}"), None).await?;
        }
        Ok(())
    }

    /// Puts back what was deleted.
    pub async fn restore_configurations(&self, all: &[Value]) -> anyhow::Result<()> {
        for ((kind, _), found) in OURS.into_iter().zip(all) {
            let mut wanted = found.clone();
            let metadata = &found["metadata"];
            wanted["metadata"] = json!({"name": metadata["name"], "labels": metadata["labels"]});
            request(&self.client, Method::POST, &format!("{CONFIGURATIONS}/{kind}"), Some(&wanted)).await?;
        }
        Ok(())
    }
}

/// As [`Hooked::admit`], of one that is written already.
pub async fn admit(client: Client, set: Vec<u8>) -> Result<Value, kube::Error> {
    let path = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets?dryRun=All";
    let request = Request::post(path).header("content-type", "application/json").body(set);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

async fn request(client: &Client, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    Ok(client.request(request.body(body)?).await?)
}

/// The sum of all lines of this metric whose labels contain this.
pub fn sum_of(metrics: &str, name: &str, label: &str) -> f64 {
    let is_such = |line: &&str| line.starts_with(name) && line.contains(label);
    metrics.lines().filter(is_such).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// A small DaemonSet.
pub fn set(name: &str, labels: Value) -> Value {
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c0", "image": "c:1"}]}});
    json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template}})
}

/// What our configuration for DaemonSets tells the API server to trust, as it is written there.
pub async fn trusted(client: &Client) -> anyhow::Result<Value> {
    let (kind, name) = OURS[2];
    let found = request(client, Method::GET, &format!("{CONFIGURATIONS}/{kind}/{name}"), None).await?;
    Ok(found["webhooks"][0]["clientConfig"]["caBundle"].clone())
}

/// The certificate that replicas serve with, as it is in their Secret.
pub async fn served(client: &Client) -> anyhow::Result<String> {
    let path = "/api/v1/namespaces/dapple-system/secrets/dapple-webhook-certificates";
    let found = request(client, Method::GET, path, None).await?;
    Ok(found["data"]["tls.crt"].as_str().context("there is no certificate")?.to_owned())
}
