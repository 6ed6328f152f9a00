//! The client that controllers use: rate limit, retries of reads, and the fence before writes.
//!
//! - A read that the server could not answer (429, 5xx, no connection) is tried again here, a few times.
//! - A write never is: the server may have done it. The work queue looks at the world again and decides anew.
//! - A server that takes a request and never answers is an error after a while, not a worker that waits for ever.
//! - A write is sent only while the [`Fence`] is open, checked last thing before sending.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use kube::Client;
use kube::client::Body;
use kube::core::Status;

use super::fence::Fence;
use super::rate::{Limits, Rate, Share};
use crate::env::{Backoff, Env};
use crate::metrics::Metrics;

/// A write was not sent, because this process does not lead.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this process does not hold the lease")]
pub struct NotLeading;

/// Whether this error says that the write was not sent for want of the lease.
pub fn is_not_leading(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(inner) if inner.is::<NotLeading>())
}

/// What an error says to people. What the API server said is told in its own words: kube's text of it has all of the
/// answer in it a second time, as a programmer would look at it.
pub fn in_words(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), Some(error));
    while let Some(known) = cause {
        let boxed = || known.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
        let status = match known.downcast_ref::<kube::Error>().or_else(boxed) {
            Some(kube::Error::Api(status)) => Some(&**status),
            _ => known.downcast_ref::<Status>().or_else(|| known.downcast_ref::<Box<Status>>().map(|status| &**status)),
        };
        if let Some(status) = status {
            let words = match status.message.as_str() {
                "" => format!("the API server answered {} {}", status.code, status.reason),
                message => message.to_owned(),
            };
            text = text.replace(&known.to_string(), &words);
        }
        cause = known.source();
    }
    text
}

/// The name by which the API server knows the writer of a field: the beginning of what we call ourselves.
pub const FIELD_MANAGER: &str = "dapple";
const USER_AGENT: &str = concat!("dapple/", env!("CARGO_PKG_VERSION"));

const READ_TRIES: u32 = 4;
const READ_BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
/// The longest a server may make us wait by `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// An answer begins within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// An answer that has begun, and a watch, says something within this time. A watch has a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(150);

/// The server took a request and did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {ANSWER_WITHIN:?}")]
struct NoAnswer;

/// Connects with our own retries instead of kube's, which repeat writes too.
pub fn connect(mut config: kube::Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
    Client::try_from(config)
}

/// Clients for what is written while this process leads, around a plain one. All of them wait for one [`Rate`].
#[derive(Clone)]
pub struct Guarded(Arc<Guard>);

struct Guard {
    plain: Client,
    rate: Rate,
    fence: Fence,
    env: Env,
    metrics: Arc<Metrics>,
}

impl Guarded {
    /// Clients that keep together to these limits.
    pub fn new(plain: Client, limits: Limits, fence: Fence, env: Env, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Guard { plain, rate: Rate::new(limits), fence, env, metrics }))
    }

    /// The client of a share.
    pub fn of(&self, share: Share) -> Client {
        let guard = self.0.clone();
        let namespace = guard.plain.default_namespace().to_owned();
        let service = tower::service_fn(move |request| {
            let guard = guard.clone();
            async move { guard.send(share, request).await }
        });
        Client::new(service, namespace)
    }
}

impl Guard {
    async fn send(&self, share: Share, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        if request.method() != Method::GET {
            self.rate.take(share).await;
            if !self.fence.is_open() {
                return Err(NotLeading.into());
            }
            return Ok(self.send_once(request).await?);
        }
        let (parts, _) = request.into_parts();
        for tries in 1.. {
            self.rate.take(share).await;
            let answer = self.send_once(Request::from_parts(parts.clone(), Body::empty())).await;
            match retry_after(&answer, tries, &self.env) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(answer?),
            }
        }
        unreachable!("retry_after ends the loop")
    }

    async fn send_once(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let method = request.method().clone();
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.plain.send(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(kube::Error::Service(NoAnswer.into())));
        self.metrics.request(&method, answer.as_ref().ok().map(Response::status));
        answer
    }
}

