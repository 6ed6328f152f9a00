//! Keeps the status of NodePools true: which nodes they have, and how far those are. What it says is decided by
//! [`dapple_plan::pool::status`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::pool::{NODE_POOL_LABEL, NodePool, NodePoolStatus};
use dapple_plan::pool::status::{PoolFacts, pool_status};
use kube::Client;
use kube::api::Api;
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use super::cache::PoolWire;
use super::{BACKOFF, BY_POOL, Pool};
use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::observed::KindWire;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Node};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// A pool is looked at, and written, no more often: it tells of all its nodes.
const PACE: Duration = Duration::from_secs(1);

/// The controller. Its keys are pools.
pub(super) struct PoolStatuses {
    client: Client,
    recorder: Arc<Recorder>,
    pools: Subscription<Pool>,
    nodes: Subscription<Node>,
    looked: Mutex<BTreeMap<Key, Instant>>,
}

impl PoolStatuses {
    /// Subscribes to pools and nodes. Returns the controller and the queue of pools to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone() };
        let (pools, nodes) = (context.caches.open(), context.caches.open().indexed_by([BY_POOL]));
        let to_pools = adder.clone();
        let pools = pools.subscribe(&context.stop, move |change| on_pool(&to_pools, change));
        let nodes = nodes.subscribe(&context.stop, move |change| on_node(&adder, change));
        let controller = Self {
            client: context.client.clone(),
            recorder: context.recorder.clone(),
            pools,
            nodes,
            looked: Mutex::default(),
        };
        (Arc::new(controller), queue)
    }

    fn looked(&self) -> MutexGuard<'_, BTreeMap<Key, Instant>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait before this pool may be looked at again.
    fn pause(&self, key: &Key) -> Option<Duration> {
        let mut looked = self.looked();
        let pause = looked.get(key).map_or(Duration::ZERO, |last| PACE.saturating_sub(last.elapsed()));
        if pause.is_zero() {
            looked.insert(key.clone(), Instant::now());
        }
        (!pause.is_zero()).then_some(pause)
    }

    /// Writes the status onto the very version that was looked at. Anything newer refuses it.
    async fn write(&self, pool: &Pool, status: &NodePoolStatus) -> Result<Ended, kube::Error> {
        let key = &pool.meta.key;
        let writer = Writer::new(&self.client, &Api::<NodePool>::all(self.client.clone()));
        match writer.write_status(&pool.meta, &replacing(status)).await {
            Outcome::Written(version) => self.pools.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // The world moved on between look and write: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        info!(pool = %key, nodes = status.nodes.len(), "status written");
        Ok(Ended::Done)
    }
}

/// The status as a merge patch that replaces the whole: what is empty now is taken out.
fn replacing(status: &NodePoolStatus) -> serde_json::Value {
    json!({
        "readyNodeNum": status.ready_node_num,
        "unreadyNodeNum": status.unready_node_num,
        "nodes": status.nodes,
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions,
    })
}

impl Reconcile for PoolStatuses {
    type Key = Key;
    const NAME: &'static str = "pool-status";

    async fn ready(&self, term: u64) {
        self.nodes.synced(term).await;
        self.pools.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        let Some(pool) = self.pools.get(key) else {
            self.looked().remove(key);
            return Ok(Ended::Done);
        };
        if self.pools.is_malformed(key) {
            return Ok(Ended::Done);
        }
        if let Some(pause) = self.pause(key) {
            return Ok(Ended::Again(pause));
        }
        // Its nodes are told as they were at one time, not some of them as they are now and others as they were before.
        if !self.pools.caught_up(key) || self.nodes.is_listing() {
            return Ok(Ended::Again(PACE));
        }
        let nodes = self.nodes.find(BY_POOL, &key.name);
        let facts = PoolFacts {
            generation: pool.generation,
            nodes: nodes.iter().map(|node| (node.meta.key.name.clone(), node.health.is_ready())).collect(),
        };
        let wanted = pool_status(&facts);
        if pool.status.as_ref() == Some(&wanted) {
            return Ok(Ended::Done);
        }
        self.write(&pool, &wanted).await
    }

    /// All that is written of a pool is its status. If that cannot be, no condition can, and an Event is left.
    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(pool) = self.pools.get(key) else { return };
        self.recorder.report(Report {
            about: PoolWire::KIND,
            key: key.clone(),
            uid: pool.meta.uid.to_string(),
            event_type: EventType::Warning,
            action: "Reconciling",
            reason: "FailedStatus",
            note: format!("its status cannot be written: {}", failure.text),
        });
    }
}

/// Adds pools to the queue.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
}

impl Adder {
    fn add(&self, pool: Arc<str>, urgency: Urgency) {
        if self.queue.add(Key { namespace: Arc::from(""), name: pool }, urgency) {
            self.metrics.queue_added(PoolStatuses::NAME);
        }
    }
}

/// What a change of a pool means: look at it.
fn on_pool(adder: &Adder, change: &Change<Pool>) {
    let Change::Object { key, listed, .. } = change else { return };
    adder.add(key.name.clone(), if *listed { Urgency::Sweep } else { Urgency::Change });
}

/// What a change of a node means: look at the pools that it is in, or was.
fn on_node(adder: &Adder, change: &Change<Node>) {
    let Change::Object { old, new, listed, .. } = change else { return };
    let told = |node: &Arc<Node>| (node.labels.get_shared(NODE_POOL_LABEL), node.health.is_ready());
    let (before, after) = (old.as_ref().map(told), new.as_ref().map(told));
    if before == after {
        return;
    }
    let urgency = if *listed { Urgency::Sweep } else { Urgency::Change };
    let pools = before.into_iter().chain(after).filter_map(|(pool, _)| pool);
    pools.for_each(|pool| adder.add(pool, urgency));
}
