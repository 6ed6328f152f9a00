//! A balancer in front of servers, as a Service is in front of pods: each connection goes to one that is ready.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// How often servers are asked whether they are ready.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server behind a balancer.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// Where it serves.
    pub address: SocketAddr,
    /// Where `/readyz` says whether it is ready.
    pub health: SocketAddr,
}

/// A balancer; dropping it ends it.
#[derive(Debug)]
pub struct Balancer(Vec<AbortHandle>);

impl Drop for Balancer {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Balancer {
    /// Balances what comes at `address` between servers, whether they run yet or not.
    pub async fn start(address: SocketAddr, backends: Vec<Backend>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let ready: Arc<Vec<(Backend, AtomicUsize)>> =
            Arc::new(backends.into_iter().map(|backend| (backend, AtomicUsize::new(0))).collect());
        let looking = tokio::spawn(look(ready.clone()));
        let taking = tokio::spawn(async move {
            // With this task ends whatever is passed on.
            let mut passing = JoinSet::new();
            for number in 0_usize.. {
                let Ok((stream, _)) = listener.accept().await else { continue };
                while passing.try_join_next().is_some() {}
                let is_ready = |(_, ready): &&(Backend, AtomicUsize)| ready.load(Ordering::Relaxed) > 0;
                let all: Vec<Backend> = ready.iter().filter(is_ready).map(|(backend, _)| *backend).collect();
                // None that is ready is as if nobody listened: the connection is closed.
                if let Some(backend) = all.get(number % all.len().max(1)) {
                    passing.spawn(pass(stream, backend.address));
                }
            }
        });
        Ok(Self(vec![looking.abort_handle(), taking.abort_handle()]))
    }
}

async fn pass(mut from: TcpStream, to: SocketAddr) {
    if let Ok(mut to) = TcpStream::connect(to).await {
        // A Service passes packets on as they come: so nothing may wait here for more to be sent along with it.
        let _ = (from.set_nodelay(true), to.set_nodelay(true));
        // Whichever side ends it, it has ended.
        let _ = copy_bidirectional(&mut from, &mut to).await;
    }
}

async fn look(all: Arc<Vec<(Backend, AtomicUsize)>>) {
    loop {
        for (backend, ready) in all.iter() {
            // One that does not answer in time is busy, and perhaps ready all the same.
            if let Ok(is_ready) = tokio::time::timeout(PATIENCE, is_ready(backend.health)).await {
                ready.store(usize::from(is_ready), Ordering::Relaxed);
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether a server says at `/readyz` that it is ready.
pub async fn is_ready(address: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}
