//! The DaemonSet controller: watches, asks `dapple-plan`, and writes. What to do is decided there.
//!
//! Of each set a [`memory::Memory`] is kept between looks: the fleet as the caches tell of it. A change of a pod is told
//! to it as [`news`]; a change of the set, of a revision or of what nodes are makes it anew.

mod act;
mod cache;
pub mod forecast;
mod history;
mod known;
mod look;
mod memory;
mod mend;
mod metrics;
mod news;
mod own;
mod pod;
mod proof;
mod pull;
mod said;
mod send;
mod steps;
mod tell;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_api::kinds;
use dapple_plan::daemonset::status::Problem;
use kube::Client;
use tracing::warn;

pub use cache::{Set, SetWire};

use crate::caches::Subscription;
use crate::caches::store::{Change, Key};
use crate::env::{Backoff, Env};
use crate::failing::Failure;
use crate::family::{Controller, Family, Parts};
use crate::gates::Gate;
use crate::history::History;
use crate::observed::Wire;
use crate::queue::{Ended, Queue};
use crate::slim::{Node, Pod, Revision};
use crate::worker::{Reconcile, started};
use crate::writes::client::in_words;
use crate::writes::events::Recorder;

use cache::SetRevision;
use memory::Memory;
use metrics::PatchMetrics;
use news::News;

/// Patches by node label, on by default. Off: patches stay stored, new pods get the template as it is, and those that run
/// count as current until the template changes.
pub const NODE_LABEL_PATCHES: Gate = Gate { name: "AdvancedDaemonSetNodeLabelPatches", default: true };

/// The family.
pub const FAMILY: Family = Family {
    name: "daemonset",
    needs: &[&kinds::DAEMON_SET],
    is_adoptable: true,
    controllers: &[Controller {
        name: DaemonSets::NAME,
        reads: &[kinds::DAEMON_SET.at, kinds::CONTROLLER_REVISION, kinds::POD, kinds::NODE],
        start: |parts| started(DaemonSets::start(parts), parts),
    }],
    gates: &[&NODE_LABEL_PATCHES],
    register: |metrics| _ = metrics.of_family::<PatchMetrics>(),
};

/// What is said of a set that no look at comes to its end.
const RECONCILE_FAILED: &str = "ReconcileFailed";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };

/// The controller.
pub struct DaemonSets {
    client: Client,
    env: Env,
    recorder: Arc<Recorder>,
    metrics: Arc<PatchMetrics>,
    ignores_patches: bool,
    sets: Subscription<Set>,
    revisions: Subscription<Revision>,
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    news: Arc<News>,
    memories: Mutex<BTreeMap<Key, Memory>>,
}

impl DaemonSets {
    /// Subscribes to what it reads. Returns the controller and the queue of sets to look at.
    pub fn start(parts: &Parts) -> (Arc<Self>, Arc<Queue<Key>>) {
        let (caches, life) = (&parts.caches, &parts.stop);
        let queue = Arc::new(Queue::new(BACKOFF, parts.env.clone()));
        let sets = caches.open::<Set>().indexed_by([Set::BY_SELECTED]);
        let revisions = caches.open().indexed_by([Revision::BY_OWNER, Revision::ORPHANS]);
        let pods = caches.open().indexed_by([Pod::BY_OWNER, Pod::ORPHANS]);
        let news = Arc::new(News::new(queue.clone(), parts.metrics.clone(), sets.store()));
        let (mut on_set, recorder) = (news.clone().on_set(), parts.recorder.clone());
        let (metrics, measured) =
            (parts.metrics.of_family::<PatchMetrics>(), parts.metrics.of_family::<PatchMetrics>());
        let on_set = move |change: &Change<Set>| {
            // A standby, which works on nothing, may have led before.
            if let Change::Object { key, new: None, .. } = change {
                measured.forget(key);
                recorder.forget(SetWire::KIND, key);
            }
            on_set(change);
        };
        let controller = Self {
            client: parts.client.clone(),
            env: parts.env.clone(),
            recorder: parts.recorder.clone(),
            metrics,
            ignores_patches: !parts.gates.is_on(&NODE_LABEL_PATCHES),
            sets: sets.subscribe(life, on_set),
            revisions: revisions.subscribe(life, news.clone().on_revision()),
            pods: pods.subscribe(life, news.clone().on_pod()),
            nodes: caches.open().subscribe(life, news.clone().on_node()),
            news,
            memories: Mutex::default(),
        };
        (Arc::new(controller), queue)
    }

    /// The revisions of a set's namespace, in the API server.
    fn history(&self, set: &Set) -> History {
        History::new(&self.client, &set.meta.key.namespace)
    }

    fn memories(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for DaemonSets {
    type Key = Key;
    const NAME: &'static str = "daemonset";

    async fn ready(&self, term: u64) {
        self.nodes.synced(term).await;
        self.pods.synced(term).await;
        self.revisions.synced(term).await;
        self.sets.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        if self.sets.is_malformed(key) {
            return Ok(Ended::Done);
        }
        // A key is worked on by one worker at a time, so nobody misses it meanwhile.
        let mut known = self.memories().remove(key);
        // Before the set and the news are read: what happens while we ask is to be known to those who decide.
        let resolved = match known.as_mut() {
            Some(memory) => self.resolve_doubts(key, memory).await,
            None => Ok(()),
        };
        let Some(set) = self.sets.get(key).filter(|set| !set.is_terminating) else {
            self.forget(key);
            return Ok(Ended::Done);
        };
        let known = known.filter(|memory| memory.uid == set.meta.uid);
        let mut memory = known.unwrap_or_else(|| Memory::new(set.meta.uid.clone()));
        let ended = match resolved {
            Ok(()) => self.look(&set, &mut memory).await,
            Err(error) => Err(error),
        };
        self.memories().insert(key.clone(), memory);
        ended
    }

    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(set) = self.sets.get(key).filter(|set| !set.is_terminating) else { return };
        let Some(mut memory) = self.memories().remove(key) else { return };
        let text = format!("the last look at it failed: {}", failure.text);
        self.report(&set, RECONCILE_FAILED, text.clone());
        memory.failure = Some(Problem::new(RECONCILE_FAILED, text));
        // Counts of the set as it was are not told of what it is.
        let is_of_it = !memory.is_stale() && memory.set.as_ref().is_some_and(|known| set.asks_as(known));
        let told = match self.standing(&set, &memory).filter(|_| is_of_it) {
            Some(standing) => self.tell(&set, &mut memory, &standing).await.map(|_| ()),
            None => self.tell_failures(&set, &mut memory).await.map(|_| ()),
        };
        if let Err(error) = told {
            warn!(set = %key, error = in_words(&error), "its status cannot say that it fails");
        }
        self.memories().insert(key.clone(), memory);
    }
}
