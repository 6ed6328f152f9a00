//! How long the webhook for DaemonSets takes, asked straight: no API server and no balancer in between.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use dapple_bench::fleet::until;
use dapple_bench::goals::check;
use dapple_bench::kinds::{self, node, patch};
use dapple_bench::objects::pod_template;
use dapple_testbed::trusting;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use dapple_bench::hooked::{Hooked, Manager, set, trusted};
use dapple_bench::load::{Pace, Times, load, told};

const NODES: u32 = 10_000;
/// Nodes that are made at once.
const AT_ONCE: usize = 16;
const CACHED: Pace = Pace { per_second: 200, seconds: 30 };
const COLD: Pace = Pace { per_second: 20, seconds: 20 };
/// Of the 99th percentile, with verdicts that are remembered.
const LIMIT: Duration = Duration::from_millis(5);

/// What the webhook said of a set.
pub(crate) struct Said {
    is_allowed: bool,
    /// Whether the API server answered what it was asked.
    is_sure: bool,
    /// Whether there was nothing left to ask.
    is_whole: bool,
    text: String,
}

pub(crate) async fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let hooked = Hooked::start(1).await?;
    make_nodes(&hooked.client).await?;
    let manager = hooked.replica(0, &[])?;
    hooked.asked().await?;
    // As the API server would send it: with defaults, and with who manages which field.
    let object = hooked.admit(&ten_patches()).await?;
    let webhook = Webhook::new(&hooked).await?;
    let bytes = review(&object, 0, None).len();
    println!("\nlatency: a DaemonSet with ten patches, {NODES} nodes of 36 kinds, reviews of {bytes} bytes");
    until("every kind of pod is known", || async {
        let said = webhook.ask(review(&object, 0, None)).await?;
        Ok(said.is_sure && said.is_whole)
    })
    .await?;
    // What the same server, machine and caller take for an answer without any thought.
    let asked = webhook.clone();
    let bare = load(Pace { seconds: 10, ..CACHED }, move |_| asked.clone().healthz()).await?;
    println!("  a bare answer of the same server, {} a second: {}", CACHED.per_second, Times::of(times(&bare)));
    let cached = measure(&webhook, &manager, &object, "cached", CACHED, missed).await?;
    let ratio = cached.p99.as_secs_f64() / LIMIT.as_secs_f64();
    check(missed, format!("cached, p99 / limit of {} ms: {ratio:.2}", LIMIT.as_millis()), ratio <= 1.0);
    measure(&webhook, &manager, &object, "cold", COLD, missed).await?;
    drop(manager);
    hooked.stop().await
}

fn times<T>(answers: &[(Duration, T)]) -> impl Iterator<Item = Duration> {
    answers.iter().map(|(took, _)| *took)
}

/// Asks at a pace, and prints what it took. Not one may fail.
async fn measure(
    webhook: &Arc<Webhook>,
    manager: &Manager,
    object: &Value,
    name: &'static str,
    pace: Pace,
    missed: &mut Vec<String>,
) -> anyhow::Result<Times> {
    let before = manager.used()?;
    let (asked, object) = (webhook.clone(), object.clone());
    let answers = load(pace, move |number| {
        // Another template means that nothing is known of what comes of it.
        let image = (name == "cold").then(|| format!("registry.example.com/agent/agent:v2.{number}.0"));
        let (webhook, body) = (asked.clone(), review(&object, number, image));
        async move { webhook.ask(body).await }
    })
    .await?;
    let used = manager.used()?;
    let (mut failures, mut unsure) = (Vec::new(), 0);
    for (_, said) in &answers {
        match said {
            Ok(said) if said.is_allowed => unsure += usize::from(!said.is_sure),
            Ok(said) => failures.push(said.text.clone()),
            Err(error) => failures.push(error.to_string()),
        }
    }
    let times = Times::of(times(&answers));
    let (requests, cpu) = (answers.len(), (used.cpu - before.cpu).as_secs_f64() * 1e3);
    println!(
        "  {name}, {} a second for {} s: {times}, CPU of the manager {:.2} ms a request, memory {} MB",
        pace.per_second,
        pace.seconds,
        cpu / requests as f64,
        used.rss >> 20,
    );
    println!("  {name}, allowed before the API server had answered everything: {unsure} of {requests}");
    let text = format!("{name}, failed: {} of {requests}{}", failures.len(), told(&failures));
    check(missed, text, failures.is_empty());
    Ok(times)
}

