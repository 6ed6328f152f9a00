//! Labels, annotations and taints that nodes get of their pools, as [`dapple_plan::pool::attributes`] has it.
//!
//! What is cached of a node says whether anything is to be written, so a restart asks for no node. One that is to be written is read
//! whole first, from the API server itself: taints are one list, which others write too.

use std::sync::Arc;
use std::time::Duration;

use dapple_api::kinds::NODE;
use dapple_api::pool::NODE_POOL_LABEL;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::pool::attributes::{Settled, settle};
use dapple_plan::pool::fight::blamed;
use dapple_plan::pool::leaving::{self, Leave, Leaving};
use dapple_plan::pool::status::Standing;
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, Patch};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use super::adder::Adder;
use super::execution::{Execution, Hindered};
use super::fights::Fights;
use super::metrics::PoolMetrics;
use super::seen::{is_as_seen, left, pool_of, seen};
use super::standings::{PoolVersion, Standings};
use super::subscribe::{on_node, on_pool};
use super::{BY_LEFT, BY_POOL, BY_POOL_WITH_ATTRIBUTES, BY_REMEMBERED, Pool};
use crate::caches::Subscription;
use crate::env::Env;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::observed::Observed;
use crate::pacer::Pacer;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Node};
use crate::worker::Reconcile;
use crate::writes::client::{in_words, is_not_leading};
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// How soon to look again at a node of which our view is behind.
const ECHO: Duration = Duration::from_secs(1);
/// A turn to put taints on a node by which Kubernetes deletes pods is over after this time.
const TURN_LASTS: Duration = Duration::from_secs(10);
/// How soon to look again at a node whose pool is gone, with many others that left it: nothing tells when they are fewer.
const WITHOUT_POOL: Duration = Duration::from_secs(60);

/// The controller. Its keys are nodes.
pub(super) struct PoolNodes {
    client: Client,
    env: Env,
    recorder: Arc<Recorder>,
    counted: Arc<PoolMetrics>,
    pools: Subscription<Pool>,
    nodes: Subscription<Node>,
    standings: Arc<Standings>,
    fights: Fights,
    execution: Execution,
    pacer: Pacer,
}

/// What is known of a pool.
enum Found {
    Is(Arc<Pool>),
    Gone,
    /// It is there, and cannot be read.
    Unreadable,
}

/// What is to be done about a node.
enum Next {
    /// Nothing, until something changes.
    Rest,
    /// It is looked at again after this time.
    Again(Duration),
    /// It is written: it is in this pool, or in none.
    Write(Option<Arc<Pool>>),
    /// It lacks nothing but taints by which Kubernetes deletes pods.
    Execute(Arc<Pool>),
}

impl PoolNodes {
    /// Subscribes to pools and nodes. Returns the controller and the queue of nodes to look at.
    pub(super) fn start(context: &ControllerContext, standings: Arc<Standings>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let adder = Adder::new(Self::NAME, context);
        let indexes = [BY_POOL, BY_REMEMBERED, BY_LEFT, BY_POOL_WITH_ATTRIBUTES];
        let (pools, nodes) = (context.caches.open(), context.caches.open().indexed_by(indexes));
        let pools = pools.subscribe(&context.stop, on_pool(nodes.store(), adder.clone()));
        let queue = adder.queue.clone();
        let nodes = nodes.subscribe(&context.stop, move |change| on_node(&adder, change));
        let between = Duration::from_secs(1) / u32::from(context.pool.node_writes_per_second.max(1));
        let controller = Self {
            client: context.client.clone(),
            env: context.env.clone(),
            recorder: context.recorder.clone(),
            counted: context.metrics.of_family(),
            pools,
            nodes,
            standings,
            fights: Fights::default(),
            execution: Execution::default(),
            pacer: Pacer::new(if is_on(Mutant::NodeWritesUnpaced) { Duration::ZERO } else { between }),
        };
        (Arc::new(controller), queue)
    }

