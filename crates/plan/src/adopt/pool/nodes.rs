//! What becomes of nodes when NodePools are taken over: what OpenYurt has put on them stays, and is known by its annotation.

use std::collections::{BTreeMap, BTreeSet};

use dapple_api::kinds::Name;
use dapple_api::pool::{
    ALLOW_NO_EXECUTE, NODE_POOL_LABEL, NodePool, NodePoolSpec, PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES, TaintEffect,
    is_reserved,
};
use dapple_api::reading::read;
use serde_json::Value;

use super::Observed;
use crate::adopt::name_of;
use crate::pool::attributes::{PoolOf, settle};

/// So many nodes are named; the others are counted.
const NAMED: usize = 3;

/// Whether a node is in a pool, or has something of one, for those who list many.
pub fn is_of_pool(node: &Value) -> bool {
    let metadata = &node["metadata"];
    !metadata["labels"][NODE_POOL_LABEL].is_null() || !metadata["annotations"][PREVIOUS_ATTRIBUTES].is_null()
}

/// What is worth knowing of pools and their nodes, if NodePools are taken over.
pub(super) fn look(observed: &Observed) -> Vec<String> {
    if !observed.kinds.iter().any(|seen| seen.taken.kind.name == Name::NodePool) {
        return Vec::new();
    }
    let found = observed.pools.as_deref().unwrap_or_default();
    let pools: BTreeMap<String, NodePool> =
        found.iter().filter_map(|pool| Some((name_of(pool), read::<NodePool>(pool).ok()?))).collect();
    let mut notes: Vec<String> = pools.iter().flat_map(|(name, pool)| of_pool(name, pool)).collect();
    // By pool and what would be changed: the nodes.
    let mut changed: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for node in &observed.nodes {
        let name = node["metadata"]["labels"][NODE_POOL_LABEL].as_str();
        let pool = name.and_then(|name| Some(PoolOf { name, spec: &pools.get(name)?.spec }));
        // Of a pool that is not there, or cannot be read, nothing is changed.
        if name.is_some() && pool.is_none() {
            continue;
        }
        match settle(node, pool, false) {
            Err(unreadable) => notes.push(format!("Node {}: {unreadable}", name_of(node))),
            Ok(settled) => {
                let fields = settled.patch.map(|patch| fields(&patch)).filter(|fields| !fields.is_empty());
                if let Some(fields) = fields {
                    changed.entry((name.unwrap_or_default().to_owned(), fields)).or_default().push(name_of(node));
                }
            }
        }
    }
    notes.extend(changed.iter().map(|((pool, fields), nodes)| {
        let place = if pool.is_empty() { "that left their NodePool".to_owned() } else { format!("of NodePool {pool}") };
        format!("nodes {place} are not as it says: dapple changes {fields} of {}", few(nodes))
    }));
    notes
}

/// What a pool says that dapple does not do.
fn of_pool(name: &str, pool: &NodePool) -> Vec<String> {
    let NodePoolSpec { labels, annotations, taints, .. } = &pool.spec;
    let keys = labels.keys().chain(annotations.keys()).chain(taints.iter().map(|taint| &taint.key));
    let reserved: BTreeSet<&str> = keys.map(String::as_str).filter(|key| is_reserved(key)).collect();
    let mut notes = Vec::new();
    if !reserved.is_empty() {
        let reserved: Vec<&str> = reserved.into_iter().collect();
        notes.push(format!(
            "NodePool {name}: {} is kept by Kubernetes or dapple: dapple gives it to no node, and leaves it where OpenYurt gave it",
            reserved.join(", ")
        ));
    }
    let said = pool.metadata.annotations.as_ref().and_then(|all| all.get(ALLOW_NO_EXECUTE));
    let is_allowed = said.is_some_and(|said| said == "true");
    if !is_allowed && taints.iter().any(|taint| taint.effect == TaintEffect::NoExecute) {
        notes.push(format!(
            "NodePool {name}: taints with the effect NoExecute stay on nodes that have them, and come on no other without the \
             annotation {ALLOW_NO_EXECUTE}"
        ));
    }
    notes
}

