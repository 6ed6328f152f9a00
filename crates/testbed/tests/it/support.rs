//! What the tests share.

use std::{path::Path, sync::Arc};

pub(crate) use dapple_testbed::testing::eventually;
use dapple_testbed::{Binaries, Cluster, ClusterSpec, Need, ProcessId, Upstream, progress};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};

pub(crate) async fn binaries() -> Binaries {
    Upstream::obtain(&[Need::ControlPlane], progress::to_stderr()).await.unwrap()
}

pub(crate) async fn start(spec: ClusterSpec) -> Cluster {
    Cluster::start(spec, &binaries().await, &progress::Quiet).await.unwrap()
}

pub(crate) async fn shared() -> Arc<Cluster> {
    dapple_testbed::shared().await.unwrap()
}

/// `Ok` where it holds; else what was seen instead, for the message of [`eventually`].
pub(crate) fn holds(it: bool, seen: impl std::fmt::Debug) -> Result<(), String> {
    if it { Ok(()) } else { Err(format!("{seen:?}")) }
}

pub(crate) fn all_ended(processes: &[(String, ProcessId)]) -> Result<(), String> {
    let alive: Vec<_> = processes.iter().filter(|(_, process)| process.is_alive()).collect();
    holds(alive.is_empty(), alive)
}

/// Waits until this many processes are recorded in a folder, ready or not.
pub(crate) async fn wait_until_recorded(dir: &Path, at_least: usize) -> Vec<ProcessId> {
    let recorded = || -> Option<Vec<ProcessId>> {
        let state: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("state.json")).ok()?).ok()?;
        serde_json::from_value(state["processes"].clone()).ok()
    };
    eventually(&format!("{at_least} processes are recorded"), async || {
        let processes = recorded().unwrap_or_default();
        holds(processes.len() >= at_least, &processes).map(|()| processes)
    })
    .await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Waits until the cluster has so many nodes and all are ready.
pub(crate) async fn nodes_ready(cluster: &Cluster, count: usize) {
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    eventually(&format!("{count} nodes ready"), async || {
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
        let unready: Vec<_> = nodes.iter().filter(|node| !is_ready(node)).map(ResourceExt::name_any).collect();
        if nodes.len() == count && unready.is_empty() {
            return Ok(());
        }
        let (there, last) = (nodes.len(), cluster.tail("kwok"));
        Err(format!("{there} nodes of which {} are not ready: {unready:?}; kwok said last:\n{last}", unready.len()))
    })
    .await;
}
