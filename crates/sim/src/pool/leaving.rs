//! Nodes that leave their pools: when many do at once, nothing is undone on them until somebody says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::pool::{CONFIRM_REMOVAL, NODE_POOL_LABEL, SUSPEND_ANNOTATION};
use serde_json::Value;

use super::remembered;
use crate::object::text;
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// Since when nodes are out of the pool that they remember.
#[derive(Default)]
pub(super) struct Leavers(BTreeMap<String, (String, Duration)>);

impl Leavers {
    /// Takes in what becomes of a node.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let node = &write.change.object;
        let name = text(&node["metadata"]["name"]).to_owned();
        let label = node["metadata"]["labels"][NODE_POOL_LABEL].as_str();
        let from = remembered(node).filter(|from| !from.is_empty() && Some(from.as_str()) != label);
        match from.filter(|_| write.change.kind != ChangeKind::Deleted) {
            Some(from) if self.0.get(&name).is_some_and(|(known, _)| *known == from) => {}
            Some(from) => _ = self.0.insert(name, (from, write.at)),
            None => _ = self.0.remove(&name),
        }
    }

    /// A manager has undone what a pool put on a node. `pools` is what it may have believed of that pool.
    pub(super) fn written(
        &self,
        write: &Write<'_>,
        from: &str,
        pools: &[Arc<Value>],
        server: &Server,
    ) -> Result<(), String> {
        let name = text(&write.change.object["metadata"]["name"]);
        let confirmed = |node: &str| {
            let said = pools.iter().map(|pool| text(&pool["metadata"]["annotations"][CONFIRM_REMOVAL]));
            said.flat_map(|said| said.split(',')).any(|said| ["*", node].contains(&said.trim()))
        };
        if confirmed(name) {
            return Ok(());
        }
        let is_suspended = |pool: &Arc<Value>| pool["metadata"]["annotations"][SUSPEND_ANNOTATION] == "true";
        if !pools.is_empty() && pools.iter().all(is_suspended) {
            return Err(format!("what a suspended pool put on a node is undone: {name}, of {from}"));
        }
        let is_known = |since: Duration| since.saturating_add(write.memory) < write.at;
        let left = self.0.iter().filter(|(node, (pool, since))| pool == from && is_known(*since) && !confirmed(node));
        let count = left.count();
        let all = server.list("nodes").len();
        if count > 2 && count * 10 > all {
            return Err(format!(
                "what a pool put there is undone though {count} nodes left it at once: {name}, of {from}"
            ));
        }
        Ok(())
    }
}
