//! The DaemonSet controller: watches, asks `dapple-plan`, and writes. What to do is decided there.
//!
//! A look at a set goes one way: [`subscribe`] collects what changed, [`reconcile`] takes it in by [`observe`], has the plan
//! decide, has [`execute`] write it, and [`status`] tell it. The cluster is reached by [`io`]. Of each set a
//! [`memory::Memory`] is kept between looks: the fleet as the caches tell of it, and writes that are open. A change of a pod
//! or of a node is brought into it; a change of the set or of a revision makes it anew.

mod claim;
mod execute;
pub mod forecast;
mod history;
mod io;
mod known;
mod memory;
mod mend;
mod metrics;
mod observe;
mod pod;
mod proof;
mod pull;
mod reconcile;
mod report;
mod revision;
mod send;
mod status;
mod steps;
mod subscribe;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::kinds;
use dapple_plan::daemonset::status::Problem;
use tracing::warn;

use crate::caches::store::Change;
use crate::env::Backoff;
use crate::failing::Failure;
use crate::family::{Controller, ControllerContext, Family, Part};
use crate::gates::Gate;
use crate::overriding::Policies;
use crate::queue::{Ended, Queue};
use crate::slim::{Key, Pod, Revision, Set};
use crate::worker::{Reconcile, started};
use crate::writes::client::in_words;

use execute::resolve_doubts;
use io::Io;
use memory::Memory;
use metrics::PatchMetrics;
use reconcile::{reconcile, tell_failures};
use report::Reporter;
use revision::SetRevision;
use status::{next_status, tell};
use subscribe::News;

/// Patches by node label, on by default. Off: patches stay stored, new pods get the template as it is, and those that run
/// count as current until the template changes.
pub const NODE_LABEL_PATCHES: Gate = Gate { name: "AdvancedDaemonSetNodeLabelPatches", default: true };

/// The family.
pub const FAMILY: Family = Family {
    name: NAME,
    adoptable: &[&kinds::DAEMON_SET],
    parts: &[Part {
        name: NAME,
        needs: &[&kinds::DAEMON_SET],
        controllers: &[Controller {
            reads: &[
                kinds::DAEMON_SET.at,
                kinds::CONTROLLER_REVISION,
                kinds::POD,
                kinds::NODE,
                kinds::OVERRIDE_POLICY.at,
                kinds::NODE_GROUP.at,
            ],
            start: |context| started(DaemonSets::start(context), context),
        }],
        // Nothing is held back for it.
        tell_off: |_, _| Box::pin(std::future::ready(())),
    }],
    gates: &[&NODE_LABEL_PATCHES],
    register: |metrics| _ = metrics.of_family::<PatchMetrics>(),
};

/// What is said of a set that no look at comes to its end.
const RECONCILE_FAILED: &str = "ReconcileFailed";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };

/// Its name in logs and metrics.
const NAME: &str = "daemonset";

/// The controller.
pub struct DaemonSets {
    io: Io,
    news: Arc<News>,
    memories: Memories,
}

/// What is kept of each set between looks.
type Memories = Arc<Mutex<BTreeMap<Key, Memory>>>;

impl DaemonSets {
    /// Subscribes to what it reads. Returns the controller and the queue of sets to look at.
    pub fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let (caches, life) = (&context.caches, &context.stop);
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let sets = caches.open::<Set>().indexed_by([Set::BY_SELECTED, Set::BY_POLICY]);
        let revisions = caches.open().indexed_by([Revision::BY_OWNER, Revision::ORPHANS]);
        let pods = caches.open().indexed_by([Pod::BY_OWNER, Pod::ORPHANS]);
        let (metrics, leading) = (context.metrics.clone(), context.leading.clone());
        let news = Arc::new(News::new(queue.clone(), metrics, sets.store(), leading));
        let reporter = Reporter { recorder: context.recorder.clone(), metrics: context.metrics.of_family() };
        let (mut on_set, gone, memories) = (news.clone().on_set(), reporter.clone(), Memories::default());
        let kept = memories.clone();
        let on_set = move |change: &Change<Set>| {
            on_set(change);
            // A standby, which works on nothing, may have led before. Last: of what a worker puts back after this, the key
            // comes again.
            if let Change::Object { key, new: None, .. } = change {
                gone.forget(key);
                locked(&kept).remove(key);
            }
        };
        let told = news.clone();
        let policies = Policies::subscribe(context, move |value| told.on_policies(value));
        let io = Io {
            client: context.client.clone(),
            env: context.env.clone(),
            sets: sets.subscribe(life, on_set),
            revisions: revisions.subscribe(life, news.clone().on_revision()),
            pods: pods.subscribe(life, news.clone().on_pod()),
            nodes: caches.open().subscribe(life, news.clone().on_node()),
            policies,
            reporter,
            ignores_patches: !context.gates.is_on(&NODE_LABEL_PATCHES),
        };
        (Arc::new(Self { io, news, memories }), queue)
    }

    fn memories(&self) -> MutexGuard<'_, BTreeMap<Key, Memory>> {
        locked(&self.memories)
    }
}

fn locked(memories: &Mutex<BTreeMap<Key, Memory>>) -> MutexGuard<'_, BTreeMap<Key, Memory>> {
    memories.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reconcile for DaemonSets {
    type Key = Key;
    const NAME: &'static str = NAME;

    async fn ready(&self, term: u64) {
        self.io.policies.begin(term);
        self.io.nodes.synced(term).await;
        self.io.pods.synced(term).await;
        self.io.revisions.synced(term).await;
        self.io.sets.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        if self.io.sets.is_malformed(key) {
            return Ok(Ended::Done);
        }
        // A key is worked on by one worker at a time, so nobody misses it meanwhile.
        let mut known = self.memories().remove(key);
        // Before the set and the news are read: what happens while we ask is to be known to those who decide.
        let resolved = match known.as_mut() {
            Some(memory) => resolve_doubts(&self.io, key, memory).await,
            None => Ok(()),
        };
        let Some(set) = self.io.sets.get(key).filter(|set| !set.is_terminating) else {
            self.news.forget(key);
            self.io.reporter.forget(key);
            return Ok(Ended::Done);
        };
        let known = known.filter(|memory| memory.uid == set.meta.uid);
        let mut memory = known.unwrap_or_else(|| Memory::new(set.meta.uid.clone()));
        let ended = match resolved {
            Ok(()) => reconcile(&self.io, &self.news, &set, &mut memory).await,
            Err(error) => Err(error),
        };
        self.memories().insert(key.clone(), memory);
        ended
    }

    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(set) = self.io.sets.get(key).filter(|set| !set.is_terminating) else { return };
        let Some(mut memory) = self.memories().remove(key) else { return };
        let text = format!("the last look at it failed: {}", failure.text);
        self.io.reporter.report(&set, RECONCILE_FAILED, text.clone());
        memory.failures.whole = Some(Problem::new(RECONCILE_FAILED, text));
        // Counts of the set as it was are not told of what it is.
        let is_of_it = !memory.view.is_stale() && memory.view.set.as_ref().is_some_and(|known| set.asks_as(known));
        let told = match next_status(&self.io, &set, &memory).filter(|_| is_of_it) {
            Some(next_status) => tell(&self.io, &set, &mut memory.said, &next_status).await.map(|_| ()),
            None => tell_failures(&self.io, &set, &mut memory).await.map(|_| ()),
        };
        if let Err(error) = told {
            warn!(set = %key, error = in_words(&error), "its status cannot say that it fails");
        }
        self.memories().insert(key.clone(), memory);
    }
}
