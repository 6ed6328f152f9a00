//! Whether a taint by which Kubernetes deletes pods may be put on one more node: one after another, with a time between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::kinds::NODE;
use dapple_api::pool::{NODE_POOL_LABEL, POOL_NAME_LABEL};
use dapple_plan::fit::Taint;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::pool::execute::{executing, hindrance};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{BY_POOL, Pool};
use crate::caches::store::Store;
use crate::slim::{Key, Node, TaintEffect};

/// Between two nodes that get such taints, whichever pools they are in.
const BETWEEN: Duration = Duration::from_secs(30);

/// When the next node may get one. Nobody notes in the cluster when the last did: a new leader waits first.
#[derive(Default)]
pub(super) struct Execution(Mutex<State>);

#[derive(Default)]
struct State {
    term: u64,
    /// When the last turn was taken, or when this process began to lead.
    last: Option<Instant>,
    /// The node that keeps its pool from more, as it was found last, by pool. Each node that waits looks there before it looks at all.
    ill: BTreeMap<Arc<str>, Arc<str>>,
}

impl State {
    /// How long it is until the next turn.
    fn until_turn(&self) -> Duration {
        if is_on(Mutant::ExecutedAtOnce) {
            return Duration::ZERO;
        }
        self.last.map_or(Duration::ZERO, |last| BETWEEN.saturating_sub(last.elapsed()))
    }
}

/// Why a node does not get one now, and when to look again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hindered {
    pub(super) why: String,
    pub(super) again: Option<Duration>,
}

impl Execution {
    /// This process leads from now on.
    pub(super) fn begin(&self, term: u64) {
        let mut state = self.state();
        if term != 0 && state.term != term {
            *state = State { term, last: Some(Instant::now()), ill: BTreeMap::new() };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next turn and says since when it is.
    fn take_turn(&self) -> Result<Instant, Hindered> {
        let mut state = self.state();
        let wait = state.until_turn();
        if !wait.is_zero() {
            return Err(not_yet(wait));
        }
        let now = Instant::now();
        state.last = Some(now);
        Ok(now)
    }

    /// The node that has such a taint and is not well, if there is one: what it has done counts until it is well again, whatever has
    /// made it unwell. All nodes of the pool are looked at only if it is somebody's turn.
    fn hindering(&self, pool: &Pool, nodes: &Store<Node>) -> Option<Hindered> {
        let taints: Vec<Taint> = executing(&pool.spec).collect();
        let name = &pool.meta.key.name;
        let is_ill = |node: &Node| {
            let has_one = node.taints.iter().any(|known| {
                known.effect == TaintEffect::NoExecute && taints.iter().any(|taint| taint.key == *known.key)
            });
            has_one && !node.health.is_ready()
        };
        let is_ill_still = |known: &Arc<str>| {
            let node = nodes.get(&Key { namespace: Arc::from(""), name: known.clone() });
            node.is_some_and(|node| node.labels.get(NODE_POOL_LABEL) == Some(&**name) && is_ill(&node))
        };
        let known = self.state().ill.get(name).cloned().filter(is_ill_still);
        if known.is_none() {
            let wait = self.state().until_turn();
            if !wait.is_zero() {
                return Some(not_yet(wait));
            }
        }
        let find = || nodes.find_some(BY_POOL, name, 1, is_ill).pop().map(|node| node.meta.key.name.clone());
        let ill = known.or_else(find);
        let mut state = self.state();
        match &ill {
            Some(ill) => _ = state.ill.insert(name.clone(), ill.clone()),
            None => _ = state.ill.remove(name),
        }
        ill.map(|ill| Hindered {
            why: format!("{} {ill}, which has one, is not Ready", NODE.kind),
            again: Some(BETWEEN),
        })
    }

    /// Takes the turn of a pool, if nothing is in the way that is known without asking.
    fn turn(&self, pool: &Pool, nodes: &Store<Node>) -> Result<Instant, Hindered> {
        if !pool.settings.allows_no_execute && !is_on(Mutant::ExecutedUnasked) {
            let why = "annotation dapple.dev/allow-no-execute is not \"true\"".to_owned();
            return Err(Hindered { why, again: None });
        }
        let hindering = self.hindering(pool, nodes).filter(|_| !is_on(Mutant::ExecutedOntoMore));
        hindering.map_or_else(|| self.take_turn(), Err)
    }

    /// Whether one more node of a pool may get its taints. If so, that was the turn, and this is since when: what is asked of the
    /// API server after it was taken may be answered so late that the next node has its turn already.
    pub(super) async fn may(
        &self,
        client: &Client,
        pool: &Pool,
        nodes: &Store<Node>,
    ) -> Result<Result<Instant, Hindered>, kube::Error> {
        let turn = match self.turn(pool, nodes) {
            Ok(turn) => turn,
            Err(hindered) => return Ok(Err(hindered)),
        };
        let taints: Vec<Taint> = executing(&pool.spec).collect();
        let mut workloads = list::<Deployment>(client, &pool.meta.key.name, "Deployment").await?;
        workloads.extend(list::<StatefulSet>(client, &pool.meta.key.name, "StatefulSet").await?);
        Ok(match hindrance(&workloads, &taints) {
            Some(why) => Err(Hindered { why, again: Some(BETWEEN) }),
            None => Ok(turn),
        })
    }
}

/// It is another node's turn.
fn not_yet(wait: Duration) -> Hindered {
    Hindered { why: "one node gets them every 30 s".to_owned(), again: Some(wait) }
}

/// The workloads of a pool, as the API server has them now.
async fn list<K>(client: &Client, pool: &str, kind: &str) -> Result<Vec<Value>, kube::Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Serialize,
{
    let params = ListParams::default().labels(&format!("{POOL_NAME_LABEL}={pool}"));
    let found = Api::<K>::all(client.clone()).list(&params).await?;
    let with_kind = |object: &K| {
        let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        object["kind"] = Value::from(kind);
        Ok(object)
    };
    found.iter().map(with_kind).collect()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::observed::Observed;
    use crate::slim::{Cached, Interner, read};

    fn pool(name: &str) -> Pool {
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1",
            "annotations": {"dapple.dev/allow-no-execute": "true"}});
        let spec = json!({"type": "Edge", "taints": [{"key": "drain", "effect": "NoExecute"}]});
        read(&json!({"metadata": metadata, "spec": spec}), &mut Interner::default()).unwrap()
    }

