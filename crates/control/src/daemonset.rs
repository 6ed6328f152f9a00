//! The DaemonSet controller: watches, asks `dapple-plan`, and writes. What to do is decided there.

mod cache;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;

pub use cache::{RevisionWire, Set, SetRevision, SetWire};

use crate::env::{Backoff, Env};
use crate::events::Recorder;
use crate::feed::Feeds;
use crate::metrics::Metrics;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Node, Pod};
use crate::store::{Cached, Change, Key, Store};
use crate::worker::Reconcile;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };
/// How soon to look again for our own writes.
const SETTLE: Duration = Duration::from_millis(50);

/// The controller.
pub struct DaemonSets {
    client: Client,
    env: Env,
    recorder: Arc<Recorder>,
    sets: Arc<Store<Set>>,
    revisions: Arc<Store<SetRevision>>,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    /// What we wrote for a set and may not have seen yet.
    written: Mutex<BTreeMap<Key, Written>>,
}

/// Objects of a set that we wrote.
#[derive(Debug, Default)]
struct Written {
    pods: BTreeSet<Key>,
    revisions: BTreeSet<Key>,
}

/// Which set a UID belongs to.
type Owners = Arc<Mutex<BTreeMap<Arc<str>, Key>>>;

impl DaemonSets {
    /// Starts to watch. Returns the controller and the queue of sets to look at.
    pub fn start(feeds: &Feeds) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, feeds.env.clone()));
        let owners = Owners::default();
        let enqueue = Enqueue { queue: queue.clone(), metrics: feeds.metrics.clone(), owners };
        let sets = feeds.watch(enqueue.clone().on_set());
        let revisions = feeds.watch(enqueue.clone().on_owned(|revision: &SetRevision| revision.owner.clone()));
        let pods = feeds.watch(enqueue.clone().on_owned(|pod: &Pod| pod.owner.clone()));
        let nodes = feeds.watch(enqueue.on_node());
        let controller = Self {
            client: feeds.client.clone(),
            env: feeds.env.clone(),
            recorder: feeds.recorder.clone(),
            sets,
            revisions,
            pods,
            nodes,
            written: Mutex::default(),
        };
        (Arc::new(controller), queue)
    }

    /// Whether everything that we wrote for a set has come back.
    fn is_caught_up(&self, key: &Key) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = written.get_mut(key) else { return self.sets.caught_up(key) };
        known.pods.retain(|pod| !self.pods.caught_up(pod));
        known.revisions.retain(|revision| !self.revisions.caught_up(revision));
        let is_done = known.pods.is_empty() && known.revisions.is_empty();
        if is_done {
            written.remove(key);
        }
        is_done && self.sets.caught_up(key)
    }
}

/// Puts sets into the queue.
#[derive(Clone)]
struct Enqueue {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
    owners: Owners,
}

impl Enqueue {
    fn add(&self, key: Key, urgency: Urgency) {
        if self.queue.add(key, urgency) {
            self.metrics.queue_added(DaemonSets::NAME);
        }
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, Key>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_set(self) -> impl FnMut(&Change<Set>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, listed } = change else { return };
            if let Some(old) = old {
                self.owners().remove(&old.meta.uid);
            }
            if let Some(new) = new {
                self.owners().insert(new.meta.uid.clone(), key.clone());
            }
            self.add(key.clone(), if *listed { Urgency::Sweep } else { Urgency::Change });
        }
    }

    fn on_owned<T: Cached>(
        self,
        owner: impl Fn(&T) -> Option<Arc<str>> + Send + 'static,
    ) -> impl FnMut(&Change<T>) + Send + 'static {
        move |change| {
            let Change::Object { old, new, .. } = change else { return };
            let owners: BTreeSet<Arc<str>> =
                [old, new].into_iter().flatten().filter_map(|object| owner(object)).collect();
            for uid in owners {
                let set = self.owners().get(&uid).cloned();
                if let Some(set) = set {
                    self.add(set, Urgency::Change);
                }
            }
        }
    }

    /// A node that comes, goes or changes what pods may run there concerns every set.
    fn on_node(self) -> impl FnMut(&Change<Node>) + Send + 'static {
        move |change| {
            let Change::Object { old, new, .. } = change else { return };
            if let (Some(old), Some(new)) = (old, new)
                && (&old.labels, &old.taints, old.ready) == (&new.labels, &new.taints, new.ready)
            {
                return;
            }
            let sets: Vec<Key> = self.owners().values().cloned().collect();
            for set in sets {
                self.add(set, Urgency::Change);
            }
        }
    }
}

impl Reconcile for DaemonSets {
    type Key = Key;
    const NAME: &'static str = "daemonset";

    async fn ready(&self) {
        self.nodes.synced().await;
        self.pods.synced().await;
        self.revisions.synced().await;
        self.sets.synced().await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        if self.sets.is_malformed(key) {
            return Ok(Ended::Done);
        }
        let Some(set) = self.sets.get(key) else {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            return Ok(Ended::Done);
        };
        if set.is_terminating {
            return Ok(Ended::Done);
        }
        if !self.is_caught_up(key) {
            return Ok(Ended::Again(SETTLE));
        }
        self.sync(&set).await
    }
}
