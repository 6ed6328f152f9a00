//! What is known of the cluster, and how a pod of it looks to markers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::marker::MARKS_ANNOTATION;
use dapple_api::metadata::SEAT_ANNOTATION;
use dapple_edit::marker::{OwnerKeys, Place, Record};
use dapple_plan::marker::probers::Probers;
use dapple_plan::marker::result::{Container, Outcome, Told, outcome};
use dapple_plan::marker::rule::{Asked, Rule, Rules};
use dapple_plan::marker::standing::{self, NodeOf, Standing};
use dapple_plan::node::Labels;
use tokio::time::Instant;

use super::cache::NodeResults;
use super::owners::Owners;
use crate::caches::store::Store;
use crate::env::Env;
use crate::slim::{Key, Node, Pod};

/// Stands for the value of an annotation of which only a hash is kept, and that is none of those that markers know.
const SOME_OTHER: &str = "\u{0}not read";

/// What is known of the cluster.
pub(super) struct View {
    pub(super) env: Env,
    pub(super) pods: Arc<Store<Pod>>,
    pub(super) nodes: Arc<Store<Node>>,
    pub(super) results: Arc<Store<NodeResults>>,
    pub(super) owners: Owners,
    probers: Mutex<Probers>,
    begun: Instant,
}

impl View {
    pub(super) fn new(
        env: Env,
        pods: Arc<Store<Pod>>,
        nodes: Arc<Store<Node>>,
        results: Arc<Store<NodeResults>>,
    ) -> Self {
        let (owners, probers, begun) = (Owners::default(), Mutex::default(), Instant::now());
        Self { env, pods, nodes, results, owners, probers, begun }
    }

    /// The time of a clock that never goes back.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The time of day, in seconds since 1970.
    pub(super) fn second(&self) -> i64 {
        self.env.now().as_second()
    }

    /// Which probers are heard.
    pub(super) fn probers(&self) -> MutexGuard<'_, Probers> {
        self.probers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that a pod is bound to, if it is there.
    fn node(&self, pod: &Pod) -> Option<Arc<Node>> {
        let name = pod.node.as_ref().filter(|_| pod.is_bound)?;
        self.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() })
    }
}

/// Whether a pod lives: one that has ended, or is about to, neither counts nor is patched.
pub(super) fn is_live(pod: &Pod) -> bool {
    pod.leaving_since.is_none() && !["Succeeded", "Failed"].contains(&&*pod.phase)
}

/// Whether any of these markers may have to do with a pod, by its labels, or had.
pub(super) fn concerns(rules: &Rules, pod: &Pod) -> bool {
    pod.annotations.get(MARKS_ANNOTATION).is_some()
        || rules.values().any(|rule| rule.pods.matches(|key| pod.labels.get(key)))
}

/// A pod with all that markers look at.
pub(super) struct Seen {
    pub(super) pod: Arc<Pod>,
    pub(super) owner: Arc<OwnerKeys>,
    node: Option<Arc<Node>>,
    results: Option<Arc<NodeResults>>,
    is_heard: bool,
    pub(super) record: Record,
}

impl Seen {
    /// A pod whose owner was read.
    pub(super) fn new(view: &View, pod: Arc<Pod>, owner: Arc<OwnerKeys>) -> Self {
        let (node, text) = (view.node(&pod), pod.annotations.get(MARKS_ANNOTATION));
        let bound = pod.node.as_ref().filter(|_| pod.is_bound);
        let results = bound.and_then(|name| view.results.get(&Key { namespace: Arc::from(""), name: name.clone() }));
        let is_heard = bound.is_some_and(|name| view.probers().is_heard(name, view.now()));
        let record = Record::read(text, &owner);
        Self { owner, node, results, is_heard, record, pod }
    }

    /// Shows it as these markers see it.
    pub(super) fn show<T>(&self, rules: &Rules, look: impl FnOnce(&standing::Pod<'_>) -> T) -> T {
        let annotations = Annotations { pod: &self.pod, record: &self.record, rules };
        self.show_with(&annotations, look)
    }

    /// Shows it with these annotations.
    pub(super) fn show_with<T>(&self, annotations: &dyn Labels, look: impl FnOnce(&standing::Pod<'_>) -> T) -> T {
        let pod = &*self.pod;
        look(&standing::Pod {
            labels: &pod.labels,
            annotations,
            record: &self.record,
            owner: &self.owner,
            is_divided: pod.annotations.get(SEAT_ANNOTATION).is_some(),
            is_ready: pod.ready_since.is_some(),
            created: pod.created,
            node: match (&self.node, pod.is_bound) {
                (Some(node), true) => NodeOf::There(&node.labels),
                (None, true) => NodeOf::Gone,
                (_, false) => NodeOf::Unbound,
            },
            containers: &pod.probed,
        })
    }

    /// How it stands to a marker.
    pub(super) fn standing(&self, rule: &Rule, rules: &Rules) -> Standing {
        let told = |container: &Container, asked: &Asked| self.outcome(container, asked);
        self.show(rules, |pod| standing::standing(rule, pod, rules, &told))
    }

    fn outcome(&self, container: &Container, asked: &Asked) -> Outcome {
        let told = Told {
            stored: self.results.as_ref().and_then(|results| results.of(&self.pod.meta.uid, &asked.name)),
            is_heard: self.is_heard,
            is_beyond: self.results.as_ref().is_some_and(|results| results.is_beyond(&self.pod.meta.uid, &asked.name)),
            is_node_unknown: self.node.as_ref().is_some_and(|node| node.health.is_unknown()),
        };
        outcome(&container.run, &told)
    }
}

/// The annotations of a pod. Of most only hashes are kept: they tell the values that markers set and remember from any other.
struct Annotations<'a> {
    pod: &'a Pod,
    record: &'a Record,
    rules: &'a Rules,
}

impl Labels for Annotations<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let others = &self.pod.other_annotations;
        let kept = self.pod.annotations.get(key);
        if kept.is_some() || !others.has(key) {
            return kept;
        }
        let asked = self.rules.values().filter_map(|rule| rule.items.annotations.get(key)).map(String::as_str);
        let entries = self.record.entries().filter(|entry| entry.place == Place::Annotation && entry.key == key);
        let remembered = entries.flat_map(|entry| [Some(entry.set.as_str()), entry.found.as_deref()]).flatten();
        let known = asked.chain(remembered).find(|value| others.has_pair(key, value));
        Some(known.unwrap_or(SOME_OTHER))
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (key, value) in self.pod.annotations.iter() {
            visit(key, value);
        }
    }
}

/// Whether a value is one that was not read.
pub(super) fn is_not_read(value: Option<&str>) -> bool {
    value == Some(SOME_OTHER)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
