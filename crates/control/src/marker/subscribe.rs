//! What a change of a marker, a pod, a node, a result or a prober means: whom to tell, and which markers to look at.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_plan::marker::rule::Rule;

use super::cache::{Marker, NodeResults, ProberLease};
use super::site::{Sites, locked};
use super::view::View;
use crate::caches::store::{Change, Store};
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::slim::{Key, Node, Pod};

/// Tells markers of what changes, and adds those for which that is news to the queue.
#[derive(Clone)]
pub(super) struct Teller {
    pub(super) controller: &'static str,
    pub(super) queue: Arc<Queue<Key>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) view: Arc<View>,
    pub(super) sites: Arc<Sites>,
}

impl Teller {
    fn add(&self, key: Key, urgency: Urgency) {
        if self.queue.add(key, urgency) {
            self.metrics.queue_added(self.controller);
        }
    }

    /// These markers of a namespace are to be looked at.
    pub(super) fn add_all(&self, namespace: &Arc<str>, markers: impl IntoIterator<Item = Arc<str>>) {
        for name in markers {
            self.add(Key { namespace: namespace.clone(), name }, Urgency::Change);
        }
    }

    /// What a change of a marker means: look at it, and at all others of its namespace if it asks for something else.
    pub(super) fn on_marker(&self, markers: &Store<Marker>, change: &Change<Marker>) {
        let Change::Object { key, listed, .. } = change else { return };
        let marker = markers.get(key);
        let rule = marker.and_then(|marker| Rule::of(&marker.object).ok());
        let site = self.sites.of(&key.namespace);
        let others = {
            let mut site = locked(&site);
            if site.ask(&key.name, rule) { site.names() } else { Vec::new() }
        };
        self.add(key.clone(), if *listed { Urgency::Sweep } else { Urgency::Change });
        self.add_all(&key.namespace, others);
    }

    /// What a change of a pod means: markers are told of it.
    pub(super) fn on_pod(&self, change: &Change<Pod>) {
        let Change::Object { key, old, new, .. } = change else { return };
        if let Some(old) = old
            && new.as_ref().is_none_or(|new| new.meta.uid != old.meta.uid)
        {
            self.has_gone(old);
        }
        self.tell(key);
    }

    fn has_gone(&self, pod: &Pod) {
        if let Some(site) = self.sites.get(&pod.meta.key.namespace) {
            let news = locked(&site).ended(&self.view, pod);
            self.add_all(&pod.meta.key.namespace, news);
        }
        if let Some(owner) = pod.owner.as_ref().filter(|owner| self.view.pods.find(Pod::BY_OWNER, owner).is_empty()) {
            self.view.owners.forget(owner);
        }
    }

    /// Tells markers of a pod as it is now.
    pub(super) fn tell(&self, key: &Key) {
        let Some(site) = self.sites.get(&key.namespace) else { return };
        let news = {
            let mut site = locked(&site);
            // As it is now: whoever was told of all pods meanwhile must not hear of an older one after that.
            self.view.pods.get(key).map(|pod| site.tell(&self.view, pod))
        };
        self.add_all(&key.namespace, news.unwrap_or_default());
    }

    /// What a change of a node means: markers are told of the pods on it. That its kubelet is heard of is no change.
    pub(super) fn on_node(&self, change: &Change<Node>) {
        let Change::Object { key, old, new, .. } = change else { return };
        if let (Some(old), Some(new)) = (old, new)
            && old.labels == new.labels
            && old.health.is_unknown() == new.health.is_unknown()
        {
            return;
        }
        self.tell_node(&key.name, |_| true);
    }

    /// Tells markers of the pods on a node, in such namespaces.
    fn tell_node(&self, node: &str, is_such: impl Fn(&str) -> bool) {
        for pod in self.view.pods.find(Pod::BY_NODE, node) {
            if is_such(&pod.meta.key.namespace) {
                self.tell(&pod.meta.key);
            }
        }
    }

    /// Tells markers of pods on these nodes, of which it is known, or not known any more, what probes say.
    pub(super) fn tell_probed(&self, nodes: &[Arc<str>]) {
        let has_probes = |namespace: &str| self.sites.get(namespace).is_some_and(|site| locked(&site).has_probes());
        nodes.iter().for_each(|node| self.tell_node(node, has_probes));
    }

    /// What a change of results means: markers are told of the pods that they are about, and of all that are probed on the node where
    /// other probes than before are more than it runs.
    pub(super) fn on_results(&self, change: &Change<NodeResults>) {
        let Change::Object { key, old, new, .. } = change else { return };
        let (old, new) = (old.as_deref(), new.as_deref());
        let pods: BTreeSet<&Key> = NodeResults::changed(old, new).into_iter().collect();
        pods.into_iter().for_each(|key| self.tell(key));
        if NodeResults::has_other_beyond(old, new) {
            self.tell_probed(std::slice::from_ref(&key.name));
        }
    }

    /// What a change of a prober's Lease means: it is heard, or is not known any more.
    pub(super) fn on_lease(&self, change: &Change<ProberLease>) {
        let Change::Object { key, old, new, listed } = change else { return };
        let node = &key.name;
        let is_news = {
            let mut probers = self.view.probers();
            match (old, new) {
                (_, None) => probers.removed(node),
                // Nobody knows when it was written.
                (old, Some(new)) if *listed => {
                    let is_other = old.as_ref().is_none_or(|old| old.renewal != new.renewal);
                    if is_other {
                        probers.listed(node, &new.renewal);
                    }
                    is_other
                }
                (_, Some(new)) => probers.changed(node, &new.renewal, self.view.now()),
            }
        };
        if is_news {
            self.tell_probed(std::slice::from_ref(node));
        }
    }
}
