//! The way between a manager and the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, stream};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::faults::{Fate, LineFate, SILENCE};
use crate::server::client::{AnyBody, BETWEEN_BOOKMARKS, streamed, whole};
use crate::server::{Answer, Watch};
use crate::sim::{Actor, Sim};

/// The connection broke.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke")]
struct Broken;

/// How a manager reaches the server.
#[derive(Clone)]
pub struct Link {
    sim: Arc<Sim>,
    actor: Actor,
    is_cut: Arc<AtomicBool>,
    is_dead: Arc<AtomicBool>,
    /// Until when nothing passes.
    isolated: Arc<Mutex<Option<Instant>>>,
}

impl Link {
    /// A link of this manager's own.
    pub fn new(sim: Arc<Sim>, actor: Actor) -> Self {
        Self { sim, actor, is_cut: Arc::default(), is_dead: Arc::default(), isolated: Arc::default() }
    }

    /// From now on nothing passes. That is how a process is killed between two requests: all that is left of one that
    /// is gone is what it sent.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// Its process has died at a request, which is a moment that matters.
    fn die(&self) {
        self.cut();
        self.is_dead.store(true, Ordering::Relaxed);
        self.sim.bell.notify_one();
    }

    /// Whether its process has died at a request.
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Until then nothing passes in either direction.
    pub fn isolate(&self, until: Instant) {
        *self.isolated.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// The end of the isolation, if there is one now.
    fn isolated(&self) -> Option<Instant> {
        let until = *self.isolated.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }

    /// The client of that process.
    pub fn client(&self) -> Client {
        let link = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let link = link.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?.to_vec();
                // What was sent arrives, whether the sender still waits or not.
                let carried = tokio::spawn(link.carry(Request::from_parts(parts, body)));
                carried.await.unwrap_or_else(|_| Err(Broken.into()))
            }
        });
        Client::new(service, "default")
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// An error if nothing passes now.
    fn passes(&self) -> Result<(), Broken> {
        if self.is_cut() || self.isolated().is_some() { Err(Broken) } else { Ok(()) }
    }

    async fn carry(self, request: Request<Vec<u8>>) -> Result<Response<AnyBody>, tower::BoxError> {
        self.passes()?;
        let sent = self.sim.now();
        let (fate, [there, back]) = self.sim.fate(self.actor, &request);
        if matches!(fate, Fate::DiesBefore | Fate::DiesAfter) {
            self.die();
        }
        sleep(there).await;
        match fate {
            Fate::Fine
            | Fate::LostAfter
            | Fate::SilentAfter
            | Fate::TimedOut
            | Fate::LateAnswer(_)
            | Fate::DiesAfter => {}
            Fate::Late(delay) => sleep(delay).await,
            Fate::LostBefore | Fate::DiesBefore => return Err(Broken.into()),
            Fate::SilentBefore => {
                sleep(SILENCE).await;
                return Err(Broken.into());
            }
            Fate::Refused(code) => return Ok(refusal(code)),
            Fate::Conflict => return Ok(refusal(409)),
        }
        // What a process sent before it was killed may arrive all the same.
        let answer = self.sim.answer(self.actor, sent, &request);
        sleep(if let Fate::LateAnswer(delay) = fate { delay } else { back }).await;
        self.passes()?;
        match fate {
            Fate::LostAfter => Err(Broken.into()),
            Fate::SilentAfter => {
                sleep(SILENCE).await;
                Err(Broken.into())
            }
            Fate::TimedOut => Ok(refusal(504)),
            _ => Ok(self.respond(answer)),
        }
    }

    fn respond(&self, answer: Answer) -> Response<AnyBody> {
        match answer {
            Answer::Whole(response) => response.map(whole),
            Answer::Watch(watch) => Response::new(streamed(self.lines(watch))),
        }
    }

    /// The lines of a watch, as they arrive.
    fn lines(&self, watch: Watch) -> impl Stream<Item = Vec<u8>> + Send + use<> {
        let end = Instant::now() + watch.timeout();
        let start =
            Lines { link: self.clone(), watch, bookmark: Instant::now() + BETWEEN_BOOKMARKS, end, is_over: false };
        stream::unfold(start, Lines::next)
    }
}

fn refusal(code: u16) -> Response<AnyBody> {
    let (reason, message) = match code {
        409 => ("Conflict", "the object has been modified; please apply your changes to the latest version"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        500 => ("InternalError", "etcdserver: leader changed"),
        504 => ("Timeout", "request did not complete within the allotted timeout"),
        _ => ("ServiceUnavailable", "the server is currently unable to handle the request"),
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code});
    let mut response = Response::new(whole(status.to_string().into_bytes()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if code == 429 {
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

struct Lines {
    link: Link,
    watch: Watch,
    bookmark: Instant,
    end: Instant,
    is_over: bool,
}

impl Lines {
    async fn next(mut self) -> Option<(Vec<u8>, Self)> {
        if self.is_over {
            return None;
        }
        loop {
            if self.link.is_cut() {
                return None;
            }
            if let Some(line) = self.watch.next() {
                self.is_over = line.is_last;
                let (fate, short) = self.link.sim.line_fate(self.link.actor, self.watch.resource(), &line.bytes);
                sleep(short).await;
                while let Some(until) = self.link.isolated() {
                    sleep_until(until).await;
                }
                return match fate {
                    LineFate::Fine => Some((line.bytes, self)),
                    LineFate::Late(delay) => {
                        sleep(delay).await;
                        Some((line.bytes, self))
                    }
                    LineFate::Ended => None,
                    LineFate::Torn => {
                        self.is_over = true;
                        let half = line.bytes[..line.bytes.len() / 2].to_vec();
                        Some((half, self))
                    }
                    LineFate::Silent => {
                        sleep(SILENCE).await;
                        None
                    }
                };
            }
            if self.watch.is_over() {
                return None;
            }
            tokio::select! {
                biased;
                () = self.watch.changed() => {}
                () = sleep_until(self.end) => return None,
                () = sleep_until(self.bookmark) => {
                    self.bookmark += BETWEEN_BOOKMARKS;
                    if let Some(line) = self.watch.bookmark().filter(|_| self.link.isolated().is_none()) {
                        return Some((line.bytes, self));
                    }
                }
            }
        }
    }
}