/// How long to wait before a read is tried again; `None` to take the answer as it is.
fn retry_after(answer: &Result<Response<Body>, kube::Error>, tries: u32, env: &Env) -> Option<Duration> {
    if tries >= READ_TRIES {
        return None;
    }
    let ours = READ_BACKOFF.delay(tries, env);
    let response = match answer {
        Ok(response) => response,
        Err(kube::Error::HyperError(_) | kube::Error::Service(_)) => return Some(ours),
        Err(_) => return None,
    };
    let transient = response.status() == StatusCode::TOO_MANY_REQUESTS || response.status().is_server_error();
    if !transient {
        return None;
    }
    let theirs = response.headers().get(http::header::RETRY_AFTER);
    let seconds = theirs.and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok()).unwrap_or(0);
    Some(ours.max(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SystemClock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A client whose server answers every request with `status`, and the number of requests it got.
    fn client_of(status: u16, leading: bool) -> (Client, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Response::builder().status(status).body(Body::empty()) }
        });
        let env = Env::new(SystemClock, 1);
        let fence = Fence::new(env.clone());
        if leading {
            fence.open_for_test(Duration::from_secs(3600));
        }
        let client =
            Guarded::new(Client::new(server, "default"), Limits::default(), fence, env, Arc::new(Metrics::new()));
        (client.of("test"), asked)
    }

    async fn status_of(client: &Client, method: Method) -> Result<u16, kube::Error> {
        let request = Request::builder().method(method).uri("/api").body(Body::empty()).expect("a valid request");
        client.send(request).await.map(|response| response.status().as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_tried_again_and_writes_are_not() {
        for (method, expected) in
            [(Method::GET, READ_TRIES), (Method::POST, 1), (Method::PATCH, 1), (Method::DELETE, 1)]
        {
            let (client, asked) = client_of(503, true);
            assert_eq!(status_of(&client, method.clone()).await.expect("an answer"), 503);
            assert_eq!(asked.load(Ordering::SeqCst), expected, "{method}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_an_answer() {
        for status in [200, 404, 409, 403] {
            let (client, asked) = client_of(status, true);
            assert_eq!(status_of(&client, Method::GET).await.expect("an answer"), status);
            assert_eq!(asked.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_lease_nothing_is_written() {
        let (client, asked) = client_of(200, false);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let error = status_of(&client, method.clone()).await.expect_err("must not be sent");
            assert!(is_not_leading(&error), "{method}: {error}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        assert_eq!(status_of(&client, Method::GET).await.expect("reading is free"), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_an_error() {
        let server =
            tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, tower::BoxError>>());
        let env = Env::new(SystemClock, 1);
        let fence = Fence::new(env.clone());
        fence.open_for_test(Duration::from_secs(3600));
        let client =
            Guarded::new(Client::new(server, "default"), Limits::default(), fence, env, Arc::new(Metrics::new()));
        for method in [Method::GET, Method::PATCH] {
            let error = status_of(&client.of("test"), method).await.expect_err("there is no answer");
            assert!(error.to_string().contains("did not answer"), "{error}");
        }
    }

    #[test]
    fn what_the_api_server_said_is_told_in_its_own_words() {
        let status = kube::core::Status::failure("namespaces \"a\" not found", "NotFound").with_code(404);
        let refused = || kube::Error::Api(status.clone().boxed());
        assert!(refused().to_string().contains("Status {"), "kube has mended it: in_words may go");
        assert_eq!(in_words(&refused()), "namespaces \"a\" not found");
        let named = crate::install::Error::Refused { object: "Lease a/b".into(), source: Box::new(refused()) };
        assert_eq!(in_words(&named), "Lease a/b: namespaces \"a\" not found");
        assert_eq!(named.to_string(), in_words(&named), "our own errors say it so by themselves");
        let listed = kube::runtime::watcher::Error::InitialListFailed(refused());
        assert!(in_words(&listed).ends_with(": namespaces \"a\" not found"), "{}", in_words(&listed));
        let silent =
            kube::Error::Api(kube::core::Status { code: 503, reason: "Busy".into(), ..Default::default() }.boxed());
        assert_eq!(in_words(&silent), "the API server answered 503 Busy");
        assert_eq!(in_words(&NotLeading), NotLeading.to_string(), "the rest is as it is");
    }
}
