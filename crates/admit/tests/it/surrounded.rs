//! What webhooks know of the cluster before they are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dapple_admit::surroundings::Surroundings;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::caches;

/// A cluster with one node, that has none of our kinds, and lists nodes only when it is told to.
fn api_server(lists_nodes: Arc<AtomicBool>) -> Client {
    let status = |code: u16| {
        (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "not now"}))
    };
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let (code, answer) = match request.uri().path() {
            "/api/v1/nodes" if !lists_nodes.load(Ordering::Relaxed) || query.contains("watch=") => status(503),
            "/api/v1/nodes" => {
                let node = json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}});
                let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                    "items": [node]});
                (200, list)
            }
            _ => status(404),
        };
        let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
        std::future::ready(answer)
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn nobody_judges_before_nodes_are_known() {
    let lists_nodes = Arc::new(AtomicBool::new(false));
    let stop = CancellationToken::new();
    let known = Surroundings::start(&caches(api_server(lists_nodes.clone()), &stop), &stop);
    assert!(timeout(Duration::from_secs(600), known.read_once()).await.is_err(), "there may be nodes");
    lists_nodes.store(true, Ordering::Relaxed);
    timeout(Duration::from_secs(600), known.read_once())
        .await
        .expect("kinds that are not installed are not waited for");
    assert!(known.census().has("a"));
    assert!(known.may_have_group("any") && known.may_have_pool("any"), "nobody knows");
    stop.cancel();
}
