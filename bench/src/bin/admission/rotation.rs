//! Whether anybody notices that authority and certificate are replaced, and replicas with them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use dapple_bench::goals::check;
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use dapple_bench::hooked::{Hooked, admit, served, set, trusted};
use dapple_bench::load::{Pace, Times, load, told};

const SECONDS: u32 = 60;
/// `DAPPLE_PER_SECOND` asks for another rate, to find out what a machine bears.
const PER_SECOND: u32 = 200;
/// Replaced when a third is left: twice in a minute, with time for the steps in between.
const LIFETIMES: [&str; 4] = ["--webhook-ca-lifetime", "48s", "--webhook-cert-lifetime", "48s"];
/// What an API server still has to do after its start and after our CRDs, schemas above all, takes so long on two cores.
const CALM: Duration = Duration::from_secs(20);
/// The one before, and two new ones; of certificates as well.
const REPLACED: usize = 3;
const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";
/// Lines of each log that are shown if something failed, of those that say who leads, which step is taken, what is wrong.
const SHOWN: usize = 25;
const TELLING: [&str; 6] = ["WARN", "ERROR", "lead", "lease", "certificates", "mended"];

pub(crate) async fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let hooked = Hooked::start(2).await?;
    let mut replicas = vec![hooked.replica(0, &LIFETIMES)?, hooked.replica(1, &LIFETIMES)?];
    hooked.ready(0).await?;
    hooked.ready(1).await?;
    hooked.asked().await?;
    tokio::time::sleep(CALM).await;
    let wanted = std::env::var("DAPPLE_PER_SECOND").ok().and_then(|text| text.parse().ok());
    let pace = Pace { per_second: wanted.unwrap_or(PER_SECOND), seconds: SECONDS };
    println!("\nrotation: {} admissions a second for {SECONDS} s, by two replicas", pace.per_second);
    let ended = CancellationToken::new();
    let replaced = tokio::spawn(replaced(hooked.client.clone(), ended.clone()));
    let client = hooked.client.clone();
    let loading = tokio::spawn(load(pace, move |number| {
        let name = format!("load-{}", number % 10);
        admit(client.clone(), set(&name, json!({"app": name})).to_string().into_bytes())
    }));
    let before = hooked.used("kube-apiserver")?;
    let mut logs: Vec<_> = replicas.iter().map(|replica| replica.log.clone()).collect();
    let mut stops = 0;
    // Until the load ends: each in turn, and back before the next one goes.
    while !loading.is_finished() {
        tokio::time::sleep(Duration::from_secs(4)).await;
        replicas.remove(0).stop().await?;
        let replica = hooked.replica(stops % 2, &LIFETIMES)?;
        logs.push(replica.log.clone());
        hooked.ready(stops % 2).await?;
        replicas.push(replica);
        stops += 1;
    }
    let answers = loading.await??;
    ended.cancel();
    let (authorities, certificates) = replaced.await?;
    let requests = answers.len();
    let times = Times::of(answers.iter().map(|(took, _)| *took));
    let failures: Vec<String> = answers.into_iter().filter_map(|(_, said)| Some(said.err()?.to_string())).collect();
    let cpu = (hooked.used("kube-apiserver")?.cpu - before.cpu).as_secs_f64() * 1e3 / requests as f64;
    println!("  whole admissions: {times}, CPU of the API server {cpu:.2} ms each; replicas stopped {stops} times");
    check(
        missed,
        format!("failed: {} of {requests}{}", failures.len(), told(&failures)),
        failures.is_empty() && requests > 0,
    );
    for (name, seen) in [("authorities", authorities), ("certificates", certificates)] {
        check(missed, format!("{name} seen: {} (goal {REPLACED})", seen.len()), seen.len() >= REPLACED);
    }
    if !failures.is_empty() {
        logs.iter().for_each(|log| show(log));
    }
    drop(replicas);
    hooked.stop().await
}

fn show(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let is_telling = |line: &&str| TELLING.iter().any(|word| line.contains(word));
    for line in text.lines().filter(is_telling).take(SHOWN) {
        println!("    {}: {line:.200}", log.file_name().unwrap_or_default().display());
    }
}

/// Every authority that the API server is told to trust, and every certificate that replicas serve with, until the end.
async fn replaced(client: Client, ended: CancellationToken) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut authorities, mut certificates) = (BTreeSet::new(), BTreeSet::new());
    while !ended.is_cancelled() {
        // What cannot be read now is read the next time.
        let bundle = trusted(&client).await.ok().and_then(|bundle| serde_json::from_value::<ByteString>(bundle).ok());
        let text = bundle.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
        let whole = text.split_inclusive(END_OF_CERTIFICATE).filter(|part| part.contains(END_OF_CERTIFICATE));
        authorities.extend(whole.map(|part| part.trim().to_owned()));
        certificates.extend(served(&client).await.ok());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    (authorities, certificates)
}
