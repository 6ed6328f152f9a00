//! Keeps the status of NodePools true: which nodes they have, and how far those are. What it says is decided by
//! [`dapple_plan::pool::status`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::pool::{NODE_POOL_LABEL, NodePool, NodePoolStatus};
use dapple_plan::pool::leaving::{Leaving, TOGETHER};
use dapple_plan::pool::status::{PoolFacts, pool_status};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::Api;
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use super::adder::{Adder, urgency};
use super::cache::PoolWire;
use super::seen::left;
use super::standings::Standings;
use super::{BY_LEFT, BY_POOL, Pool};
use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::env::Env;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::observed::KindWire;
use crate::queue::{Ended, Queue};
use crate::slim::{Key, Node};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// A pool is looked at, and written, no more often: it tells of all its nodes.
const PACE: Duration = Duration::from_secs(1);
/// Its name in logs and metrics.
pub(super) const POOL_STATUS: &str = "pool-status";

/// The controller. Its keys are pools.
pub(super) struct PoolStatuses {
    client: Client,
    env: Env,
    recorder: Arc<Recorder>,
    pools: Subscription<Pool>,
    nodes: Subscription<Node>,
    standings: Arc<Standings>,
    looked: Mutex<BTreeMap<Key, Instant>>,
}

impl PoolStatuses {
    /// Subscribes to pools and nodes. Returns the controller and the queue of pools to look at.
    pub(super) fn start(context: &ControllerContext, standings: Arc<Standings>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let adder = standings.pools.clone();
        let queue = adder.queue.clone();
        let (pools, nodes) = (context.caches.open(), context.caches.open().indexed_by([BY_POOL, BY_LEFT]));
        let to_pools = adder.clone();
        let pools = pools.subscribe(&context.stop, move |change| on_pool(&to_pools, change));
        let nodes = nodes.subscribe(&context.stop, move |change| on_node(&adder, change));
        let controller = Self {
            client: context.client.clone(),
            env: context.env.clone(),
            recorder: context.recorder.clone(),
            pools,
            nodes,
            standings,
            looked: Mutex::default(),
        };
        (Arc::new(controller), queue)
    }

    /// What is told of a pool; none while not every node of it was looked at.
    fn facts(&self, pool: &Pool) -> Option<PoolFacts> {
        let name = &pool.meta.key.name;
        let mut nodes = BTreeMap::new();
        for node in self.nodes.find(BY_POOL, name) {
            let standing = self.standings.of(&node.meta.key.name, pool)?;
            nodes.insert(node.meta.key.name.clone(), (node.health.is_ready(), standing));
        }
        let left = left(&self.nodes, name, usize::MAX);
        let leaving = Leaving {
            members: nodes.len(),
            left: &left,
            noted: Some(pool.status.as_ref().map_or(&[], |status| &status.left_nodes)),
            confirmed: pool.settings.confirmed.as_deref(),
            now: self.env.now(),
        };
        let (noted, held) = (leaving.note(|node| nodes.contains_key(node)), leaving.held());
        let is_suspended = pool.settings.is_suspended;
        Some(PoolFacts { generation: pool.generation, is_suspended, nodes, held, left: noted })
    }

    /// When the first of those that left counts no more.
    fn until_forgotten(&self, status: &NodePoolStatus) -> Ended {
        let now = self.env.now().as_second();
        let ends = status.left_nodes.iter().map(|node| node.time.0.as_second() + TOGETHER - now);
        let first = ends.min().map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)) + PACE);
        first.map_or(Ended::Done, Ended::Again)
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
        "leftNodes": status.left_nodes,
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions,
    })
}

impl Reconcile for PoolStatuses {
    type Key = Key;
    const NAME: &'static str = POOL_STATUS;

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
        let Some(facts) = self.facts(&pool) else { return Ok(Ended::Again(PACE)) };
        let wanted = pool_status(&facts, pool.status.as_ref(), &Time(self.env.now()));
        if pool.status.as_ref() == Some(&wanted) {
            return Ok(self.until_forgotten(&wanted));
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

/// What a change of a pool means: look at it.
fn on_pool(adder: &Adder, change: &Change<Pool>) {
    let Change::Object { key, listed, .. } = change else { return };
    adder.add(&key.name, urgency(*listed));
}

/// What a change of a node means: look at the pools that it is in, or was.
fn on_node(adder: &Adder, change: &Change<Node>) {
    let Change::Object { old, new, listed, .. } = change else { return };
    let told = |node: &Arc<Node>| {
        (node.labels.get_shared(NODE_POOL_LABEL), node.pool.remembered.clone(), node.health.is_ready())
    };
    let (before, after) = (old.as_ref().map(told), new.as_ref().map(told));
    if before == after {
        return;
    }
    let pools = before.into_iter().chain(after).flat_map(|(label, remembered, _)| [label, remembered]);
    pools.flatten().for_each(|pool| adder.add(&pool, urgency(*listed)));
}
