//! What NodePools and YurtAppConfigurationReplacements must be, and pools that objects name. Applications are the matter
//! of the engine that renders them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ALLOW_NO_EXECUTE, CONFIRM_REMOVAL, NODE_POOL_LABEL, NodePool, NodePoolSpec, NodePoolType, Pools, PoolsError,
    SUSPEND_ANNOTATION, Taint, YurtAppConfigurationReplacement, YurtAppSet, is_reserved,
};
use crate::verdict::{Reason, Verdict};
use crate::{metadata, syntax};

/// Everything that is to be said of a NodePool. `old` is what it was before an update.
pub fn validate_node_pool(pool: &NodePool, old: Option<&NodePool>) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check_label_sized(&pool.metadata, &mut verdict);
    check_settings(pool.metadata.annotations.as_ref().unwrap_or(&BTreeMap::new()), &mut verdict);
    let spec = &pool.spec;
    check_place(spec, old.map(|old| &old.spec), &mut verdict);
    syntax::labels(&spec.labels, "spec.labels", &mut verdict);
    if spec.labels.contains_key(NODE_POOL_LABEL) {
        let text = "this label says which pool a node is in, so a pool may not give it to its nodes: take it out";
        verdict.refuse(syntax::entry("spec.labels", NODE_POOL_LABEL), Reason::Forbidden, text);
    }
    syntax::annotations(&spec.annotations, "spec.annotations", &mut verdict);
    for (field, map) in [("spec.labels", &spec.labels), ("spec.annotations", &spec.annotations)] {
        for key in map.keys().filter(|key| is_reserved(key) && !(field == "spec.labels" && *key == NODE_POOL_LABEL)) {
            verdict.refuse(syntax::entry(field, key), Reason::Forbidden, RESERVED);
        }
    }
    if spec.host_network() {
        let text = "nobody acts on it: it is kept for OpenYurt. Set hostNetwork in the applications' templates";
        verdict.warn("spec.hostNetwork", text);
    }
    check_taints(&spec.taints, &mut verdict);
    verdict
}

/// Why a pool may not give nodes such a key.
const RESERVED: &str =
    "Kubernetes, the kubelet or dapple keep this on nodes, so a pool may not give it to them: take it out";

/// What annotations of a pool ask of dapple.
fn check_settings(annotations: &BTreeMap<String, String>, verdict: &mut Verdict) {
    let said = |annotation| Some((syntax::entry("metadata.annotations", annotation), annotations.get(annotation)?));
    for (field, said) in [SUSPEND_ANNOTATION, ALLOW_NO_EXECUTE].into_iter().filter_map(said) {
        if !["true", "false"].contains(&said.as_str()) {
            verdict.refuse(field, Reason::Invalid, format!("{said:?} is neither \"true\" nor \"false\""));
        }
    }
    if let Some((field, said)) = said(CONFIRM_REMOVAL) {
        for name in said.split(',').map(str::trim).filter(|name| *name != "*") {
            verdict.check(field.clone(), syntax::dns_subdomain(name));
        }
    }
}

/// Where the nodes are and whose network their pods have, which cannot be changed: pods are there already that have it
/// otherwise.
fn check_place(spec: &NodePoolSpec, old: Option<&NodePoolSpec>, verdict: &mut Verdict) {
    let mut keep = |field: &str, is_same: bool| {
        if !is_same {
            let text = "this cannot be changed: create another pool and move the nodes";
            verdict.refuse(field, Reason::Forbidden, text);
        }
    };
    if let Some(old) = old {
        keep("spec.type", spec.pool_type() == old.pool_type());
        keep("spec.hostNetwork", spec.host_network() == old.host_network());
    }
    if spec.pool_type() == NodePoolType::Cloud && spec.host_network() {
        verdict.refuse("spec.hostNetwork", Reason::Invalid, "a pool of type Cloud cannot have it: leave it out");
    }
}

fn check_taints(taints: &[Taint], verdict: &mut Verdict) {
    let mut known = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let field = format!("spec.taints[{index}]");
        verdict.check(format!("{field}.key"), syntax::key(&taint.key));
        if is_reserved(&taint.key) {
            verdict.refuse(format!("{field}.key"), Reason::Forbidden, RESERVED);
        }
        if let Some(value) = &taint.value {
            verdict.check(format!("{field}.value"), syntax::label_value(value));
        }
        if !known.insert((&taint.key, taint.effect)) {
            let text = format!("{:?} is there with this effect already: a node can have it once", taint.key);
            verdict.refuse(field, Reason::Duplicate, text);
        }
    }
}

