//! Which volumes a pod has, and on which nodes they can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::fit;

/// What claims say of nodes, by their names.
pub type Claims = BTreeMap<Arc<str>, Claimed>;

/// What a claim says of nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// Its volume can be used on nodes that meet one of these terms.
    Terms(Vec<Value>),
    /// Its volume can be used on every node, or is chosen once the pod has one.
    AnyNode,
    /// It has no volume yet.
    Unbound,
}

/// Where a pod can go by its volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// To any group.
    All,
    /// Only to groups at these places of the list.
    Only(BTreeSet<usize>),
    /// This claim is yet to be bound.
    Unbound(Arc<str>),
}

/// Where a pod with these claims can go. `groups_with` says which groups have a node that volumes can be used on.
#[must_use]
pub fn reach(
    claims: &[Arc<str>],
    known: &Claims,
    groups_with: impl FnOnce(&dyn Fn(fit::Node<'_>) -> bool) -> BTreeSet<usize>,
) -> Reach {
    let mut bound: Vec<&Vec<Value>> = Vec::new();
    for claim in claims {
        match known.get(claim) {
            Some(Claimed::Terms(terms)) => bound.push(terms),
            Some(Claimed::AnyNode) => {}
            Some(Claimed::Unbound) | None => return Reach::Unbound(claim.clone()),
        }
    }
    if bound.is_empty() {
        return Reach::All;
    }
    let are_usable =
        |node: fit::Node<'_>| bound.iter().all(|terms| terms.iter().any(|term| fit::term_matches(term, node)));
    Reach::Only(groups_with(&are_usable))
}

/// The names of all PersistentVolumeClaims of a pod, those that were made for it alone among them.
#[must_use]
pub fn claims_of(pod: &Value) -> Vec<Arc<str>> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let claim = |volume: &Value| -> Option<Arc<str>> {
        let own = volume["name"].as_str().filter(|_| volume["ephemeral"].is_object());
        let named = volume["persistentVolumeClaim"]["claimName"].as_str().map(Arc::from);
        named.or_else(|| Some(Arc::from(format!("{name}-{}", own?))))
    };
    pod["spec"]["volumes"].as_array().into_iter().flatten().filter_map(claim).collect()
}

/// The names of the PersistentVolumeClaims that may be there before a pod that uses them. Those that are made for it alone are not:
/// until it is there, they say nothing of where it can go.
#[must_use]
pub fn earlier_claims(new_pod: &Value) -> Vec<&str> {
    let volumes = new_pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()).collect()
}

/// The node selector terms by which a PersistentVolume says on which nodes it can be used; none if on all.
#[must_use]
pub fn terms_of(volume: &Value) -> Option<Vec<Value>> {
    let required = &volume["spec"]["nodeAffinity"]["required"];
    required["nodeSelectorTerms"].as_array().cloned()
}

/// Whether claims of a class are bound only when a pod that uses them has a node. Others are bound wherever, and no scheduler looks
/// at a pod before that.
#[must_use]
pub fn waits_for_consumer(class: &Value) -> bool {
    class["volumeBindingMode"] == "WaitForFirstConsumer"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_that_is_made_for_the_pod_is_not_there_before_it() {
        let pod = json!({"metadata": {"name": "web-0"}, "spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "config", "configMap": {"name": "c"}}]}});
        assert_eq!(earlier_claims(&pod), ["data-web-0"]);
        assert_eq!(earlier_claims(&json!({})), Vec::<&str>::new());
        let all = claims_of(&pod);
        assert_eq!(all.iter().map(|claim| &**claim).collect::<Vec<_>>(), ["data-web-0", "web-0-scratch"]);
        assert!(claims_of(&json!({})).is_empty());
    }

    #[test]
    fn a_pod_can_go_where_all_its_volumes_can_be_used() {
        let on = |nodes: &[&str]| {
            let names = json!({"key": "metadata.name", "operator": "In", "values": nodes});
            Claimed::Terms(vec![json!({"matchFields": [names]})])
        };
        let known = Claims::from([
            ("ab".into(), on(&["a", "b"])),
            ("bc".into(), on(&["b", "c"])),
            ("any".into(), Claimed::AnyNode),
            ("new".into(), Claimed::Unbound),
        ]);
        let reach = |claims: &[&str]| {
            let claims: Vec<Arc<str>> = claims.iter().map(|claim| Arc::from(*claim)).collect();
            reach(&claims, &known, |are_usable| {
                let labels = BTreeMap::<String, String>::new();
                let is_there = |name: &str| are_usable(fit::Node { name, labels: &labels, taints: &[] });
                (0..3).filter(|group| is_there(["a", "b", "c"][*group])).collect()
            })
        };
        assert_eq!((reach(&[]), reach(&["any"])), (Reach::All, Reach::All));
        assert_eq!(reach(&["ab", "any"]), Reach::Only([0, 1].into()));
        assert_eq!(reach(&["ab", "bc"]), Reach::Only([1].into()));
        for unbound in ["new", "of which nothing is known"] {
            assert_eq!(reach(&["ab", unbound]), Reach::Unbound(unbound.into()));
        }
    }

    #[test]
    fn a_volume_without_affinity_can_be_used_everywhere() {
        assert_eq!(terms_of(&json!({"spec": {}})), None);
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]});
        let bound = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
        assert_eq!(terms_of(&bound), Some(vec![term]));
    }

    #[test]
    fn claims_are_bound_at_once_unless_their_class_says_otherwise() {
        assert!(waits_for_consumer(&json!({"volumeBindingMode": "WaitForFirstConsumer"})));
        assert!(!waits_for_consumer(&json!({"volumeBindingMode": "Immediate"})));
        assert!(!waits_for_consumer(&json!({})));
    }
}
