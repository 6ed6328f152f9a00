//! A gRPC server for tests, that says one thing whatever it is asked.

use std::convert::Infallible;

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::wire::Message;

/// What it says.
pub(super) struct GrpcAnswer {
    pub(super) message: Option<Message>,
    pub(super) code: &'static str,
}

/// Answers whoever is at the other end.
pub(super) async fn serve<S>(stream: S, answer: GrpcAnswer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let GrpcAnswer { message, code } = answer;
    let body = Bytes::from(message.and_then(Message::framed).unwrap_or_default());
    let service = service_fn(move |request: Request<Incoming>| {
        let body = body.clone();
        async move {
            assert_eq!(request.headers()["content-type"], "application/grpc");
            let asked = request.into_body().collect().await.expect("a question").to_bytes();
            assert!(asked.len() >= 5, "it has a head");
            let trailers =
                HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))]);
            let body = Full::new(body).with_trailers(std::future::ready(Some(Ok::<_, Infallible>(trailers))));
            Response::builder().header("content-type", "application/grpc").body(body)
        }
    });
    let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    let _ = served.await;
}