/// Whether a NodePool can be deleted: not while it has nodes, given by name.
pub fn validate_node_pool_deletion(nodes: &[&str]) -> Verdict {
    /// So many nodes are named; the others are counted.
    const NAMED: usize = 3;
    let mut verdict = Verdict::default();
    if !nodes.is_empty() {
        let named = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = nodes.len().saturating_sub(NAMED);
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!(
            "the pool still has nodes, and cannot be deleted before they are out of it: take the label \
             {NODE_POOL_LABEL} from {named}{others}"
        );
        verdict.refuse("metadata.name", Reason::Forbidden, text);
    }
    verdict
}

/// Checks the pools of a replacement.
pub(super) fn check_pools(pools: &Pools, field: &str, verdict: &mut Verdict) {
    match pools {
        Pools::List(names) => verdict.at_most(field, names.len(), 512),
        Pools::Text(text) if text.chars().count() > 65536 => {
            verdict.refuse(field, Reason::TooLong, "this has more than 65536 characters: use several replacements");
        }
        Pools::Text(_) => {}
    }
    let names = pools.names();
    if names.is_empty() {
        verdict.refuse(field, Reason::Required, PoolsError::Empty.to_string());
    }
    for name in names.iter().filter(|name| **name != "*") {
        if name.starts_with('-') {
            verdict.refuse(field, Reason::Invalid, PoolsError::Exclusion((*name).to_owned()).to_string());
        } else {
            verdict.check(field, syntax::label_sized_name(name));
        }
    }
    if names.len() > 1 && names.contains("*") {
        verdict.warn(field, "\"*\" means every pool, so the other names change nothing");
    }
}

/// Warns of pools that a replacement names and that do not exist.
pub fn missing_in_replacement(replacement: &YurtAppConfigurationReplacement, exists: impl Fn(&str) -> bool) -> Verdict {
    let mut verdict = Verdict::default();
    for (index, replacement) in replacement.replacements.iter().enumerate() {
        let names: BTreeSet<&str> = replacement.pools.names();
        for name in names.into_iter().filter(|name| *name != "*" && !exists(name)) {
            let text = format!("the pool {name:?} does not exist: nothing changes until it does");
            verdict.warn(&format!("replacements[{index}].pools"), text);
        }
    }
    verdict
}

/// Warns of pools that a YurtAppSet names and that do not exist. One that says itself which nodes it has need not exist.
pub fn missing_in_yurt_app_set(set: &YurtAppSet, exists: impl Fn(&str) -> bool) -> Verdict {
    let mut verdict = Verdict::default();
    let pools = set.spec.topology.pools.iter().enumerate();
    for (index, pool) in pools.filter(|(_, pool)| pool.node_selector_term.is_none() && !exists(&pool.name)) {
        let text = format!("the pool {:?} does not exist: its pods wait until it does", pool.name);
        verdict.warn(&format!("spec.topology.pools[{index}].name"), text);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_with_nodes_cannot_be_deleted() {
        assert!(validate_node_pool_deletion(&[]).is_ok());
        let verdict = validate_node_pool_deletion(&["a", "b", "c", "d"]);
        assert!(verdict.errors[0].text.ends_with("from a, b, c and 1 more"), "{verdict:?}");
    }

    #[test]
    fn pools_that_are_missing_are_warned_of() {
        let replacement = r#"{"subject": {"kind": "YurtAppSet", "name": "a"},
            "replacements": [{"pools": "*", "items": []}, {"pools": "a b", "items": []}]}"#;
        let replacement: YurtAppConfigurationReplacement = serde_json::from_str(replacement).expect("parses");
        let warnings = missing_in_replacement(&replacement, |name| name == "a").warnings;
        assert_eq!(warnings, ["replacements[1].pools: the pool \"b\" does not exist: nothing changes until it does"]);
        let set = r#"{"spec": {"selector": {}, "workloadTemplate": {}, "topology": {"pools": [
            {"name": "a"}, {"name": "b"}, {"name": "c", "nodeSelectorTerm": {}}]}}}"#;
        let set: YurtAppSet = serde_json::from_str(set).expect("parses");
        let warnings = missing_in_yurt_app_set(&set, |name| name == "a").warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with("spec.topology.pools[1].name"), "{warnings:?}");
    }
}
