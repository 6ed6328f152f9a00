//! A real control plane with kwok nodes, our manager beside it as a process of its own, and what both use up.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_control::env::Env;
use dapple_control::families::{self, DAEMON_SET};
use dapple_control::family::Family;
use dapple_control::lease::LeaseDurations;
use dapple_control::manager::{self, Options};
use dapple_control::writes::rate::Limits;
use dapple_testbed::{Cluster, ClusterSpec, Fleet, Need, Upstream, progress};
use futures::{StreamExt, TryStreamExt};
use http::header::USER_AGENT;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use tokio_util::sync::CancellationToken;

use crate::hooked::sum_of;

/// The argument that makes a benchmark run the manager instead.
const MANAGER: &str = "manager";
/// The lease that managers lead by, in the namespace `default`.
pub const LEASE: &str = "bench";
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(900);

/// Runs the manager if this process was started for that. Call it first.
pub async fn run_manager_if_asked() -> anyhow::Result<bool> {
    let args: Vec<String> = std::env::args().collect();
    let [_, job, kubeconfig, port, families @ ..] = args.as_slice() else { return Ok(false) };
    ensure!(job == MANAGER, "unknown job {job}");
    let mut config =
        kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await?;
    let identity = identity(std::process::id());
    // By which an audit log tells one manager from another.
    config.headers.push((USER_AGENT, identity.parse()?));
    let options = Options {
        families: families::find(families).map_err(anyhow::Error::msg)?,
        listen: ([127, 0, 0, 1], port.parse()?).into(),
        identity,
        namespace: "default".into(),
        lease: LEASE.into(),
        durations: LeaseDurations::default(),
        // No limit of our own: the server's is what is measured.
        limits: Limits { per_second: 10_000.0, burst: 10_000.0 },
        workers: 4,
        gates: Default::default(),
        repair: Default::default(),
        pool: Default::default(),
        marker: Default::default(),
    };
    manager::run(config, options, Env::system(), CancellationToken::new(), manager::alone).await?;
    Ok(true)
}

/// Who a manager is, in its lease and to the API server.
fn identity(pid: u32) -> String {
    format!("bench-{pid}")
}

/// The cluster and our manager.
pub struct Bench {
    /// The control plane.
    pub cluster: Cluster,
    manager: Manager,
}

/// A manager. Dropping it kills it, so that it ends with what holds it, however that ends.
pub struct Manager {
    process: Child,
    port: u16,
}

impl Manager {
    fn start(cluster: &Cluster, families: &[&Family]) -> anyhow::Result<Self> {
        let port = cluster.choose_port()?;
        let process = Command::new(std::env::current_exe()?)
            .arg(MANAGER)
            .arg(cluster.admin_kubeconfig())
            .arg(port.to_string())
            .args(families.iter().map(|family| family.name))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, port })
    }

    /// Who it is, in its lease and as the user agent of its requests.
    pub fn identity(&self) -> String {
        identity(self.process.id())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// What a process has used up.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// CPU time.
    pub cpu: Duration,
    /// Memory that is resident, in bytes.
    pub rss: usize,
}

impl Bench {
    /// A control plane with so many nodes, a quarter of each of four disks, and our manager.
    pub async fn start(nodes: usize) -> anyhow::Result<Self> {
        let kind = |disk: &str| serde_json::json!({"name": disk, "count": nodes / 4, "labels": {"disk": disk}});
        let disks = ["small", "large", "nvme", "tape"].map(kind);
        let fleet = Fleet::from_yaml(&serde_json::json!({"kinds": disks}).to_string(), "fleet")?;
        Self::start_with(&fleet, Vec::new(), &[DAEMON_SET]).await
    }

    /// A control plane with these nodes and more arguments for the API server, and our manager for these families.
    pub async fn start_with(fleet: &Fleet, api_args: Vec<String>, families: &[&Family]) -> anyhow::Result<Self> {
        let binaries = Upstream::obtain(&[Need::ControlPlane], progress::to_stderr()).await?;
        let mut spec = ClusterSpec::temporary();
        spec.node_lease_seconds = 200;
        spec.api_args = api_args;
        let cluster = Cluster::start(spec, &binaries, &progress::Quiet).await?;
        dapple_control::install::install_crds(&cluster.client().await?).await?;
        cluster.apply_fleet(fleet).await?;
        let manager = Manager::start(&cluster, families)?;
        Ok(Self { cluster, manager })
    }

