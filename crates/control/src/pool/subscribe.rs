//! What a change of a pool or a node means: which nodes to look at.

use std::sync::Arc;

use dapple_api::pool::NODE_POOL_LABEL;

use super::adder::{Adder, urgency};
use super::{BY_POOL, BY_REMEMBERED, Pool};
use crate::caches::store::{Change, Store};
use crate::slim::Node;

/// What a change of a pool means: look at its nodes, and at those that left it.
pub(super) fn on_pool(nodes: Arc<Store<Node>>, adder: Adder) -> impl FnMut(&Change<Pool>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, listed } = change else { return };
        let said = |pool: &Option<Arc<Pool>>| pool.as_ref().map(|pool| (pool.meta.uid.clone(), pool.generation));
        let settings = |pool: &Option<Arc<Pool>>| pool.as_ref().map(|pool| pool.settings.clone());
        // Of the status only what decides about those that left.
        let noted = |pool: &Option<Arc<Pool>>| {
            let status = pool.as_ref().and_then(|pool| pool.status.as_ref());
            status.map(|status| {
                let statuses = status.conditions.iter().map(|known| known.status.clone());
                (status.left_nodes.clone(), statuses.collect::<Vec<String>>())
            })
        };
        let is_news = said(old) != said(new) || settings(old) != settings(new);
        if is_news {
            nodes.find(BY_POOL, &key.name).iter().for_each(|node| adder.add(&node.meta.key.name, urgency(*listed)));
        }
        if is_news || noted(old) != noted(new) {
            let remembering = nodes.find(BY_REMEMBERED, &key.name);
            remembering.iter().for_each(|node| adder.add(&node.meta.key.name, urgency(*listed)));
        }
    }
}

/// What a change of a node means: look at it, if a pool has to do with it. That its kubelet is heard of is no change.
pub(super) fn on_node(adder: &Adder, change: &Change<Node>) {
    let Change::Object { key, old, new, listed } = change else { return };
    if let (Some(old), Some(new)) = (old, new)
        && (&old.labels, &old.taints, &old.pool) == (&new.labels, &new.taints, &new.pool)
    {
        return;
    }
    let concerns = |node: &Arc<Node>| node.labels.get(NODE_POOL_LABEL).is_some() || node.pool.remembered.is_some();
    if old.iter().chain(new).any(concerns) {
        adder.add(&key.name, urgency(*listed));
    }
}
