//! A webhook of pods that does not answer: what it would say of a new pod nobody knows, so no pod that works makes room for
//! one. Everything else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::steps::with_image;
use super::story::{Story, changed, look_at, rolling};
use super::watch::{Invariants, watch};
use crate::support::eventually;

const WEBHOOK: &str = "pods.left-behind.example.com";

async fn webhooks(story: &Story, kind: &str) -> Api<DynamicObject> {
    let client = story.cluster.client().await.unwrap();
    Api::all_with(client, &ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind)))
}

/// Registers a webhook for new pods of the story whose service is gone, and waits until it is asked.
async fn register(story: &Story, kind: &str) {
    let gone = json!({"service": {"name": "webhook-service", "namespace": "left-behind", "path": "/pods"}});
    register_at(story, kind, gone).await;
}

/// As [`register`], with a webhook that is served there, or not.
async fn register_at(story: &Story, kind: &str, server: Value) {
    let webhook = json!({
        "name": WEBHOOK, "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": story.name}},
        "clientConfig": server,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
    });
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": story.name}, "webhooks": [webhook]});
    let object = serde_json::from_value(object).unwrap();
    webhooks(story, kind).await.create(&PostParams::default(), &object).await.expect("the webhook is registered");
    answers(story, false).await;
}

async fn remove(story: &Story, kind: &str) {
    webhooks(story, kind).await.delete(&story.name, &DeleteParams::default()).await.expect("the webhook is removed");
    answers(story, true).await;
}

