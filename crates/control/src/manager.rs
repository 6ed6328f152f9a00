//! The manager: everything in this crate, put together.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::caches::{Caches, WatchContext};
use crate::env::Env;
use crate::family::{ControllerContext, Family, MarkerLimits, Part, PoolLimits, RepairLimits};
use crate::gates::Gates;
use crate::lease::{Elector, LeaseDurations};
use crate::metrics::Metrics;
use crate::retry::Recovery;
use crate::serve::{ListenError, Readiness, listen, run as serve};
use crate::served::Served;
use crate::signal::Signal;
use crate::writes::client::{Guarded, connect};
use crate::writes::events::Recorder;
use crate::writes::fence::Fence;
use crate::writes::rate::Limits;

/// How long work under way may take after a stop was asked for.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// After so long a family that broke, or was given up, may begin anew: not at once, should that happen again. To begin, all
/// that it reads is listed.
const BEGIN_ANEW_AFTER: Duration = Duration::from_secs(10);

/// How long answers under way about health may take after that.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which families to serve.
    pub families: Vec<&'static Family>,
    /// Where health and metrics are served.
    pub listen: SocketAddr,
    /// Who we are, in the lease and in events. Unlike every other process there ever was.
    pub identity: String,
    /// dapple's own namespace, that of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub lease: String,
    /// How long the lease lasts.
    pub durations: LeaseDurations,
    /// How many requests may be sent.
    pub limits: Limits,
    /// Keys that each controller works on at once.
    pub workers: usize,
    /// What is switched on.
    pub gates: Gates,
    /// How pods may be moved to where they belong.
    pub repair: RepairLimits,
    /// How nodes of pools may be written.
    pub pool: PoolLimits,
    /// How pods may be marked.
    pub marker: MarkerLimits,
}

/// Why a manager could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The configuration does not make a client.
    #[error("cannot use this cluster configuration: {0}")]
    Client(#[source] kube::Error),
}

/// What a manager shares with whatever else runs in its process.
#[derive(Clone)]
pub struct Shared {
    /// A client for what any replica may do.
    pub plain: kube::Client,
    /// A client whose writes are sent only while this process leads.
    pub guarded: kube::Client,
    /// The term in which this process leads.
    pub leading: Signal,
    /// When the API server is back.
    pub recovery: Recovery,
    /// What is known of the cluster.
    pub caches: Caches,
    /// What has to be there before the process is ready.
    pub readiness: Readiness,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Wall time and randomness.
    pub env: Env,
    /// When to end.
    pub stop: CancellationToken,
}

/// Nothing beside a manager.
pub async fn alone(_: Shared) {}

/// Runs until `stop`: then no new work is begun, what is under way is ended, and the lease is given back. `beside` is run
/// with it, and waited for.
pub async fn run<F: Future<Output = ()>>(
    config: kube::Config,
    options: Options,
    env: Env,
    stop: CancellationToken,
    beside: impl FnOnce(Shared) -> F,
) -> Result<(), Error> {
    let listener = listen(options.listen).await?;
    let address = listener.local_addr().unwrap_or(options.listen);
    let plain = connect(config).map_err(Error::Client)?;
    let metrics = Arc::new(Metrics::new());
    // Health outlives the work: probes are answered while it ends.
    let served = CancellationToken::new();
    let readiness = Readiness::default();
    let server = tokio::spawn(serve(listener, readiness.clone(), metrics.clone(), served.clone()));
    info!(%address, identity = %options.identity, version = env!("CARGO_PKG_VERSION"), "dapple manager started");
    work(plain, options, env, metrics, readiness, stop, beside).await;
    served.cancel();
    // A client that never finishes its request must not keep us.
    let _ = tokio::time::timeout(ANSWER_WITHIN, server).await;
    info!("dapple manager stopped");
    Ok(())
}

