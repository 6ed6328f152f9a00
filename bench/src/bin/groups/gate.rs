//! Pods through the gate, beside pods that nothing asks a place for, by one scheduler: how many a second get a node, what we write
//! for each, and how long each waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_bench::fleet::until;
use dapple_bench::goals::check;
use dapple_bench::hooked::{Hooked, Manager, sum_of};
use dapple_bench::load::{Pace, Times, load};
use dapple_testbed::ClusterSpec;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::site::{Asks, REQUIRED, REQUIRED_OVERRIDE, Site, make_nodes, median};

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
    throughput(&hooked, &manager, nodes, missed).await?;
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

async fn throughput(hooked: &Hooked, manager: &Manager, pods: usize, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let plain = Site::new(&hooked.client, "plain", Asks::Nothing, "default-scheduler").await?;
    let asking = Site::new(&hooked.client, "asking", Asks::Both, "default-scheduler").await?;
    // What is needed once is there then.
    plain.pods_per_second(50).await?;
    asking.pods_per_second(50).await?;
    let (mut rates, mut writes, mut placed) = ([Vec::new(), Vec::new()], 0.0, 0.0);
    let mut cpu = Duration::ZERO;
    for _ in 0..ROUNDS {
        rates[0].push(plain.pods_per_second(pods).await?);
        let (before, used) = (counts(hooked).await?, manager.used()?.cpu);
        rates[1].push(asking.pods_per_second(pods).await?);
        let after = counts(hooked).await?;
        writes += after.0 - before.0;
        placed += after.1 - before.1;
        cpu += manager.used()?.cpu.saturating_sub(used);
    }
    println!("  pods per second: {:.1?} beside the gate, {:.1?} through it", rates[0], rates[1]);
    let [plain, asking] = rates.map(median);
    let ratio = asking / plain;
    check(missed, format!("with image overrides / with no policy: {ratio:.3} (goal {GOAL})"), ratio >= GOAL);
    // All that it takes: calls of the webhook, what watches tell, deciding, writing, and that pods go again.
    let millis = cpu.as_secs_f64() * 1e3 / placed;
    println!(
        "  CPU of the manager for each pod, from its coming to its going: {millis:.3} ms (no goal: to be alike at all sizes)"
    );
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

/// When pods were first seen, and when without the gate.
#[derive(Default)]
struct Seen {
    first: BTreeMap<String, Instant>,
    open: BTreeMap<String, Instant>,
    /// Those that came without the gate, or left it without a group or the image of theirs.
    strays: BTreeSet<String>,
}

impl Seen {
    fn tell(&mut self, pod: &Pod) {
        let (name, now) = (pod.name_any(), Instant::now());
        self.first.entry(name.clone()).or_insert(now);
        let spec = pod.spec.as_ref();
        if spec.is_some_and(|spec| spec.scheduling_gates.is_some()) || self.open.contains_key(&name) {
            return;
        }
        let wanted = pod.labels().get("dapple.dev/group").map(|group| format!("{group}.registry.io/web:1"));
        let image = spec.and_then(|spec| spec.containers.first()?.image.clone());
        if wanted.is_none() || wanted != image {
            self.strays.insert(name.clone());
        }
        self.open.insert(name, now);
    }
}

/// Watches pods that are made from now on, until so many are without the gate.
async fn watch(pods: Api<Pod>, count: usize) -> anyhow::Result<JoinHandle<anyhow::Result<Seen>>> {
    let version = pods.list_metadata(&ListParams::default().limit(1)).await?.metadata.resource_version;
    Ok(tokio::spawn(async move {
        let version = version.unwrap_or_default();
        let mut events = pods.watch(&WatchParams::default().timeout(290), &version).await?.boxed();
        let mut seen = Seen::default();
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
            seen.tell(&pod);
            if seen.open.len() == count {
                break;
            }
        }
        ensure!(seen.open.len() == count, "only {} of {count} pods are through the gate", seen.open.len());
        anyhow::Ok(seen)
    }))
}

/// From creation to the time when a watch sees a pod without the gate: of bare pods, from when they should be made, and of pods of
/// a Deployment, whose owners and template are looked up, from when the watch sees them first. All have images by group.
async fn waiting(hooked: &Hooked, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let site = Site::new(&hooked.client, "single", Asks::Both, "default-scheduler").await?;
    let count = PACE.requests() as usize;
    let seen = watch(site.pods(), count).await?;
    let made = bare(site.pods()).await?;
    let seen = seen.await??;
    told("bare pods", &made, &seen, missed);
    site.clear().await?;
    let watched = watch(site.pods(), count).await?;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / PACE.per_second);
    for replicas in 1..=count {
        tick.tick().await;
        site.scale(replicas).await?;
    }
    let seen = watched.await??;
    told("pods of a Deployment", &seen.first, &seen, missed);
    site.scale(0).await?;
    site.clear().await
}

/// Makes pods that nothing owns. Tells when each should have been made.
async fn bare(pods: Api<Pod>) -> anyhow::Result<BTreeMap<String, Instant>> {
    let made = Arc::new(Mutex::new(BTreeMap::new()));
    let begun = made.clone();
    let answers = load(PACE, move |number| {
        let (api, begun) = (pods.clone(), begun.clone());
        async move {
            let name = format!("single-{number}");
            begun.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), Instant::now());
            let labels = json!({REQUIRED: "spread", REQUIRED_OVERRIDE: "spread"});
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "web:1"}]}}))?;
            anyhow::Ok(_ = api.create(&PostParams::default(), &pod).await?)
        }
    })
    .await?;
    answers.into_iter().try_for_each(|(_, answer)| answer)?;
    let made = made.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(made)
}

fn told(what: &str, made: &BTreeMap<String, Instant>, seen: &Seen, missed: &mut Vec<String>) {
    let took = seen.open.iter().filter_map(|(name, at)| Some(at.duration_since(*made.get(name)?)));
    let times = Times::of(took);
    let text = format!("{what}, from creation to gate off, {} a second: {times}", PACE.per_second);
    check(missed, format!("{text} (goal p99 under {WAIT_LIMIT:?})"), times.p99 < WAIT_LIMIT);
    let (count, strays) = (seen.open.len(), seen.strays.len());
    let text = format!("{what}: of {count}, {strays} came without the gate or got another image");
    check(missed, format!("{text} (goal 0)"), strays == 0);
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
