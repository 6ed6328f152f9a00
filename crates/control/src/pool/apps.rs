//! Keeps the workloads of applications true, pool by pool: one controller for YurtAppSets and one for YurtAppDaemons. What is done is
//! decided by [`dapple_plan::pool::application`].
//!
//! - Nothing is decided before everything that it follows from is known: a list that failed, or a CRD that is gone, never means
//!   that there are no pools or no replacements.
//! - What is remembered is in the cluster; kept here is only what saves questions, and what was refused a moment ago.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::kinds::{NATIVE_DEPLOYMENT, NATIVE_STATEFUL_SET};
use dapple_plan::pool::application::{Action, Decision, Facts, decide};
use dapple_plan::pool::report::tell_refused;
use jiff::Timestamp;
use tracing::warn;

use super::cache::BY_POOL;
use super::kept::{ApplicationSpec, Kept, Workload};
use super::metrics;
use super::{BACKOFF, Pool, Replacement};
use crate::caches::store::{Change, Store};
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::observed::KindInfo;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Revision};
use crate::worker::Reconcile;
use crate::writes::client::in_words;
use crate::writes::events::{EventType, Report};

mod claim;
mod execute;
mod explain;
mod failed;
mod io;
mod judged;
mod learn;
mod memory;
mod observe;
mod recalled;
mod replacements;
mod revise;
mod tell;

use io::Io;
pub use learn::is_there;
use memory::Memory;
use observe::{Numbers, Situation, View};
pub(super) use observe::{addressed, asked, in_force, plain};
pub(super) use replacements::tell_unserved;
use replacements::{tell_of_application, tell_without_subject};
use revise::Revised;
use tell::Told;

/// A status is written no more often; and how soon to look again where our view is behind.
const PACE: Duration = Duration::from_secs(1);
/// How soon to look again at what nothing tells of: a refused write, nodes of a pool that is gone, or a target that does not exist.
const AGAIN: Duration = Duration::from_secs(30);
/// A write is seen by then or was not done: a watch that has gone silent ends before, and what was missed is told.
const SEEN_WITHIN: Duration = Duration::from_secs(330);
/// NodePools are waited for so long before any application is looked at.
const LISTED_WITHIN: Duration = Duration::from_secs(30);
/// How often the API server is asked within one look what decides, each time for something else.
const QUESTIONS: usize = 4;

/// The controller of one kind of applications. Its keys are applications.
pub(super) struct Applications<S: ApplicationSpec> {
    io: Io<S>,
    memories: Mutex<BTreeMap<Key, Memory>>,
}

