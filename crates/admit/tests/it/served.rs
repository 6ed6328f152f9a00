//! The server itself: TLS, limits, a certificate that changes, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use dapple_admit::authority::{authority, sign};
use dapple_admit::serve::{Identity, Server, is_answering};
use dapple_plan::certificate::Span;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

/// An authority, and a certificate of it for this machine.
pub(crate) fn pair() -> (String, String, String) {
    // Never twice the same, so that authorities differ by name.
    static MADE: AtomicI64 = AtomicI64::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let span = Span::beginning(jiff::Timestamp::now().as_second() - made, 1_000);
    let made = authority(span).unwrap();
    let signed = sign(&made.key, span, span, &["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    (made.certificate, signed.certificate, signed.key)
}

struct Served {
    address: SocketAddr,
    identity: Identity,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

async fn serve(routes: Router) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, identity, stop) = (listener.local_addr().unwrap(), Identity::default(), CancellationToken::new());
    let serving = Server::new(identity.clone()).run(listener, routes, stop.clone());
    let ended = tokio::spawn(async move { serving.await.unwrap() });
    Served { address, identity, stop, ended }
}

async fn connect(address: SocketAddr, bundle: &str) -> Result<TlsStream<TcpStream>, std::io::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// Asks once on a connection that stays open; the head of the answer, and its body.
pub(crate) async fn ask(
    stream: &mut TlsStream<TcpStream>,
    method: &str,
    path: &str,
    body: &[u8],
) -> std::io::Result<String> {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).await?;
        answer.extend(&piece[..count]);
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let length =
            text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()?.parse::<usize>().ok());
        if let (Some(start), Some(length)) = (text.find("\r\n\r\n"), length)
            && text.len() >= start + 4 + length
        {
            return Ok(text);
        }
        if count == 0 {
            return Err(std::io::Error::other(format!("it ended after {text:?}")));
        }
    }
}

#[tokio::test]
async fn a_certificate_changes_under_callers() {
    let served = serve(Router::new().route("/", get(|| async { "hello" }))).await;
    let (first, second) = (pair(), pair());
    assert!(connect(served.address, &first.0).await.is_err(), "there is nothing to serve with yet");
    served.identity.set(&first.1, &first.2).unwrap();
    let mut open = connect(served.address, &first.0).await.unwrap();
    assert!(connect(served.address, &second.0).await.is_err(), "that authority did not sign it");
    served.identity.set(&second.1, &second.2).unwrap();
    assert!(ask(&mut open, "GET", "/", b"").await.unwrap().ends_with("hello"), "what is open stays");
    assert!(connect(served.address, &first.0).await.is_err());
    let both = format!("{}{}", first.0, second.0);
    for bundle in [&second.0, &both] {
        assert!(connect(served.address, bundle).await.is_ok());
    }
    assert!(served.identity.set(&first.1, &second.2).is_err(), "a key of another certificate");
    assert!(served.identity.set("nonsense", &second.2).is_err());
    assert!(connect(served.address, &second.0).await.is_ok(), "what cannot be used changes nothing");
}

#[tokio::test]
async fn one_request_that_panics_or_is_too_large_harms_no_other() {
    let routes = Router::new()
        .route("/panic", post(|| async { if is_answering() { panic!("on purpose") } else { "not guarded" } }))
        .route("/convert", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
        .route("/size", post(|body: axum::body::Bytes| async move { body.len().to_string() }));
    let served = serve(routes).await;
    let (bundle, certificate, key) = pair();
    served.identity.set(&certificate, &key).unwrap();
    let mut stream = connect(served.address, &bundle).await.unwrap();
    let answer = ask(&mut stream, "POST", "/panic", b"").await.unwrap();
    assert!(answer.starts_with("http/1.1 500") && answer.contains("made a mistake"), "{answer}");
    assert!(ask(&mut stream, "POST", "/size", b"abc").await.unwrap().ends_with("\r\n\r\n3"), "the same connection");
    let mut other = connect(served.address, &bundle).await.unwrap();
    let large = vec![b'x'; (8 << 20) + 1];
    // Refused while it is still being sent: either the refusal is read, or sending fails.
    if let Ok(answer) = ask(&mut other, "POST", "/size", &large).await {
        assert!(answer.starts_with("http/1.1 413"), "{answer}");
    }
    assert!(ask(&mut stream, "POST", "/size", b"abcd").await.unwrap().ends_with("\r\n\r\n4"));
    // A list that is converted is as large as all its objects. A busy machine may take longer over it than is waited for.
    let answer = ask(&mut stream, "POST", "/convert", &large).await.unwrap();
    let is_read = answer.ends_with(&format!("\r\n\r\n{}", large.len()));
    assert!(is_read || answer.starts_with("http/1.1 503"), "{answer}");
}

#[tokio::test]
async fn the_end_fails_nobody() {
    let slow = get(|| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        "done"
    });
    let served = serve(Router::new().route("/slow", slow).route("/", get(|| async { "hello" }))).await;
    let (bundle, certificate, key) = pair();
    served.identity.set(&certificate, &key).unwrap();
    let mut busy = connect(served.address, &bundle).await.unwrap();
    let mut idle = connect(served.address, &bundle).await.unwrap();
    assert!(!ask(&mut idle, "GET", "/", b"").await.unwrap().contains("connection: close"));
    let under_way = tokio::spawn(async move { ask(&mut busy, "GET", "/slow", b"").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    served.stop.cancel();
    assert!(under_way.await.unwrap().unwrap().ends_with("done"), "what is under way is answered");
    let answer = ask(&mut idle, "GET", "/", b"").await.unwrap();
    assert!(answer.contains("connection: close"), "callers are told to go elsewhere: {answer}");
    let mut late = connect(served.address, &bundle).await.unwrap();
    assert!(ask(&mut late, "GET", "/", b"").await.unwrap().ends_with("hello"), "who still comes is served");
    served.ended.await.unwrap();
    assert!(connect(served.address, &bundle).await.is_err());
}

#[tokio::test]
async fn who_asks_nothing_takes_up_no_place_for_long() {
    let served = serve(Router::new().route("/", get(|| async { "hello" }))).await;
    let (bundle, certificate, key) = pair();
    served.identity.set(&certificate, &key).unwrap();
    let mut used = connect(served.address, &bundle).await.unwrap();
    assert!(ask(&mut used, "GET", "/", b"").await.unwrap().ends_with("hello"));
    let mut half = connect(served.address, &bundle).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nHost: local").await.unwrap();
    let mut silent = connect(served.address, &bundle).await.unwrap();
    for stream in [&mut half, &mut silent] {
        // Whether it is told or cut off, it ends.
        let ended = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut [0; 64])).await;
        assert!(!matches!(ended.expect("it is let go"), Ok(1..)));
    }
    assert!(ask(&mut used, "GET", "/", b"").await.unwrap().ends_with("hello"), "who has asked may take their time");
}