    /// Starts another manager beside ours.
    pub fn start_another(&self, families: &[&Family]) -> anyhow::Result<Manager> {
        Manager::start(&self.cluster, families)
    }

    /// Kills our manager; this one is ours from now on.
    pub fn replace_manager(&mut self, by: Manager) {
        self.manager = by;
    }

    /// Who our manager is.
    pub fn identity(&self) -> String {
        self.manager.identity()
    }

    /// Ends everything.
    pub async fn stop(self) -> anyhow::Result<()> {
        drop(self.manager);
        Ok(self.cluster.stop().await?)
    }

    /// What our manager has used.
    pub fn manager(&self) -> anyhow::Result<Used> {
        used(self.manager.process.id())
    }

    /// What a process of the control plane has used.
    pub fn process(&self, name: &str) -> anyhow::Result<Used> {
        let processes = self.cluster.processes();
        let (_, id) =
            processes.iter().find(|(known, _)| known == name).with_context(|| format!("no process {name}"))?;
        used(id.pid.unsigned_abs())
    }

    /// Writes that our manager has sent.
    pub async fn writes(&self) -> anyhow::Result<f64> {
        self.requests(|line| !line.contains("\"GET\"")).await
    }

    /// Reads of our manager that were answered: of one object, a page of a list, or the begin of a watch.
    pub async fn reads(&self) -> anyhow::Result<f64> {
        self.requests(|line| line.contains("\"GET\"") && !line.contains("<error>")).await
    }

    /// The sum of what our manager counts under this name.
    pub async fn counted(&self, name: &str) -> anyhow::Result<f64> {
        Ok(sum_of(&self.metrics().await?, name, ""))
    }

    async fn requests(&self, is_such: impl Fn(&str) -> bool) -> anyhow::Result<f64> {
        let text = self.metrics().await?;
        let is_such = |line: &&str| line.starts_with("rest_client_requests_total") && is_such(line);
        Ok(text.lines().filter(is_such).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.manager.port)).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    /// Deletes a set with its pods, and waits until they are gone.
    pub async fn clear<K>(&self, sets: &Api<K>, pods: &Api<Pod>) -> anyhow::Result<()>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let params =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
        match sets.delete("agent", &params).await {
            Err(kube::Error::Api(error)) if error.code == 404 => {}
            other => _ = other?,
        }
        let quick = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        until("pods are gone", || async {
            match pods.delete_collection(&quick, &ListParams::default()).await {
                // Thousands take longer than a request may: the rest goes with the next one.
                Err(kube::Error::Api(error)) if error.code == 504 => {}
                other => _ = other?,
            }
            Ok(pods.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
        })
        .await?;
        // What the rest of the control plane has still to do must not be counted to the next one.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    }
}

/// Waits until something is so.
pub async fn until<F: Future<Output = anyhow::Result<bool>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !look().await? {
        ensure!(begun.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Runs `make`, and tells how long it takes until so many pods have come into being, as a watch sees it, from the first
/// to the last.
pub async fn time_of_creation(
    pods: &Api<Pod>,
    count: usize,
    make: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Duration> {
    let seen = Arc::new(AtomicUsize::new(0));
    let version =
        pods.list_metadata(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
    let (api, counted) = (pods.clone(), seen.clone());
    let watch = tokio::spawn(async move {
        let mut events = api.watch_metadata(&WatchParams::default().timeout(290), &version).await?.boxed();
        let mut first = None;
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(PartialObjectMeta { .. }) = event {
                first.get_or_insert_with(Instant::now);
                if counted.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    break;
                }
            }
        }
        anyhow::Ok(first.map(|first: Instant| first.elapsed()))
    });
    make.await?;
    let took = watch.await??.context("no pod came into being")?;
    ensure!(seen.load(Ordering::Relaxed) == count, "only {} of {count} pods", seen.load(Ordering::Relaxed));
    Ok(took)
}

/// What a process has used.
pub fn used(pid: u32) -> anyhow::Result<Used> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    // A tick is a hundredth of a second on every Linux.
    Ok(Used { cpu: Duration::from_millis((ticks(11) + ticks(12)) * 10), rss: rss.unwrap_or(0) << 10 })
}