impl<S: ApplicationSpec> Applications<S> {
    /// Subscribes to all that applications follow from. Returns the controller and the queue of applications to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let caches = &context.caches;
        let applications = caches.open::<Kept<S>>();
        let known = applications.store();
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone(), known };
        let [of_workloads, of_replacements, of_revisions, of_pools] = std::array::from_fn(|_| adder.clone());
        let on_workload = move |change: &Change<Workload>| of_workloads.on_workload(S::KIND, change);
        let workloads = |kind| caches.open_kind::<Workload>(kind).indexed_by([Workload::BY_OWNER, Workload::ORPHANS]);
        let io = Io {
            client: context.client.clone(),
            env: context.env.clone(),
            recorder: context.recorder.clone(),
            counted: context.metrics.of_family(),
            applications: applications.subscribe(&context.stop, move |change| {
                let Change::Object { key, listed, .. } = change else { return };
                adder.add(key.clone(), *listed);
            }),
            deployments: workloads(NATIVE_DEPLOYMENT.at).subscribe(&context.stop, on_workload.clone()),
            stateful_sets: workloads(NATIVE_STATEFUL_SET.at).subscribe(&context.stop, on_workload),
            replacements: caches.open().subscribe(&context.stop, move |change: &Change<Replacement>| {
                let Change::Object { key, old, new, listed } = change else { return };
                for replacement in old.iter().chain(new).filter(|known| known.subject.kind == S::SUBJECT) {
                    of_replacements.add(Key::new(&key.namespace, &replacement.subject.name), *listed);
                }
            }),
            revisions: caches.open().indexed_by([Revision::BY_OWNER]).subscribe(
                &context.stop,
                move |change: &Change<Revision>| {
                    let Change::Object { key, old, new, listed } = change else { return };
                    let owners = old.iter().chain(new).filter_map(|revision| revision.owner.as_ref());
                    for owner in owners.filter(|owner| *owner.kind == *S::KIND.kind) {
                        of_revisions.add(Key::new(&key.namespace, &owner.name), *listed);
                    }
                },
            ),
            pools: caches.open().subscribe(&context.stop, move |change| of_pools.on_pool(change)),
            nodes: caches.open().indexed_by([BY_POOL]).subscribe(&context.stop, |_| {}),
            term: AtomicU64::new(0),
        };
        let (counted, leading, life) = (io.counted.clone(), context.leading.clone(), Arc::downgrade(&queue));
        context.metrics.before_scrape(move |_| {
            let is_served = life.strong_count() > 0;
            if !is_served || leading.get() == 0 {
                counted.forget(S::CONTROLLER);
            }
            is_served.then_some(())
        });
        (Arc::new(Self { io, memories: Mutex::default() }), queue)
    }

    fn memories(&self) -> MutexGuard<'_, BTreeMap<Key, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application of one key is looked at by one worker at a time: its memory is taken out meanwhile.
    fn recall(&self, key: &Key) -> Memory {
        self.memories().remove(key).unwrap_or_default()
    }

    /// The time as the API server keeps times: what is told and read again is the same.
    fn now(&self) -> Timestamp {
        let now = self.io.env.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    async fn look(&self, kept: &Kept<S>, memory: &mut Memory) -> Result<Ended, kube::Error> {
        let now = self.now();
        memory.forget(now);
        let mut view = match observe::observe(&self.io, kept, &mut memory.recalled) {
            Situation::Known(view) => *view,
            Situation::Behind => return Ok(Ended::Again(PACE)),
            Situation::Unknown(reason) => return tell::failure(&self.io, kept, memory, (reason, now)).await,
        };
        if claim::claim(&self.io, kept, &mut view, memory, now).await? {
            return Ok(Ended::Again(PACE));
        }
        match revise::revise(&self.io, kept, &mut view, memory, now).await? {
            Revised::Newest => {}
            Revised::Written => return Ok(Ended::Again(PACE)),
            Revised::Failed(reason) => return tell::failure(&self.io, kept, memory, (reason, now)).await,
        }
        let Some(newest) = view.newest.clone() else { return Ok(Ended::Again(PACE)) };
        memory.refused.retain(|_, refusal| refusal.revision == newest.name);
        memory.judged.keep(&view.workloads);
        for workload in &mut view.workloads {
            let [uid, version] = ["uid", "resourceVersion"].map(|field| workload.object["metadata"][field].as_str());
            let doubt = uid.and_then(|uid| memory.doubts.get(uid));
            workload.is_in_doubt = doubt.is_some_and(|doubt| Some(doubt.version.as_str()) == version);
        }
        let refused = memory.refused.iter().map(|(pool, known)| (pool.clone(), known.reason.clone()));
        view.refused.extend(refused);
        view.learned = learn::known(memory, now);
        let mut decision = decide(&facts(kept, &view, now));
        let mut asked = 0;
        while learn::learn(&self.io, kept, &mut view, &decision, memory, now).await? {
            asked += 1;
            if asked == QUESTIONS {
                return Ok(Ended::Again(PACE));
            }
            decision = decide(&facts(kept, &view, now));
        }
        self.io.counted.renderings.inc_by(memory.recalled.rendered());
        view.failures.extend(learn::unreadable(&memory.targets));
        view.failures.extend(memory.failed.told());
        self.io.counted.note(S::CONTROLLER, &kept.meta.key, Some(metrics::Numbers::of(&decision)));
        self.act(kept, &mut view, decision, memory, now).await
    }

    /// Does what was decided, and tells of it. When to look again.
    async fn act(
        &self,
        kept: &Kept<S>,
        view: &mut View,
        mut decision: Decision,
        memory: &mut Memory,
        now: Timestamp,
    ) -> Result<Ended, kube::Error> {
        if decision.must_be_stored_first {
            match tell::tell(&self.io, kept, view, &decision, memory, now).await? {
                Told::All => {}
                Told::Later(rest) => return Ok(Ended::Again(rest)),
                Told::Changed => return Ok(Ended::Failed),
            }
        }
        let are_all_done = execute::execute(&self.io, kept, view, &decision, memory, now).await?;
        tell_refused(&mut decision.status, |pool| memory.refused.get(pool).map(|refusal| refusal.reason.as_str()));
        self.report(kept, &decision);
        revise::drop_surplus(&self.io, kept, view, &decision, memory, now).await?;
        let of_others = self.tell_replacements(view, &decision, memory, now).await?;
        let told = if decision.must_be_stored_first {
            Told::All
        } else {
            tell::tell(&self.io, kept, view, &decision, memory, now).await?
        };
        let later = [told.later(), of_others, (!are_all_done).then_some(PACE)].into_iter().flatten().min();
        if let Some(later) = later {
            return Ok(Ended::Again(later));
        }
        let wake = decision.wake.map(|wake| u64::try_from(wake.as_second() - now.as_second()).unwrap_or(1));
        let waits = !memory.pods.is_empty() || decision.is_to_be_polled();
        // What an autoscaler held back a moment ago it may not hold back any more.
        let recalls = view.numbers == Numbers::Recalled && view.workloads.iter().any(|workload| workload.is_autoscaled);
        let is_polled = waits || recalls || !view.failures.is_empty() || !memory.refused.is_empty();
        let again = wake.into_iter().chain(is_polled.then_some(AGAIN.as_secs())).min();
        Ok(again.map_or(Ended::Done, |seconds| Ended::Again(Duration::from_secs(seconds.max(1)))))
    }

    /// Tells how its replacements are, unless that failed a moment ago; that it fails is told of the application. How long until one
    /// may be written that was written a moment ago.
    async fn tell_replacements(
        &self,
        view: &mut View,
        decision: &Decision,
        memory: &mut Memory,
        now: Timestamp,
    ) -> Result<Option<Duration>, kube::Error> {
        const STATUS: &str = "the status of a replacement";
        if memory.failed.about(STATUS).is_some() {
            return Ok(None);
        }
        match tell_of_application(&self.io, view, decision, &mut memory.paced, now).await {
            Ok(later) => Ok(later),
            Err(error) => {
                view.failures.push(memory.failed.note(STATUS.to_owned(), "written", error, now)?);
                Ok(None)
            }
        }
    }

    /// There is no application of this name: replacements for it say so.
    async fn look_without(&self, key: &Key) -> Result<Ended, kube::Error> {
        let mut memory = self.recall(key);
        self.io.counted.note(S::CONTROLLER, key, None);
        // One that cannot be read is there.
        if self.io.applications.is_malformed(key) {
            return Ok(Ended::Done);
        }
        let now = self.io.env.now();
        let later = tell_without_subject(&self.io, key, &mut memory.paced, now).await?;
        if memory.paced.forget() {
            return Ok(Ended::Done);
        }
        self.memories().insert(key.clone(), memory);
        Ok(Ended::Again(later.unwrap_or(PACE)))
    }

    fn report(&self, kept: &Kept<S>, decision: &Decision) {
        let stopped = |status: &dapple_api::pool::ApplicationStatus| status.stopped.clone();
        if decision.status.stopped.is_some() && decision.status.stopped != stopped(S::common(&kept.status)) {
            let note = "the rollout is stopped: pools that were changed were not done in time".to_owned();
            self.event(kept, EventType::Warning, ("RollingOut", "RolloutStopped"), note);
        }
        for action in &decision.actions {
            if let Action::Patch { pool, name, repaired: Some(field), .. } = action {
                let note =
                    format!("{field} of {name}, of the pool {pool}, was changed by somebody else, and is put right");
                self.event(kept, EventType::Warning, ("Repairing", "Repaired"), note);
            }
        }
    }

    fn event(
        &self,
        kept: &Kept<S>,
        event_type: EventType,
        (action, reason): (&'static str, &'static str),
        note: String,
    ) {
        self.io.recorder.report(Report {
            about: S::KIND,
            key: kept.meta.key.clone(),
            uid: kept.meta.uid.to_string(),
            event_type,
            action,
            reason,
            note,
        });
    }
}

