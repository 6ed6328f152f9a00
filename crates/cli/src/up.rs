//! `dapple up`: a real cluster, dapple and an example fleet, in one command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use dapple_api::group::NodeGroup;
use dapple_control::install::apply_yaml;
use dapple_testbed::progress::{Progress, to_stderr};
use dapple_testbed::{Attached, Cluster, ClusterSpec, Fleet, Lifetime, Need, RealNodeSpec, Upstream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{NAMESPACE, UpArgs};
use crate::install::{install, into_cluster, manager_account};
use crate::output::say;
use crate::status::{is_ready, view};

/// Groups of the example fleet's three locations.
const EXAMPLE_GROUPS: &str = include_str!("../../../examples/group/nodegroups.yaml");
/// How long the fleet and the manager may take. A busy machine is no error.
const PATIENCE: Duration = Duration::from_secs(300);
/// Above this many nodes, heartbeats every few seconds would keep two cores busy.
const MANY_NODES: usize = 2_000;

/// Where a local cluster keeps its state.
pub(crate) fn cluster_dir(name: &str) -> anyhow::Result<PathBuf> {
    Ok(dapple_testbed::clusters_root()?.join(name))
}

pub(crate) async fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    if args.cluster {
        return into_cluster(&args).await;
    }
    if args.connect.kubeconfig.is_some() || args.connect.context.is_some() {
        bail!("--kubeconfig and --context name a cluster to install into: add --cluster, or leave them out");
    }
    let dir = cluster_dir(&args.local.name)?;
    let progress = to_stderr();
    if let Some(running) = Cluster::open(&dir)? {
        let ended = running.processes().into_iter().find(|(_, process)| !process.is_alive());
        let Some((name, _)) = ended else { return found(&running).await };
        progress.note(&format!("{name} of cluster {:?} ended; starting the cluster anew", args.local.name));
        running.stop().await?;
    }
    if args.real_node {
        dapple_testbed::can_start_real_node()?;
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let started = tokio::select! {
        biased;
        _ = interrupt.recv() => Err(anyhow!("interrupted; everything that was started has been stopped")),
        _ = terminate.recv() => Err(anyhow!("terminated; everything that was started has been stopped")),
        started = bring_up(&args, &progress) => started,
    };
    progress.finished();
    let cluster = match started {
        Ok(cluster) => cluster,
        // Another `up` was faster.
        Err(error) if matches!(error.downcast_ref(), Some(dapple_testbed::Error::Running { .. })) => {
            let running =
                Cluster::open(&dir)?.context("another `dapple up` started a cluster, and it is gone again")?;
            return found(&running).await;
        }
        Err(error) => return Err(undo(dir, error).await),
    };
    say!("dapple is up.\n");
    closing_screen(&cluster).await;
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    say!("\nPress Ctrl-C to stop it.");
    tokio::select! { biased; _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    progress.started("stopping");
    let stopped = cluster.stop().await;
    progress.finished();
    stopped?;
    Ok(ExitCode::SUCCESS)
}

/// A cluster that ran already.
async fn found(running: &Cluster) -> anyhow::Result<ExitCode> {
    say!("Cluster {:?} is up already.\n", running.name());
    closing_screen(running).await;
    Ok(ExitCode::SUCCESS)
}

/// No half state: ends what this process started and keeps the logs, which the error may point to. Says both if that fails.
async fn undo(dir: PathBuf, error: anyhow::Error) -> anyhow::Error {
    match tokio::task::spawn_blocking(move || dapple_testbed::abandon(&dir)).await {
        Ok(Ok(())) => error,
        Ok(Err(left)) => error.context(format!("and not everything could be stopped: {left}")),
        Err(left) => error.context(format!("and not everything could be stopped: {left}")),
    }
}

async fn bring_up(args: &UpArgs, progress: &Arc<dyn Progress>) -> anyhow::Result<Cluster> {
    let fleet = fleet(args)?;
    let node_count = fleet.len();
    let mut needs = vec![Need::ControlPlane];
    if args.real_node {
        needs.push(Need::RealNode);
    }
    let binaries = Upstream::obtain(&needs, progress.clone()).await?;
    let mut spec = ClusterSpec::new(&args.local.name)?;
    spec.lifetime = if args.detach { Lifetime::Detached } else { Lifetime::WithParent };
    spec.node_lease_seconds = if node_count > MANY_NODES { 200 } else { 40 };
    let cluster = Cluster::start(spec, &binaries, progress.as_ref()).await?;
    let client = cluster.client().await?;

    progress.started("installing dapple");
    install(&client, NAMESPACE).await?;
    let manager = start_manager(&cluster).await?;
    progress.started(&format!("creating {node_count} nodes"));
    cluster.apply_fleet(&fleet).await?;
    apply_yaml(&client, EXAMPLE_GROUPS).await.context("cannot create the example groups")?;
    if args.real_node {
        cluster.start_real_node(&RealNodeSpec::new("this-machine"), &binaries, progress.as_ref()).await?;
    }
    wait_until_living(&client, &manager, progress.as_ref()).await?;
    progress.finished();
    Ok(cluster)
}

fn fleet(args: &UpArgs) -> anyhow::Result<Fleet> {
    let fleet = match &args.fleet {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Fleet::from_yaml(&text, &path.display().to_string())?
        }
        None => Fleet::example()?,
    };
    Ok(match args.nodes {
        Some(count) => fleet.scaled_to(count),
        None => fleet,
    })
}

async fn start_manager(cluster: &Cluster) -> anyhow::Result<Attached> {
    // As in production, so it runs with exactly the permissions it has there.
    let kubeconfig = cluster.kubeconfig_for(&manager_account(NAMESPACE).user(), &[]).await?;
    let health = format!("127.0.0.1:{}", cluster.choose_port()?);
    std::fs::write(health_file(cluster), &health)?;
    let program = std::env::current_exe().context("cannot find the dapple program itself")?;
    let webhooks = format!("127.0.0.1:{}", cluster.choose_port()?);
    let url = format!("https://{webhooks}");
    let kubeconfig = kubeconfig.display().to_string();
    let args = [
        "manager",
        "--kubeconfig",
        &kubeconfig,
        "--listen",
        &health,
        "--webhook-listen",
        &webhooks,
        "--webhook-url",
        &url,
    ];
    Ok(cluster.spawn_attached("dapple-manager", &program, &args.map(str::to_owned), &[])?)
}

fn health_file(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("dapple-manager.address")
}

/// Where the manager of this cluster serves health and metrics.
pub(crate) fn health_address(cluster: &Cluster) -> Option<String> {
    std::fs::read_to_string(health_file(cluster)).ok()
}

/// Waits until every node is ready, and every group has been looked at and rests.
async fn wait_until_living(client: &Client, manager: &Attached, progress: &dyn Progress) -> anyhow::Result<()> {
    progress.started("waiting for nodes and groups");
    let nodes = Api::<Node>::all(client.clone());
    let groups = Api::<NodeGroup>::all(client.clone());
    let (begun, mut before) = (tokio::time::Instant::now(), Vec::new());
    loop {
        let nodes = nodes.list(&ListParams::default()).await.context("cannot list nodes")?.items;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        let groups = groups.list(&ListParams::default()).await.context("cannot list node groups")?.items;
        let now: Vec<_> = groups.into_iter().map(|group| group.status).collect();
        let looked_at = now.iter().flatten().count();
        let detail =
            format!("{ready} of {} nodes are ready, {looked_at} of {} groups looked at", nodes.len(), now.len());
        if ready == nodes.len() && looked_at == now.len() && now == before {
            return Ok(());
        }
        if !manager.process.is_alive() {
            bail!("the manager ended; {} says:\n{}", manager.log.display(), manager.tail());
        }
        if begun.elapsed() > PATIENCE {
            bail!("after {} s {detail}; see the logs beside {}", PATIENCE.as_secs(), manager.log.display());
        }
        progress.detail(&detail);
        before = now;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

async fn closing_screen(cluster: &Cluster) {
    let view = view(cluster).await;
    say!("{}", view.to_string().trim_end());
    let name = if view.name == "default" { String::new() } else { format!(" --name {}", view.name) };
    say!("\nTry:");
    say!("  export KUBECONFIG={}", view.kubeconfig);
    say!("  export PATH={}:$PATH", kubectl_dir(cluster));
    say!("  kubectl get nodes,nodegroups -L location,arch,disk-type");
    say!("  kubectl label node -l location=beijing location=hangzhou --overwrite && kubectl get nodegroups");
    say!("  kubectl explain ads.spec.patches");
    // As this program was called: it need not be on the PATH.
    let dapple = std::env::args().next().unwrap_or_else(|| "dapple".to_owned());
    say!("\n`{dapple} status{name}` shows how it is doing, `{dapple} down{name}` stops it.");
}

fn kubectl_dir(cluster: &Cluster) -> String {
    cluster.kubectl().parent().unwrap_or(Path::new("")).display().to_string()
}
