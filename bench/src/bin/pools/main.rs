//! Applications in pools: what one look costs beside how many pools there are, what a webhook adds to a write of others, how large a
//! status is; and on a real control plane what a change of one pool and of all pools takes, what a manager does that comes anew, and
//! what an event of a node costs.
//!
//! `pools` runs all of it; `pools decisions webhook cluster` what is named. `DAPPLE_NODES=1000` takes that many nodes. The program
//! itself is taken from beside this one: `cargo build --release -p dapple` puts it there.

mod application;
mod cluster;
mod decisions;
mod site;
mod tls;
mod webhook;

use anyhow::ensure;
use dapple_bench::fleet::run_manager_if_asked;

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PARTS: [&str; 3] = ["decisions", "webhook", "cluster"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let is_manager = asked.first().is_some_and(|name| name == "manager");
    if is_manager && run_manager_if_asked().await? {
        return Ok(());
    }
    let unknown: Vec<&String> = asked.iter().filter(|name| !PARTS.contains(&name.as_str())).collect();
    ensure!(unknown.is_empty(), "unknown parts {unknown:?}: there are {PARTS:?}");
    let is_asked = |part: &str| asked.is_empty() || asked.iter().any(|name| name == part);
    let mut missed = Vec::new();
    if is_asked("decisions") {
        decisions::run(&mut missed)?;
    }
    if is_asked("webhook") {
        webhook::run(&mut missed)?;
        tls::run(&mut missed).await?;
    }
    if is_asked("cluster") {
        let nodes = std::env::var("DAPPLE_NODES").ok().and_then(|text| text.parse().ok());
        cluster::run(nodes.unwrap_or(cluster::NODES), &mut missed).await?;
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}