    fn pool(&self, name: &Arc<str>) -> Found {
        let key = Key { namespace: Arc::from(""), name: name.clone() };
        match self.pools.get(&key) {
            _ if self.pools.is_malformed(&key) => Found::Unreadable,
            Some(pool) => Found::Is(pool),
            None => Found::Gone,
        }
    }

    /// What is to be done about a node, as far as it is cached.
    fn next(&self, node: &Node) -> Next {
        let (name, label) = (&node.meta.key.name, node.labels.get_shared(NODE_POOL_LABEL));
        let pool = match label.as_ref().map(|label| self.pool(label)) {
            None => None,
            Some(Found::Is(pool)) => Some(pool),
            Some(Found::Gone) if is_on(Mutant::GonePoolIsNone) => None,
            Some(Found::Gone) => {
                self.tell_gone(node, label.as_ref());
                return Next::Rest;
            }
            Some(Found::Unreadable) => return Next::Rest,
        };
        let remembered = node.pool.remembered.as_ref();
        if pool.is_none() {
            self.standings.forget(name);
            self.fights.forget(name);
            if remembered.is_none() {
                return Next::Rest;
            }
        }
        // What OpenYurt has put on a node is taken to be of the pool that the node is in.
        let is_another =
            |from: &&Arc<str>| pool.as_ref().is_none_or(|pool| **from != pool.meta.key.name && !from.is_empty());
        if let Some(next) = remembered.filter(is_another).and_then(|from| self.leave(node, from, pool.as_deref())) {
            return next;
        }
        let settled = match settle(&seen(node, pool.as_deref()), pool.as_deref().map(pool_of), false) {
            Ok(settled) => settled,
            Err(unreadable) => {
                self.stand(name, pool.as_deref(), Standing::Failed(unreadable.to_string()));
                self.report(node, "Unreadable", unreadable.to_string());
                return Next::Rest;
            }
        };
        self.next_in(node, pool, &settled)
    }

    /// What is to be done about a node that may get what its pool gives.
    fn next_in(&self, node: &Node, pool: Option<Arc<Pool>>, settled: &Settled) -> Next {
        let name = &node.meta.key.name;
        let Some(pool) = pool else {
            return if settled.patch.is_some() { Next::Write(None) } else { Next::Rest };
        };
        if settled.patch.is_none() && settled.held.is_empty() {
            let standing = match settled.lost.first() {
                Some(key) => Standing::NotExecuted(format!("{key} was taken off, and is never put on again")),
                None => Standing::Done,
            };
            self.standings.note(name, &pool, standing);
            return Next::Rest;
        }
        if pool.settings.is_suspended && !is_on(Mutant::SuspendForgotten) {
            self.standings.note(name, &pool, Standing::Waiting);
            return Next::Rest;
        }
        if !settled.repaired.is_empty()
            && let Some((rest, who)) = self.fights.rests(name, &PoolVersion::of(&pool))
        {
            self.standings.note(name, &pool, Standing::Contested(who.clone()));
            let note = format!("its pool {} puts {who}; it is left alone for an hour", pool.meta.key.name);
            self.report(node, "Contested", note);
            self.counted.contested.inc();
            return Next::Again(rest);
        }
        if settled.patch.is_none() {
            return Next::Execute(pool);
        }
        self.standings.note(name, &pool, Standing::Waiting);
        Next::Write(Some(pool))
    }

