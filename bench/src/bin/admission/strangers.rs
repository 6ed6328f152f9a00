//! Whether writes go on while strangers hold every connection that they can have, and the API server comes anew.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use dapple_bench::fleet::until;
use dapple_bench::goals::check;
use dapple_bench::restart::restart;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::latency::Webhook;
use dapple_bench::hooked::{Hooked, admit, set};
use dapple_bench::load::{Pace, Times, load, told};

/// Connections of each address: together twice as many as there are places. The first address is the API server's own.
const HOLDERS: usize = 1_100;
const ADDRESSES: [u8; 2] = [1, 2];
/// Clients that ask what nobody has asked before.
const ASKING: u32 = 24;
const WRITES: Pace = Pace { per_second: 5, seconds: 20 };
const TYPOS: usize = 20;

pub(crate) async fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let hooked = Hooked::start(1).await?;
    let manager = hooked.replica(0, &[])?;
    hooked.ready(0).await?;
    hooked.asked().await?;
    println!("\nstrangers: {HOLDERS} connections that ask nothing from each of {} addresses", ADDRESSES.len());
    writes(&hooked, "nobody else there", missed).await?;
    let opened = Arc::new(AtomicUsize::new(0));
    let mut holders = JoinSet::new();
    for peer in ADDRESSES.into_iter().flat_map(|peer| [peer; HOLDERS]) {
        holders.spawn(hold(hooked.backends[0].address, peer, opened.clone()));
    }
    until("they are all there", || async { Ok(opened.load(Ordering::Relaxed) >= HOLDERS * ADDRESSES.len()) }).await?;
    writes(&hooked, "while they hold on", missed).await?;
    let (_again, took) = restart(&hooked.cluster, &hooked.client, Duration::ZERO).await?;
    println!("  the API server was killed, and is back after {:.1} s", took.as_secs_f64());
    writes(&hooked, "after the API server came anew", missed).await?;
    let closed = closed(hooked.backends[0].health).await?;
    println!("  connections opened by strangers: {}; closed: {closed}", opened.load(Ordering::Relaxed));
    println!("  memory of the manager: {} MB", manager.used()?.rss >> 20);
    drop(holders);
    typos(&hooked, missed).await?;
    drop(manager);
    hooked.stop().await
}

/// Writes at a pace; not one may fail.
async fn writes(hooked: &Hooked, when: &str, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let client = hooked.client.clone();
    let answers = load(WRITES, move |number| {
        let name = format!("load-{}", number % 10);
        admit(client.clone(), set(&name, json!({"app": name})).to_string().into_bytes())
    })
    .await?;
    let times = Times::of(answers.iter().map(|(took, _)| *took));
    let failures: Vec<String> = answers.iter().filter_map(|(_, said)| Some(said.as_ref().err()?.to_string())).collect();
    let text = format!("writes {when}: {times}; failed: {} of {}{}", failures.len(), answers.len(), told(&failures));
    check(missed, text, failures.is_empty());
    Ok(())
}

/// Holds a connection from 127.0.0.`peer`, and opens another whenever it is closed.
async fn hold(to: SocketAddr, peer: u8, opened: Arc<AtomicUsize>) {
    loop {
        let held = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, peer), 0)))?;
            let mut stream = socket.connect(to).await?;
            opened.fetch_add(1, Ordering::Relaxed);
            stream.read(&mut [0; 64]).await
        };
        // Closed or refused: it comes again.
        _ = held.await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What the manager says of connections that it has closed.
async fn closed(health: SocketAddr) -> anyhow::Result<String> {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(health).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let prefix = "dapple_connections_closed_total{port=\"webhooks\",why=";
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix)).map(|line| line.replace(['"', '}'], ""));
    Ok(lines.collect::<Vec<_>>().join(", "))
}

/// Whether a typo is refused while others ask more than the API server can answer.
async fn typos(hooked: &Hooked, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let mut asking = JoinSet::new();
    let asked = Arc::new(AtomicUsize::new(0));
    for client in 0..ASKING {
        let (webhook, asked) = (Webhook::new(hooked).await?, asked.clone());
        asking.spawn(async move {
            for number in 0_u32.. {
                // What is answered, and how, is nothing to them.
                _ = webhook.ask(crate::latency::review(&novel(client, number), number, None)).await;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (mut passed, begun) = (Vec::new(), Instant::now());
    for number in 0..TYPOS {
        let mut wrong = set(&format!("typo-{number}"), json!({"app": "typo"}));
        wrong["spec"]["template"]["spec"]["hostNetwrk"] = json!(number % 2 == 0);
        wrong["spec"]["template"]["metadata"]["annotations"] = json!({"number": number.to_string()});
        match hooked.admit(&wrong).await {
            Err(kube::Error::Api(status)) if status.message.contains("hostNetwrk") => {}
            Err(error) => passed.push(error.to_string()),
            Ok(_) => passed.push("it passed".to_owned()),
        }
    }
    let seconds = begun.elapsed().as_secs_f64() / TYPOS as f64;
    println!(
        "  {ASKING} clients sent {} new reviews of 11 kinds of pods each meanwhile",
        asked.load(Ordering::Relaxed)
    );
    ensure!(asked.load(Ordering::Relaxed) > 0, "nobody asked anything");
    let text =
        format!("typos that were not refused: {} of {TYPOS}, {seconds:.2} s each{}", passed.len(), told(&passed));
    check(missed, text, passed.is_empty());
    Ok(())
}

/// A DaemonSet of which the API server has not been asked before: eleven kinds of pods, since each patch that no node matches
/// is looked at alone.
fn novel(client: u32, number: u32) -> Value {
    let mut object = set("novel", json!({"app": "novel"}));
    object["spec"]["template"]["metadata"]["annotations"] = json!({"number": format!("{client}-{number}")});
    let patch = |place: u32| {
        json!({"selector": {"matchLabels": {"node-restriction.kubernetes.io/place": place.to_string()}},
            "patch": {"metadata": {"annotations": {"place": place.to_string()}}}})
    };
    object["spec"]["patches"] = (0..10).map(patch).collect();
    object
}
