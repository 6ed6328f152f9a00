//! `dapple status`, and the view of a local cluster that `dapple up` ends with.

use std::process::ExitCode;
use std::time::Duration;

use dapple_api::group::NodeGroup;
use dapple_testbed::Cluster;
use dapple_view::cluster::{ClusterView, GroupView, NodesView, ProcessView};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::args::{LEASE, NAMESPACE, Output, StatusArgs};
use crate::output::say;
use crate::up::{cluster_dir, health_address};

/// An API server that takes longer is not answering.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

pub(crate) async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let Some(cluster) = Cluster::open(&cluster_dir(&args.local.name)?)? else {
        match args.output {
            Output::Text => say!("No local cluster {:?} runs. `dapple up` starts one.", args.local.name),
            Output::Json => say!("null"),
        }
        return Ok(ExitCode::from(1));
    };
    let view = view(&cluster).await;
    match args.output {
        Output::Text => print!("{view}"),
        Output::Json => say!("{}", serde_json::to_string_pretty(&view)?),
    }
    Ok(if view.is_well() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Everything that can be told of a cluster. What does not answer is left out, so that the rest is still shown.
pub(crate) async fn view(cluster: &Cluster) -> ClusterView {
    let processes = cluster.processes().into_iter().map(|(name, process)| ProcessView {
        name,
        alive: process.is_alive(),
        pid: process.pid,
    });
    let mut view = ClusterView {
        name: cluster.name(),
        kubernetes: None,
        api: cluster.api_url(),
        kubeconfig: cluster.admin_kubeconfig().display().to_string(),
        logs: cluster.dir().join("logs").display().to_string(),
        processes: processes.collect(),
        nodes: None,
        groups: Vec::new(),
        leader: None,
        health: health_address(cluster),
    };
    if let Some(client) = in_time(cluster.client()).await {
        ask(&client, &mut view).await;
    }
    view
}

async fn ask(client: &Client, view: &mut ClusterView) {
    let everything = ListParams::default();
    let (nodes, groups) = (Api::<Node>::all(client.clone()), Api::<NodeGroup>::all(client.clone()));
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    let (version, nodes, groups, lease) = tokio::join!(
        in_time(client.apiserver_version()),
        in_time(nodes.list(&everything)),
        in_time(groups.list(&everything)),
        in_time(leases.get_opt(LEASE)),
    );
    view.kubernetes = version.map(|version| version.git_version);
    view.nodes = nodes
        .map(|nodes| NodesView { total: nodes.items.len(), ready: nodes.iter().filter(|node| is_ready(node)).count() });
    let shown = groups.iter().flat_map(|groups| groups.iter()).map(|group| GroupView {
        name: group.name_any(),
        nodes: group.status.as_ref().map(|status| status.node_count),
    });
    view.groups = shown.collect();
    let holder = lease.flatten().and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
    view.leader = holder.filter(|holder| !holder.is_empty());
}

/// The answer, if it comes in time.
async fn in_time<T, E>(answer: impl Future<Output = Result<T, E>>) -> Option<T> {
    tokio::time::timeout(ANSWER_WITHIN, answer).await.ok()?.ok()
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|is| is.type_ == "Ready" && is.status == "True")
}
