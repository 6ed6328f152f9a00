//! Keeps the workloads of applications true, pool by pool: one controller for YurtAppSets and one for YurtAppDaemons. What is done is
//! decided by [`dapple_plan::pool::application`].
//!
//! - Nothing is decided before everything that it follows from is known: a list that failed, or a CRD that is gone, never means
//!   that there are no pools or no replacements.
//! - What is remembered is in the cluster; kept here is only what saves questions, and what was refused a moment ago.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::kinds::{NATIVE_DEPLOYMENT, NATIVE_STATEFUL_SET};
use dapple_plan::pool::application::{Action, Decision, Facts, decide};
use dapple_plan::pool::learned::Target;
use jiff::Timestamp;
use tokio::time::Instant;

use super::cache::BY_POOL;
use super::kept::{ApplicationSpec, Kept, Workload};
use super::metrics::Numbers;
use super::{BACKOFF, Pool, Replacement};
use crate::caches::store::{Change, Store};
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::observed::KindInfo;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Revision};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Report};

mod claim;
mod execute;
mod explain;
mod io;
mod learn;
mod observe;
mod recalled;
mod replacements;
mod revise;
mod tell;

use explain::{Changers, Said};
use io::Io;
use learn::Sought;
pub use learn::is_there;
use observe::{Situation, View};
pub(super) use observe::{addressed, asked, in_force, plain};
use recalled::Recalled;
pub(super) use replacements::tell_unserved;
use replacements::{Paced, tell_of_application, tell_without_subject};
use tell::Told;

/// A status is written no more often; and how soon to look again where our view is behind.
const PACE: Duration = Duration::from_secs(1);
/// How soon to look again at what nothing tells of: a refused write, nodes of a pool that is gone, or a target that does not exist.
const AGAIN: Duration = Duration::from_secs(30);
/// A write is seen by then or was not done: a watch that has gone silent ends before, and what was missed is told.
const SEEN_WITHIN: Duration = Duration::from_secs(330);
/// How often the API server is asked within one look what decides, each time for something else.
const QUESTIONS: usize = 4;

/// The controller of one kind of applications. Its keys are applications.
pub(super) struct Applications<S: ApplicationSpec> {
    io: Io<S>,
    memories: Mutex<BTreeMap<Key, Memory>>,
}

/// What saves questions, and no more.
#[derive(Default)]
struct Memory {
    recalled: Recalled,
    /// Pools whose last write was refused, with what was to be rolled out, the reason, and until when that counts.
    refused: BTreeMap<String, Refusal>,
    /// Workloads that a write of ours may have changed, by UID.
    doubts: BTreeMap<String, Doubt>,
    /// Workloads that another webhook changes, by UID, with what was compared.
    others_doing: BTreeMap<String, String>,
    /// Whether there is what replacements have pods refer to.
    targets: BTreeMap<Target, Sought>,
    /// What pods said of pools that are not done.
    pods: BTreeMap<String, Said>,
    /// Who else changes workloads that are left alone for that.
    changers: BTreeMap<String, Changers>,
    /// When the status was last written.
    told: Option<Instant>,
    /// When those of replacements were.
    paced: Paced,
}

impl Memory {
    /// How long the status is not written yet.
    fn rest(&self) -> Option<Duration> {
        self.told.map(|told| PACE.saturating_sub(told.elapsed())).filter(|rest| !rest.is_zero())
    }
}

/// A write of which nobody knows whether it was done.
struct Doubt {
    /// The version that was to be changed: the write changes no other.
    version: String,
    until: Timestamp,
}

struct Refusal {
    revision: String,
    reason: String,
    until: Timestamp,
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

    async fn look(&self, kept: &Kept<S>, memory: &mut Memory) -> Result<Ended, kube::Error> {
        // As the API server keeps times: what is told and read again is the same.
        let now = self.io.env.now();
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        memory.refused.retain(|_, refusal| now < refusal.until);
        let mut view = match observe::observe(&self.io, kept, &mut memory.recalled) {
            Situation::Known(view) => *view,
            Situation::Behind => return Ok(Ended::Again(PACE)),
            Situation::Unknown(reason) => return tell::failure(&self.io, kept, memory, (reason, now)).await,
        };
        if claim::claim(&self.io, kept, &view).await?
            || revise::revise(&self.io, kept, &mut view, &mut memory.recalled).await?
        {
            return Ok(Ended::Again(PACE));
        }
        let Some(newest) = view.newest.clone() else { return Ok(Ended::Again(PACE)) };
        memory.refused.retain(|_, refusal| refusal.revision == newest.name);
        memory.doubts.retain(|_, doubt| now < doubt.until);
        for workload in &mut view.workloads {
            let [uid, version] = ["uid", "resourceVersion"].map(|field| workload.object["metadata"][field].as_str());
            let doubt = uid.and_then(|uid| memory.doubts.get(uid));
            workload.is_in_doubt = doubt.is_some_and(|doubt| Some(doubt.version.as_str()) == version);
        }
        view.refused = memory.refused.iter().map(|(pool, known)| (pool.clone(), known.reason.clone())).collect();
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
        self.io.counted.note(S::CONTROLLER, &kept.meta.key, Some(Numbers::of(&decision)));
        if decision.must_be_stored_first {
            match tell::tell(&self.io, kept, &view, &decision, memory, now).await? {
                Told::All => {}
                Told::Later(rest) => return Ok(Ended::Again(rest)),
                Told::Changed => return Ok(Ended::Failed),
            }
        }
        let are_all_done = execute::execute(&self.io, kept, &view, &decision, memory, now).await?;
        self.report(kept, &decision);
        revise::drop_surplus(&self.io, kept, &view, &decision).await?;
        let told = if decision.must_be_stored_first {
            Told::All
        } else {
            tell::tell(&self.io, kept, &view, &decision, memory, now).await?
        };
        let of_others = tell_of_application(&self.io, &view, &decision, &mut memory.paced, now).await?;
        let later = [told.later(), of_others, (!are_all_done).then_some(PACE)].into_iter().flatten().min();
        if let Some(later) = later {
            return Ok(Ended::Again(later));
        }
        let wake = decision.wake.map(|wake| u64::try_from(wake.as_second() - now.as_second()).unwrap_or(1));
        let waits = !memory.pods.is_empty() || decision.seats.iter().any(|seat| !seat.missing.is_empty());
        let polled = (waits || !view.failures.is_empty() || !memory.refused.is_empty()).then_some(AGAIN.as_secs());
        let again = wake.into_iter().chain(polled).min();
        Ok(again.map_or(Ended::Done, |seconds| Ended::Again(Duration::from_secs(seconds.max(1)))))
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
        // A YurtAppSet names its pools itself: it does not need theirs.
        io.pools.synced_or_missing(term).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_once_a_second() {
        let mut memory = Memory::default();
        assert_eq!(memory.rest(), None);
        memory.told = Some(Instant::now());
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(memory.rest(), Some(Duration::from_millis(600)));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(memory.rest(), None);
    }
}
