//! Admission webhooks of the real program on a real control plane: how long an answer takes, what creating pods costs while
//! they are registered, whether anybody notices that certificates and replicas are replaced, and whether strangers can keep the
//! API server out.
//!
//! `admission` runs all of it in about nine minutes, `admission latency pods rotation strangers` what is named. The program itself is
//! taken from beside this one: `cargo build --release -p dapple` puts it there.

mod latency;
mod pods;
mod rotation;
mod strangers;

use anyhow::ensure;

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PARTS: [&str; 4] = ["latency", "pods", "rotation", "strangers"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let unknown: Vec<&String> = asked.iter().filter(|name| !PARTS.contains(&name.as_str())).collect();
    ensure!(unknown.is_empty(), "unknown parts {unknown:?}: there are {PARTS:?}");
    let is_asked = |part: &str| asked.is_empty() || asked.iter().any(|name| name == part);
    let mut missed = Vec::new();
    if is_asked("latency") {
        latency::run(&mut missed).await?;
    }
    if is_asked("pods") {
        pods::run(&mut missed).await?;
    }
    if is_asked("rotation") {
        rotation::run(&mut missed).await?;
    }
    if is_asked("strangers") {
        strangers::run(&mut missed).await?;
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}