/// Waits until pods can be made, or cannot.
async fn answers(story: &Story, expected: bool) {
    let probe = json!({"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "c"}]}});
    let probe: Pod = serde_json::from_value(probe).unwrap();
    eventually(&format!("{}: whether pods are taken is {expected}", story.name), || async {
        let only_asking = PostParams { dry_run: true, ..PostParams::default() };
        match story.pods.create(&only_asking, &probe).await {
            Ok(_) if expected => Ok(()),
            Err(error) if !expected && error.to_string().contains(WEBHOOK) => Ok(()),
            answer => Err(format!("{:?}", answer.map(|_| "taken"))),
        }
    })
    .await;
}

/// Waits until the status, of this generation, says that something is wrong, with all of these.
pub(super) async fn complains(story: &Story, parts: &[&str]) {
    let is_it = |known: &Value| {
        let message = known["message"].as_str().unwrap_or_default();
        known["type"] == "Degraded" && known["status"] == "True" && parts.iter().all(|part| message.contains(part))
    };
    let complains = |status: &Value| status["conditions"].as_array().is_some_and(|all| all.iter().any(is_it));
    story.status(&format!("it complains of {parts:?}"), complains).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_working_pod_goes_and_the_rest_goes_on() {
    let story = Story::new("no-answer").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 2}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let before = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    register(&story, "ValidatingWebhookConfiguration").await;

    story.apply(&set("agent:2")).await;
    complains(&story, &[WEBHOOK]).await;
    story.nothing_changes(&first).await;
    let told = story.status("it is told all the same", |status| status["numberAvailable"] == 6).await;
    assert_ne!(told["updateRevision"], before["updateRevision"]);
    // A pod that is missing is tried, and one that should not be there goes.
    story.delete_pod(&first["small-001"].name).await;
    story.event(&[WEBHOOK, &story.node("small-001")]).await;
    story.change_node("large-000", json!({"metadata": {"labels": {"story": "another"}}})).await;
    let left = story.pods_are("two are gone", |seen| seen.len() == 4).await;
    assert_eq!(with_image(&left, "agent:1"), ["large-001", "small-000", "small-002", "small-003"]);
    story.status("five are wanted", |status| status["desiredNumberScheduled"] == 5).await;

    let watched = watch(&story, Invariants { budget: None, most_on_a_node: 1, untouched: vec![] }).await;
    remove(&story, "ValidatingWebhookConfiguration").await;
    story.have_image(5, "agent:2").await;
    story.condition("Degraded", "False", "AsExpected").await;
    story.condition("Progressing", "False", "Complete").await;
    watched.finish().await;
}

/// How long a webhook's server says nothing before it hangs up: long enough for two pods to go meanwhile.
const SILENCE: Duration = Duration::from_secs(3);

/// A webhook's server that answers no call, and how many there were at once.
#[derive(Default)]
struct Calls {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Calls {
    /// Serves for as long as the test runs; returns where.
    async fn serve(self: &Arc<Self>) -> Value {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let calls = calls.clone();
                let now = calls.now.fetch_add(1, Ordering::SeqCst) + 1;
                calls.most.fetch_max(now, Ordering::SeqCst);
                tokio::spawn(async move {
                    tokio::time::sleep(SILENCE).await;
                    // Before whoever waits knows, and asks for the next one.
                    calls.now.fetch_sub(1, Ordering::SeqCst);
                    drop(stream);
                });
            }
        });
        json!({"url": format!("https://{address}/pods")})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_missing_are_tried_one_at_a_time() {
    let story = Story::new("no-answer-two").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 6}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let calls = Arc::new(Calls::default());
    register_at(&story, "ValidatingWebhookConfiguration", calls.serve().await).await;
    story.apply(&set("agent:2")).await;
    complains(&story, &[WEBHOOK]).await;
    // While the manager waits for the answer to its question: it finds both missing at once.
    eventually("it asks again", || async {
        if calls.now.load(Ordering::SeqCst) > 0 { Ok(()) } else { Err("it does not".to_owned()) }
    })
    .await;
    for node in ["small-000", "small-003"] {
        story.delete_pod(&first[node].name).await;
    }
    for node in ["small-000", "small-003"] {
        story.event(&["cannot be made", WEBHOOK, &story.node(node)]).await;
    }
    assert_eq!(calls.most.load(Ordering::SeqCst), 1, "each alone, and no question beside them");
    let left = story.pods_are("no other goes", |seen| seen.len() == 4).await;
    assert_eq!(with_image(&left, "agent:1"), ["large-000", "large-001", "small-001", "small-002"]);
    remove(&story, "ValidatingWebhookConfiguration").await;
    story.have_image(6, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_a_second_pod_beside_one_that_works() {
    let story = Story::new("no-answer-surge").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxSurge": 2}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    register(&story, "MutatingWebhookConfiguration").await;
    story.apply(&set("agent:2")).await;
    complains(&story, &[WEBHOOK]).await;
    story.nothing_changes(&first).await;
    remove(&story, "MutatingWebhookConfiguration").await;
    let last = story.have_image(6, "agent:2").await;
    assert_eq!(changed(&first, &last).len(), 6);
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_in_place_and_gates_go_on() {
    let story = Story::new("no-answer-in-place").await;
    let set = |image: &str| {
        let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 2}));
        story.set(image, json!({"updateStrategy": strategy}))
    };
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    register(&story, "MutatingWebhookConfiguration").await;
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    // With its gates open again: a pod whose gate is closed is not ready.
    let second = story.have_image(6, "agent:2").await;
    assert_eq!(changed(&first, &second), Vec::<String>::new(), "every pod is the same one");
    watched.finish().await;
    story.status("all have it", |status| status["updatedNumberScheduled"] == 6 && status["numberAvailable"] == 6).await;

    // What would need a new pod waits.
    let mut other = set("agent:2");
    other["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("1Ti");
    story.apply(&other).await;
    complains(&story, &[WEBHOOK]).await;
    story.nothing_changes(&second).await;
    remove(&story, "MutatingWebhookConfiguration").await;
    story.pods_are("all have more", |seen| seen.values().filter(|pod| pod.cache == "1Ti").count() == 6).await;
    let pods = story.pods.list(&ListParams::default()).await.unwrap();
    assert!(pods.iter().all(|pod| look_at(pod).image == "agent:2" && pod.labels().contains_key("app")));
}
