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
use dapple_control::metrics::Metrics;
use dapple_control::port::serve::{Greeting, Port};
use dapple_control::port::{Caller, Limits, Patience, Portion};
use futures::FutureExt;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::callers::Callers;
use crate::hooks::CONVERT;

/// The largest request: an object and the one before it, each as large as the API server takes it.
const LARGEST_BODY: usize = 8 << 20;
/// The largest conversion: whoever lists an older version has everything in the list converted at once.
const LARGEST_CONVERSION: usize = 64 << 20;
/// After a stop was asked for, callers are told to go elsewhere, and served, for so long.
pub const DRAIN: Duration = Duration::from_secs(8);

/// What callers get. An API server keeps at most 25 connections that it does not use for each of our webhooks, 300 in all,
/// and one more for each request under way: it fits into the half of the places that one address may have. It waits for an
/// answer no longer than five seconds.
pub const LIMITS: Limits = Limits {
    connections: Portion::halved(1_024),
    requests: Portion::halved(256),
    bytes: Portion::halved(4 * LARGEST_CONVERSION),
    largest: |path| if path == CONVERT { LARGEST_CONVERSION } else { LARGEST_BODY },
    patience: Patience::SERVER,
    answer_within: Duration::from_secs(5),
};

tokio::task_local! {
    static ANSWERING: Option<Caller>;
}

/// Whether this task answers a request: a panic in it concerns that request alone.
pub fn is_answering() -> bool {
    ANSWERING.try_with(|_| ()).is_ok()
}

/// Who is answered by this task, if anybody is.
pub(crate) fn caller() -> Option<Caller> {
    ANSWERING.try_with(|caller| *caller).ok().flatten()
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

/// What a port is for.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    /// What metrics call it.
    pub name: &'static str,
    /// Where whoever needs a certificate and shows none finds out how to get one.
    pub way_to_certificates: &'static str,
}

/// Webhooks.
const WEBHOOKS: Purpose =
    Purpose { name: "webhooks", way_to_certificates: "docs/admission.md says how an API server is made to send one" };

/// How to serve.
pub struct Server {
    /// What is served with.
    pub identity: Identity,
    /// Who has to show a certificate, if anybody has to.
    pub callers: Option<Callers>,
    /// What callers get.
    pub limits: Limits,
    /// Where to count.
    pub metrics: Arc<Metrics>,
}

impl Server {
    /// As a manager serves without being told more.
    pub fn new(identity: Identity) -> Self {
        Self { identity, callers: None, limits: LIMITS, metrics: Arc::default() }
    }

    /// Serves webhooks until stopped, and then until nobody is left waiting.
    pub async fn run(
        self,
        listener: TcpListener,
        routes: Router,
        stop: CancellationToken,
    ) -> Result<(), rustls::Error> {
        self.run_for(WEBHOOKS, listener, routes, stop).await
    }

    /// As [`Self::run`], for another purpose.
    pub async fn run_for(
        self,
        purpose: Purpose,
        listener: TcpListener,
        routes: Router,
        stop: CancellationToken,
    ) -> Result<(), rustls::Error> {
        let routes = guarded(routes, self.callers.is_some().then_some(purpose), stop.clone());
        let tls = Tls(TlsAcceptor::from(Arc::new(tls(self.identity, self.callers)?)));
        // Whoever still comes while others are told where we are not any more is served.
        let drained = async {
            stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        Port::new(purpose.name, self.limits, self.metrics).run(listener, tls, routes, drained).await;
        Ok(())
    }
}

fn tls(identity: Identity, callers: Option<Callers>) -> Result<ServerConfig, rustls::Error> {
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let config =
        ServerConfig::builder_with_provider(ring::default_provider().into()).with_protocol_versions(&versions)?;
    let Some(callers) = callers else {
        return Ok(config.with_no_client_auth().with_cert_resolver(Arc::new(identity)));
    };
    let mut config = config.with_client_cert_verifier(Arc::new(callers)).with_cert_resolver(Arc::new(identity));
    // Nobody goes on with what an authority vouched for that is not trusted any more.
    (config.session_storage, config.send_tls13_tickets) = (Arc::new(NoServerSessionStorage {}), 0);
    Ok(config)
}

/// The handshake.
#[derive(Clone)]
struct Tls(TlsAcceptor);

impl Greeting for Tls {
    type Stream = TlsStream<TcpStream>;

    async fn greet(&self, stream: TcpStream, address: SocketAddr) -> Option<(Self::Stream, bool)> {
        let stream = self.0.accept(stream).await.map_err(|error| log_handshake(address, &error)).ok()?;
        let is_known = stream.get_ref().1.peer_certificates().is_some();
        Some((stream, is_known))
    }
}

/// Callers that do not trust us are worth a line: their admissions fail. Those who only look whether we listen are not.
fn log_handshake(peer: SocketAddr, error: &io::Error) {
    if error.kind() == io::ErrorKind::InvalidData {
        warn!(%peer, %error, "no handshake: the caller does not take our certificate, or we do not take its own");
    } else {
        debug!(%peer, %error, "no handshake");
    }
}

/// What is done around every answer.
fn guarded(routes: Router, wants_certificates: Option<Purpose>, stop: CancellationToken) -> Router {
    let guard = move |request: Request, next: Next| {
        let stop = stop.clone();
        async move {
            let mut response = answer(request, next, wants_certificates).await;
            if stop.is_cancelled() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    routes.layer(middleware::from_fn(guard)).layer(axum::extract::DefaultBodyLimit::max(LARGEST_CONVERSION))
}

/// One answer, whatever happens.
async fn answer(request: Request<Body>, next: Next, wants_certificates: Option<Purpose>) -> Response {
    let path = request.uri().path().to_owned();
    let caller = request.extensions().get::<Caller>().copied();
    // An API server has no way to show a certificate when it has something converted, and nothing is asked of the cluster for
    // it.
    let is_known = path == CONVERT || caller.is_some_and(|caller| caller.is_known);
    if let Some(Purpose { way_to_certificates, .. }) = wants_certificates.filter(|_| !is_known) {
        let text = format!("a client certificate is needed here: {way_to_certificates}\n");
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    // What a request left half done is never looked at again: nothing is kept between two of them but finished verdicts.
    let work = std::panic::AssertUnwindSafe(ANSWERING.scope(caller, next.run(request))).catch_unwind();
    work.await.unwrap_or_else(|_| {
        error!(path, "a request could not be answered: this is a mistake in dapple");
        let text = "dapple made a mistake with this request; its log has more";
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    })
}
