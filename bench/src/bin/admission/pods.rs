//! What creating pods, which no webhook of ours asks about, costs while ours are registered.

use std::time::{Duration, Instant};

use dapple_bench::fleet::until;
use dapple_bench::goals::check;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use dapple_bench::hooked::{Hooked, set};
use dapple_bench::load::Times;

const NAMESPACE: &str = "bystanders";
/// Blocks of either way: 1,000 pods with our webhooks, and as many without.
const BLOCKS: usize = 50;
const PODS: usize = 20;
/// What a toggled API server may still have to do.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) async fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let hooked = Hooked::start(1).await?;
    let manager = hooked.replica(0, &[])?;
    hooked.asked().await?;
    let configurations = hooked.configurations().await?;
    // It would put them back. Nobody has to answer: nobody is asked about pods.
    manager.stop().await?;
    let pods = Bystanders::start(&hooked).await?;
    println!("\npods: {} with our webhooks registered, and as many without, in turn", BLOCKS * PODS);
    pods.block().await?;
    hooked.remove_configurations().await?;
    pods.block().await?;
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for block in 0..BLOCKS {
        // Neither is always the first of the two.
        let mut pair = [Duration::ZERO; 2];
        for is_registered in [block % 2 == 0, block % 2 == 1] {
            turn(&hooked, is_registered.then_some(configurations.as_slice())).await?;
            let took = pods.block().await?;
            pair[usize::from(is_registered)] = Times::of(took.iter().copied()).p50;
            if is_registered { &mut with } else { &mut without }.extend(took);
        }
        ratios.push(pair[1].as_secs_f64() / pair[0].as_secs_f64());
    }
    let (with, without) = (Times::of(with), Times::of(without));
    println!("  with: {with}; without: {without}; medians of all: {:.3}", ratio(with.p50, without.p50));
    // A machine that is busy for some seconds slows both halves of a pair alike, or spoils a pair or two. So halves are
    // compared within their pair, each by its median, which single slow requests do not move; and of the pairs the median
    // counts, which the spoiled ones do not move. Many short blocks are better than few long ones: the pods of one block
    // are slow together.
    ratios.sort_by(f64::total_cmp);
    let (middle, lower, upper) = (ratios[BLOCKS / 2], ratios[BLOCKS / 4], ratios[BLOCKS * 3 / 4]);
    let text =
        format!("creating a pod, with / without: {middle:.3}, half of {BLOCKS} pairs from {lower:.3} to {upper:.3}");
    check(missed, format!("{text} (goal 0.9 to 1.1)"), (0.9..=1.1).contains(&middle));
    hooked.stop().await
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Puts configurations back, or takes them away, and waits until the API server has noticed.
async fn turn(hooked: &Hooked, wanted: Option<&[Value]>) -> anyhow::Result<()> {
    let set = set("turn", json!({"app": "turn"}));
    let is_registered = || async { anyhow::Ok(hooked.admit(&set).await.is_err()) };
    if is_registered().await? == wanted.is_some() {
        return Ok(());
    }
    match wanted {
        Some(all) => hooked.restore_configurations(all).await?,
        None => hooked.remove_configurations().await?,
    }
    // While they are there, sets are refused: nobody answers.
    until("the API server has noticed", || async { Ok(is_registered().await? == wanted.is_some()) }).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(())
}

/// Pods that nobody runs.
struct Bystanders(Api<Pod>);

impl Bystanders {
    async fn start(hooked: &Hooked) -> anyhow::Result<Self> {
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::<Namespace>::all(hooked.client.clone()).create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(hooked.client.clone(), NAMESPACE);
        until("pods can be made", || async { Ok(accounts.get_opt("default").await?.is_some()) }).await?;
        Ok(Self(Api::namespaced(hooked.client.clone(), NAMESPACE)))
    }

    /// How long each of a block takes, one after the other.
    async fn block(&self) -> anyhow::Result<Vec<Duration>> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"generateName": "bystander-"}, "spec": {
            "schedulerName": "nobody", "containers": [{"name": "c0", "image": "c:1"}]}}))?;
        let mut took = Vec::new();
        for _ in 0..PODS {
            let begun = Instant::now();
            self.0.create(&PostParams::default(), &pod).await?;
            took.push(begun.elapsed());
        }
        Ok(took)
    }
}
