//! Callers that nobody asked to come, and those that the server is for.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use dapple_admit::callers::Callers;
use dapple_admit::secret::Contents;
use dapple_admit::serve::{Identity, LIMITS, Server};
use dapple_control::port::{Limits, Patience, Portion};
use dapple_plan::certificate::Lifetimes;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

use crate::judged::{Cluster, errors, set};
use crate::served::{ask, pair};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);

fn small() -> Limits {
    let patience = Patience { half_sent: LONG, silent: LONG, idle: LONG, idle_known: LONG, taking: LONG };
    Limits { connections: Portion::halved(8), patience, ..LIMITS }
}

struct Served {
    address: SocketAddr,
    bundle: String,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(limits: Limits, callers: Option<Callers>, routes: Router) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, identity, stop) = (listener.local_addr().unwrap(), Identity::default(), CancellationToken::new());
    let (bundle, certificate, key) = pair();
    identity.set(&certificate, &key).unwrap();
    let server = Server { limits, callers, ..Server::new(identity) };
    tokio::spawn(server.run(listener, routes, stop.clone()));
    Served { address, bundle, stop }
}

fn hello() -> Router {
    let echo = post(|body: String| async move { body });
    Router::new().route("/", get(|| async { "hello" })).route("/convert", echo.clone()).route("/echo", echo)
}

impl Served {
    /// A connection from 127.0.0.`peer`, before its handshake.
    async fn reach(&self, peer: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, peer), 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn connect(&self, peer: u8, shown: Option<&(String, String)>) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.bundle.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        let stream = self.reach(peer).await;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }
}

#[tokio::test]
async fn holders_of_every_place_keep_nobody_out() {
    let served = serve(small(), None, hello()).await;
    let mut used = served.connect(1, None).await.unwrap();
    assert!(ask(&mut used, "GET", "/", b"").await.unwrap().ends_with("hello"));
    let mut holders = Vec::new();
    for number in 0..24 {
        // Some without a handshake, some with.
        holders.push(served.reach(2 + number % 4).await);
        drop(served.connect(2 + number % 4, None).await.map(|stream| holders.push(stream.into_inner().0)));
    }
    for _ in 0..10 {
        let mut stream = served.connect(1, None).await.unwrap();
        assert!(ask(&mut stream, "GET", "/", b"").await.unwrap().ends_with("hello"));
    }
    assert!(ask(&mut used, "GET", "/", b"").await.unwrap().ends_with("hello"), "who has asked goes last");
}

#[tokio::test]
async fn what_is_half_sent_is_cut() {
    let patience = Patience { half_sent: SHORT, ..small().patience };
    let served = serve(Limits { patience, ..small() }, None, hello()).await;
    let mut handshake = served.reach(1).await;
    // The beginning of a record that never ends.
    handshake.write_all(&[22, 3, 1, 1, 0, 1]).await.unwrap();
    let ended = tokio::time::timeout(LONG, handshake.read(&mut [0; 64])).await;
    assert!(!matches!(ended.expect("an unfinished handshake ends"), Ok(1..)));
    for text in ["GET / HTTP/1.1\r\nHost: ", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"] {
        let mut stream = served.connect(1, None).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let ended = tokio::time::timeout(LONG, stream.read(&mut [0; 64])).await;
        assert!(!matches!(ended.expect("half a request ends"), Ok(1..)), "{text:?}");
    }
}

/// An authority, and what signs certificates of it.
fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

fn signed(by: &Issuer<'static, KeyPair>) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "an API server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

/// A file that is gone with the test.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn only_who_shows_a_certificate_is_answered() {
    let (ours, signs) = authority("ours");
    let (theirs, forges) = authority("theirs");
    let file = File(std::env::temp_dir().join(format!("dapple-client-ca-{}.pem", std::process::id())));
    std::fs::write(&file.0, &ours).unwrap();
    let callers = Callers::of(file.0.clone()).unwrap();
    let served = serve(small(), Some(callers.clone()), hello()).await;
    let (good, forged) = (signed(&signs), signed(&forges));
    let mut known = served.connect(1, Some(&good)).await.unwrap();
    assert!(ask(&mut known, "GET", "/", b"").await.unwrap().ends_with("hello"));
    let mut without = served.connect(1, None).await.unwrap();
    let refusal = ask(&mut without, "POST", "/echo", b"abc").await.unwrap();
    assert!(refusal.starts_with("http/1.1 403") && refusal.contains("client certificate"), "{refusal}");
    // API servers send none there.
    assert!(ask(&mut without, "POST", "/convert", b"abc").await.unwrap().ends_with("abc"));
    let answer = match served.connect(1, Some(&forged)).await {
        Ok(mut stream) => ask(&mut stream, "GET", "/", b"").await,
        Err(error) => Err(error),
    };
    assert!(answer.is_err(), "another's signature: {answer:?}");
    // Another authority takes the place of the first.
    std::fs::write(&file.0, &theirs).unwrap();
    assert!(callers.refresh().unwrap() && !callers.refresh().unwrap());
    let mut now_known = served.connect(1, Some(&forged)).await.unwrap();
    assert!(ask(&mut now_known, "GET", "/", b"").await.unwrap().ends_with("hello"));
    std::fs::write(&file.0, "nonsense").unwrap();
    assert!(callers.refresh().is_err());
    let mut still_known = served.connect(1, Some(&forged)).await.unwrap();
    assert!(
        ask(&mut still_known, "GET", "/", b"").await.unwrap().ends_with("hello"),
        "what cannot be read changes nothing"
    );
}

