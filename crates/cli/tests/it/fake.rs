//! An API server that has a few objects and no more, for what commands print word for word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

/// The server.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Inner>);

struct Inner {
    answers: BTreeMap<String, Value>,
    conflicts: AtomicUsize,
    writes: Mutex<Vec<Value>>,
}

impl Fake {
    /// Starts one that answers these paths, and refuses the first `conflicts` writes because something was written in
    /// between. Says where its kubeconfig is.
    pub(crate) async fn start(answers: BTreeMap<String, Value>, conflicts: usize, folder: &Path) -> (Self, PathBuf) {
        let fake = Self(Arc::new(Inner { answers, conflicts: AtomicUsize::new(conflicts), writes: Mutex::default() }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(answer).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "edge"}}],
        });
        let path = folder.join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        (fake, path)
    }

    /// What was written.
    pub(crate) fn writes(&self) -> Vec<Value> {
        self.0.writes.lock().unwrap().clone()
    }
}

fn respond(code: StatusCode, value: &Value) -> Response {
    let builder = Response::builder().status(code).header("content-type", "application/json");
    builder.body(Body::from(value.to_string())).unwrap()
}

fn refused(code: StatusCode, reason: &str, name: &str) -> Response {
    let details = if name.is_empty() { json!({}) } else { json!({"name": name, "kind": "daemonsets"}) };
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason,
        "message": format!("{reason} {name}"), "code": code.as_u16(), "details": details});
    respond(code, &status)
}

async fn answer(State(Fake(fake)): State<Fake>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let Some(known) = fake.answers.get(&path) else {
        // A kind that is served and an object that is not there, or a kind that is not served.
        let (kind, name) = path.rsplit_once('/').unwrap_or_default();
        let name = if fake.answers.contains_key(kind) { name } else { "" };
        return refused(StatusCode::NOT_FOUND, "NotFound", name);
    };
    if known["kind"] == "Status" {
        return respond(StatusCode::FORBIDDEN, known);
    }
    if parts.method == Method::GET {
        return respond(StatusCode::OK, known);
    }
    let body = body.collect().await.unwrap().to_bytes();
    fake.writes.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    let is_refused = |left: usize| left.checked_sub(1);
    match fake.conflicts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_refused) {
        Ok(_) => refused(StatusCode::CONFLICT, "Conflict", "agent"),
        Err(_) => respond(StatusCode::OK, known),
    }
}
