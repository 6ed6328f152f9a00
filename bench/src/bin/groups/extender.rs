//! A scheduler that asks our extender, beside one that asks an extender that only repeats names, and one that asks nobody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use axum::body::Bytes;
use axum::routing::post;
use dapple_admit::authority::{authority, sign};
use dapple_admit::serve::{Identity, Server};
use dapple_bench::goals::check;
use dapple_bench::hooked::Hooked;
use dapple_control::env::Env;
use dapple_plan::certificate::Span;
use dapple_testbed::progress::Quiet;
use dapple_testbed::{Binary, ClusterSpec, Need, Upstream};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::site::{Asks, Site, make_nodes, median};

const ROUNDS: usize = 3;
const GOAL: f64 = 0.9;
const SECRET: &str = "dapple-extender-certificates";
/// Certificates are there long before.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(nodes: usize, missed: &mut Vec<String>) -> anyhow::Result<()> {
    let mut spec = ClusterSpec::temporary();
    spec.node_lease_seconds = 200;
    let hooked = Hooked::start_with(spec, 1).await?;
    make_nodes(&hooked.cluster, &hooked.client, nodes).await?;
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let (ours, echo) = (address(hooked.cluster.choose_port()?), address(hooked.cluster.choose_port()?));
    let manager = hooked.manager(0, &["--extender-listen", &ours.to_string()])?;
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    repeat_names(echo, stop).await?;
    scheduler(&hooked, "asks-us", config_of_ours(&hooked, ours).await?).await?;
    scheduler(&hooked, "asks-echo", config_of_echo(echo)).await?;
    let site = async |name: &str, asks: Asks, scheduler: &str| Site::new(&hooked.client, name, asks, scheduler).await;
    let sites = [
        site("free", Asks::Nothing, "default-scheduler").await?,
        site("echo", Asks::Nothing, "asks-echo").await?,
        site("asking", Asks::Propagation, "asks-us").await?,
    ];
    println!(
        "\n{nodes} nodes and pods: a scheduler that asks nobody, one that asks for an echo, and one that asks us, in turn"
    );
    let mut rates = [const { Vec::new() }; 3];
    for site in &sites {
        site.pods_per_second(50).await?;
    }
    for _ in 0..ROUNDS {
        for (site, rates) in sites.iter().zip(&mut rates) {
            rates.push(site.pods_per_second(nodes).await?);
        }
    }
    println!(
        "  pods per second: {:.1?} asked of nobody, {:.1?} of an echo, {:.1?} of us",
        rates[0], rates[1], rates[2]
    );
    let [free, echo, ours] = rates.map(median);
    println!(
        "  an extender that only repeats names / none, which leaves pods that are alike in batches: {:.3}",
        echo / free
    );
    let ratio = ours / echo;
    check(missed, format!("ours / one that only repeats names: {ratio:.3} (goal {GOAL})"), ratio >= GOAL);
    manager.stop().await?;
    hooked.stop().await
}

#[derive(Deserialize)]
struct Asked<'b> {
    #[serde(rename = "NodeNames", borrow)]
    names: &'b RawValue,
}

/// Serves an extender that repeats what it is asked.
async fn repeat_names(at: SocketAddr, stop: CancellationToken) -> anyhow::Result<()> {
    let span = Span::beginning(Env::system().now().as_second(), 3_600);
    let root = authority(span)?;
    let pair = sign(&root.key, span, span, &["127.0.0.1".to_owned()])?;
    let identity = Identity::default();
    identity.set(&pair.certificate, &pair.key)?;
    let filter = |body: Bytes| async move {
        let names = serde_json::from_slice::<Asked<'_>>(&body).map_or("null", |asked| asked.names.get());
        ([("content-type", "application/json")], format!(r#"{{"NodeNames":{names}}}"#))
    };
    let prioritize = || async { ([("content-type", "application/json")], "[]") };
    let routes = axum::Router::new().route("/filter", post(filter)).route("/prioritize", post(prioritize));
    let routes = routes.layer(axum::extract::DefaultBodyLimit::disable());
    let listener = tokio::net::TcpListener::bind(at).await?;
    tokio::spawn(Server::new(identity).run(listener, routes, stop));
    Ok(())
}

fn config_of_echo(at: SocketAddr) -> Value {
    json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "extenders": [{
        "urlPrefix": format!("https://{at}"), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 200,
        "enableHTTPS": true, "nodeCacheCapable": true, "ignorable": true, "httpTimeout": "1s",
        "tlsConfig": {"insecure": true}}]})
}

/// What `dapple extender config` prints.
async fn config_of_ours(hooked: &Hooked, at: SocketAddr) -> anyhow::Result<Value> {
    let (url, of, begun) = (format!("https://{at}"), ("dapple-system", SECRET), Instant::now());
    loop {
        match dapple_extend::config::config(&hooked.client, of, &url, 200, Env::system().now()).await {
            Ok(made) => return Ok(made.configuration),
            Err(error) => ensure!(begun.elapsed() < PATIENCE, "there are no certificates: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Starts a scheduler for pods that name it.
async fn scheduler(hooked: &Hooked, name: &str, mut config: Value) -> anyhow::Result<()> {
    let cluster = &hooked.cluster;
    let kubeconfig = cluster.kubeconfig_for("system:kube-scheduler", &[name]).await?;
    config["leaderElection"] = json!({"leaderElect": false});
    config["clientConnection"] = json!({"kubeconfig": kubeconfig, "qps": 500, "burst": 1000});
    config["profiles"] = json!([{"schedulerName": name}]);
    let file = cluster.dir().join(format!("{name}.config"));
    std::fs::write(&file, config.to_string())?;
    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await?;
    let port = cluster.choose_port()?;
    let args =
        [format!("--config={}", file.display()), "--bind-address=127.0.0.1".into(), format!("--secure-port={port}")];
    cluster.spawn_attached(name, binaries.path(Binary::KubeScheduler)?, &args, &[])?;
    Ok(())
}
