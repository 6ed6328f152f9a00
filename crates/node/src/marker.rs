//! The prober: it runs the probes of the pods on its node, and tells the manager what comes of them.
//!
//! It knows what the NodePodProbe of its node says, and nothing else of the cluster. When a probe runs, what counts as its result
//! and when that is written is decided in `dapple_plan::marker`; here are the clocks, the connections and the loop.
//!
//! Invariants:
//! - What is stored is what probes told, or that it is not known. Whoever hears the prober can go by that.
//! - One write of results is under way at most, and names the version that was seen.

mod cluster;
mod exec;
mod grpc;
mod http;
mod metrics;
mod net;
mod probe;
#[cfg(test)]
mod testing;
mod tls;
mod unary;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::marker::NodePodProbe;
use dapple_control::env::Env;
use dapple_control::metrics::Metrics;
use dapple_control::serve::{ListenError, Readiness, listen, run as serve};
use dapple_control::writes::client::{connect, in_words};
use dapple_plan::marker::reporting::{Renewing, Storing, pause};
use dapple_plan::marker::schedule::{Answer, Moment, Schedule, may_go_on};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::rustls;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use cluster::{Cluster, News, Seen, Watch};
use metrics::ProberMetrics;
use probe::Tools;

/// So often it is looked for probes that are late.
const LOOK_FOR_LATE: Duration = Duration::from_secs(1);
/// Nothing is waited for longer.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long answers under way about health may take at the end.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The node's name.
    pub node: String,
    /// Where the runtime listens, if commands are to be run in containers.
    pub runtime: Option<PathBuf>,
    /// Where health and metrics are served.
    pub listen: SocketAddr,
}

/// Why a prober could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The configuration does not make a client.
    #[error("cannot use this cluster configuration: {0}")]
    Client(#[source] kube::Error),
    /// There is no TLS.
    #[error("cannot probe over TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Runs until `stop`. What is not stored by then is found out again by the prober after this one.
pub async fn run(config: kube::Config, options: Options, env: Env, stop: CancellationToken) -> Result<(), Error> {
    let listener = listen(options.listen).await?;
    let client = connect(config).map_err(Error::Client)?;
    let tools = Tools { tls: tls::connector()?, runtime: options.runtime.clone() };
    let (metrics, readiness) = (Arc::new(Metrics::new()), Readiness::default());
    readiness.note("probes", false);
    let served = CancellationToken::new();
    let server = tokio::spawn(serve(listener, readiness.clone(), metrics.clone(), served.clone()));
    info!(
        node = options.node,
        runs_commands = options.runtime.is_some(),
        version = env!("CARGO_PKG_VERSION"),
        "prober started"
    );
    let cluster = Cluster::new(&client, &options.node);
    let watch = Watch::new(&client, &options.node);
    let prober = Prober::new(cluster, watch, tools, metrics.of_family(), (readiness, env));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = prober.work() => {}
    }
    served.cancel();
    // A client that never finishes its request must not keep us.
    let _ = tokio::time::timeout(ANSWER_WITHIN, server).await;
    info!("prober stopped");
    Ok(())
}

/// Something that was under way.
enum Ended {
    /// A run of a probe, by its number: of which kind, and what it told.
    Run(u64, &'static str, Answer),
    /// Results were stored, with the version that the object has now, or not.
    Stored(Result<u64, String>),
    /// The Lease was renewed, or not.
    Renewed(Result<u64, String>),
}

struct Prober {
    cluster: Cluster,
    watch: Watch,
    tools: Arc<Tools>,
    metrics: Arc<ProberMetrics>,
    readiness: Readiness,
    env: Env,
    schedule: Schedule,
    storing: Storing,
    renewing: Renewing,
    under_way: JoinSet<Ended>,
    /// The object as it was seen last, if it is there.
    seen: Option<Seen>,
    /// Whether the prober may go on with what is stored; nothing once it has begun to.
    may_go_on: Option<bool>,
    looked_for_late: Duration,
}

impl Prober {
    fn new(
        cluster: Cluster,
        watch: Watch,
        tools: Tools,
        metrics: Arc<ProberMetrics>,
        (readiness, env): (Readiness, Env),
    ) -> Self {
        let schedule = Schedule::new(tools.runtime.is_some());
        Self {
            cluster,
            watch,
            tools: Arc::new(tools),
            metrics,
            readiness,
            env,
            schedule,
            storing: Storing::default(),
            renewing: Renewing::default(),
            under_way: JoinSet::new(),
            seen: None,
            may_go_on: None,
            looked_for_late: Duration::ZERO,
        }
    }

    /// Works for ever. Dropped, it ends what is under way.
    async fn work(mut self) {
        let renewed = self.renewed().await;
        self.may_go_on = Some(may_go_on(renewed, self.env.now()));
        let env = self.env.clone();
        loop {
            let now = self.moment();
            self.begin(now);
            let wake = Instant::now() + self.next(now.steady).saturating_sub(now.steady).min(LOOK_AGAIN);
            tokio::select! {
                biased;
                Some(ended) = self.under_way.join_next() => match ended {
                    Ok(ended) => self.ended(ended),
                    // It was ended by a panic, which ends the process.
                    Err(error) => debug!(%error, "a task broke"),
                },
                news = self.watch.next(|| env.fraction()) => self.take_in(news),
                () = sleep_until(wake) => {}
            }
        }
    }

