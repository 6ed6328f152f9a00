//! Node groups: what it costs to decide where a pod goes, pods per second through the gate beside pods that nothing asks a place
//! for, how long a pod waits there, and pods per second with our extender beside one that only repeats names.
//!
//! `groups` runs all of it, at 1,000 nodes and then at 5,000, each with as many pods; `groups decisions gate extender` what is named;
//! `DAPPLE_NODES=1000` takes that many nodes alone. The program itself is taken from beside this one: `cargo build --release -p dapple` puts it there.

mod decisions;
mod extender;
mod gate;
mod site;

use anyhow::ensure;

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PARTS: [&str; 3] = ["decisions", "gate", "extender"];
/// So many nodes, and as many pods.
const SIZES: [usize; 2] = [1_000, 5_000];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let unknown: Vec<&String> = asked.iter().filter(|name| !PARTS.contains(&name.as_str())).collect();
    ensure!(unknown.is_empty(), "unknown parts {unknown:?}: there are {PARTS:?}");
    let is_asked = |part: &str| asked.is_empty() || asked.iter().any(|name| name == part);
    let only: Option<usize> = std::env::var("DAPPLE_NODES").ok().and_then(|text| text.parse().ok());
    let mut missed = Vec::new();
    if is_asked("decisions") {
        decisions::run(&mut missed)?;
    }
    for nodes in only.map_or(SIZES.to_vec(), |nodes| vec![nodes]) {
        let mut of_size = Vec::new();
        if is_asked("gate") {
            gate::run(nodes, &mut of_size).await?;
        }
        if is_asked("extender") {
            extender::run(nodes, &mut of_size).await?;
        }
        missed.extend(of_size.into_iter().map(|what| format!("with {nodes} nodes, {what}")));
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}
