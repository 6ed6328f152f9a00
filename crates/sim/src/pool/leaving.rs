//! Nodes that leave their pools: when many do at once, nothing is undone on them until somebody says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::pool::{CONFIRM_REMOVAL, NODE_POOL_LABEL, SUSPEND_ANNOTATION};
use serde_json::Value;

use super::remembered;
use crate::object::text;
use crate::past::Past;
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// Nodes that are undone within this time have left together. It is less than what is promised: managers' clocks jump.
const TOGETHER: Duration = Duration::from_secs(120);

/// What was seen of nodes that left their pools.
#[derive(Default)]
pub(super) struct Leavers {
    /// By node: the pool that it remembers and is out of, and since when it is.
    out: BTreeMap<String, (String, Duration)>,
    /// By pool: the nodes that managers have undone though nobody said so, and when.
    undone: BTreeMap<String, BTreeMap<String, Duration>>,
}

impl Leavers {
    /// Takes in what becomes of a node.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let node = &write.change.object;
        let name = text(&node["metadata"]["name"]).to_owned();
        let label = node["metadata"]["labels"][NODE_POOL_LABEL].as_str();
        // Who is back has not left.
        if let Some(undone) = label.and_then(|label| self.undone.get_mut(label)) {
            undone.remove(&name);
        }
        let from = remembered(node).filter(|from| !from.is_empty() && Some(from.as_str()) != label);
        match from.filter(|_| write.change.kind != ChangeKind::Deleted) {
            Some(from) if self.out.get(&name).is_some_and(|(known, _)| *known == from) => {}
            Some(from) => _ = self.out.insert(name, (from, write.at)),
            None => _ = self.out.remove(&name),
        }
    }

    /// A pool is gone, and what its status said of those that left it.
    pub(super) fn forget(&mut self, pool: &str) {
        self.undone.remove(pool);
    }

    /// A manager has undone what a pool put on a node. `believed` is what it may have believed of that pool.
    pub(super) fn written(
        &mut self,
        write: &Write<'_>,
        from: &str,
        believed: &Past,
        server: &Server,
    ) -> Result<(), String> {
        let name = text(&write.change.object["metadata"]["name"]);
        let pools: Vec<&Arc<Value>> = believed.iter().filter_map(|(_, pool)| pool.as_ref()).collect();
        let confirmed = |node: &str| {
            let said = pools.iter().map(|pool| text(&pool["metadata"]["annotations"][CONFIRM_REMOVAL]));
            said.flat_map(|said| said.split(',')).any(|said| ["*", node].contains(&said.trim()))
        };
        if confirmed(name) {
            return Ok(());
        }
        let is_suspended = |pool: &&Arc<Value>| pool["metadata"]["annotations"][SUSPEND_ANNOTATION] == "true";
        if !pools.is_empty() && pools.iter().all(is_suspended) {
            return Err(format!("what a suspended pool put on a node is undone: {name}, of {from}"));
        }
        let is_known = |since: Duration| since.saturating_add(write.memory) < write.at;
        let left = self.out.iter().filter(|(node, (pool, since))| pool == from && is_known(*since) && !confirmed(node));
        let count = left.count();
        let all = server.list("nodes").len();
        if count > 2 && count * 10 > all {
            return Err(format!(
                "what a pool put there is undone though {count} nodes left it at once: {name}, of {from}"
            ));
        }
        // Of a pool that is not there, nothing remembers who is undone.
        if pools.is_empty() || pools.len() < believed.len() {
            return Ok(());
        }
        let undone = self.undone.entry(from.to_owned()).or_default();
        undone.retain(|_, at| at.saturating_add(TOGETHER) > write.at);
        undone.insert(name.to_owned(), write.at);
        let count = undone.len();
        if count > 2 && count * 10 > all {
            return Err(format!("what a pool put there is undone on {count} nodes at once: {name}, of {from}"));
        }
        Ok(())
    }
}
