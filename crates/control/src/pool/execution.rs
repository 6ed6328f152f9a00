//! Whether a taint by which Kubernetes deletes pods may be put on one more node: one after another, with a time between them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dapple_api::kinds::NODE;
use dapple_api::pool::POOL_NAME_LABEL;
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
use crate::slim::{Node, TaintEffect};

/// Between two nodes that get such taints, whichever pools they are in.
const BETWEEN: Duration = Duration::from_secs(30);

/// When the next node may get one. Nobody notes in the cluster when the last did: a new leader waits first.
#[derive(Default)]
pub(super) struct Execution(Mutex<(u64, Option<Instant>)>);

/// Why a node does not get one now, and when to look again.
pub(super) struct Hindered {
    pub(super) why: String,
    pub(super) again: Option<Duration>,
}

impl Execution {
    /// This process leads from now on.
    pub(super) fn begin(&self, term: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if term != 0 && state.0 != term {
            *state = (term, Some(Instant::now()));
        }
    }

    /// Takes the next turn and says since when it is, or how long it is until then.
    fn take_turn(&self) -> Result<Instant, Duration> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = state.1.map_or(Duration::ZERO, |last| BETWEEN.saturating_sub(last.elapsed()));
        if !wait.is_zero() && !is_on(Mutant::ExecutedAtOnce) {
            return Err(wait);
        }
        let now = Instant::now();
        state.1 = Some(now);
        Ok(now)
    }

    /// Whether one more node of a pool may get its taints. If so, that was the turn, and this is since when: what is asked of the
    /// API server after it was taken may be answered so late that the next node has its turn already.
    pub(super) async fn may(
        &self,
        client: &Client,
        pool: &Pool,
        nodes: &Store<Node>,
    ) -> Result<Result<Instant, Hindered>, kube::Error> {
        let hindered = |why: String, again| Ok(Err(Hindered { why, again }));
        if !pool.settings.allows_no_execute && !is_on(Mutant::ExecutedUnasked) {
            return hindered("annotation dapple.dev/allow-no-execute is not \"true\"".to_owned(), None);
        }
        let taints: Vec<Taint> = executing(&pool.spec).collect();
        // What it has done counts until it is well again, whatever has made it unwell.
        let ill = nodes.find(BY_POOL, &pool.meta.key.name).into_iter().find(|node| {
            let has_one = node.taints.iter().any(|known| {
                known.effect == TaintEffect::NoExecute && taints.iter().any(|taint| taint.key == *known.key)
            });
            has_one && !node.health.is_ready()
        });
        if let Some(ill) = ill.filter(|_| !is_on(Mutant::ExecutedOntoMore)) {
            return hindered(format!("{} {}, which has one, is not Ready", NODE.kind, ill.name()), Some(BETWEEN));
        }
        let turn = match self.take_turn() {
            Ok(turn) => turn,
            Err(wait) => return hindered("one node gets them every 30 s".to_owned(), Some(wait)),
        };
        let mut workloads = list::<Deployment>(client, &pool.meta.key.name, "Deployment").await?;
        workloads.extend(list::<StatefulSet>(client, &pool.meta.key.name, "StatefulSet").await?);
        match hindrance(&workloads, &taints) {
            Some(why) => hindered(why, Some(BETWEEN)),
            None => Ok(Ok(turn)),
        }
    }
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
