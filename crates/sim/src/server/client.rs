//! A client that talks to the server in this process.

use std::convert::Infallible;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use super::{Answer, Server, Watch};

/// The real server sends bookmarks about once a minute.
pub(crate) const BETWEEN_BOOKMARKS: Duration = Duration::from_secs(60);

/// A body of either kind of answer.
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, Infallible>;

/// A client without faults.
pub(super) fn client(server: Server) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let answer = server.answer(&Request::from_parts(parts, body.to_vec()));
            Ok::<_, kube::Error>(respond(answer))
        }
    });
    Client::new(service, "default")
}

fn respond(answer: Answer) -> Response<AnyBody> {
    match answer {
        Answer::Whole(response) => response.map(whole),
        Answer::Watch(watch) => Response::new(streamed(lines(watch))),
    }
}

/// A body that is there at once.
pub(crate) fn whole(body: Vec<u8>) -> AnyBody {
    Full::new(Bytes::from(body)).boxed_unsync()
}

/// A body that comes line by line.
pub(crate) fn streamed(lines: impl Stream<Item = Vec<u8>> + Send + 'static) -> AnyBody {
    StreamBody::new(lines.map(|bytes| Ok(Frame::data(Bytes::from(bytes))))).boxed_unsync()
}

/// The lines of a watch as they come, until the client's time is over.
fn lines(watch: Watch) -> impl futures::Stream<Item = Vec<u8>> + Send {
    let end = Instant::now() + watch.timeout();
    let start = (watch, Instant::now() + BETWEEN_BOOKMARKS, false);
    stream::unfold(start, move |(mut watch, mut bookmark, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            if let Some(line) = watch.next() {
                return Some((line.bytes, (watch, bookmark, line.is_last)));
            }
            tokio::select! {
                biased;
                () = watch.changed() => {}
                () = tokio::time::sleep_until(end) => {
                    let last = watch.bookmark()?;
                    return Some((last.bytes, (watch, bookmark, true)));
                }
                () = tokio::time::sleep_until(bookmark) => {
                    bookmark += BETWEEN_BOOKMARKS;
                    if let Some(line) = watch.bookmark() {
                        return Some((line.bytes, (watch, bookmark, false)));
                    }
                }
            }
        }
    })
}
