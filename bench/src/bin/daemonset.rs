//! DaemonSets on a real control plane with kwok nodes, beside Kubernetes' own controller and beside a bare loop that
//! makes the same pods: making them, updating them, and what ten patches cost.
//!
//! `daemonset` takes about ten minutes. `DAPPLE_NODES=1000` leaves out 5,000 nodes.

use std::time::{Duration, Instant};

use anyhow::ensure;
use dapple_bench::fleet::{Bench, run_manager_if_asked, time_of_creation, until};
use dapple_bench::goals::check;
use dapple_plan::daemonset::pod::{Wanted, pod};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// As in the `dapple` program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// As many requests at once as the controller has.
const AT_ONCE: usize = 16;
const RSS_LIMIT: usize = 120 << 20;
const PATCH_LIMIT: Duration = Duration::from_millis(1);
const WRITES_LIMIT: f64 = 3.0;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if run_manager_if_asked().await? {
        return Ok(());
    }
    let only: Option<usize> = std::env::var("DAPPLE_NODES").ok().and_then(|text| text.parse().ok());
    let mut missed = Vec::new();
    for nodes in [1_000, 5_000].into_iter().filter(|nodes| only.is_none_or(|only| only == *nodes)) {
        let run = Run::start(nodes).await?;
        run.creation(&mut missed).await?;
        if nodes == 1_000 {
            run.update(&mut missed).await?;
            run.patches(&mut missed).await?;
        }
        run.bench.stop().await?;
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

struct Run {
    bench: Bench,
    nodes: usize,
    ours: Api<DynamicObject>,
    native: Api<DaemonSet>,
    pods: Api<Pod>,
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "agent", "image": image, "env": [{"name": "CACHE", "value": "500Gi"}]}]}})
}

fn set(image: &str, patches: Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "template": template(image), "patches": patches,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        },
    })
}

fn four_variants() -> Value {
    let patch = |disk: &str| {
        let env = json!([{"name": "CACHE", "value": disk}]);
        json!({"selector": {"matchLabels": {"disk": disk}}, "patch": {"spec": {"containers": [{"name": "agent", "env": env}]}}})
    };
    ["large", "nvme", "tape"].map(patch).into_iter().collect()
}

/// Ten patches of a kilobyte that match every node.
fn ten_patches() -> Value {
    let patch = |number: usize| {
        let patch = |value: &str| json!({"spec": {"containers": [{"name": "agent", "env": [{"name": format!("V{number}"), "value": value}]}]}});
        let filler = "x".repeat(1024 - patch("").to_string().len());
        json!({"selector": {}, "patch": patch(&filler)})
    };
    (0..10).map(patch).collect()
}

/// All variables that the pods of [`ten_patches`] have.
fn ten_patches_env() -> Value {
    let first = template("agent:1")["spec"]["containers"][0]["env"][0].clone();
    let patches = ten_patches();
    let patched = patches.as_array().into_iter().flatten();
    std::iter::once(first)
        .chain(patched.map(|patch| patch["patch"]["spec"]["containers"][0]["env"][0].clone()))
        .collect()
}

