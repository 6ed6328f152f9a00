//! Pods that keep each other off a node: by required anti-affinity among host names, as kube-scheduler judges it. Either side may ask.
//! Other topologies are not looked at: who is in them, the pods of one node do not tell.

use std::collections::BTreeMap;

use dapple_api::selector::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

/// The topology in which each node is a place of its own.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of every namespace that says its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// A pod, or what pods are made of, as far as it goes for who may run beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Company {
    namespace: String,
    labels: BTreeMap<String, String>,
    shunned: Vec<Term>,
}

/// Pods that another does not run beside.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    selector: Selector,
    namespaces: Vec<String>,
    namespace_selector: Option<Selector>,
}

impl Company {
    /// Of a pod, or a template, in this namespace.
    #[must_use]
    pub fn of(namespace: &str, pod: &Value) -> Self {
        let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
        let labels: BTreeMap<String, String> =
            labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        let terms = &pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let shunned = terms.as_array().into_iter().flatten().filter_map(|term| Term::of(term, namespace, &labels));
        Self { namespace: namespace.to_owned(), shunned: shunned.collect(), labels }
    }

    /// Whether both may run on one node.
    #[must_use]
    pub fn bears(&self, other: &Self) -> bool {
        let shuns = |one: &Self, other: &Self| one.shunned.iter().any(|term| term.selects(other));
        !shuns(self, other) && !shuns(other, self)
    }
}

impl Term {
    /// None if it is about another topology, or selects nothing.
    fn of(term: &Value, namespace: &str, labels: &BTreeMap<String, String>) -> Option<Self> {
        let read = |selector: &Value| serde_json::from_value::<LabelSelector>(selector.clone()).ok();
        let mut selector = read(&term["labelSelector"]).filter(|_| term["topologyKey"] == HOSTNAME)?;
        // Labels of which the pod's own value counts.
        for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let keys = term[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            let own = keys.filter_map(|key| Some((key.to_owned(), labels.get(key)?.clone())));
            let added = own.map(|(key, value)| LabelSelectorRequirement {
                key,
                operator: operator.to_owned(),
                values: Some(vec![value]),
            });
            selector.match_expressions.get_or_insert_default().extend(added);
        }
        let listed = term["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut namespaces: Vec<String> = listed.map(str::to_owned).collect();
        let namespace_selector = match &term["namespaceSelector"] {
            Value::Null => None,
            selector => Some(Selector::new(&read(selector)?).ok()?),
        };
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        Some(Self { selector: Selector::new(&selector).ok()?, namespaces, namespace_selector })
    }

    fn selects(&self, pod: &Company) -> bool {
        // Of a namespace no more is known than its name. What else is asked of it counts as being so: a node that might take no pod
        // is none to move one to.
        let may_be = |selector: &Selector| selector.about(NAME).matches(|_| Some(&*pod.namespace));
        let is_there = self.namespaces.contains(&pod.namespace) || self.namespace_selector.as_ref().is_some_and(may_be);
        is_there && self.selector.matches(|key| pod.labels.get(key).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod of an application that keeps away from what these terms select.
    fn pod(app: &str, terms: Value) -> Value {
        json!({"metadata": {"labels": {"app": app, "hash": "1"}}, "spec": {"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": terms}}}})
    }

    fn term(extra: Value) -> Value {
        let mut term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME});
        for (key, value) in extra.as_object().into_iter().flatten() {
            term[key] = value.clone();
        }
        term
    }

    /// Whether a pod that has such a term runs beside one of the application `web`, in this namespace.
    fn runs_beside(extra: Value, namespace: &str) -> bool {
        let shy = Company::of("here", &pod("db", json!([term(extra)])));
        let web = Company::of(namespace, &pod("web", json!(null)));
        assert_eq!(shy.bears(&web), web.bears(&shy), "it is the same whoever comes first");
        shy.bears(&web)
    }

    #[test]
    fn a_pod_runs_beside_those_that_it_does_not_select() {
        assert!(!runs_beside(json!({}), "here"));
        assert!(runs_beside(json!({"labelSelector": {"matchLabels": {"app": "other"}}}), "here"));
        assert!(runs_beside(json!({"labelSelector": null}), "here"), "it selects nothing");
        assert!(!runs_beside(json!({"labelSelector": {}}), "here"), "it selects everything");
        assert!(runs_beside(json!({"topologyKey": "topology.kubernetes.io/zone"}), "here"), "that is not looked at");
        let plain = Company::of("here", &json!({}));
        assert!(plain.bears(&plain));
    }

    #[test]
    fn pods_of_one_application_spread_over_nodes() {
        let web = Company::of("here", &pod("web", json!([term(json!({}))])));
        assert!(!web.bears(&web));
        assert!(web.bears(&Company::of("there", &pod("web", json!([term(json!({}))])))), "each has its namespace");
    }

    #[test]
    fn namespaces_are_its_own_unless_it_says_otherwise() {
        assert!(runs_beside(json!({}), "there"));
        assert!(!runs_beside(json!({"namespaces": ["there"]}), "there"));
        assert!(runs_beside(json!({"namespaces": ["there"]}), "here"));
        assert!(!runs_beside(json!({"namespaceSelector": {}}), "there"));
        let named = json!({"namespaceSelector": {"matchLabels": {NAME: "there"}}});
        assert!(!runs_beside(named.clone(), "there") && runs_beside(named, "here"));
        let unknown = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
        assert!(!runs_beside(unknown, "there"), "it may have that label");
    }

    #[test]
    fn the_own_value_of_a_label_may_count() {
        let beside = |extra: Value, hash: &str| {
            let mut other = pod("web", json!(null));
            other["metadata"]["labels"]["hash"] = hash.into();
            Company::of("here", &pod("db", json!([term(extra)]))).bears(&Company::of("here", &other))
        };
        let same = json!({"matchLabelKeys": ["hash", "absent"]});
        assert!(!beside(same.clone(), "1") && beside(same, "2"));
        let differs = json!({"mismatchLabelKeys": ["hash"]});
        assert!(beside(differs.clone(), "1") && !beside(differs, "2"));
    }
}