/// What a patch of a node changes, but for what dapple remembers there.
fn fields(patch: &Value) -> String {
    let mut fields = Vec::new();
    for part in ["labels", "annotations"] {
        let keys = patch["metadata"][part].as_object().into_iter().flat_map(|map| map.keys());
        let keys: Vec<&str> =
            keys.map(String::as_str).filter(|key| ![PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES].contains(key)).collect();
        if !keys.is_empty() {
            fields.push(format!("{part} {}", keys.join(", ")));
        }
    }
    if !patch["spec"]["taints"].is_null() {
        fields.push("taints".to_owned());
    }
    fields.join(" and ")
}

/// The first names of many, and how many there are.
fn few(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::left;
    use super::*;

    /// What is told of nodes after a change of what OpenYurt left.
    fn told(change: impl FnOnce(&mut Observed)) -> String {
        let mut observed = left();
        change(&mut observed);
        look(&observed).join("\n")
    }

    #[test]
    fn what_openyurt_put_on_nodes_stays() {
        assert_eq!(left().nodes.len(), 6);
        assert_eq!(told(|_| {}), "");
    }

    #[test]
    fn nodes_that_would_be_changed_are_named() {
        let told = told(|observed| {
            observed.nodes[0]["metadata"]["labels"]["region"] = json!("west");
            observed.nodes[1]["spec"]["taints"] = json!([]);
            observed.nodes[4]["metadata"]["annotations"][PREVIOUS_ATTRIBUTES] = json!("no JSON");
        });
        for part in [
            "nodes of NodePool beijing are not as it says: dapple changes labels region of node-00000",
            "nodes of NodePool beijing are not as it says: dapple changes taints of node-00001",
            "Node node-00004: annotation nodepool.openyurt.io/previous-attributes",
        ] {
            assert!(told.contains(part), "{part} is not in\n{told}");
        }
        assert_eq!(told.lines().count(), 3, "{told}");
    }

    #[test]
    fn a_pool_that_is_gone_changes_nothing() {
        assert_eq!(told(|observed| observed.pools = Ok(Vec::new())), "");
        let left_alone = told(|observed| {
            observed.nodes[0]["metadata"]["labels"][NODE_POOL_LABEL] = Value::Null;
        });
        assert!(left_alone.contains("nodes that left their NodePool") && left_alone.contains("taints"), "{left_alone}");
    }

    #[test]
    fn what_dapple_does_otherwise_is_told() {
        let told = told(|observed| {
            let Ok(pools) = &mut observed.pools else { return };
            pools[0]["spec"]["labels"]["kubernetes.io/arch"] = json!("arm64");
            pools[1]["spec"]["taints"] = json!([{"key": "down", "effect": "NoExecute"}]);
        });
        assert!(told.contains("NodePool beijing: kubernetes.io/arch is kept by Kubernetes or dapple"), "{told}");
        assert!(told.contains("leaves it where OpenYurt gave it"), "{told}");
        assert!(told.contains("NodePool hangzhou: taints with the effect NoExecute stay"), "{told}");
    }

    #[test]
    fn what_openyurt_gave_and_dapple_may_not_is_no_change() {
        let told = told(|observed| {
            let node = &mut observed.nodes[0];
            node["metadata"]["labels"]["kubernetes.io/arch"] = json!("arm64");
            let said = node["metadata"]["annotations"][PREVIOUS_ATTRIBUTES].as_str().expect("what OpenYurt gave");
            let mut said: Value = serde_json::from_str(said).expect("JSON");
            said["labels"]["kubernetes.io/arch"] = json!("arm64");
            node["metadata"]["annotations"][PREVIOUS_ATTRIBUTES] = json!(said.to_string());
        });
        assert_eq!(told, "");
    }

    #[test]
    fn of_other_kinds_nodes_are_no_concern() {
        let told = told(|observed| {
            observed.nodes[0]["metadata"]["labels"]["region"] = json!("west");
            observed.kinds.retain(|seen| seen.taken.kind.name != Name::NodePool);
        });
        assert_eq!(told, "");
    }
}
