//! Pods through the gate, beside pods that nothing asks a place for, by one scheduler: how many a second get a node, what we write
//! for each, and how long each waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::fleet::until;
use dapple_bench::goals::check;
use dapple_bench::hooked::{Hooked, sum_of};
use dapple_bench::load::{Pace, Times, load};
use dapple_testbed::ClusterSpec;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::site::{Asks, REQUIRED, Site, make_nodes, median};

/// Deployments of either kind, in turn.
const ROUNDS: usize = 3;
const GOAL: f64 = 0.75;
/// Leases, Events and what is proved by a dry run, for each pod.
const OTHER_WRITES: f64 = 0.1;
const PACE: Pace = Pace { per_second: 50, seconds: 20 };
const WAIT_LIMIT: Duration = Duration::from_millis(200);
const BYSTANDERS: usize = 200;

pub(crate) async fn run(nodes: usize, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let mut spec = ClusterSpec::temporary();
    spec.node_lease_seconds = 200;
    let hooked = Hooked::start_with(spec, 1).await?;
    make_nodes(&hooked.cluster, &hooked.client, nodes).await?;
    let manager = hooked.replica(0, &["--kube-api-qps", "2000", "--kube-api-burst", "2000"])?;
    hooked.asked().await?;
    placing(&hooked).await?;
    println!("\n{nodes} nodes and pods, through the gate and beside it, in turn");
    throughput(&hooked, nodes, missed).await?;
    waiting(&hooked, missed).await?;
    bystanders(&hooked, missed).await?;
    manager.stop().await?;
    hooked.stop().await
}

/// Waits until a leader says that it places pods.
async fn placing(hooked: &Hooked) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(hooked.client.clone(), "dapple-system");
    until("a leader places pods", || async {
        let found = leases.get_opt("dapple-manager").await?;
        Ok(found.is_some_and(|lease| lease.annotations().contains_key("dapple.dev/places")))
    })
    .await
}

async fn throughput(hooked: &Hooked, pods: usize, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let plain = Site::new(&hooked.client, "plain", Asks::Nothing, "default-scheduler").await?;
    let asking = Site::new(&hooked.client, "asking", Asks::Both, "default-scheduler").await?;
    // What is needed once is there then.
    plain.pods_per_second(50).await?;
    asking.pods_per_second(50).await?;
    let (mut rates, mut writes, mut placed) = ([Vec::new(), Vec::new()], 0.0, 0.0);
    for _ in 0..ROUNDS {
        rates[0].push(plain.pods_per_second(pods).await?);
        let before = counts(hooked).await?;
        rates[1].push(asking.pods_per_second(pods).await?);
        let after = counts(hooked).await?;
        writes += after.0 - before.0;
        placed += after.1 - before.1;
    }
    println!("  pods per second: {:.1?} beside the gate, {:.1?} through it", rates[0], rates[1]);
    let [plain, asking] = rates.map(median);
    let ratio = asking / plain;
    check(missed, format!("with image overrides / with no policy: {ratio:.3} (goal {GOAL})"), ratio >= GOAL);
    // Some are made anew as they are deleted, and placed again.
    let per_pod = writes / placed;
    let text = format!("{placed} placements, {per_pod:.3} writes for each, all that we write included");
    let is_met = placed >= (pods * ROUNDS) as f64 && per_pod <= 1.0 + OTHER_WRITES;
    check(missed, format!("{text} (goal 1)"), is_met);
    Ok(())
}

/// Writes that our manager has sent, and pods that it has placed.
async fn counts(hooked: &Hooked) -> anyhow::Result<(f64, f64)> {
    let all = hooked.counted(0, "rest_client_requests_total", "").await?;
    let reads = hooked.counted(0, "rest_client_requests_total", "\"GET\"").await?;
    Ok((all - reads, hooked.counted(0, "group_placements_total", "").await?))
}

/// From the time when a pod should be made to the time when a watch sees it without the gate.
async fn waiting(hooked: &Hooked, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let site = Site::new(&hooked.client, "single", Asks::Both, "default-scheduler").await?;
    let pods = site.pods();
    let version = pods.list_metadata(&ListParams::default().limit(1)).await?.metadata.resource_version;
    let (watched, count) = (pods.clone(), PACE.requests() as usize);
    let watch = tokio::spawn(async move {
        let version = version.unwrap_or_default();
        let mut events = watched.watch(&WatchParams::default().timeout(290), &version).await?.boxed();
        let (mut open, mut strays) = (BTreeMap::<String, Instant>::new(), BTreeSet::new());
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
            let is_gated = pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_some());
            if !is_gated {
                if !pod.labels().contains_key("dapple.dev/group") {
                    strays.insert(pod.name_any());
                }
                open.entry(pod.name_any()).or_insert_with(Instant::now);
            }
            if open.len() == count {
                break;
            }
        }
        anyhow::Ok((open, strays.len()))
    });
    let made = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let (api, begun) = (pods.clone(), made.clone());
    let answers = load(PACE, move |number| {
        let (api, begun) = (api.clone(), begun.clone());
        async move {
            let name = format!("single-{number}");
            begun.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(name.clone(), Instant::now());
            let labels = json!({REQUIRED: "spread"});
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "web:1"}]}}))?;
            anyhow::Ok(_ = api.create(&PostParams::default(), &pod).await?)
        }
    })
    .await?;
    answers.into_iter().try_for_each(|(_, answer)| answer)?;
    let (open, strays) = watch.await??;
    ensure!(open.len() == count, "only {} of {count} pods are through the gate", open.len());
    let times = {
        let made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let took = open.iter().filter_map(|(name, at)| Some(at.duration_since(*made.get(name)?)));
        Times::of(took.collect::<Vec<_>>())
    };
    let text = format!("from creation to gate off, {} pods a second: {times}", PACE.per_second);
    check(missed, format!("{text} (goal p99 under {WAIT_LIMIT:?})"), times.p99 < WAIT_LIMIT);
    check(missed, format!("of {count} pods, {strays} came without the gate (goal 0)"), strays == 0);
    site.clear().await
}

/// Pods of namespaces that ask for nothing: the API server asks nobody.
async fn bystanders(hooked: &Hooked, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let site = Site::new(&hooked.client, "bystanders", Asks::Nothing, "default-scheduler").await?;
    let calls = || async {
        let metrics = hooked.client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
        let name = "apiserver_admission_webhook_admission_duration_seconds_count";
        anyhow::Ok(sum_of(&metrics, name, "pods.group.dapple.dev"))
    };
    let before = calls().await.context("the API server counts calls")?;
    ensure!(before > 0.0, "calls about other pods are counted");
    site.pods_per_second(BYSTANDERS).await?;
    let more = calls().await? - before;
    check(missed, format!("calls about {BYSTANDERS} pods outside our namespaces: {more} (goal 0)"), more == 0.0);
    Ok(())
}
