//! Pods and markers for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::marker::MARKS_ANNOTATION;
use dapple_edit::marker::{Change, OwnerKeys, Record, mark, unmark};
use serde_json::{Value, json};

use super::result::{Container, Run};
use super::rule::{Rule, Rules};
use super::standing::{NodeOf, Pod};

/// A marker of this name and age.
pub(super) fn rule(name: &str, created: i64, spec: Value) -> Rule {
    let created = jiff::Timestamp::from_second(created).expect("a time").to_string();
    let marker = json!({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec});
    Rule::of(&serde_json::from_value(marker).expect("a PodMarker")).expect("it can be used")
}

/// Markers, by name.
pub(super) fn rules<const COUNT: usize>(list: [Rule; COUNT]) -> Rules {
    list.into_iter().map(|rule| (rule.age.name.clone(), Arc::new(rule))).collect()
}

/// A container that runs.
pub(super) fn container(name: &str) -> Container {
    let run = Run::Runs { id: Arc::from(format!("containerd://{name}")), since: 100 };
    Container { name: Arc::from(name), ports: vec![(Arc::from("web"), 8080)], run }
}

/// A pod that is ready, on no node.
#[derive(Debug, Clone, Default)]
pub(super) struct SomePod {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) owner: OwnerKeys,
    pub(super) is_divided: bool,
    pub(super) is_unready: bool,
    pub(super) node: SomeNode,
    pub(super) containers: Vec<Container>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum SomeNode {
    #[default]
    Unbound,
    Gone,
    There(BTreeMap<String, String>),
}

impl SomePod {
    pub(super) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(super) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(super) fn owned_by(mut self, keys: &[&str]) -> Self {
        self.owner = OwnerKeys::Known(keys.iter().map(|key| (*key).to_owned()).collect());
        self
    }

    /// On a node with a label.
    pub(super) fn on(mut self, key: &str, value: &str) -> Self {
        self.node = SomeNode::There(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        self
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Pod<'_>) -> T) -> T {
        let record = Record::read(self.annotations.get(MARKS_ANNOTATION).map(String::as_str), &self.owner);
        let node = match &self.node {
            SomeNode::Unbound => NodeOf::Unbound,
            SomeNode::Gone => NodeOf::Gone,
            SomeNode::There(labels) => NodeOf::There(labels),
        };
        look(&Pod {
            labels: &self.labels,
            annotations: &self.annotations,
            record: &record,
            owner: &self.owner,
            is_divided: self.is_divided,
            is_ready: !self.is_unready,
            created: 50,
            node,
            containers: &self.containers,
        })
    }

    pub(super) fn mark(&mut self, rule: &Rule) {
        let change = self.look(|pod| {
            mark(pod.record, &|place, key| pod.value(place, key), rule.name(), &rule.items, pod.owner, 200)
        });
        self.apply(change);
    }

    pub(super) fn unmark(&mut self, rule: &Rule) {
        let change = self.look(|pod| unmark(pod.record, &|place, key| pod.value(place, key), rule.name()));
        self.apply(change);
    }

    fn apply(&mut self, change: Change) {
        for (keys, changed) in [(&mut self.labels, change.labels), (&mut self.annotations, change.annotations)] {
            for (key, value) in changed {
                match value {
                    Some(value) => _ = keys.insert(key, value),
                    None => _ = keys.remove(&key),
                }
            }
        }
    }
}
