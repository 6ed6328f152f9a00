//! How soon the first write comes after an API server that was away for minutes is back, with 10,000 nodes.
//!
//! By then every watch is in its longest pause, and what it asks for has expired: nothing but a list helps.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::fleet::{Bench, run_manager_if_asked, until};
use dapple_bench::goals::check;
use dapple_bench::restart::restart;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

const NODES: usize = 10_000;
/// Longer than the longest pauses take to be reached.
const AWAY: Duration = Duration::from_secs(330);
/// The first write comes within this time.
const GOAL: Duration = Duration::from_secs(5);
/// Objects in a page of a list.
const PAGE: f64 = 500.0;
/// Who has not written by then will not.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if run_manager_if_asked().await? {
        return Ok(());
    }
    println!("making {NODES} nodes ...");
    let bench = Bench::start(NODES).await?;
    let client = bench.cluster.client().await?;
    let nodes = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default().limit(1)).await?;
    let node = nodes.items.first().context("there is no node")?.name_any();
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let set = set(&node)?;
    let sets = Api::<dapple_api::daemonset::DaemonSet>::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &set).await?;
    let live = || async { anyhow::Ok(pods.list_metadata(&ListParams::default().labels("app=agent")).await?.items) };
    until("its pod is there", || async { Ok(!live().await?.is_empty()) }).await?;
    let before = live().await?.into_iter().next().context("the pod is gone")?;
    let reads = bench.reads().await?;
    println!("the API server is away for {AWAY:?} ...");
    let (_again, start) = restart(&bench.cluster, &client, AWAY).await?;
    let back = Instant::now();
    // Something to do: a pod that is gone without anybody having been told.
    pods.delete(&before.name_any(), &DeleteParams::default().grace_period(0)).await?;
    // Its successor has its name.
    while live().await?.iter().all(|pod| pod.uid() == before.uid()) {
        ensure!(back.elapsed() < PATIENCE, "no pod was made within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = back.elapsed();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let reads = bench.reads().await? - reads;
    println!("\n{NODES} nodes, API server away for {AWAY:?}, ready {:.1} s after its start", start.as_secs_f64());
    let mut missed = Vec::new();
    let ratio = took.as_secs_f64() / GOAL.as_secs_f64();
    let text = format!("first write after its return / goal of {GOAL:?}: {ratio:.3} ({:.2} s)", took.as_secs_f64());
    check(&mut missed, text, ratio <= 1.0);
    let ratio = reads / (NODES as f64 / PAGE);
    check(
        &mut missed,
        format!("reads that were answered until 20 s later / pages of all nodes: {ratio:.2} ({reads})"),
        ratio <= 2.0,
    );
    bench.stop().await?;
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// A DaemonSet for one node.
fn set(node: &str) -> anyhow::Result<dapple_api::daemonset::DaemonSet> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "agent", "image": "agent:1"}]}}},
    }))?)
}
