//! Workers: take a key, reconcile it, say how it ended. Only while this process leads.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::mutant::{Mutant, is_on};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::failing::{Failing, Failure};
use crate::family::{ControllerContext, Started};
use crate::metrics::{Metrics, ReconcileResult};
use crate::queue::{Ended, Queue, Taken};
use crate::signal::Signal;
use crate::writes::client::{in_words, is_not_leading};
use crate::writes::fence::in_term;

/// The fence closes a moment before the workers hear of it: no need to try in a loop meanwhile.
const NOT_LEADING_PAUSE: Duration = Duration::from_secs(1);

/// What a controller does with one key.
pub trait Reconcile: Send + Sync + 'static {
    /// What it works on.
    type Key: Ord + Clone + Display + Send + Sync + 'static;
    /// Its name in logs and metrics.
    const NAME: &'static str;
    /// Waits until everything it reads has a full view that was begun in this term, or later.
    fn ready(&self, term: u64) -> impl Future<Output = ()> + Send;
    /// Looks at the world and brings this key one step on.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Ended, kube::Error>> + Send;
    /// Tells those who look at the object that it has been failing for a minute: by a condition, where one can be written,
    /// and by an Event. What [`Ended::Failing`] says has been told already.
    fn tell_failure(&self, key: &Self::Key, failure: &Failure) -> impl Future<Output = ()> + Send;
}

/// A controller with its queue, to be run until its family is stopped.
pub fn started<C: Reconcile>(
    (controller, queue): (Arc<C>, Arc<Queue<C::Key>>),
    context: &ControllerContext,
) -> Started {
    let viewer = controller.clone();
    Started {
        ready: Box::pin(async move { viewer.ready(0).await }),
        work: Box::pin(run(controller, queue, context.clone())),
    }
}

/// Runs a controller's workers until its family is stopped, and returns when the last of them is done.
async fn run<C: Reconcile>(controller: Arc<C>, queue: Arc<Queue<C::Key>>, context: ControllerContext) {
    let ControllerContext { metrics, recovery, leading, stop, workers, .. } = context;
    metrics.workers(C::NAME, workers);
    let measured = Arc::downgrade(&queue);
    metrics.before_scrape(move |metrics| {
        metrics.queue_depth(C::NAME, measured.upgrade()?.depth());
        Some(())
    });
    let failing = Arc::new(Failing::default());
    let counted = Arc::downgrade(&failing);
    metrics.before_scrape(move |metrics| {
        metrics.failing(C::NAME, &counted.upgrade()?.by_reason());
        Some(())
    });
    let shift = Shift { controller, queue: queue.clone(), failing, metrics };
    let mut running = JoinSet::new();
    for _ in 0..workers {
        running.spawn(shift.clone().work(leading.clone(), stop.clone()));
    }
    let waking = async {
        let mut known = recovery.count();
        loop {
            known = recovery.after(known).await;
            queue.end_backoffs();
        }
    };
    tokio::select! { biased; () = stop.cancelled() => {}, () = waking => {} }
    queue.close();
    while running.join_next().await.is_some() {}
}

/// What workers share.
struct Shift<C: Reconcile> {
    controller: Arc<C>,
    queue: Arc<Queue<C::Key>>,
    failing: Arc<Failing<C::Key>>,
    metrics: Arc<Metrics>,
}

impl<C: Reconcile> Clone for Shift<C> {
    fn clone(&self) -> Self {
        let Self { controller, queue, failing, metrics } = self;
        Self {
            controller: controller.clone(),
            queue: queue.clone(),
            failing: failing.clone(),
            metrics: metrics.clone(),
        }
    }
}

impl<C: Reconcile> Shift<C> {
    async fn work(self, leading: Signal, stop: CancellationToken) {
        loop {
            // A standby keeps its caches and its queue warm, and takes nothing off it.
            let term = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                term = leading.until(|term| term != 0) => term,
            };
            let next = async {
                // Of what the leader before did last, a view from before this term may not know.
                if !is_on(Mutant::FirstListSkipped) {
                    self.controller.ready(term).await;
                }
                self.queue.take().await
            };
            let taken = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = leading.until(|now| now != term) => {
                    self.failing.clear_all();
                    continue;
                }
                taken = next => taken,
            };
            let Some(Taken { key, waited }) = taken else { return };
            self.metrics.reconcile_started(C::NAME, waited);
            let started = Instant::now();
            let (ended, result) = in_term(term, self.look(&key)).await;
            self.metrics.reconcile_ended(C::NAME, result, started.elapsed());
            self.queue.finish(&key, ended);
        }
    }

    /// Works on a key, and sees to it that what fails for long is told.
    async fn look(&self, key: &C::Key) -> (Ended, ReconcileResult) {
        let outcome = self.controller.reconcile(key).await;
        match &outcome {
            Ok(Ended::Failing { reason, .. }) => _ = self.failing.note(key, reason),
            Err(error) if !is_not_leading(error) => {
                let failure = Failure::of(error);
                if self.failing.note(key, &failure.reason) {
                    self.controller.tell_failure(key, &failure).await;
                }
            }
            Ok(_) | Err(_) => self.failing.clear(key),
        }
        judge(C::NAME, key, outcome)
    }
}

fn judge(controller: &str, key: &impl Display, outcome: Result<Ended, kube::Error>) -> (Ended, ReconcileResult) {
    match outcome {
        Ok(Ended::Done) => (Ended::Done, ReconcileResult::Success),
        Ok(failing @ Ended::Failing { .. }) => (failing, ReconcileResult::Error),
        Ok(again) => (again, ReconcileResult::Requeue),
        // The world moved on between look and write: look again.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            debug!(controller, %key, "changed meanwhile; looking again");
            (Ended::Failed, ReconcileResult::Requeue)
        }
        // Not ours any more. The key stays in the queue, in case we lead again.
        Err(error) if is_not_leading(&error) => (Ended::Again(NOT_LEADING_PAUSE), ReconcileResult::Requeue),
        Err(error) => {
            warn!(controller, %key, error = in_words(&error), "reconcile failed; trying again later");
            (if is_on(Mutant::FailureForgotten) { Ended::Done } else { Ended::Failed }, ReconcileResult::Error)
        }
    }
}