/// Of the two seconds that a question may take, so much is not to be spent waiting for a processor: if it is, others on this
/// machine have the rest, and the question says nothing of strangers.
const STARVED: Duration = Duration::from_millis(500);

/// How long this thread, which does everything here, has waited for a processor so far.
fn waited() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').nth(1).unwrap().parse().unwrap())
}

/// As many questions as the API server can take, all at once and new each time, from strangers at the same address as the one
/// who makes a mistake.
#[tokio::test]
async fn a_crowd_of_strangers_gets_no_mistake_through() {
    let cluster = Arc::new(Cluster::slow());
    let number = Arc::new(AtomicUsize::new(0));
    let judge = post(move |body: String| {
        let (cluster, number) = (cluster.clone(), number.fetch_add(1, Ordering::Relaxed));
        async move {
            // Nobody matches these, so each is asked about alone.
            let env = |place: usize| serde_json::json!([{"name": "N", "value": format!("{number}-{place}")}]);
            let patch =
                |place: usize| crate::judged::patch(crate::judged::NOBODY, serde_json::json!({"env": env(place)}));
            let mut set = set((0..10).map(patch).collect());
            if body == "typo" {
                set.spec.template.0["spec"]["containers"][0]["envv"] = serde_json::json!([{"name": env(0)}]);
            }
            errors(&cluster.judge(&set, None).await).len().to_string()
        }
    });
    let served = Arc::new(serve(LIMITS, None, Router::new().route("/judge", judge)).await);
    let strangers: Vec<_> = (0..24)
        .map(|_| {
            let served = served.clone();
            tokio::spawn(async move {
                let mut stream = served.connect(1, None).await.unwrap();
                while ask(&mut stream, "POST", "/judge", b"sound").await.is_ok() {}
            })
        })
        .collect();
    tokio::time::sleep(SHORT).await;
    let mut honest = served.connect(1, None).await.unwrap();
    let is_found = |answer: &str| answer.starts_with("http/1.1 200") && !answer.ends_with("\r\n\r\n0");
    for _ in 0..5 {
        let mut answer = String::new();
        for _ in 0..10 {
            let before = waited();
            answer = ask(&mut honest, "POST", "/judge", b"typo").await.unwrap();
            if is_found(&answer) || waited() - before < STARVED {
                break;
            }
        }
        assert!(is_found(&answer), "it passed: {answer}");
    }
    strangers.into_iter().for_each(|stranger| stranger.abort());
}

/// A port whose callers are told by a person has an authority of its own, which is known a moment after it listens.
#[tokio::test]
async fn a_port_with_an_authority_of_its_own_knows_who_has_a_certificate_of_it() {
    let lifetimes = Lifetimes { authority: 100_000, serving: 10_000 };
    let now = jiff::Timestamp::now().as_second();
    let contents = || Contents::new(&["localhost".to_owned()], lifetimes, now).unwrap();
    let (ours, theirs) = (contents(), contents());
    let shown = |contents: &Contents| {
        let (pair, until) = contents.client("kube-scheduler", now).unwrap();
        assert_eq!(until, now + lifetimes.authority, "it lasts as long as its authority");
        (pair.certificate, pair.key)
    };
    let callers = Callers::nobody();
    let served = serve(small(), Some(callers.clone()), hello()).await;
    let asked = async |shown: &(String, String)| match served.connect(1, Some(shown)).await {
        Ok(mut stream) => ask(&mut stream, "GET", "/", b"").await,
        Err(error) => Err(error),
    };
    let good = shown(&ours);
    assert!(asked(&good).await.is_err(), "nobody is trusted yet");
    callers.trust(&ours.bundle()).unwrap();
    assert!(asked(&good).await.unwrap().ends_with("hello"));
    assert!(asked(&shown(&theirs)).await.is_err(), "one of another port's authority");
    let serving = (ours.certificate.clone(), ours.key.clone());
    assert!(asked(&serving).await.is_err(), "one for serving is not one for asking");
    assert!(callers.trust("nonsense").is_err());
    assert!(asked(&good).await.unwrap().ends_with("hello"), "what cannot be read changes nothing");
}
