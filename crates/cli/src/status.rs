//! `dapple status`, and the view of a local cluster that `dapple up` ends with.

use std::process::ExitCode;

use dapple_api::group::NodeGroup;
use dapple_testbed::Cluster;
use dapple_view::cluster::{ClusterView, GroupView, NodesView, ProcessView};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::args::{Output, StatusArgs};
use crate::up::{cluster_dir, health_address};

pub(crate) async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let Some(cluster) = Cluster::open(&cluster_dir(&args.local.name)?)? else {
        match args.output {
            Output::Text => println!("No local cluster {:?} runs. `dapple up` starts one.", args.local.name),
            Output::Json => println!("null"),
        }
        return Ok(ExitCode::from(1));
    };
    let view = view(&cluster).await;
    match args.output {
        Output::Text => print!("{view}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&view)?),
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
        nodes: NodesView::default(),
        groups: Vec::new(),
        leader: None,
        health: health_address(cluster),
    };
    if let Ok(client) = cluster.client().await {
        ask(&client, &mut view).await;
    }
    view
}

async fn ask(client: &Client, view: &mut ClusterView) {
    view.kubernetes = client.apiserver_version().await.ok().map(|version| version.git_version);
    let everything = ListParams::default();
    if let Ok(nodes) = Api::<Node>::all(client.clone()).list(&everything).await {
        view.nodes = NodesView { total: nodes.items.len(), ready: nodes.iter().filter(|node| is_ready(node)).count() };
    }
    if let Ok(groups) = Api::<NodeGroup>::all(client.clone()).list(&everything).await {
        let shown = groups.iter().map(|group| GroupView {
            name: group.name_any(),
            nodes: group.status.as_ref().map(|status| status.node_count),
        });
        view.groups = shown.collect();
    }
    let leases = Api::<Lease>::namespaced(client.clone(), "dapple-system");
    if let Ok(Some(lease)) = leases.get_opt("dapple-manager").await {
        view.leader = lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
    }
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|is| is.type_ == "Ready" && is.status == "True")
}
