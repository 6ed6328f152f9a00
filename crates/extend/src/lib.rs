//! The scheduler extender: tells a scheduler where pods go that come without a group. A thin shell around
//! [`dapple_plan::group::extender`].
//!
//! Every replica of the manager serves it, beside its controllers and with the server of the webhooks. Whatever is asked, the
//! answer is one by which a scheduler goes on: what concerns nothing of ours, or cannot be decided, stays as it is.

pub mod answer;
pub mod config;
pub mod metrics;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dapple_admit::callers::Callers;
use dapple_admit::certificates::{Certificates, LIFETIMES};
use dapple_admit::serve::{Identity, Purpose, Server};
use dapple_admit::shared::SharedSecret;
use dapple_api::crd::{MANAGED_BY, MANAGED_BY_LABEL};
use dapple_control::families;
use dapple_control::group::extender::{Answer, AskedPod, Extender as Known};
use dapple_control::manager::Shared;
use dapple_control::port::{Limits, Patience, Portion};
use dapple_control::serve::{ListenError, listen_for};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::{Client, ResourceExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::answer::Judge;
use crate::metrics::{Ended, ExtenderMetrics};

/// The Service that leads to it, and the name that its certificate holds.
pub const SERVICE: &str = "dapple-extender";
/// The Secret that has its certificates, unless told otherwise. The manager's role names it.
pub const SECRET: &str = "dapple-extender-certificates";
/// Where nodes are filtered.
pub const FILTER: &str = "filter";
/// Where nodes are scored.
pub const PRIORITIZE: &str = "prioritize";
/// Where it is asked for whom other pods go.
pub const PREEMPT: &str = "preempt";

/// The part of readiness that is ours.
const PART: &str = "extender";
/// How often to look whether the kinds are ours to serve.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How soon to look again at what will be there in a moment.
const SOON: Duration = Duration::from_millis(200);
/// The largest question: thousands of nodes as objects.
const LARGEST_BODY: usize = 64 << 20;

const PURPOSE: Purpose =
    Purpose { name: "extender", way_to_certificates: "`dapple extender config` prints what a scheduler sends it by" };

/// What callers get. They are few, and known: a scheduler asks about one pod at a time.
const LIMITS: Limits = Limits {
    connections: Portion::halved(256),
    requests: Portion::halved(64),
    bytes: Portion::halved(4 * LARGEST_BODY),
    largest: |_| LARGEST_BODY,
    patience: Patience::SERVER,
    answer_within: Duration::from_secs(5),
};

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The Secret with its certificates.
    pub secret: String,
    /// dapple's namespace.
    pub namespace: String,
}

/// An extender that is listened for, and not answered yet.
pub struct Extender {
    options: Options,
    listener: TcpListener,
}

impl Extender {
    /// Listens. Done before anything else, so that a taken port ends the process at once.
    pub async fn listen(options: Options) -> Result<Self, ListenError> {
        let listener = listen_for(options.listen, "--extender-listen").await?;
        Ok(Self { options, listener })
    }

    /// Serves beside the controllers of a manager, until it is stopped and nobody is left waiting.
    pub async fn run(self, shared: Shared) {
        let Options { listen, secret, namespace } = self.options;
        shared.readiness.note(PART, false);
        let stop = shared.stop.clone();
        let life = stop.child_token();
        let known = Known::start(&shared.caches, &life, &namespace);
        let answers =
            Arc::new(Answers { known, is_served: AtomicBool::new(false), metrics: shared.metrics.of_family() });
        let (identity, callers) = (Identity::default(), Callers::nobody());
        let kept = SharedSecret {
            plain: shared.plain.clone(),
            guarded: shared.guarded.clone(),
            leading: shared.leading.clone(),
            name: secret,
            remedy: "give --extender-secret another name",
            names: ["svc", "svc.cluster.local"].map(|end| format!("{SERVICE}.{namespace}.{end}")).to_vec(),
            namespace,
            lifetimes: LIFETIMES,
            env: shared.env.clone(),
            known: Default::default(),
        };
        let certificates = Certificates {
            kept,
            remedy: "give schedulers what `dapple extender config` prints",
            identity: identity.clone(),
            callers: callers.clone(),
        };
        let address = self.listener.local_addr().unwrap_or(listen);
        // At once: without a certificate a handshake fails, and a scheduler goes on. One that nobody answers waits.
        let server = Server {
            identity: identity.clone(),
            callers: Some(callers),
            limits: LIMITS,
            metrics: shared.metrics.clone(),
        };
        let serving = server.run_for(PURPOSE, self.listener, routes(answers.clone()), life.clone());
        let ready = async {
            until_ready(&answers, &identity, &life).await;
            if !life.is_cancelled() {
                info!(%address, "the scheduler extender is served");
                shared.readiness.note(PART, true);
            }
            life.cancelled().await;
            shared.readiness.note(PART, false);
            end_if_broken(&stop);
        };
        let following = answers.follow(&shared.plain, &life);
        let (served, (), (), ()) = tokio::join!(serving, certificates.keep(&life), following, ready);
        if let Err(error) = served {
            error!(%error, "the scheduler extender cannot be served");
        }
    }
}