    /// When the prober before this one last said that it was there. Until that is known, nothing is.
    async fn renewed(&self) -> Option<jiff::Timestamp> {
        for failures in 1.. {
            match self.cluster.renewed().await {
                Ok(renewed) => return renewed,
                Err(error) => {
                    let pause = pause(failures, self.env.fraction());
                    warn!(error = in_words(&error), ?pause, "cannot read the Lease; trying again");
                    sleep(pause).await;
                }
            }
        }
        None
    }

    fn moment(&self) -> Moment {
        // It goes on while the machine sleeps: what was not run then is late.
        let time = clock_gettime(ClockId::Boottime);
        let whole = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        let steady = whole.saturating_add(Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0)));
        Moment { steady, wall: self.env.now() }
    }

    fn has_changed(&mut self, has_changed: bool, now: Moment) {
        if has_changed {
            self.storing.changed(now.steady, self.env.fraction());
        }
    }

    /// Begins all that is due.
    fn begin(&mut self, now: Moment) {
        if now.steady >= self.looked_for_late.saturating_add(LOOK_FOR_LATE) {
            self.looked_for_late = now.steady;
            let are_late = self.schedule.late(now);
            if are_late {
                self.metrics.were_late();
            }
            self.has_changed(are_late, now);
            self.metrics.counts(&self.schedule.counts(), self.schedule.stretched().is_some());
        }
        for order in self.schedule.due(now.steady) {
            let tools = self.tools.clone();
            self.under_way.spawn(async move {
                let answer = probe::run(&tools, &order).await;
                Ended::Run(order.number, order.action.name(), answer)
            });
        }
        let Some(seen) = self.seen.clone() else { return };
        let is_due = |due: Option<Duration>| due.is_some_and(|due| due <= now.steady);
        let cluster = self.cluster.clone();
        if is_due(self.storing.due()) {
            self.storing.begun(now.steady);
            let status = self.schedule.status();
            self.under_way.spawn(async move { Ended::Stored(cluster.store(&seen, &status).await) });
        } else if is_due(self.renewing.due(self.schedule.has_probes(), &self.storing)) {
            self.renewing.begun(now.steady);
            self.under_way.spawn(async move { Ended::Renewed(cluster.renew(&seen.owners, now.wall).await) });
        }
    }

    /// When something is due next.
    fn next(&self, now: Duration) -> Duration {
        let has_probes = self.schedule.has_probes();
        let writes = [self.storing.due(), self.renewing.due(has_probes, &self.storing)];
        let writes = writes.into_iter().flatten().filter(|_| self.seen.is_some());
        let late = has_probes.then(|| self.looked_for_late.saturating_add(LOOK_FOR_LATE));
        writes.chain(self.schedule.next_due()).chain(late).min().unwrap_or_else(|| now.saturating_add(LOOK_AGAIN))
    }

    fn ended(&mut self, ended: Ended) {
        let now = self.moment();
        match ended {
            Ended::Run(number, kind, answer) => {
                self.metrics.ran(kind, &answer);
                let has_changed = self.schedule.done(number, answer, now);
                self.has_changed(has_changed, now);
            }
            Ended::Stored(outcome) => {
                self.metrics.wrote("results", outcome.is_ok());
                match outcome {
                    Ok(version) => {
                        self.storing.stored();
                        self.seen.iter_mut().for_each(|seen| seen.version = seen.version.max(version));
                    }
                    Err(error) => {
                        warn!(error, "results are not stored; trying again");
                        self.storing.failed(now.steady, self.env.fraction());
                    }
                }
            }
            Ended::Renewed(outcome) => {
                self.metrics.wrote("lease", outcome.is_ok());
                match outcome {
                    Ok(_) => self.renewing.renewed(),
                    Err(error) => {
                        warn!(error, "the Lease is not renewed; trying again");
                        self.renewing.failed(now.steady, self.env.fraction());
                    }
                }
            }
        }
    }

    fn take_in(&mut self, news: News) {
        self.readiness.note("probes", true);
        match news {
            News::There(object) => self.there(*object),
            News::Gone => {
                self.seen = None;
                let now = self.moment();
                self.schedule.change(Default::default(), now);
            }
        }
    }

    fn there(&mut self, object: NodePodProbe) {
        let (now, seen) = (self.moment(), Seen::of(&object));
        let is_stale = self.seen.as_ref().is_some_and(|known| known.uid == seen.uid && known.version > seen.version);
        if is_stale {
            return;
        }
        let is_another = self.seen.as_ref().is_none_or(|known| known.uid != seen.uid);
        self.seen = Some(seen);
        let status = object.status.unwrap_or_default();
        let was_away = self.may_go_on.take().is_some_and(|may_go_on| self.schedule.restore(&status, may_go_on));
        let is_told = self.schedule.change(object.spec, now);
        // Another object knows nothing of what this prober knows.
        let is_to_be_told = is_another && self.schedule.status() != status;
        self.has_changed(was_away || is_told || is_to_be_told, now);
        debug!(probes = self.schedule.counts().values().sum::<usize>(), "probes have changed");
    }
}
