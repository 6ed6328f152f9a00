//! On a real control plane: what a change of one pool comes to, how fast a change of all pools is beside a bare loop that writes the
//! same, what a manager does that comes anew, and what an event of a node costs.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::audit::Entry;
use dapple_bench::goals::check;
use dapple_plan::pool::stored::merge_patch;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::application::replacements;
use crate::decisions::POOLS;
use crate::site::{AT_ONCE, Site, create, name};

pub(crate) const NODES: usize = 10_000;
const CHANGES: usize = 10;
const CHANGE_LIMIT: Duration = Duration::from_millis(5);
/// All that follows from a change is done by then.
const AFTERMATH: Duration = Duration::from_secs(5);
/// Changes of all pools, and as many bare loops.
const ROUNDS: usize = 3;
const GOAL: f64 = 0.9;
/// A manager that came anew has seen everything by then.
const SEEN: Duration = Duration::from_secs(60);
const NODE_EVENTS: usize = 4_000;
const NODE_LIMIT: Duration = Duration::from_micros(200);
/// What a manager keeps up for ever.
const KEPT_UP: [&str; 2] = ["leases.coordination.k8s.io", "events.events.k8s.io"];
const DEPLOYMENTS: &str = "deployments.apps";

pub(crate) async fn run(nodes: usize, missed: &mut Vec<String>) -> anyhow::Result<()> {
    println!("\ncluster: making {nodes} nodes in {POOLS} pools, and workloads of ten YurtAppSets in each ...");
    let mut site = Site::start(nodes).await?;
    one_pool(&site, missed).await?;
    all_pools(&site, missed).await?;
    anew(&mut site, missed).await?;
    node_events(&site, nodes, missed).await?;
    site.bench.stop().await
}

/// The time, as the API server writes it.
fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

fn is_of_workloads(entry: &&Entry) -> bool {
    entry.kind() == DEPLOYMENTS && entry.is_write() && entry.is_done()
}

/// What our manager uses up while nothing happens, in this time.
async fn idle(site: &Site, time: Duration) -> anyhow::Result<f64> {
    let before = site.bench.manager()?.cpu;
    tokio::time::sleep(time).await;
    Ok((site.bench.manager()?.cpu - before).as_secs_f64() / time.as_secs_f64())
}

/// CPU time since, apart from what is used up anyway.
fn spent(site: &Site, (before, begun): (Duration, Instant), idle: f64) -> anyhow::Result<f64> {
    let used = (site.bench.manager()?.cpu - before).as_secs_f64();
    Ok((used - idle * begun.elapsed().as_secs_f64()).max(0.0))
}

async fn one_pool(site: &Site, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let workload = site.workload(0, 7).await?;
    let change = async |image: String| {
        site.replace(0, &replacements(7, &image)).await?;
        site.has(0, &workload, &image).await?;
        tokio::time::sleep(AFTERMATH).await;
        anyhow::Ok(())
    };
    // The variable in all pools is written once.
    change("c1:first".to_owned()).await?;
    let idle = idle(site, Duration::from_secs(20)).await?;
    let (since, begun, before) = (now(), Instant::now(), site.bench.manager()?.cpu);
    let rendered = site.bench.counted("pool_renderings_total").await?;
    for number in 0..CHANGES {
        change(format!("c1:{number}")).await?;
    }
    let each = spent(site, (before, begun), idle)? / CHANGES as f64;
    let rendered = site.bench.counted("pool_renderings_total").await? - rendered;
    let asked = site.asked(&since)?;
    let (writes, dry) =
        (asked.iter().filter(is_of_workloads).count(), asked.iter().filter(|entry| entry.is_dry()).count());
    println!(
        "  {CHANGES} changes of one pool of {POOLS}, one after the other; a manager at rest uses {:.2} ms a second",
        idle * 1e3
    );
    let text = format!(
        "renderings {rendered}, writes of workloads {writes}, dry runs {dry} (goal {CHANGES}, {CHANGES} and 0)"
    );
    check(missed, text, rendered == CHANGES as f64 && writes == CHANGES && dry == 0);
    let lists = asked.iter().filter(|entry| entry.is_first_page()).count();
    check(missed, format!("lists {lists} (goal 0)"), lists == 0);
    // From what watches tell to what is written and told: reading, deciding and writing, of all looks.
    let ratio = each / CHANGE_LIMIT.as_secs_f64();
    check(missed, format!("CPU of the manager for each: {:.2} ms, {ratio:.3} of the limit", each * 1e3), ratio <= 1.0);
    Ok(())
}

