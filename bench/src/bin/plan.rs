//! Planning a DaemonSet with 10 patches for 10,000 nodes, beside its limits: time of the one CPU that it uses, and memory
//! of everything together.
//!
//! `kinds` is a fleet as people have it: 36 combinations of disk, GPU, zone and architecture. `any` is the worst there can
//! be, and has no goal: every patch matches half of the nodes, whichever the others match, so there are 1,024 variants.

use std::time::Duration;

use anyhow::{Context, ensure};
use dapple_bench::kinds::{self, node, patch};
use dapple_bench::measure::cost_of;
use dapple_bench::objects::pod_template;
use dapple_plan::world::World;
use serde_json::{Value, json};

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NODES: u32 = 10_000;
const TIME_LIMIT: Duration = Duration::from_millis(150);
const MEMORY_LIMIT: usize = 40 << 20;
const ROUNDS: usize = 9;

/// The labels by which patches select.
type Labels = fn(u32) -> Vec<(&'static str, String)>;

fn main() -> anyhow::Result<()> {
    println!("{NODES} nodes, 10 patches, {ROUNDS} rounds, each with provenance and a hash of every rendering");
    println!(
        "{:<8} {:>9} {:>10} {:>8} {:>10} {:>8}",
        "fleet", "variants", "median ms", "/ limit", "memory MB", "/ limit"
    );
    let mut is_missed = false;
    for (name, labels, keys) in [("kinds", kinds::labels as Labels, kinds::SELECTED), ("any", any as Labels, ANY)] {
        let (variants, time, bytes) = measure(labels, keys)?;
        let time_ratio = time.as_secs_f64() / TIME_LIMIT.as_secs_f64();
        let memory_ratio = bytes as f64 / MEMORY_LIMIT as f64;
        println!(
            "{name:<8} {variants:>9} {:>10.1} {time_ratio:>8.3} {:>10.1} {memory_ratio:>8.3}",
            time.as_secs_f64() * 1e3,
            bytes as f64 / f64::from(1 << 20),
        );
        is_missed |= name == "kinds" && (time_ratio > 1.0 || memory_ratio > 1.0);
    }
    ensure!(!is_missed, "over a limit");
    Ok(())
}

/// Variants, median time of a plan, and the memory of the world and its plan.
fn measure(labels: Labels, keys: [(&str, &str); 10]) -> anyhow::Result<(usize, Duration, usize)> {
    let (world, held) = cost_of(|| world(labels, keys))?;
    let world = world?;
    let mut times = Vec::new();
    let (mut variants, mut plan_bytes) = (0, 0);
    for _ in 0..ROUNDS {
        let (plans, cost) = cost_of(|| world.plans())?;
        times.push(cost.cpu);
        let plan = plans.first().context("no plan")?;
        ensure!(plan.variants.iter().all(|variant| variant.rendering.is_ok()), "something does not render");
        let planned: usize = plan.variants.iter().map(|variant| variant.nodes.len()).sum();
        ensure!(planned == NODES as usize, "{planned} nodes are planned");
        (variants, plan_bytes) = (plan.variants.len(), cost.bytes);
    }
    times.sort();
    Ok((variants, times[ROUNDS / 2], held.bytes + plan_bytes))
}

fn world(labels: Labels, keys: [(&str, &str); 10]) -> anyhow::Result<World> {
    let mut world = World::default();
    for number in 0..NODES {
        world.add(&node(number, labels(number)))?;
    }
    let patches: Vec<Value> = keys.iter().enumerate().map(|(number, select)| patch(number, *select)).collect();
    world.add(&json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": pod_template(3), "patches": patches},
    }))?;
    Ok(world)
}

const ANY: [(&str, &str); 10] = [
    ("p0", "1"),
    ("p1", "1"),
    ("p2", "1"),
    ("p3", "1"),
    ("p4", "1"),
    ("p5", "1"),
    ("p6", "1"),
    ("p7", "1"),
    ("p8", "1"),
    ("p9", "1"),
];

fn any(number: u32) -> Vec<(&'static str, String)> {
    ANY.iter().enumerate().map(|(bit, (key, _))| (*key, (number >> bit & 1).to_string())).collect()
}
