//! What the manager holds of 1,000 nodes and 10 DaemonSets on all of them.

use std::time::Duration;

use anyhow::ensure;
use dapple_api::daemonset::DaemonSet;
use dapple_bench::fleet::{Bench, run_manager_if_asked, until};
use dapple_bench::goals::check;
use kube::api::{Api, PostParams};
use serde_json::json;

const NODES: usize = 1_000;
const SETS: usize = 10;
/// The manager stays below this.
const LIMIT: usize = 120 << 20;
/// By then what was needed for the last pods only is given back.
const REST: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if run_manager_if_asked().await? {
        return Ok(());
    }
    println!("making {NODES} nodes, and {SETS} pods on each ...");
    let bench = Bench::start(NODES).await?;
    let sets = Api::<DaemonSet>::namespaced(bench.cluster.client().await?, "default");
    for number in 0..SETS {
        sets.create(&PostParams::default(), &set(&format!("agent-{number}"))?).await?;
        let name = format!("agent-{number}");
        let is_done = || async {
            let status = sets.get(&name).await?.status.unwrap_or_default();
            Ok(usize::try_from(status.number_available.unwrap_or(0)).is_ok_and(|available| available == NODES))
        };
        until("all pods are available", is_done).await?;
    }
    tokio::time::sleep(REST).await;
    let used = bench.manager()?;
    println!("\n{NODES} nodes, {SETS} DaemonSets, {} pods", NODES * SETS);
    let mut missed = Vec::new();
    let ratio = used.rss as f64 / LIMIT as f64;
    let text = format!("memory of the manager / {} MB: {ratio:.3} ({:.1} MB)", LIMIT >> 20, used.rss as f64 / 1e6);
    check(&mut missed, text, ratio <= 1.0);
    bench.stop().await?;
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

fn set(name: &str) -> anyhow::Result<DaemonSet> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "agent:1"}]},
            },
        },
    }))?)
}
