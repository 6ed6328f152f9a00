//! The server: TLS with a certificate that can be changed while it runs, limits, and an end that fails nobody.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, warn};

use crate::hooks::CONVERT;

/// Connections at once. Each API server keeps a few dozen at most.
const MOST_CONNECTIONS: usize = 1_024;
/// Requests that are answered at once; more wait.
const AT_ONCE: usize = 64;
/// The largest request: an object and the one before it, each as large as the API server takes it.
const LARGEST_BODY: usize = 8 << 20;
/// The largest conversion: whoever lists an older version has everything in the list converted at once.
const LARGEST_CONVERSION: usize = 64 << 20;
/// A caller that does not finish its handshake in this time is let go.
const PATIENCE: Duration = Duration::from_secs(5);
/// And so is one that has not sent the headers of a first request in this time after it: places are for those who ask.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// A connection that has been used and is not for so long is let go.
const IDLE: Duration = Duration::from_secs(300);
/// The time for one answer. The API server waits no longer than this.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// After a stop was asked for, callers are told to go elsewhere, and served, for so long.
pub const DRAIN: Duration = Duration::from_secs(8);
/// And then, what is under way may end.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

tokio::task_local! {
    static ANSWERING: ();
}

/// Whether this task answers a request: a panic in it concerns that request alone.
pub fn is_answering() -> bool {
    ANSWERING.try_with(|()| ()).is_ok()
}

/// Why a certificate cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// It is not PEM.
    #[error("not PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// It and its key do not belong together, or are of a kind that is not known.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// What is served with. It can be changed at any time: connections that are open stay as they are.
#[derive(Debug, Default, Clone)]
pub struct Identity(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Identity {
    /// Serves with this certificate from now on.
    pub fn set(&self, certificate: &str, key: &str) -> Result<(), BadCertificate> {
        let key = Arc::new(certified_key(certificate, key)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(())
    }

    /// Whether there is anything to serve with.
    pub fn is_set(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A certificate and its key, checked to belong together.
pub(crate) fn certified_key(certificate: &str, key: &str) -> Result<CertifiedKey, BadCertificate> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
}

/// Serves the routes until stopped, and then until nobody is left waiting.
pub async fn run(
    listener: TcpListener,
    identity: Identity,
    routes: Router,
    stop: CancellationToken,
) -> Result<(), rustls::Error> {
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(identity));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let routes = guarded(routes, stop.clone());
    let (connections, places) = (TaskTracker::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    let closing = CancellationToken::new();
    let accept = async {
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let serve = connection(stream, peer, acceptor.clone(), routes.clone(), closing.clone());
                    connections.spawn(async move {
                        serve.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    // Whoever still comes while others are told where we are not any more is served.
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! { biased; () = drained => {}, () = accept => {} }
    closing.cancel();
    connections.close();
    if tokio::time::timeout(LAST_ANSWERS, connections.wait()).await.is_err() {
        warn!("some callers did not take their answers in time");
    }
    Ok(())
}

/// One connection, from handshake to end.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    routes: Router,
    closing: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return log_handshake(peer, &error),
        Err(_) => return debug!(%peer, "no handshake in time"),
    };
    let mut http = hyper::server::conn::http1::Builder::new();
    // Longer than an API server keeps a connection that it does not use: it ends it first, and loses no request by it.
    http.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let (routes, has_asked) = (TowerToHyperService::new(routes), CancellationToken::new());
    let asks = has_asked.clone();
    let service = service_fn(move |request| {
        asks.cancel();
        routes.call(request)
    });
    let serving = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let first = async {
        if tokio::time::timeout(FIRST_WITHIN, has_asked.cancelled()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => ended,
        () = first => return debug!(%peer, "no request in time"),
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        debug!(%peer, %error, "a connection broke");
    }
}

/// Callers that do not trust us are worth a line: their admissions fail. Those who only look whether we listen are not.
fn log_handshake(peer: SocketAddr, error: &io::Error) {
    if error.kind() == io::ErrorKind::InvalidData {
        warn!(%peer, %error, "a caller does not take our certificate");
    } else {
        debug!(%peer, %error, "no handshake");
    }
}

/// Limits around every answer.
fn guarded(routes: Router, stop: CancellationToken) -> Router {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let guard = move |request: Request, next: Next| {
        let (places, stop) = (places.clone(), stop.clone());
        async move {
            let mut response = answer(request, next, &places).await;
            if stop.is_cancelled() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    routes.layer(middleware::from_fn(guard)).layer(axum::extract::DefaultBodyLimit::max(LARGEST_CONVERSION))
}

/// One answer: in time, and whatever happens.
async fn answer(request: Request<Body>, next: Next, places: &Semaphore) -> Response {
    let path = request.uri().path().to_owned();
    let work = async {
        // A body that comes slowly takes up nobody's place.
        let (parts, body) = request.into_parts();
        let most = if parts.uri.path() == CONVERT { LARGEST_CONVERSION } else { LARGEST_BODY };
        let Ok(body) = axum::body::to_bytes(body, most).await else {
            let text = format!("a request may have {most} bytes, and has to come whole\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        };
        let _place = places.acquire().await;
        next.run(Request::from_parts(parts, body.into())).await
    };
    // What a request left half done is never looked at again: nothing is kept between two of them but finished verdicts.
    let work = std::panic::AssertUnwindSafe(ANSWERING.scope((), work)).catch_unwind();
    match tokio::time::timeout(ANSWER_WITHIN, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            error!(path, "a request could not be answered: this is a mistake in dapple");
            let text = "dapple made a mistake with this request; its log has more";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
        Err(_) => {
            warn!(path, ?ANSWER_WITHIN, "a request was not answered in time");
            (StatusCode::SERVICE_UNAVAILABLE, "not answered in time").into_response()
        }
    }
}