fn facts<'a, S: ApplicationSpec>(kept: &'a Kept<S>, view: &'a View, now: Timestamp) -> Facts<'a> {
    Facts {
        application: &view.application,
        version: &view.version,
        renderings: &view.renderings,
        newest: view.newest.as_ref().unwrap_or(&view.nothing),
        revisions: &view.revisions,
        status: S::common(&kept.status),
        pools: &view.pools,
        workloads: &view.workloads,
        refused: &view.refused,
        learned: &view.learned,
        rules: &view.rules,
        grace: view.grace,
        confirmed: &view.confirmed,
        resumed: view.resumed,
        is_suspended: view.is_suspended,
        now,
    }
}

impl<S: ApplicationSpec> Reconcile for Applications<S> {
    type Key = Key;
    const NAME: &'static str = S::CONTROLLER;

    async fn ready(&self, term: u64) {
        let io = &self.io;
        io.applications.synced(term).await;
        io.replacements.synced(term).await;
        io.deployments.synced(term).await;
        io.stateful_sets.synced(term).await;
        io.revisions.synced(term).await;
        io.nodes.synced(term).await;
        // A YurtAppSet names its pools itself. Who needs them, and they cannot be listed, says so.
        let _ = tokio::time::timeout(LISTED_WITHIN, io.pools.synced_or_missing(term)).await;
        io.term.store(term, Ordering::Relaxed);
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        let Some(kept) = self.io.applications.get(key) else { return self.look_without(key).await };
        // What an application that goes leaves behind is the garbage collector's.
        if kept.is_terminating || self.io.applications.is_malformed(key) {
            return Ok(Ended::Done);
        }
        let mut memory = self.recall(key);
        let ended = self.look(&kept, &mut memory).await;
        self.memories().insert(key.clone(), memory);
        ended
    }

    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(kept) = self.io.applications.get(key) else { return };
        self.event(&kept, EventType::Warning, ("Reconciling", "Failing"), failure.text.clone());
        let mut memory = self.recall(key);
        if let Err(error) = tell::failure(&self.io, &kept, &mut memory, (failure.text.clone(), self.now())).await {
            warn!(application = %key, error = in_words(&error), "that it fails cannot be told in its status");
        }
        self.memories().insert(key.clone(), memory);
    }
}