async fn all_pools(site: &Site, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let workload = site.workload(1, 0).await?;
    let bare = Bare::make(site).await?;
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (since, image) = (now(), format!("c1:all-{round}"));
        let item = json!({"image": {"containerName": "c1", "imageClaim": image}});
        site.replace(1, &json!([{"pools": "*", "items": [item]}])).await?;
        site.has(1, &workload, &image).await?;
        tokio::time::sleep(AFTERMATH).await;
        let asked = site.asked(&since)?;
        let times: Vec<&str> =
            asked.iter().filter(is_of_workloads).map(|entry| entry.request_received_timestamp.as_str()).collect();
        ensure!(times.len() == POOLS, "{} writes of workloads, not {POOLS}", times.len());
        let at =
            |text: Option<&&str>| anyhow::Ok(text.context("there is a write")?.parse::<Timestamp>()?.as_microsecond());
        let took = (at(times.last())? - at(times.first())?) as f64 / 1e6;
        ours.push((POOLS - 1) as f64 / took);
        others.push(bare.write(&image).await?);
        tokio::time::sleep(AFTERMATH).await;
    }
    println!(
        "  all {POOLS} pools, workloads written per second: {ours:.1?}, by a bare loop, one after the other as well: {others:.1?}"
    );
    let ratio = median(ours) / median(others);
    check(missed, format!("all pools, ours / a bare loop: {ratio:.3} (goal {GOAL})"), ratio >= GOAL);
    Ok(())
}

/// Deployments like those of an application, which nobody controls.
struct Bare {
    api: Api<DynamicObject>,
    names: Vec<String>,
}

impl Bare {
    async fn make(site: &Site) -> anyhow::Result<Self> {
        let all = site.deployments.list(&ListParams::default()).await?;
        let prefix = format!("{}-", name(2));
        let mut names = Vec::new();
        for found in all.items.iter().filter(|found| found.name_any().starts_with(&prefix)) {
            let name = format!("bare-{}", names.len());
            let mut labels = found.labels().clone();
            labels.remove("apps.openyurt.io/pool-name");
            let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "labels": labels, "annotations": found.annotations()},
                "spec": found.data["spec"]});
            create(&site.deployments, object).await?;
            names.push(name);
        }
        ensure!(names.len() == POOLS, "{} Deployments, not {POOLS}", names.len());
        tokio::time::sleep(AFTERMATH).await;
        Ok(Self { api: site.deployments.clone(), names })
    }

    /// Writes to each what our manager would, and tells how many a second.
    async fn write(&self, image: &str) -> anyhow::Result<f64> {
        let all = self.api.list(&ListParams::default()).await?;
        let bodies: Vec<(String, Value)> = all
            .items
            .iter()
            .filter(|found| self.names.contains(&found.name_any()))
            .map(|found| {
                let spec = &found.data["spec"];
                let mut wanted = spec.clone();
                wanted["template"]["spec"]["containers"][1]["image"] = json!(image);
                let metadata = json!({"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version,
                    "labels": found.labels(), "annotations": found.annotations()});
                (found.name_any(), json!({"metadata": metadata, "spec": merge_patch(spec, &wanted)}))
            })
            .collect();
        let begun = Instant::now();
        for (name, body) in &bodies {
            self.api.patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
        }
        Ok(bodies.len() as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Another manager takes over, and all is as it should be.
async fn anew(site: &mut Site, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let since = now();
    let next = site.bench.start_another(&[dapple_control::families::POOL])?;
    site.bench.replace_manager(next);
    site.led().await?;
    tokio::time::sleep(SEEN).await;
    let seen = now();
    let asked = site.asked(&since)?;
    let is_else = |entry: &&Entry| !KEPT_UP.contains(&entry.kind().as_str());
    let written: Vec<String> = asked.iter().filter(|entry| entry.is_write()).filter(is_else).map(Entry::kind).collect();
    let dry = asked.iter().filter(|entry| entry.is_dry()).count();
    println!("  a manager that comes anew reads {} times", asked.iter().filter(|entry| !entry.is_write()).count());
    let text = format!("it writes {} times and asks for {dry} dry runs (goal 0): {written:?}", written.len());
    check(missed, text, written.is_empty() && dry == 0);
    tokio::time::sleep(SEEN).await;
    let lists = site.asked(&seen)?.iter().filter(|entry| entry.is_first_page()).count();
    check(missed, format!("lists after it has begun: {lists} (goal 0)"), lists == 0);
    Ok(())
}

async fn node_events(site: &Site, nodes: usize, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let idle = idle(site, Duration::from_secs(20)).await?;
    let api: Api<Node> = Api::all(site.client.clone());
    let names: Vec<String> =
        api.list_metadata(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
    let (since, begun, before) = (now(), Instant::now(), site.bench.manager()?.cpu);
    let patch = |number: usize| {
        let (api, name) = (api.clone(), names[number % names.len()].clone());
        let body = json!({"metadata": {"labels": {"bench.dapple.dev/event": number.to_string()}}});
        async move {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await?;
            anyhow::Ok(())
        }
    };
    stream::iter((0..NODE_EVENTS).map(patch)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    tokio::time::sleep(AFTERMATH).await;
    let each = spent(site, (before, begun), idle)? / NODE_EVENTS as f64;
    let ratio = each / NODE_LIMIT.as_secs_f64();
    // All that it takes, from the bytes of the watch on.
    let text = format!("an event of a node, of {nodes}: {:.1} µs, {ratio:.3} of the limit", each * 1e6);
    check(missed, text, ratio <= 1.0);
    let asked = site.asked(&since)?;
    let lists = asked.iter().filter(|entry| entry.is_first_page()).count();
    check(missed, format!("lists meanwhile: {lists} (goal 0)"), lists == 0);
    Ok(())
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}