/// Nodes that are ready and that nobody plays.
async fn make_nodes(client: &Client) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let make = |number: u32| {
        let mut node = node(number, kinds::labels(number));
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        let (api, node) = (api.clone(), serde_json::from_value::<Node>(node));
        async move { anyhow::Ok(api.create(&PostParams::default(), &node?).await.map(|_| ())?) }
    };
    stream::iter((0..NODES).map(make)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    // Each is tainted until the controller manager has seen that it is ready.
    until("every node is as it will be", || async {
        let all = api.list(&ListParams::default()).await?;
        let is_tainted = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(!all.iter().any(is_tainted))
    })
    .await
}

fn ten_patches() -> Value {
    let mut object = set("agent", json!({"app": "agent"}));
    let mut template = pod_template(3);
    template["metadata"]["labels"]["app"] = "agent".into();
    // Three containers with one port do not go together in the network of a node.
    template["spec"]["hostNetwork"] = false.into();
    object["spec"]["template"] = template;
    let patches = kinds::SELECTED.iter().enumerate().map(|(number, selected)| {
        let mut patch = patch(number, *selected);
        // All alike, as most people leave them: so it has to be found which of them are in each other's way.
        patch["priority"] = 0.into();
        patch
    });
    object["spec"]["patches"] = patches.collect();
    object
}

/// What the API server would send about a new set.
pub(crate) fn review(object: &Value, number: u32, image: Option<String>) -> Vec<u8> {
    let mut object = object.clone();
    let (name, uid) = (format!("agent-{number}"), format!("{number:08x}-5b1c-4c7e-9f3a-0123456789ab"));
    (object["metadata"]["name"], object["metadata"]["uid"]) = (json!(name), json!(uid));
    if let Some(image) = image {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    }
    let kind = json!({"group": "apps.kruise.io", "version": "v1beta1", "kind": "DaemonSet"});
    let resource = json!({"group": "apps.kruise.io", "version": "v1beta1", "resource": "daemonsets"});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": uid, "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
        "name": name, "namespace": "default", "operation": "CREATE", "dryRun": false, "object": object, "oldObject": null,
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "fieldManager": "kubectl-create"}}});
    review.to_string().into_bytes()
}

/// The webhook of a replica.
pub(crate) struct Webhook(Client);

impl Webhook {
    /// Trusts what the API server is told to trust, and nothing else.
    pub(crate) async fn new(hooked: &Hooked) -> anyhow::Result<Arc<Self>> {
        let authority = serde_json::from_value(trusted(&hooked.client).await?)?;
        let client = trusting(hooked.backends[0].address, &authority).await?;
        Ok(Arc::new(Self(client)))
    }

    pub(crate) async fn ask(&self, body: Vec<u8>) -> anyhow::Result<Said> {
        let request = Request::post("/validate-daemonset-patches").header("content-type", "application/json");
        let answer: Value = serde_json::from_str(&self.0.request_text(request.body(body)?).await?)?;
        let text = answer["response"].to_string();
        let is_allowed = answer["response"]["allowed"].as_bool().context("no answer")?;
        let (is_sure, is_whole) = (!text.contains("did not say whether"), !text.contains("further kinds of pods"));
        Ok(Said { is_allowed, is_sure, is_whole, text })
    }

    async fn healthz(self: Arc<Self>) -> anyhow::Result<()> {
        let said = self.0.request_text(Request::get("/healthz").body(Vec::new())?).await?;
        ensure!(said == "ok\n", "it said {said:?}");
        Ok(())
    }
}