/// Adds applications to the queue.
struct Adder<S: ApplicationSpec> {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
    known: Arc<Store<Kept<S>>>,
}

impl<S: ApplicationSpec> Clone for Adder<S> {
    fn clone(&self) -> Self {
        let Self { queue, metrics, known } = self;
        Self { queue: queue.clone(), metrics: metrics.clone(), known: known.clone() }
    }
}

impl<S: ApplicationSpec> Adder<S> {
    fn add(&self, key: Key, is_listed: bool) {
        let urgency = if is_listed { Urgency::Sweep } else { Urgency::Change };
        if self.queue.add(key, urgency) {
            self.metrics.queue_added(S::CONTROLLER);
        }
    }

    /// What a change of a workload means: look at the application that owns it, or may take it in.
    fn on_workload(&self, kind: KindInfo, change: &Change<Workload>) {
        let Change::Object { key, old, new, listed } = change else { return };
        for workload in old.iter().chain(new) {
            match &workload.owner {
                Some(owner) if owner.is(kind) => self.add(Key::new(&key.namespace, &owner.name), *listed),
                Some(_) => {}
                None => {
                    let all = self.known.in_namespace(&key.namespace);
                    all.iter().for_each(|known| self.add(known.meta.key.clone(), *listed));
                }
            }
        }
    }

    /// What a change of a pool means: if its labels or taints are others, look at all applications that select it, or did.
    fn on_pool(&self, change: &Change<Pool>) {
        let Change::Object { old, new, listed, .. } = change else { return };
        let is_same = |old: &Pool, new: &Pool| {
            old.labels.changed_keys(&new.labels).is_empty() && old.spec.taints == new.spec.taints
        };
        if let (Some(old), Some(new)) = (old, new)
            && is_same(old, new)
        {
            return;
        }
        let pools: Vec<&Arc<Pool>> = old.iter().chain(new).collect();
        for known in self.known.all() {
            if pools.iter().any(|pool| known.spec.may_select(pool)) {
                self.add(known.meta.key.clone(), *listed);
            }
        }
    }
}