    /// What keeps a node as it is that has left a pool, for none or another; none if nothing does.
    fn leave(&self, node: &Node, from: &Arc<str>, into: Option<&Pool>) -> Option<Next> {
        let name = &node.meta.key.name;
        let pool = match self.pool(from) {
            Found::Is(pool) => Some(pool),
            Found::Gone => None,
            Found::Unreadable => {
                self.stand(name, into, Standing::Waiting);
                return Some(Next::Rest);
            }
        };
        if pool.as_ref().is_some_and(|pool| pool.settings.is_suspended) && !is_on(Mutant::SuspendForgotten) {
            self.stand(name, into, Standing::Waiting);
            return Some(Next::Rest);
        }
        let noted = pool.as_ref().map(|pool| pool.status.as_ref().map_or(&[][..], |status| &status.left_nodes));
        let confirmed = pool.as_ref().and_then(|pool| pool.settings.confirmed.as_deref());
        // Each that leaves is looked at, so none may take a look at all the others.
        let members = self.nodes.count(BY_POOL, from);
        let left = left(&self.nodes, from, leaving::decisive(members, confirmed));
        let leaving = Leaving { members, left: &left, noted, confirmed, now: self.env.now() };
        match leaving.of(name) {
            Leave::Undo => None,
            Leave::Note => {
                self.stand(name, into, Standing::Waiting);
                self.standings.pools.add(from, Urgency::Change);
                Some(Next::Rest)
            }
            Leave::Hold => {
                self.counted.held.inc();
                self.stand(name, into, Standing::Held);
                if pool.is_some() {
                    self.standings.pools.add(from, Urgency::Change);
                    return Some(Next::Rest);
                }
                if left.first() == Some(name) {
                    let note = format!(
                        "it keeps what the NodePool {from:?} put there, which is gone: {} nodes left it at once. Create the pool \
                         again, with annotation dapple.dev/confirm-removal, if that was meant",
                        self.nodes.count(BY_LEFT, from)
                    );
                    self.report(node, "RemovalHeld", note);
                }
                Some(Next::Again(WITHOUT_POOL))
            }
        }
    }

    /// Notes how far a node is, if it is in a pool.
    fn stand(&self, node: &Arc<str>, pool: Option<&Pool>, standing: Standing) {
        if let Some(pool) = pool {
            self.standings.note(node, pool, standing);
        }
    }

    /// Says that a pool is gone, on one of the nodes that have something of it: there is no pool to say it of. Of nodes that have
    /// nothing, a label that names no pool is no loss.
    fn tell_gone(&self, node: &Node, pool: Option<&Arc<str>>) {
        let Some(pool) = pool else { return };
        self.counted.gone.inc();
        self.standings.forget(&node.meta.key.name);
        let first = self.nodes.find_some(BY_POOL_WITH_ATTRIBUTES, pool, 1, |_| true);
        if first.first().is_some_and(|first| first.meta.key == node.meta.key) {
            let count = self.nodes.count(BY_POOL_WITH_ATTRIBUTES, pool);
            warn!(pool = &**pool, nodes = count, "nodes have what a NodePool gave them that is gone");
            let note = format!(
                "its label names the NodePool {pool:?}, which is gone: nothing is changed on the {count} nodes that have something of \
                 it. Create the pool, or take the label off"
            );
            self.report(node, "NodePoolGone", note);
        }
    }

    fn report(&self, node: &Node, reason: &'static str, note: String) {
        self.recorder.report(Report {
            about: NODE,
            key: node.meta.key.clone(),
            // As kubelets name their nodes in Events, by which `kubectl describe node` finds them.
            uid: node.meta.key.name.to_string(),
            event_type: EventType::Warning,
            action: "Pooling",
            reason,
            note,
        });
    }

    /// Since when it is a node's turn to get the taints by which Kubernetes deletes pods; else how its look ends.
    async fn may_execute(&self, node: &Node, pool: &Pool) -> Result<Result<Instant, Ended>, kube::Error> {
        let may = self.execution.may(&self.client, pool, &self.nodes).await?;
        Ok(may.map_err(|Hindered { why, again }| {
            self.standings.note(&node.meta.key.name, pool, Standing::NotExecuted(why));
            again.map_or(Ended::Done, Ended::Again)
        }))
    }

