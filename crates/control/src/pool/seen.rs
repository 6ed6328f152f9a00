//! Nodes as they are cached, for those who decide about whole ones.

use std::sync::Arc;

use dapple_api::pool::{NODE_POOL_LABEL, PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES};
use dapple_plan::pool::attributes::PoolOf;
use serde_json::{Map, Value, json};

use super::{BY_LEFT, Pool};
use crate::caches::store::Store;
use crate::slim::Node;

/// Those nodes that have left a pool and on which nothing is undone yet, by name: the first so many.
pub(super) fn left(nodes: &Store<Node>, pool: &str, most: usize) -> Vec<Arc<str>> {
    let left = nodes.find_some(BY_LEFT, pool, most, |_| true);
    left.iter().map(|node| node.meta.key.name.clone()).collect()
}

pub(super) fn pool_of(pool: &Pool) -> PoolOf<'_> {
    PoolOf { name: &pool.meta.key.name, spec: &pool.spec }
}

/// A node as deciding sees it, as far as it is cached: of its annotations those that are remembered by, and those that have the
/// value which its pool gives.
pub(super) fn seen(node: &Node, pool: Option<&Pool>) -> Value {
    let mut annotations = Map::new();
    for (annotation, text) in [(PREVIOUS_ATTRIBUTES, &node.pool.previous), (REPLACED_ATTRIBUTES, &node.pool.replaced)] {
        annotations.extend(text.as_deref().map(|text| (annotation.to_owned(), json!(text))));
    }
    let wanted = pool.into_iter().flat_map(|pool| &pool.spec.annotations);
    annotations.extend(
        wanted.filter(|(key, value)| node.pool.has(key, value)).map(|(key, value)| (key.clone(), json!(value))),
    );
    let labels: Map<String, Value> = node.labels.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    let taints: Vec<Value> = node
        .fit_taints()
        .iter()
        .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect}))
        .collect();
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"taints": taints}})
}

/// Whether a node that was read is still in the pool that it was cached in, and remembers the same.
pub(super) fn is_as_seen(found: &Value, node: &Node) -> bool {
    let metadata = &found["metadata"];
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    metadata["uid"] == *node.meta.uid
        && metadata["labels"][NODE_POOL_LABEL].as_str() == node.labels.get(NODE_POOL_LABEL)
        && annotation(PREVIOUS_ATTRIBUTES) == node.pool.previous.as_deref()
        && annotation(REPLACED_ATTRIBUTES) == node.pool.replaced.as_deref()
}
