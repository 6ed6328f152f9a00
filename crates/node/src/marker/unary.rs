//! One question by gRPC, over a connection of its own.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, TE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::wire::{Message, Reader};

/// What gRPC calls success.
pub(super) const OK: u32 = 0;
/// The time that was given is over.
pub(super) const DEADLINE_EXCEEDED: u32 = 4;
/// Who was asked does not know the question.
pub(super) const UNIMPLEMENTED: u32 = 12;

const STATUS: &str = "grpc-status";
const TIMEOUT: &str = "grpc-timeout";

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The status.
    pub(super) code: u32,
    /// The number that was asked for, 0 if there is none.
    pub(super) number: u64,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    /// The other side does not speak gRPC, or not as it should.
    #[error("the answer is not gRPC")]
    NotGrpc,
    /// It cannot be asked.
    #[error("the question cannot be sent")]
    Unsendable,
}

/// Which question, and where.
pub(super) struct Question<'a> {
    /// Who is asked, as the question names it.
    pub(super) authority: &'a str,
    /// Service and method.
    pub(super) path: &'a str,
    /// What is asked.
    pub(super) message: Message,
    /// How long whoever is asked should take at most.
    pub(super) within: Duration,
    /// Which number of the answer is wanted.
    pub(super) field: u64,
}

/// What hyper does for a connection, for as long as somebody waits for an answer: a peer that hangs keeps nothing of ours.
#[derive(Clone)]
struct WhileAsked(CancellationToken);

impl<F> Executor<F> for WhileAsked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, work: F) {
        let over = self.0.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                _ = work => {}
            }
        });
    }
}

/// Asks once. Nothing of it goes on once it is dropped.
pub(super) async fn ask<S>(stream: S, question: Question<'_>) -> Result<Reply, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let field = question.field;
    let request = request(question)?;
    let over = CancellationToken::new();
    let _until_dropped = over.clone().drop_guard();
    let while_asked = WhileAsked(over);
    let (mut sender, connection) = http2::handshake(while_asked.clone(), TokioIo::new(stream)).await?;
    while_asked.execute(connection);
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(CallError::NotGrpc);
    }
    let mut code = status(response.headers());
    let (mut body, mut reader) = (response.into_body(), Reader::new(field));
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => reader.feed(&data).map_err(|_| CallError::NotGrpc)?,
            Err(other) => code = other.into_trailers().ok().as_ref().and_then(status).or(code),
        }
    }
    match (code, reader.number()) {
        (Some(OK), Some(number)) => Ok(Reply { code: OK, number }),
        (Some(code), _) if code != OK => Ok(Reply { code, number: 0 }),
        _ => Err(CallError::NotGrpc),
    }
}

fn request(question: Question<'_>) -> Result<Request<Full<Bytes>>, CallError> {
    let Question { authority, path, message, within, .. } = question;
    let message = message.framed().ok_or(CallError::Unsendable)?;
    let request = Request::post(format!("http://{authority}{path}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(TIMEOUT, format!("{}m", within.as_millis().min(99_999_999)))
        .body(Full::new(Bytes::from(message)));
    request.map_err(|_| CallError::Unsendable)
}

fn status(headers: &HeaderMap) -> Option<u32> {
    headers.get(STATUS)?.to_str().ok()?.parse().ok()
}
