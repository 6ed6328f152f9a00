//! Where another product's webhook changes an object after ours, the API server asks ours again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::routing::post;
use dapple_admit::authority::{authority, sign};
use dapple_admit::serve::{Identity, Server};
use dapple_control::env::Env;
use dapple_control::install::apply;
use dapple_plan::certificate::Span;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{eventually, text};
use crate::webhooks::{Hooked, set};

/// Takes the strategy away that ours has filled in.
fn spoil(_set: &Value) -> Value {
    json!([{"op": "add", "path": "/spec/updateStrategy", "value": {"type": "RollingUpdate"}}])
}

fn respond(review: &[u8], patch: fn(&Value) -> Value) -> Value {
    let review: Value = serde_json::from_slice(review).unwrap_or_default();
    let patch = patch(&review["request"]["object"]);
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
        "uid": review["request"]["uid"], "allowed": true,
        "patchType": "JSONPatch", "patch": ByteString(patch.to_string().into_bytes())}})
}

/// Serves a webhook of somebody else, which changes objects by a JSON patch. Returns how often it was asked, and its authority.
pub(crate) async fn other_product(
    front: SocketAddr,
    stop: CancellationToken,
    patch: fn(&Value) -> Value,
) -> (Arc<AtomicUsize>, String) {
    let span = Span::beginning(Env::system().now().as_second(), 3_600);
    let root = authority(span).unwrap();
    let pair = sign(&root.key, span, span, &["127.0.0.1".to_owned()]).unwrap();
    let identity = Identity::default();
    identity.set(&pair.certificate, &pair.key).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let answer = move |review: Bytes| async move {
        count.fetch_add(1, Ordering::Relaxed);
        ([("content-type", "application/json")], respond(&review, patch).to_string())
    };
    let routes = axum::Router::new().route("/", post(answer));
    let listener = tokio::net::TcpListener::bind(front).await.unwrap();
    tokio::spawn(Server::new(identity).run(listener, routes, stop));
    (asked, root.certificate)
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_are_stated_again_where_somebody_took_them_away() {
    let hooked = Hooked::start().await;
    let manager = hooked.replica();
    hooked.asked().await;
    let stop = CancellationToken::new();
    let front = SocketAddr::from(([127, 0, 0, 1], hooked.cluster.choose_port().unwrap()));
    let (asked, bundle) = other_product(front, stop.clone(), spoil).await;
    let late = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "zz-other-product"}, "webhooks": [{
            "name": "late.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://{front}/"), "caBundle": ByteString(bundle.into_bytes())},
            "rules": [{"apiGroups": ["apps.kruise.io"], "apiVersions": ["v1beta1"], "operations": ["CREATE"],
                "resources": ["daemonsets"]}]}]});
    apply(&hooked.client, &late).await.unwrap();
    let object = set("agent", "default", "v1beta1").to_string();
    eventually("the other product is asked, and ours after it", || async {
        let said = hooked.kubectl(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &object);
        let taken: Value = serde_json::from_slice(&said.stdout).map_err(|_| text(&said.stderr))?;
        let strategy = &taken["spec"]["updateStrategy"];
        if asked.load(Ordering::Relaxed) == 0 {
            return Err("not yet".to_owned());
        }
        // What ours says last is what is taken.
        let wanted = json!({"rollingUpdateType": "Standard", "maxUnavailable": 1, "maxSurge": 0, "partition": 0, "paused": false});
        assert_eq!(strategy["rollingUpdate"], wanted);
        Ok(())
    })
    .await;
    stop.cancel();
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}
