//! The markers that ask for probes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::marker::MARKS_ANNOTATION;
use dapple_edit::marker::{OwnerKeys, Record};
use dapple_plan::marker::rule::{Rule, Rules};
use dapple_plan::marker::standing::{self, NodeOf, is_probed};

use crate::slim::{Key, Node, Pod};

/// By namespace. A namespace without any is not there.
#[derive(Default)]
pub(super) struct Askers(Mutex<BTreeMap<Arc<str>, Rules>>);

impl Askers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Rules>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a marker asks for by now; none if it is gone, or cannot be used. Returns whether other probes are asked for by that.
    pub(super) fn ask(&self, marker: &Key, rule: Option<Rule>) -> bool {
        // One that marks no pod needs no results.
        let rule = rule.filter(|rule| !rule.probes.is_empty() && !rule.replicas.is_zero());
        let mut all = self.lock();
        let of_namespace = all.entry(marker.namespace.clone()).or_default();
        let asks = |rule: &Rule| (rule.pods.clone(), rule.nodes.clone(), rule.probes.clone());
        let before = of_namespace.get(&marker.name).map(|rule| asks(rule));
        let has_changed = before != rule.as_ref().map(asks);
        match rule {
            Some(rule) => _ = of_namespace.insert(marker.name.clone(), Arc::new(rule)),
            None => _ = of_namespace.remove(&marker.name),
        }
        if of_namespace.is_empty() {
            all.remove(&marker.namespace);
        }
        has_changed
    }

    /// Those of a namespace.
    pub(super) fn of(&self, namespace: &str) -> Rules {
        self.lock().get(namespace).cloned().unwrap_or_default()
    }

    /// Whether there are any in a namespace.
    pub(super) fn are_in(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    /// Whether there are any at all.
    pub(super) fn are_there(&self) -> bool {
        !self.lock().is_empty()
    }
}

/// Those of these markers that have a pod probed, which is bound to a node.
pub(super) fn asking<'r>(rules: &'r Rules, pod: &Pod, node: &Node) -> Vec<&'r Rule> {
    let owner = OwnerKeys::default();
    let record = Record::read(pod.annotations.get(MARKS_ANNOTATION), &owner);
    let looked = standing::Pod {
        labels: &pod.labels,
        // Markers are not chosen by them.
        annotations: &pod.annotations,
        record: &record,
        owner: &owner,
        is_divided: false,
        is_ready: pod.ready_since.is_some(),
        created: pod.created,
        node: NodeOf::There(&node.labels),
        containers: &pod.probed,
    };
    rules.values().map(|rule| &**rule).filter(|rule| is_probed(rule, &looked)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::slim::{Interner, read};

    fn rule(spec: Value) -> Rule {
        let marker = json!({"metadata": {"name": "m", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
        Rule::of(&serde_json::from_value(marker).unwrap()).unwrap()
    }

    fn spec(replicas: u32, app: &str) -> Value {
        let probe = json!({"containers": [{"name": "c"}], "probe": {"exec": {"command": ["a"]}}});
        json!({
            "strategy": {"replicas": replicas}, "markItems": {"labels": {"k": "1"}},
            "matchRequirements": {
                "podSelector": {"matchLabels": {"app": app}}, "nodeSelector": {"matchLabels": {"arch": "x86"}}, "podProbes": [probe],
            },
        })
    }

    #[test]
    fn only_what_is_probed_matters() {
        let (askers, key) = (Askers::default(), Key::new("default", "m"));
        assert!(!askers.ask(&key, Some(rule(json!({"markItems": {"labels": {"k": "1"}}})))), "it asks for no probe");
        assert!(!askers.are_there());
        assert!(askers.ask(&key, Some(rule(spec(1, "web")))));
        assert!(!askers.ask(&key, Some(rule(spec(2, "web")))), "more pods are marked, and the same are probed");
        assert!(askers.ask(&key, Some(rule(spec(2, "db")))));
        assert!(askers.are_in("default") && !askers.are_in("other") && askers.of("default").len() == 1);
        assert!(askers.ask(&key, Some(rule(spec(0, "db")))), "none is marked");
        assert!(!askers.are_there() && !askers.ask(&key, None));
    }

    #[test]
    fn pods_are_probed_that_match_but_for_the_probes() {
        let pod = |app: &str| -> Pod {
            let object = json!({"metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1",
                "labels": {"app": app}}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}});
            read(&object, &mut Interner::default()).unwrap()
        };
        let node = |arch: &str| -> Node {
            let object =
                json!({"metadata": {"name": "n", "uid": "v", "resourceVersion": "1", "labels": {"arch": arch}}});
            read(&object, &mut Interner::default()).unwrap()
        };
        let askers = Askers::default();
        askers.ask(&Key::new("default", "m"), Some(rule(spec(1, "web"))));
        let rules = askers.of("default");
        for (app, arch, count) in [("web", "x86", 1), ("db", "x86", 0), ("web", "arm", 0)] {
            assert_eq!(asking(&rules, &pod(app), &node(arch)).len(), count, "{app} on {arch}");
        }
    }
}