/// Waits until there is a certificate, and everything was read once.
async fn until_ready(answers: &Answers, identity: &Identity, life: &CancellationToken) {
    let all = async {
        answers.known.settled().await;
        while !identity.is_set() {
            tokio::time::sleep(SOON).await;
        }
    };
    tokio::select! { biased; () = life.cancelled() => {}, () = all => {} }
}

/// Ends the process, to be started anew, if it was not asked to stop: what is known has broken.
fn end_if_broken(stop: &CancellationToken) {
    if !stop.is_cancelled() {
        error!("the scheduler extender has lost what it goes by; the process ends, to begin anew");
        stop.cancel();
    }
}

/// Whoever answers.
struct Answers {
    known: Known,
    /// Whether policies and groups are ours to serve: those of another product are not gone by.
    is_served: AtomicBool,
    metrics: Arc<ExtenderMetrics>,
}

impl Answers {
    fn filter(&self, pod: &AskedPod, judge: Judge<'_>) -> Answer {
        if self.is_served.load(Ordering::Relaxed) { self.known.filter(pod, judge) } else { Answer::Untouched }
    }

    fn score(&self, pod: &AskedPod, judge: Judge<'_>) -> Answer {
        if self.is_served.load(Ordering::Relaxed) { self.known.score(pod, judge) } else { Answer::Untouched }
    }

    fn answer(&self, verb: &'static str, body: &[u8], answer: impl FnOnce(&[u8]) -> (String, Ended)) -> Response {
        let begun = Instant::now();
        let (text, ended) = answer(body);
        self.metrics.answered(verb, ended, begun.elapsed());
        ([("content-type", "application/json")], text).into_response()
    }

    /// Keeps knowing whether the kinds are ours. An API server that does not answer has not said otherwise.
    async fn follow(&self, client: &Client, life: &CancellationToken) {
        while !life.is_cancelled() {
            if let Ok(is_ours) = is_ours(client).await {
                self.is_served.store(is_ours, Ordering::Relaxed);
            }
            let pause = if self.is_served.load(Ordering::Relaxed) { LOOK_EVERY } else { Duration::from_secs(1) };
            tokio::select! { biased; () = life.cancelled() => {}, () = tokio::time::sleep(pause) => {} }
        }
    }
}

async fn is_ours(client: &Client) -> Result<bool, kube::Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in families::GROUP.needs() {
        let found = crds.get_metadata_opt(&kind.crd()).await?;
        let by = found.as_ref().and_then(|found| found.labels().get(MANAGED_BY_LABEL));
        if by.is_none_or(|by| by != MANAGED_BY) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn routes(answers: Arc<Answers>) -> Router {
    let (scoring, preempting) = (answers.clone(), answers.clone());
    let filter = move |body: Bytes| async move {
        answers.answer(FILTER, &body, |body| answer::filter(body, |pod, judge| answers.filter(pod, judge)))
    };
    let prioritize = move |body: Bytes| async move {
        scoring.answer(PRIORITIZE, &body, |body| answer::prioritize(body, |pod, judge| scoring.score(pod, judge)))
    };
    let preempt = move |body: Bytes| async move {
        preempting.answer(PREEMPT, &body, |body| answer::preempt(body, |pod, judge| preempting.score(pod, judge)))
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route(&format!("/{FILTER}"), post(filter))
        .route(&format!("/{PRIORITIZE}"), post(prioritize))
        .route(&format!("/{PREEMPT}"), post(preempt))
}
