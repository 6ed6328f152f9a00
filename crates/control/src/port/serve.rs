//! Serving a port by the rules of [`House`], [`Line`] and [`Shares`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::{debug, warn};

use super::house::{Cut, Entry, House, Stage};
use super::line::Line;
use super::shares::Shares;
use super::stream::{Answer, Watched};
use super::{Caller, Connection, Limits, Peer};
use crate::metrics::Metrics;

/// After the end was asked for, what is under way may end for so long.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long a connection may take over its own end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The head of a request is no larger.
const LARGEST_HEAD: usize = 64 << 10;

/// What comes before the first request.
pub trait Greeting: Clone + Send + 'static {
    /// What is spoken afterwards.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Greets a caller: the stream, and whether the caller is known. None if that failed.
    fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> impl Future<Output = Option<(Self::Stream, bool)>> + Send;
}

/// No handshake at all.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Greeting for Plain {
    type Stream = TcpStream;

    async fn greet(&self, stream: TcpStream, _: SocketAddr) -> Option<(TcpStream, bool)> {
        Some((stream, false))
    }
}

/// A port.
pub struct Port {
    name: &'static str,
    limits: Limits,
    metrics: Arc<Metrics>,
    rooms: Mutex<Rooms>,
    line: Line,
    bytes: Mutex<Shares>,
}

struct Rooms {
    house: House,
    /// How each connection is told to end.
    ends: BTreeMap<Connection, oneshot::Sender<Stage>>,
}

/// The place of a connection. It is free when this is dropped.
pub(super) struct Place {
    port: Arc<Port>,
    peer: Peer,
    connection: Connection,
}

/// Bytes of a request. They are given back when this is dropped.
struct Taken {
    port: Arc<Port>,
    peer: Peer,
    bytes: usize,
}

/// A connection that has come.
struct Guest<G> {
    place: Arc<Place>,
    /// Says that the place is lost, and what the connection was at.
    end: oneshot::Receiver<Stage>,
    stream: TcpStream,
    address: SocketAddr,
    greeting: G,
    routes: Router,
}

impl Port {
    /// A port of this name, for people who look at metrics.
    pub fn new(name: &'static str, limits: Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        let rooms = Rooms { house: House::new(limits.connections, limits.patience), ends: BTreeMap::new() };
        let (line, bytes) = (Line::new(limits.requests), Mutex::new(Shares::new(limits.bytes)));
        Arc::new(Self { name, limits, metrics, rooms: Mutex::new(rooms), line, bytes })
    }

    /// Answers by `routes`, which find the [`Caller`] among a request's extensions. Takes connections until `until`; then
    /// what is under way is ended.
    pub async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        greeting: impl Greeting,
        routes: Router,
        until: impl Future<Output = ()>,
    ) {
        let (guests, closing) = (TaskTracker::new(), CancellationToken::new());
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        let Some((place, end)) = self.enter(address) else { continue };
                        let (greeting, routes) = (greeting.clone(), routes.clone());
                        let guest = Guest { place, end, stream, address, greeting, routes };
                        guests.spawn(guest.serve(closing.clone()));
                    }
                    Err(error) => {
                        warn!(port = self.name, %error, "a connection could not be taken");
                        // Perhaps there are too many open files.
                        let cut = self.rooms().house.make_room();
                        cut.into_iter().for_each(|cut| self.cut(cut, "crowded"));
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        };
        tokio::select! { biased; () = until => {}, () = self.sweep() => {}, () = accept => {} }
        closing.cancel();
        guests.close();
        if tokio::time::timeout(LAST_ANSWERS, guests.wait()).await.is_err() {
            warn!(port = self.name, "some callers did not take their answers in time");
        }
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, and how it hears that it has lost it.
    fn enter(self: &Arc<Self>, address: SocketAddr) -> Option<(Arc<Place>, oneshot::Receiver<Stage>)> {
        let peer = Peer::from(address.ip());
        let (tell, end) = oneshot::channel();
        let mut rooms = self.rooms();
        let Entry::Taken(connection, cut) = rooms.house.enter(peer, Instant::now()) else {
            self.metrics.connection_closed(self.name, "refused");
            debug!(port = self.name, %address, "a connection was refused: its peer has too many requests under way");
            return None;
        };
        rooms.ends.insert(connection, tell);
        drop(rooms);
        cut.into_iter().for_each(|cut| self.cut(cut, "crowded"));
        Some((Arc::new(Place { port: self.clone(), peer, connection }), end))
    }

    fn cut(&self, cut: Cut, why: &'static str) {
        self.metrics.connection_closed(self.name, why);
        let end = self.rooms().ends.remove(&cut.connection);
        // One that has just ended by itself does not listen.
        let _ = end.map(|end| end.send(cut.stage));
    }

    /// Closes connections that take too long, for ever.
    async fn sweep(&self) {
        let patience = &self.limits.patience;
        let shortest = patience.half_sent.min(patience.silent).min(patience.idle).min(patience.taking);
        let pace = (shortest / 10).clamp(Duration::from_millis(10), Duration::from_millis(250));
        loop {
            tokio::time::sleep(pace).await;
            let late = self.rooms().house.overdue(Instant::now());
            late.into_iter().for_each(|cut| self.cut(cut, "late"));
        }
    }
}