    async fn look(&self, key: &Key) -> Result<Ended, kube::Error> {
        let Some(node) = self.nodes.get(key) else {
            self.standings.forget(&key.name);
            self.fights.forget(&key.name);
            return Ok(Ended::Done);
        };
        if !self.nodes.caught_up(key) || !self.pools.is_known() {
            return Ok(Ended::Again(ECHO));
        }
        let turn = match self.next(&node) {
            Next::Rest => return Ok(Ended::Done),
            Next::Again(wait) => return Ok(Ended::Again(wait)),
            Next::Write(_) => None,
            Next::Execute(pool) => match self.may_execute(&node, &pool).await? {
                Ok(turn) => Some(turn),
                Err(ended) => return Ok(ended),
            },
        };
        self.pacer.turn().await;
        // Much may have changed meanwhile: its pool, and who else has left.
        let Some(node) = self.nodes.get(key) else { return Ok(Ended::Done) };
        match self.next(&node) {
            Next::Write(pool) => self.write(&node, pool.as_deref(), None).await,
            Next::Execute(pool) if pool.settings.allows_no_execute || is_on(Mutant::ExecutedUnasked) => {
                // Without a turn it gets nothing that it does not have.
                self.write(&node, Some(&pool), turn).await
            }
            Next::Execute(_) => Ok(Ended::Again(ECHO)),
            Next::Rest => Ok(Ended::Done),
            Next::Again(wait) => Ok(Ended::Again(wait)),
        }
    }

    /// Reads a node whole, and writes what becomes of it onto that very version: with taints by which Kubernetes deletes pods if it
    /// is its turn, since when.
    async fn write(&self, node: &Node, pool: Option<&Pool>, turn: Option<Instant>) -> Result<Ended, kube::Error> {
        let key = &node.meta.key;
        let found = Api::<Observed<Value>>::all_with(self.client.clone(), &NODE).get_opt(&key.name).await?;
        let Some(found) = found.and_then(|found| found.object.ok()) else { return Ok(Ended::Done) };
        if !is_as_seen(&found, node) {
            return Ok(Ended::Again(ECHO));
        }
        // Answers may take long, and the next node has its turn soon.
        if turn.is_some_and(|since| since.elapsed() > TURN_LASTS) {
            return Ok(Ended::Again(ECHO));
        }
        let Ok(settled) = settle(&found, pool.map(pool_of), turn.is_some()) else { return Ok(Ended::Again(ECHO)) };
        let Some(patch) = settled.patch else { return Ok(Ended::Again(ECHO)) };
        let writer = Writer::new(&self.client, &Api::<v1::Node>::all(self.client.clone()));
        match writer.patch(&key.name, None, &Patch::Merge(&patch)).await {
            Outcome::Written(version) => self.nodes.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // It is another one by now: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        self.counted.writes.inc();
        if turn.is_some() {
            self.counted.executed.inc();
        }
        if let Some(pool) = pool.filter(|_| !settled.repaired.is_empty()) {
            self.counted.repairs.inc();
            self.fights.repaired(&key.name, PoolVersion::of(pool), blamed(&found, &settled.repaired));
        }
        info!(node = %key, pool = pool.map(|pool| &*pool.meta.key.name), "attributes written");
        Ok(Ended::Done)
    }
}

impl Reconcile for PoolNodes {
    type Key = Key;
    const NAME: &'static str = "pool-nodes";

    async fn ready(&self, term: u64) {
        self.nodes.synced(term).await;
        self.pools.synced(term).await;
        self.execution.begin(term);
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        let outcome = self.look(key).await;
        if let Err(error) = &outcome
            && !is_not_leading(error)
            && let Some(node) = self.nodes.get(key)
            && let Some(label) = node.labels.get_shared(NODE_POOL_LABEL)
            && let Found::Is(pool) = self.pool(&label)
        {
            self.standings.note(&key.name, &pool, Standing::Failed(in_words(error)));
        }
        outcome
    }

    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(node) = self.nodes.get(key) else { return };
        self.report(&node, "FailedAttributes", format!("it cannot get what its pool gives: {}", failure.text));
    }
}