impl Run {
    async fn start(nodes: usize) -> anyhow::Result<Self> {
        let bench = Bench::start(nodes).await?;
        let client = bench.cluster.client().await?;
        let gvk = GroupVersionKind::gvk("apps.kruise.io", "v1beta1", "DaemonSet");
        println!("\n{nodes} nodes");
        Ok(Self {
            nodes,
            ours: Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&gvk)),
            native: Api::namespaced(client.clone(), "default"),
            pods: Api::namespaced(client, "default"),
            bench,
        })
    }

    async fn create_ours(&self, set: Value) -> anyhow::Result<()> {
        self.ours.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        Ok(())
    }

    async fn create_native(&self, image: &str) -> anyhow::Result<()> {
        let mut set = set(image, Value::Null);
        set["spec"]["patches"].take();
        set["apiVersion"] = json!("apps/v1");
        self.native.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        Ok(())
    }

    /// Makes the pods that the controller would make, and nothing else.
    async fn create_bare(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.pods.clone().into_client());
        let names: Vec<String> =
            nodes.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        let template = template("agent:1");
        let make = |node: String| {
            let wanted = Wanted {
                set: "bare",
                uid: "00000000-0000-0000-0000-000000000000",
                node: &node,
                template: &template,
                hash: "bare",
                revision: "bare",
                gates: &[],
                collisions: 0,
            };
            let mut pod = pod(&wanted);
            // Nobody's, or the garbage collector would take it.
            pod["metadata"]["ownerReferences"].take();
            let pod = serde_json::from_value::<Pod>(pod);
            async move { anyhow::Ok(self.pods.create(&PostParams::default(), &pod?).await.map(|_| ())?) }
        };
        stream::iter(names.into_iter().map(make)).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    async fn creation(&self, missed: &mut Vec<String>) -> anyhow::Result<()> {
        let seconds = |took: Duration| took.as_secs_f64();
        let (mut bare, mut native, mut ours) = (Duration::MAX, Duration::MAX, Duration::MAX);
        let (mut native_cpu, mut cpu, mut rss) = (Duration::MAX, Duration::MAX, 0);
        // In turn, and the faster of both times: what came before leaves its traces in the control plane.
        for _ in 0..2 {
            bare = bare.min(time_of_creation(&self.pods, self.nodes, self.create_bare()).await?);
            self.bench.clear(&self.native, &self.pods).await?;
            let before = self.bench.manager()?;
            let four = self.create_ours(set("agent:1", four_variants()));
            ours = ours.min(time_of_creation(&self.pods, self.nodes, four).await?);
            self.all_available(true).await?;
            let used = self.bench.manager()?;
            (cpu, rss) = (cpu.min(used.cpu - before.cpu), rss.max(used.rss));
            self.bench.clear(&self.ours, &self.pods).await?;
            let before = self.bench.process("kube-controller-manager")?;
            native = native.min(time_of_creation(&self.pods, self.nodes, self.create_native("agent:1")).await?);
            self.all_available(false).await?;
            native_cpu = native_cpu.min(self.bench.process("kube-controller-manager")?.cpu - before.cpu);
            self.bench.clear(&self.native, &self.pods).await?;
        }
        println!(
            "  pods per second: bare loop {:.0}, native {:.0}, dapple {:.0}",
            self.nodes as f64 / seconds(bare),
            self.nodes as f64 / seconds(native),
            self.nodes as f64 / seconds(ours)
        );
        let (to_bare, to_native) = (seconds(bare) / seconds(ours), seconds(native) / seconds(ours));
        check(missed, format!("creation, dapple / bare loop: {to_bare:.2} of its rate (goal 0.90)"), to_bare >= 0.9);
        check(missed, format!("creation, dapple / native: {to_native:.2} of its rate (goal 1)"), to_native >= 1.0);
        println!(
            "  CPU per pod, dapple / whole kube-controller-manager: {:.2} ms / {:.2} ms = {:.2}",
            seconds(cpu) * 1e3 / self.nodes as f64,
            seconds(native_cpu) * 1e3 / self.nodes as f64,
            seconds(cpu) / seconds(native_cpu)
        );
        let ratio = rss as f64 / RSS_LIMIT as f64;
        check(
            missed,
            format!("memory of the manager / 120 MB: {:.0} MB = {ratio:.2}", rss as f64 / f64::from(1 << 20)),
            ratio <= 1.0,
        );
        Ok(())
    }

    /// Waits until the status says that all pods are of the newest revision and available.
    async fn all_available(&self, is_ours: bool) -> anyhow::Result<()> {
        until("every pod is available", || async {
            let object = if is_ours {
                serde_json::to_value(self.ours.get("agent").await?)?
            } else {
                serde_json::to_value(self.native.get("agent").await?)?
            };
            let is_all = |field: &str| object["status"][field] == json!(self.nodes);
            Ok(object["status"]["observedGeneration"] == object["metadata"]["generation"]
                && is_all("updatedNumberScheduled")
                && is_all("numberAvailable"))
        })
        .await
    }

    async fn update(&self, missed: &mut Vec<String>) -> anyhow::Result<()> {
        let change = json!({"spec": {"template": template("agent:2")}});
        self.create_native("agent:1").await?;
        self.all_available(false).await?;
        let begun = Instant::now();
        self.native.patch("agent", &PatchParams::default(), &Patch::Merge(&change)).await?;
        self.all_available(false).await?;
        let native = begun.elapsed();
        self.bench.clear(&self.native, &self.pods).await?;
        self.create_ours(set("agent:1", json!([]))).await?;
        self.all_available(true).await?;
        let (begun, before) = (Instant::now(), self.bench.writes().await?);
        self.ours.patch("agent", &PatchParams::default(), &Patch::Merge(&change)).await?;
        self.all_available(true).await?;
        let (ours, writes) = (begun.elapsed(), (self.bench.writes().await? - before) / self.nodes as f64);
        let ratio = ours.as_secs_f64() / native.as_secs_f64();
        check(
            missed,
            format!(
                "update at 10%, dapple / native: {:.1} s / {:.1} s = {ratio:.2} of its time (goal 1)",
                ours.as_secs_f64(),
                native.as_secs_f64()
            ),
            ratio <= 1.0,
        );
        check(missed, format!("writes per updated pod / {WRITES_LIMIT}: {writes:.2}"), writes <= WRITES_LIMIT);
        self.bench.clear(&self.ours, &self.pods).await
    }

    async fn patches(&self, missed: &mut Vec<String>) -> anyhow::Result<()> {
        let mut taken = Vec::new();
        let (none, ten) = (set("agent:1", json!([])), set("agent:1", ten_patches()));
        // The very pods that the patches make, written down as they are.
        let mut same = none.clone();
        same["spec"]["template"]["spec"]["containers"][0]["env"] = ten_patches_env();
        for set in [&none, &ten, &same, &none, &ten, &same] {
            let before = self.bench.manager()?;
            let took = time_of_creation(&self.pods, self.nodes, self.create_ours(set.clone())).await?;
            self.all_available(true).await?;
            let after = self.bench.manager()?;
            taken.push((took, after.cpu - before.cpu, after.rss));
            self.bench.clear(&self.ours, &self.pods).await?;
        }
        // The first of each warms up.
        let per_pod = |time: Duration| time.as_secs_f64() * 1e3 / self.nodes as f64;
        let (none, ten, same) = (taken[3], taken[4], taken[5]);
        let added = per_pod(ten.0) - per_pod(none.0);
        let carried = per_pod(same.0) - per_pod(none.0);
        let cpu = per_pod(ten.1) - per_pod(none.1);
        let limit = PATCH_LIMIT.as_secs_f64() * 1e3;
        check(
            missed,
            format!("ten patches of 1 KB: {added:.3} ms added per pod, / limit of {limit} ms: {:.2}", added / limit),
            added < limit,
        );
        println!("  the same pods without patches: {carried:.3} ms added per pod, since each is 10 KB larger");
        println!(
            "  CPU per pod with ten patches and with none: {:.3} ms, {:.3} ms ({cpu:+.3} ms)",
            per_pod(ten.1),
            per_pod(none.1)
        );
        println!("  memory with ten patches and with none: {} MB, {} MB", ten.2 >> 20, none.2 >> 20);
        Ok(())
    }
}
