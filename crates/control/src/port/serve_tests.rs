//! A port on a real socket, with limits so small that a test reaches them.

use std::net::{Ipv4Addr, SocketAddr};

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::super::{Patience, Portion};
use super::*;

/// Longer than any limit that is set here, and than a busy machine takes over it.
const LONG: Duration = Duration::from_secs(20);
/// A limit on what callers do, where a test waits for it.
const SHORT: Duration = Duration::from_millis(300);

fn limits() -> Limits {
    Limits {
        connections: Portion::halved(8),
        requests: Portion::halved(4),
        bytes: Portion::halved(4_000),
        largest: |_| 3_000,
        patience: Patience { half_sent: LONG, silent: LONG, idle: LONG, idle_known: LONG, taking: LONG },
        answer_within: LONG,
    }
}

struct Served {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(limits: Limits) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop, metrics) = (listener.local_addr().unwrap(), CancellationToken::new(), Arc::default());
    let routes = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/size", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
        .route("/large", get(|| async { vec![b'x'; 64 << 20] }))
        .route("/never", get(std::future::pending::<&'static str>));
    let port = Port::new("test", limits, Arc::clone(&metrics));
    tokio::spawn(port.run(listener, Plain, routes, stop.clone().cancelled_owned()));
    Served { address, metrics, stop }
}

impl Served {
    /// Comes from 127.0.0.`peer`.
    async fn connect(&self, peer: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, peer), 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Comes anew, asks, and has the whole answer.
    async fn ask(&self, peer: u8, path: &str) -> String {
        let mut stream = self.connect(peer).await;
        send(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        let mut answer = String::new();
        tokio::time::timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time").unwrap();
        answer
    }

    fn closed(&self, why: &str) -> u64 {
        let text = self.metrics.text().unwrap();
        let line = format!("dapple_connections_closed_total{{port=\"test\",why=\"{why}\"}} ");
        text.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
    }
}

async fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Whether the other side ends the connection, now or soon. Whatever it says before does not matter.
async fn ends(stream: &mut TcpStream) -> bool {
    let ended = async { while matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {} };
    tokio::time::timeout(LONG / 2, ended).await.is_ok()
}

/// One request and its answer, on a connection that stays.
async fn use_once(stream: &mut TcpStream) {
    send(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "it ended");
    }
}

#[tokio::test]
async fn holders_who_ask_nothing_make_room_for_who_asks() {
    let served = serve(limits()).await;
    let mut used = served.connect(1).await;
    use_once(&mut used).await;
    let mut holders = Vec::new();
    for number in 0..32 {
        holders.push(served.connect(2 + number % 8).await);
    }
    for _ in 0..20 {
        assert!(served.ask(1, "/").await.ends_with("hello"));
    }
    use_once(&mut used).await;
    assert!(served.closed("crowded") >= 25, "{} were closed", served.closed("crowded"));
    assert_eq!(served.closed("refused"), 0);
    assert!(ends(&mut holders[0]).await, "it came first, and asked nothing");
}

#[tokio::test]
async fn one_peer_cannot_take_all() {
    let served = serve(limits()).await;
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = served.connect(2).await;
        send(&mut stream, "GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await;
        busy.push(stream);
    }
    for _ in 0..20 {
        assert!(served.ask(1, "/").await.ends_with("hello"), "half of the turns are for others");
    }
    assert!(served.closed("refused") + served.closed("crowded") == 0, "half of the places are, too");
}

#[tokio::test]
async fn what_is_half_sent_is_cut() {
    let mut limits = limits();
    limits.patience.half_sent = SHORT;
    let served = serve(limits).await;
    let half = ["GET / HTTP/1.1\r\nHost: x\r\n", "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"];
    for text in half {
        let mut stream = served.connect(1).await;
        send(&mut stream, text).await;
        assert!(ends(&mut stream).await, "{text:?}");
        // Of one that has asked before, too.
        let mut used = served.connect(1).await;
        use_once(&mut used).await;
        send(&mut used, text).await;
        assert!(ends(&mut used).await, "{text:?}");
    }
    assert_eq!(served.closed("late"), 4);
    let mut idle = served.connect(1).await;
    use_once(&mut idle).await;
    tokio::time::sleep(SHORT * 2).await;
    use_once(&mut idle).await;
}

#[tokio::test]
async fn who_trickles_is_cut_all_the_same() {
    let mut limits = limits();
    limits.patience.half_sent = SHORT;
    let served = serve(limits).await;
    let mut stream = served.connect(1).await;
    send(&mut stream, "GET / HTTP/1.1\r\n").await;
    let trickling = async {
        while stream.write_all(b"A: b\r\n").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    assert!(tokio::time::timeout(LONG / 2, trickling).await.is_ok(), "it is still heard");
}

#[tokio::test]
async fn who_is_idle_or_does_not_take_an_answer_is_cut() {
    for (patience, text) in [
        (Patience { idle: SHORT, ..limits().patience }, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        (Patience { taking: SHORT, ..limits().patience }, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"),
        (Patience { silent: SHORT, ..limits().patience }, ""),
    ] {
        let served = serve(Limits { patience, ..limits() }).await;
        let mut stream = served.connect(1).await;
        send(&mut stream, text).await;
        let cut = async {
            while served.closed("late") == 0 {
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        assert!(tokio::time::timeout(LONG / 2, cut).await.is_ok(), "{patience:?}");
        assert!(ends(&mut stream).await);
    }
}

#[tokio::test]
async fn bytes_under_way_are_limited_by_peer() {
    let served = serve(limits()).await;
    let mut first = served.connect(2).await;
    send(&mut first, &format!("POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 1501\r\n\r\n{}", "x".repeat(1_500)))
        .await;
    let post = |length: usize| {
        let body = "x".repeat(length);
        format!("POST /size HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let ask = async |peer: u8, length: usize| {
        let mut stream = served.connect(peer).await;
        send(&mut stream, &post(length)).await;
        let mut answer = String::new();
        let _ = tokio::time::timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time");
        answer
    };
    // Until all that was sent has been read.
    let mut answer = String::new();
    for _ in 0..100 {
        answer = ask(2, 1_000).await;
        if answer.starts_with("HTTP/1.1 429") {
            break;
        }
        tokio::time::sleep(SHORT / 10).await;
    }
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after"), "{answer}");
    assert!(ask(1, 1_000).await.ends_with("\r\n\r\n1000"), "there is some for others");
    assert!(ask(1, 3_001).await.starts_with("HTTP/1.1 413"));
    send(&mut first, "x").await;
    let mut whole = Vec::new();
    while !whole.ends_with(b"1501") {
        assert_ne!(first.read_buf(&mut whole).await.unwrap(), 0, "it ended");
    }
    assert!(ask(2, 1_000).await.ends_with("\r\n\r\n1000"), "what was taken is given back");
}
