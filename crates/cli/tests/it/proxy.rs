//! A proxy before the API server that can hold a write back, as a slow network would, or all that watches tell, and remembers what
//! passed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::json;
use tokio::sync::{Notify, watch};

/// The proxy. It passes everything on with the rights of `client`.
#[derive(Clone)]
pub(crate) struct Proxy(Arc<Inner>);

struct Inner {
    client: Client,
    hold_status_writes: AtomicBool,
    held: Notify,
    release: Notify,
    /// Whether watches tell nothing.
    is_frozen: watch::Sender<bool>,
    /// Writes other than to the lease, with the API server's answer.
    writes: Mutex<Vec<(String, StatusCode)>>,
}

impl Proxy {
    /// Starts to listen.
    pub(crate) async fn start(client: Client) -> (Self, SocketAddr) {
        let inner = Inner {
            client,
            hold_status_writes: AtomicBool::new(false),
            held: Notify::new(),
            release: Notify::new(),
            is_frozen: watch::Sender::new(false),
            writes: Mutex::default(),
        };
        let proxy = Self(Arc::new(inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(pass).with_state(proxy.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (proxy, address)
    }

    /// From now on, writes of a status are held.
    pub(crate) fn hold(&self) {
        self.0.hold_status_writes.store(true, Ordering::SeqCst);
    }

    /// Waits until a write is held.
    pub(crate) async fn held(&self) {
        self.0.held.notified().await;
    }

    /// Lets the held write go on, and holds no more.
    pub(crate) fn release(&self) {
        self.0.hold_status_writes.store(false, Ordering::SeqCst);
        self.0.release.notify_one();
    }

    /// From now on watches tell nothing, or go on with what they have not told.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.0.is_frozen.send_replace(is_frozen);
    }

    /// Writes other than to the lease so far, with the API server's answer.
    pub(crate) fn writes(&self) -> Vec<(String, StatusCode)> {
        self.0.writes.lock().unwrap().clone()
    }
}

impl Inner {
    /// Waits while watches are frozen.
    async fn thaws(&self) {
        // The sender is ours: this ends when they go on.
        let _ = self.is_frozen.subscribe().wait_for(|is_frozen| !is_frozen).await;
    }
}

async fn pass(State(Proxy(proxy)): State<Proxy>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(http::header::HOST);
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.path().to_owned();
    let is_watch = parts.uri.query().unwrap_or_default().contains("watch=true");
    let is_write = parts.method != Method::GET && !path.contains("/leases");
    if is_write && path.ends_with("/status") && proxy.hold_status_writes.load(Ordering::SeqCst) {
        proxy.held.notify_one();
        proxy.release.notified().await;
    }
    let answer = proxy.client.send(http::Request::from_parts(parts, body.to_vec().into())).await.unwrap();
    if is_write {
        proxy.writes.lock().unwrap().push((path, answer.status()));
    }
    let answer = answer.map(Body::new);
    if !is_watch {
        return answer;
    }
    let held = move |part| {
        let proxy = proxy.clone();
        async move {
            proxy.thaws().await;
            part
        }
    };
    answer.map(|body| Body::from_stream(body.into_data_stream().then(held)))
}

/// A kubeconfig that leads to the proxy.
pub(crate) fn kubeconfig(folder: &Path, address: SocketAddr) -> PathBuf {
    let path = folder.join("proxy.kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "none"}}],
        "users": [{"name": "none", "user": {}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}
