use std::net::Ipv4Addr;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::super::tls::connector;
use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn get(port: u16, path: &str) -> HttpGet {
    HttpGet { port, path: path.to_owned(), is_tls: false, headers: Vec::new() }
}

fn with(get: HttpGet, headers: &[(&str, &str)]) -> HttpGet {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    HttpGet { headers, ..get }
}

/// A server that answers by path, with what follows the head's first line; and the heads that it has got.
async fn server(answer: fn(&str) -> String) -> (u16, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((HERE, 0)).await.expect("any port");
    let port = listener.local_addr().expect("it listens").port();
    let heads = Arc::<std::sync::Mutex<Vec<String>>>::default();
    let got = heads.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let head = head(&mut stream).await;
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            got.lock().expect("it is whole").push(head);
            let _ = stream.write_all(answer(&path).as_bytes()).await;
        }
    });
    (port, heads)
}

async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { break };
        head.push(byte);
    }
    String::from_utf8(head).expect("a head")
}

fn status(line: &str) -> String {
    format!("HTTP/1.1 {line}\r\nContent-Length: 6\r\n\r\nsecret")
}

async fn probed(get: HttpGet) -> Answer {
    probe(&connector().expect("TLS"), HERE, &get).await
}

#[tokio::test]
async fn a_status_from_200_to_399_succeeds() {
    let (port, _) = server(|path| status(path.trim_start_matches('/'))).await;
    for good in ["200", "204", "299", "304", "399"] {
        assert_eq!(probed(get(port, good)).await, Answer::Succeeded, "{good}");
    }
    for bad in ["400", "404", "500", "503"] {
        assert_eq!(probed(get(port, bad)).await, Answer::Failed(format!("it answers with status {bad}")));
    }
}

#[tokio::test]
async fn what_is_sent_is_what_the_probe_says() {
    let (port, heads) = server(|_| status("200 OK")).await;
    let headers = [("A", "1"), ("A", "2"), ("host", "my.example"), ("Accept", ""), ("User-Agent", "me")];
    probed(with(get(port, "/a b?c=d"), &headers)).await;
    probed(get(port, "healthz")).await;
    let heads: Vec<String> = heads.lock().expect("it is whole").iter().map(|head| head.to_ascii_lowercase()).collect();
    for line in [
        "get /a%20b?c=d http/1.1\r\n",
        "\r\nhost: my.example\r\n",
        "\r\na: 1\r\n",
        "\r\na: 2\r\n",
        "\r\nuser-agent: me\r\n",
    ] {
        assert!(heads[0].contains(line), "{line:?} in {:?}", heads[0]);
    }
    assert!(!heads[0].contains("\r\naccept:"), "{:?}", heads[0]);
    let host = format!("\r\nhost: 127.0.0.1:{port}\r\n");
    for line in [
        "get /healthz http/1.1\r\n",
        &host,
        "\r\naccept: */*\r\n",
        "\r\nuser-agent: dapple-probe/",
        "\r\nconnection: close\r\n",
    ] {
        assert!(heads[1].contains(line), "{line:?} in {:?}", heads[1]);
    }
}

#[tokio::test]
async fn redirects_on_the_pod_are_followed_and_others_are_a_success() {
    let (port, _) = server(|path| {
        let to = |location: &str| format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        match path {
            "/good" => to("/200"),
            "/bad" => to("500"),
            "/away" => to("http://192.0.2.1/500"),
            "/wrong" => to("ftp://127.0.0.1/"),
            "/round" => to("round"),
            "/200" => status("200 OK"),
            _ => status("500 No"),
        }
    })
    .await;
    for path in ["/good", "/away"] {
        assert_eq!(probed(get(port, path)).await, Answer::Succeeded, "{path}");
    }
    for (path, said) in [("/bad", "status 500"), ("/wrong", "no address"), ("/round", "more than 10 times")] {
        let answer = probed(get(port, path)).await;
        assert!(matches!(&answer, Answer::Failed(why) if why.contains(said)), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_a_failure_and_is_told_nowhere() {
    let (strange, _) = server(|_| "secret\r\n\r\n".to_owned()).await;
    let (silent, _) = server(|_| String::new()).await;
    for port in [strange, silent] {
        let answer = probed(get(port, "/")).await;
        assert!(matches!(&answer, Answer::Failed(why) if !why.contains("secret")), "{answer:?}");
    }
    let (port, _) = server(|_| "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nsecret".to_owned()).await;
    assert!(matches!(probed(get(port, "/")).await, Answer::Failed(_)), "it breaks off");
}

#[tokio::test]
async fn of_a_long_answer_the_beginning_is_enough() {
    let (port, _) =
        server(|_| format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(20_000))).await;
    assert_eq!(probed(get(port, "/")).await, Answer::Succeeded);
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_no_failure_of_the_pod() {
    let (port, _) = server(|_| status("200 OK")).await;
    for header in [("a b", "1"), ("a", "1\n2")] {
        assert!(matches!(probed(with(get(port, "/"), &[header])).await, Answer::Error(_)), "{header:?}");
    }
}

#[tokio::test]
async fn over_tls_every_certificate_is_taken() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["nobody.example".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((HERE, 0)).await.expect("any port");
    let port = listener.local_addr().expect("it listens").port();
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.expect("a connection").0).await.expect("TLS");
        head(&mut stream).await;
        let _ = stream.write_all(status("200 OK").as_bytes()).await;
        let _ = stream.shutdown().await;
    });
    assert_eq!(probed(HttpGet { is_tls: true, ..get(port, "/") }).await, Answer::Succeeded);
    let listener = TcpListener::bind((HERE, 0)).await.expect("any port");
    let plain = listener.local_addr().expect("it listens").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.write_all(status("400 Bad Request").as_bytes()).await;
    });
    let answer = probed(HttpGet { is_tls: true, ..get(plain, "/") }).await;
    assert_eq!(answer, Answer::Failed("it does not speak TLS as it should".to_owned()));
}

#[test]
fn redirects_are_read_as_browsers_do() {
    let target = |is_tls, port, path: &str, host: &str| Target { is_tls, port, path: path.into(), host: host.into() };
    let from = target(false, 80, "/a/b?c", "own.example");
    for (location, next) in [
        ("/x?y#z", Next::Here(target(false, 80, "/x?y", "own.example"))),
        ("x", Next::Here(target(false, 80, "/a/x", "own.example"))),
        ("?x", Next::Here(target(false, 80, "/a/b?x", "own.example"))),
        ("https://127.0.0.1/x", Next::Here(target(true, 443, "/x", "127.0.0.1"))),
        ("http://127.0.0.1:81", Next::Here(target(false, 81, "/", "127.0.0.1:81"))),
        ("//127.0.0.1:81/x", Next::Here(target(false, 81, "/x", "127.0.0.1:81"))),
        ("http://other.example/", Next::Elsewhere),
        ("//own.example/", Next::Elsewhere),
        ("ftp://127.0.0.1/", Next::Nowhere),
        ("http://", Next::Nowhere),
    ] {
        assert_eq!(from.then(HERE, location), next, "{location}");
    }
}
