//! Memory and CPU of the manager's caches, beside kube's typed store fed with the same bytes in the same run.

use std::fmt::Debug;
use std::hash::Hash;

use anyhow::{Context, ensure};
use dapple_bench::measure::{Cost, cost_of};
use dapple_bench::objects::{node, pod};
use dapple_control::caches::store::Store;
use dapple_control::slim::{self, Cached, Index};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector::store::{Writer, store};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Ours may hold this part of what kube's typed store holds.
const GOAL: f64 = 0.1;

fn main() -> anyhow::Result<()> {
    println!(
        "{:<6} {:>7} {:<22} {:>12} {:>7} {:>12} {:>7}",
        "kind", "objects", "store", "bytes/object", "ratio", "µs/object", "ratio"
    );
    let mut worst: f64 = 0.0;
    for count in [1_000, 10_000] {
        let nodes: Vec<String> = (0..count).map(node).collect();
        worst = worst.max(compare::<slim::Node, Node>("Node", &nodes, &[])?);
    }
    let pods: Vec<String> = (0..30_000).map(|number| pod(number, 10_000)).collect();
    worst = worst.max(compare::<slim::Pod, Pod>("Pod", &pods, &[slim::Pod::BY_OWNER, slim::Pod::ORPHANS])?);
    println!("\nours / kube's typed store: at most {worst:.3} of the memory; goal {GOAL}");
    ensure!(worst <= GOAL, "the caches hold more than {GOAL} of what kube's typed store holds");
    Ok(())
}

/// Prints three stores of the same objects. Returns our part of the typed store's memory.
fn compare<T, K>(kind: &str, objects: &[String], indexes: &[Index<T>]) -> anyhow::Result<f64>
where
    T: Cached,
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let ours = cost_of_ours::<T>(objects, indexes)?;
    let typed = cost_of_typed::<K>(objects, false)?;
    let stripped = cost_of_typed::<K>(objects, true)?;
    for (name, cost) in [("kube typed", typed), ("kube, no managedFields", stripped), ("dapple", ours)] {
        let count = objects.len() as f64;
        println!(
            "{kind:<6} {:>7} {name:<22} {:>12.0} {:>7.3} {:>12.1} {:>7.3}",
            objects.len(),
            cost.bytes as f64 / count,
            cost.bytes as f64 / typed.bytes as f64,
            cost.cpu.as_secs_f64() * 1e6 / count,
            cost.cpu.as_secs_f64() / typed.cpu.as_secs_f64(),
        );
    }
    Ok(ours.bytes as f64 / typed.bytes as f64)
}

fn cost_of_ours<T: Cached>(objects: &[String], indexes: &[Index<T>]) -> anyhow::Result<Cost> {
    let (filled, cost) = cost_of(|| -> anyhow::Result<Store<T>> {
        let store = Store::default();
        indexes.iter().for_each(|index| store.declare(*index));
        store.apply(Event::Init);
        for object in objects {
            store.apply(Event::InitApply(serde_json::from_str(object)?));
        }
        store.apply(Event::InitDone);
        Ok(store)
    })?;
    let filled = filled.context("our store")?;
    ensure!(filled.len() == objects.len() && filled.malformed().is_empty(), "our store has {} objects", filled.len());
    Ok(cost)
}

fn cost_of_typed<K>(objects: &[String], strip: bool) -> anyhow::Result<Cost>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (filled, cost) = cost_of(|| -> anyhow::Result<_> {
        let (reader, mut writer): (_, Writer<K>) = store();
        writer.apply_watcher_event(&Event::Init);
        for object in objects {
            let mut parsed: K = serde_json::from_str(object)?;
            if strip {
                parsed.managed_fields_mut().clear();
                parsed.meta_mut().managed_fields = None;
            }
            writer.apply_watcher_event(&Event::InitApply(parsed));
        }
        writer.apply_watcher_event(&Event::InitDone);
        Ok((reader, writer))
    })?;
    let (reader, _writer) = filled.context("kube's store")?;
    ensure!(reader.len() == objects.len(), "kube's store has {} objects", reader.len());
    Ok(cost)
}
