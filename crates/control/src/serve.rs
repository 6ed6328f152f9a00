//! `/healthz`, `/readyz` and `/metrics`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::port::serve::{Plain, Port};
use crate::port::{Limits, Patience, Portion};

/// Probes and scrapers are few, and everything is answered at once.
const LIMITS: Limits = Limits {
    connections: Portion::halved(256),
    requests: Portion::halved(16),
    bytes: Portion::halved(1 << 20),
    largest: |_| 16 << 10,
    patience: Patience::SERVER,
    answer_within: Duration::from_secs(5),
};

/// What has to be there before the process is ready, and whether it is.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    parts: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

impl Readiness {
    /// Notes whether a part is ready.
    pub fn note(&self, part: &'static str, ready: bool) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(part, ready);
    }

    fn answer(&self) -> (StatusCode, String) {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: Vec<_> = parts.iter().filter(|(_, ready)| !**ready).map(|(part, _)| *part).collect();
        if waiting.is_empty() {
            (StatusCode::OK, "ok\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for the first full view of: {}\n", waiting.join(", ")))
        }
    }
}

/// The address is in use, or not ours to listen on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another with {flag}")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
    flag: &'static str,
}

/// Listens on `address`. Done before anything else, so that a taken port ends the process at once.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    listen_for(address, "--listen").await
}

/// As [`listen`], where another flag says the address.
pub async fn listen_for(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source, flag })
}

/// Answers until stopped.
pub async fn run(listener: TcpListener, readiness: Readiness, metrics: Arc<Metrics>, stop: CancellationToken) {
    let port = Port::new("metrics", LIMITS, metrics.clone());
    let metrics_text = move || async move {
        match metrics.text() {
            Ok(text) => {
                (StatusCode::OK, [("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [("content-type", "text/plain")], error.to_string()),
        }
    };
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { readiness.answer() }))
        .route("/metrics", get(metrics_text));
    port.run(listener, Plain, router, stop.cancelled_owned()).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn readiness_names_what_is_missing() {
        let readiness = Readiness::default();
        assert_eq!(readiness.answer().0, StatusCode::OK);
        readiness.note("group", false);
        assert_eq!(
            readiness.answer(),
            (StatusCode::SERVICE_UNAVAILABLE, "waiting for the first full view of: group\n".into())
        );
        readiness.note("group", true);
        assert_eq!(readiness.answer().0, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("any port");
        let taken = first.local_addr().expect("it listens");
        let error = listen(taken).await.expect_err("it is taken").to_string();
        assert!(error.contains(&taken.to_string()) && error.contains("--listen"), "{error}");
    }

    #[tokio::test]
    async fn holders_of_every_place_keep_no_probe_out() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("any port");
        let (address, stop) = (listener.local_addr().expect("it listens"), CancellationToken::new());
        tokio::spawn(run(listener, Readiness::default(), Arc::default(), stop.clone()));
        let mut holders = Vec::new();
        for _ in 0..LIMITS.connections.most + 8 {
            holders.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let mut probe = TcpStream::connect(address).await.expect("it listens");
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("it is taken");
        let mut answer = String::new();
        let answered = tokio::time::timeout(Duration::from_secs(20), probe.read_to_string(&mut answer)).await;
        assert!(matches!(answered, Ok(Ok(_))) && answer.ends_with("ok\n"), "{answered:?} {answer}");
        stop.cancel();
    }
}