    /// A node of a pool that has its taint.
    fn put(nodes: &Store<Node>, (name, pool): (&str, &str), version: u64, is_ready: bool) {
        let labels = json!({NODE_POOL_LABEL: pool});
        let status = if is_ready { "True" } else { "False" };
        let node = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "labels": labels},
            "spec": {"taints": [{"key": "drain", "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        });
        let observed: Observed<<Node as Cached>::Wire> = serde_json::from_str(&node.to_string()).unwrap();
        nodes.apply(Event::Apply(observed));
    }

    fn why(turn: Result<Instant, Hindered>) -> String {
        turn.map_or_else(|hindered| hindered.why, |_| "none".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_ill_holds_up_its_own_pool_and_takes_no_turn() {
        let (execution, nodes) = (Execution::default(), Store::<Node>::default());
        nodes.declare(BY_POOL);
        let (beijing, hangzhou) = (pool("beijing"), pool("hangzhou"));
        put(&nodes, ("n1", "beijing"), 1, true);
        put(&nodes, ("n2", "beijing"), 2, false);
        put(&nodes, ("n3", "hangzhou"), 3, true);
        assert_eq!(why(execution.turn(&beijing, &nodes)), "Node n2, which has one, is not Ready");
        assert_eq!(why(execution.turn(&hangzhou, &nodes)), "none", "its turn was left to others");
        assert_eq!(
            execution.turn(&hangzhou, &nodes),
            Err(Hindered { why: "one node gets them every 30 s".to_owned(), again: Some(BETWEEN) })
        );
        assert_eq!(why(execution.turn(&beijing, &nodes)), "Node n2, which has one, is not Ready", "turn or not");
        // Another is ill by the time that it is well.
        put(&nodes, ("n1", "beijing"), 4, false);
        put(&nodes, ("n2", "beijing"), 5, true);
        assert_eq!(why(execution.turn(&beijing, &nodes)), "one node gets them every 30 s");
        tokio::time::advance(BETWEEN).await;
        assert_eq!(why(execution.turn(&beijing, &nodes)), "Node n1, which has one, is not Ready");
        // One that has left is none of its nodes.
        put(&nodes, ("n1", "hangzhou"), 6, false);
        assert_eq!(why(execution.turn(&hangzhou, &nodes)), "Node n1, which has one, is not Ready");
        assert_eq!(why(execution.turn(&beijing, &nodes)), "none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_waits_first() {
        let (execution, nodes) = (Execution::default(), Store::<Node>::default());
        let beijing = pool("beijing");
        execution.begin(7);
        assert_eq!(why(execution.turn(&beijing, &nodes)), "one node gets them every 30 s");
        tokio::time::advance(BETWEEN).await;
        execution.begin(7);
        assert_eq!(why(execution.turn(&beijing, &nodes)), "none");
    }
}
