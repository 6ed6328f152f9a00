//! Taints by which Kubernetes deletes pods: only where the pool allows them, on one node after another, once.

use std::collections::BTreeMap;
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
    /// By node: its pool, and since when it has one and is not Ready.
    ill: BTreeMap<String, (String, Duration)>,
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
        if self.ill.get(&name).is_none_or(|(known, _)| *known != pool) {
            self.ill.insert(name, (pool, write.at));
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
        let is_known = |since: Duration| since.saturating_add(write.memory) < at;
        // Only of taints that the pool still wants: what it wanted before is taken off anyway.
        let mut ill = self.ill.iter().filter(|(node, (of, since))| *node != name && of == pool && is_known(*since));
        if let Some((ill, _)) = ill.next().filter(|_| pools.len() == 1) {
            return Err(format!("pods are deleted on one more node while another is ill of it: {name}, {ill}"));
        }
        Ok(())
    }
}