impl Place {
    fn house<T>(&self, tell: impl FnOnce(&mut House, Connection, Instant) -> T) -> T {
        tell(&mut self.port.rooms().house, self.connection, Instant::now())
    }

    pub(super) fn heard(&self) {
        self.house(House::heard);
    }

    pub(super) fn has_written(&self) {
        self.house(|house, connection, _| house.has_written(connection));
    }

    pub(super) fn has_flushed(&self) {
        self.house(House::has_flushed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut rooms = self.port.rooms();
        rooms.house.leave(self.connection);
        rooms.ends.remove(&self.connection);
    }
}

impl<G: Greeting> Guest<G> {
    /// One connection, from handshake to end.
    async fn serve(self, closing: CancellationToken) {
        let Self { place, mut end, stream, address, greeting, routes } = self;
        let _ = stream.set_nodelay(true);
        let greeted = tokio::select! {
            biased;
            _ = &mut end => None,
            () = closing.cancelled() => None,
            greeted = greeting.greet(stream, address) => greeted,
        };
        let Some((stream, is_known)) = greeted else { return };
        place.house(|house, connection, now| house.greeted(connection, is_known, now));
        let caller = Caller { peer: place.peer, connection: place.connection, is_known };
        let asked = place.clone();
        let service = service_fn(move |request| {
            let (place, routes) = (asked.clone(), routes.clone());
            async move { Ok::<_, Infallible>(respond(place, caller, routes, request).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        // Times are kept by the house.
        http.header_read_timeout(None).max_buf_size(LARGEST_HEAD);
        let stream = Watched { stream, place: place.clone() };
        let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service));
        let (stage, last_words) = tokio::select! {
            biased;
            ended = serving.as_mut() => {
                return ended.unwrap_or_else(|error| debug!(%address, %error, "a connection broke"));
            }
            stage = &mut end => (stage.ok().filter(|stage| *stage == Stage::Idle), LAST_WORDS),
            () = closing.cancelled() => (place.house(|house, number, _| house.stage(number)), LAST_ANSWERS),
        };
        // Who may be about to send is told, and answered if it has sent already. The others are cut off.
        if !matches!(stage, None | Some(Stage::Greeting | Stage::Silent)) {
            serving.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(last_words, serving).await;
        }
    }
}

/// One answer, whatever happens.
async fn respond(
    place: Arc<Place>,
    caller: Caller,
    routes: Router,
    request: Request<Incoming>,
) -> axum::http::Response<Answer> {
    place.house(House::has_head);
    let (parts, body) = request.into_parts();
    let most = (place.port.limits.largest)(parts.uri.path());
    let response = match read(&place, Body::new(body), most).await {
        Ok((body, taken)) => {
            place.house(House::has_request);
            let mut request = Request::from_parts(parts, Body::from(body));
            request.extensions_mut().insert(caller);
            let response = in_turn(&place, caller, routes, request).await;
            drop(taken);
            response
        }
        Err(refusal) => refusal,
    };
    place.house(House::takes_answer);
    response.map(|body| Answer { body, place })
}

/// Answers when it is the request's turn, within the time there is.
async fn in_turn(place: &Place, caller: Caller, routes: Router, request: Request<Body>) -> Response {
    let (path, limits) = (request.uri().path().to_owned(), &place.port.limits);
    let work = async {
        let _turn = place.port.line.turn(caller).await;
        place.house(House::is_answered);
        let Ok(response) = routes.oneshot(request).await;
        response
    };
    match tokio::time::timeout(limits.answer_within, work).await {
        Ok(response) => response,
        Err(_) => {
            warn!(path, within = ?limits.answer_within, "a request was not answered in time");
            (StatusCode::SERVICE_UNAVAILABLE, "not answered in time\n").into_response()
        }
    }
}

/// All of a request, as far as there is room for it.
async fn read(place: &Place, body: Body, most: usize) -> Result<(Vec<u8>, Taken), Response> {
    let (port, peer) = (&place.port, place.peer);
    let mut taken = Taken { port: port.clone(), peer, bytes: 0 };
    let (mut read, mut pieces) = (Vec::new(), body.into_data_stream());
    while let Some(piece) = pieces.next().await {
        let Ok(piece) = piece else {
            return Err((StatusCode::BAD_REQUEST, "a request has to come whole\n").into_response());
        };
        if read.len() + piece.len() > most {
            let text = format!("a request to this path may have {most} bytes\n");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, text).into_response());
        }
        if !taken.more(piece.len()) {
            let text = "too many bytes of requests are under way already; try again\n";
            return Err((StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], text).into_response());
        }
        read.extend_from_slice(&piece);
    }
    Ok((read, taken))
}

impl Taken {
    fn more(&mut self, bytes: usize) -> bool {
        let has = self.port.bytes.lock().unwrap_or_else(PoisonError::into_inner).take(self.peer, bytes);
        self.bytes += if has { bytes } else { 0 };
        has
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.port.bytes.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.peer, self.bytes);
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
