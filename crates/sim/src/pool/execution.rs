//! Taints by which Kubernetes deletes pods: only where the pool allows them, on one node after another, once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_api::pool::{ALLOW_NO_EXECUTE, NODE_POOL_LABEL, PREVIOUS_ATTRIBUTES};
use serde_json::Value;

use super::properties::is_same;
use super::script::TAINTS;
use crate::object::{is_ready, list, text};
use crate::server::ChangeKind;
use crate::sim::{Actor, Write};

/// Nearer to each other two nodes never get them. It is less than what is promised: an answer may take a while.
const APART: Duration = Duration::from_secs(15);

/// What was seen of them.
#[derive(Default)]
pub(super) struct Executed {
    /// When each manager last put one on a node.
    last: BTreeMap<Actor, Duration>,
    /// Nodes that have some and are not Ready.
    ill: BTreeMap<String, Ill>,
}

/// A node that has such taints, and is not Ready.
struct Ill {
    pool: String,
    keys: BTreeSet<String>,
    /// Since when all of that is so.
    since: Duration,
}

fn executing(node: &Value) -> impl Iterator<Item = &Value> {
    let all = list(&node["spec"]["taints"]).iter();
    all.filter(|taint| taint["effect"] == "NoExecute" && TAINTS.contains(&text(&taint["key"])))
}

impl Executed {
    /// Takes in what becomes of a node.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let node = &write.change.object;
        let name = text(&node["metadata"]["name"]).to_owned();
        let pool = text(&node["metadata"]["labels"][NODE_POOL_LABEL]).to_owned();
        if write.change.kind == ChangeKind::Deleted || is_ready(node) || executing(node).next().is_none() {
            self.ill.remove(&name);
            return;
        }
        let keys: BTreeSet<String> = executing(node).map(|taint| text(&taint["key"]).to_owned()).collect();
        if self.ill.get(&name).is_none_or(|known| known.pool != pool || known.keys != keys) {
            self.ill.insert(name, Ill { pool, keys, since: write.at });
        }
    }

    /// What a manager has put on a node.
    pub(super) fn written(&mut self, write: &Write<'_>, pools: &[Arc<Value>]) -> Result<(), String> {
        let (after, none) = (&*write.change.object, Value::Null);
        let before = write.change.previous.as_deref().unwrap_or(&none);
        let was_there = |taint: &&Value| executing(before).any(|known| is_same(known, taint));
        let new: Vec<&Value> = executing(after).filter(|taint| !was_there(taint)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let name = text(&after["metadata"]["name"]);
        let said = before["metadata"]["annotations"][PREVIOUS_ATTRIBUTES].as_str();
        let set: Value = said.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default();
        if new.iter().any(|taint| list(&set["taints"]).iter().any(|known| is_same(known, taint))) {
            return Err(format!("pods are deleted by a repair: {name} gets {new:?} again"));
        }
        if !pools.iter().any(|pool| pool["metadata"]["annotations"][ALLOW_NO_EXECUTE] == "true") {
            return Err(format!("pods are deleted though nobody allowed it: {name} gets {new:?}"));
        }
        let at = write.at.saturating_sub(write.under_way);
        if let Some(last) = self.last.insert(write.actor, at)
            && last.abs_diff(at) < APART
        {
            return Err(format!("pods are deleted on several nodes at once: {name} gets {new:?}"));
        }
        let pool = text(&after["metadata"]["labels"][NODE_POOL_LABEL]);
        // Only of taints that the pool wants: others are taken off anyway.
        let wants = |pool: &Arc<Value>, key: &String| {
            let mut taints = list(&pool["spec"]["taints"]).iter();
            taints.any(|taint| taint["effect"] == "NoExecute" && taint["key"] == **key)
        };
        let is_ill_of_it = |node: &str, ill: &Ill| {
            let is_known = ill.since.saturating_add(write.memory) < at;
            let is_wanted = |key: &String| pools.iter().all(|pool| wants(pool, key));
            node != name && ill.pool == pool && is_known && ill.keys.iter().any(is_wanted)
        };
        match self.ill.iter().find(|(node, ill)| is_ill_of_it(node, ill)) {
            Some((ill, _)) => {
                Err(format!("pods are deleted on one more node while another is ill of it: {name}, {ill}"))
            }
            None => Ok(()),
        }
    }
}