/// All that [`run`] does but serving health and metrics: the election, and the families while this process leads.
pub async fn work<F: Future<Output = ()>>(
    plain: kube::Client,
    options: Options,
    env: Env,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    stop: CancellationToken,
    beside: impl FnOnce(Shared) -> F,
) {
    let fence = Fence::new(env.clone());
    let clients = Guarded::new(plain.clone(), options.limits, fence.clone(), env.clone(), metrics.clone());
    let mut elector = Elector::new(
        plain.clone(),
        &options.namespace,
        &options.lease,
        options.identity.clone(),
        options.durations,
        fence,
    );
    let (leading, places) = (elector.leading(), elector.places());
    let (lease, watched) = (options.lease.clone(), leading.clone());
    metrics.before_scrape(move |metrics| {
        metrics.leading(&lease, watched.get() != 0);
        Some(())
    });

    let recovery = elector.recovery();
    let recorder =
        Recorder::start(clients.of("events"), options.identity.clone(), env.clone(), leading.clone(), stop.clone());
    let recorder = Arc::new(recorder);
    let caches = Caches::new(WatchContext {
        client: clients.of("caches"),
        namespace: Arc::from(&*options.namespace),
        env: env.clone(),
        metrics: metrics.clone(),
        recorder: recorder.clone(),
        leading: leading.clone(),
        recovery: recovery.clone(),
        stop: stop.clone(),
    });
    let shared = Shared {
        plain,
        guarded: clients.of("webhooks"),
        leading,
        recovery,
        caches,
        readiness: readiness.clone(),
        metrics: metrics.clone(),
        env,
        stop: stop.clone(),
    };
    for family in &options.families {
        family.parts.iter().for_each(|part| readiness.note(part.name, false));
        (family.register)(&metrics);
    }
    // Before anything is listed: what was listed before a term began has to be listed again.
    tokio::select! { biased; () = stop.cancelled() => {}, () = elector.try_to_lead() => {} }
    let mut families = JoinSet::new();
    for family in &options.families {
        let context = context_of(family, &shared, &clients, &recorder, &options, &places);
        for part in family.parts {
            families.spawn(run_part(part, context.clone(), readiness.clone()));
        }
    }
    // The lease is held while work under way ends.
    let idle = async move {
        let ended = tokio::time::timeout(STOP_WITHIN, families.join_all()).await;
        if ended.is_err() {
            warn!(?STOP_WITHIN, "work under way did not end in time");
        }
    };
    tokio::join!(elector.run(stop, idle), beside(shared));
}

/// What the controllers of a family work with.
fn context_of(
    family: &Family,
    shared: &Shared,
    clients: &Guarded,
    recorder: &Arc<Recorder>,
    options: &Options,
    places: &Signal,
) -> ControllerContext {
    ControllerContext {
        client: clients.of(family.name),
        env: shared.env.clone(),
        metrics: shared.metrics.clone(),
        recorder: recorder.clone(),
        gates: options.gates.clone(),
        places: places.clone(),
        repair: options.repair,
        pool: options.pool,
        marker: options.marker,
        namespace: Arc::from(options.namespace.as_str()),
        workers: options.workers,
        leading: shared.leading.clone(),
        recovery: shared.recovery.clone(),
        caches: shared.caches.clone(),
        stop: shared.stop.clone(),
    }
}

/// Serves a part of a family whenever the cluster lets it, until stopped.
async fn run_part(part: &'static Part, context: ControllerContext, readiness: Readiness) {
    let stop = context.stop.clone();
    // A life of its own: what happens to it concerns nothing else.
    let served = Served::follow(part, &context, &stop.child_token());
    while !stop.is_cancelled() {
        // Off for a reason that is known is as ready as it gets; not knowing is not.
        let ours = served.until_ours(|known| readiness.note(part.name, known));
        tokio::select! { biased; () = stop.cancelled() => return, () = ours => {} }
        readiness.note(part.name, false);
        let context = ControllerContext { stop: context.stop.child_token(), ..context.clone() };
        let mut work = std::pin::pin!(run_controllers(part, &context, || readiness.note(part.name, true)));
        tokio::select! {
            biased;
            () = &mut work => {}
            () = served.until_not_ours() => {
                readiness.note(part.name, true);
                context.stop.cancel();
                work.await;
            }
        }
        tokio::select! { biased; () = stop.cancelled() => {}, () = tokio::time::sleep(BEGIN_ANEW_AFTER) => {} }
    }
}

/// Runs the controllers of a part until it is stopped. `on_ready` is called when all of them have their first full view.
/// Their subscriptions are dropped with them.
async fn run_controllers(part: &Part, context: &ControllerContext, on_ready: impl FnOnce()) {
    let started = part.controllers.iter().map(|controller| (controller.start)(context));
    let (views, work): (Vec<_>, Vec<_>) = started.map(|of| (of.ready, of.work)).unzip();
    let ready = async {
        join_all(views).await;
        on_ready();
        pending::<()>().await;
    };
    tokio::select! { biased; _ = join_all(work) => {}, () = ready => {} }
}
