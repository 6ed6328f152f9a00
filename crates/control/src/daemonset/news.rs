//! What changed since a set was looked at last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_plan::mutant::{Mutant, is_on};

use super::{DaemonSets, Set, SetRevision};
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::slim::{Node, Pod};
use crate::store::{Change, Key, Store};
use crate::worker::Reconcile;

/// What changed for one set.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Something that concerns more than single pods: everything is to be looked at anew.
    pub(super) is_stale: bool,
    /// Names of pods.
    pub(super) pods: BTreeSet<Arc<str>>,
    /// Names of nodes that became ready or ceased to be.
    pub(super) nodes: BTreeSet<Arc<str>>,
}

/// What changed for every set, and the queue that sets are put into when something does.
pub(super) struct News {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
    sets: Arc<Store<Set>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Which set a UID belongs to.
    owners: BTreeMap<Arc<str>, Key>,
    changes: BTreeMap<Key, Changes>,
}

impl News {
    pub(super) fn new(queue: Arc<Queue<Key>>, metrics: Arc<Metrics>, sets: Arc<Store<Set>>) -> Self {
        Self { queue, metrics, sets, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what changed for a set.
    pub(super) fn take(&self, set: &Key) -> Changes {
        self.state().changes.remove(set).unwrap_or_default()
    }

    pub(super) fn forget(&self, set: &Key) {
        self.state().changes.remove(set);
    }

    fn tell(&self, set: &Key, urgency: Urgency, note: impl FnOnce(&mut Changes)) {
        note(self.state().changes.entry(set.clone()).or_default());
        if self.queue.add(set.clone(), urgency) {
            self.metrics.queue_added(DaemonSets::NAME);
        }
    }

    fn tell_owner(&self, owner: &Arc<str>, note: impl FnOnce(&mut Changes)) {
        let set = self.state().owners.get(owner).cloned();
        if let Some(set) = set {
            self.tell(&set, Urgency::Change, note);
        }
    }

    pub(super) fn on_set(self: Arc<Self>) -> impl FnMut(&Change<Set>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, listed } = change else { return };
            if let Some(old) = old {
                self.state().owners.remove(&old.meta.uid);
            }
            if let Some(new) = new {
                self.state().owners.insert(new.meta.uid.clone(), key.clone());
            }
            // Of our own words about it only one has consequences: the revision that nodes are held back at.
            let held_at = |set: &Set| set.status.current_revision.clone();
            let asks = |set: &Arc<Set>| (set.generation, set.annotations.clone(), set.meta.uid.clone(), held_at(set));
            let is_stale = old.as_ref().map(asks) != new.as_ref().map(asks);
            let urgency = if *listed { Urgency::Sweep } else { Urgency::Change };
            self.tell(key, urgency, |changes| changes.is_stale |= is_stale);
        }
    }

    pub(super) fn on_revision(self: Arc<Self>) -> impl FnMut(&Change<SetRevision>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, .. } = change else { return };
            let owners: BTreeSet<&Arc<str>> =
                [old, new].into_iter().flatten().filter_map(|it| it.owner.as_ref()).collect();
            for owner in owners {
                self.tell_owner(owner, |changes| changes.is_stale = true);
            }
            if let Some(orphan) = new.as_ref().filter(|new| new.owner.is_none() && new.is_orphan) {
                self.tell_selecting(&key.namespace, |label| orphan.labels.get(label).map(String::as_str));
            }
        }
    }

    pub(super) fn on_pod(self: Arc<Self>) -> impl FnMut(&Change<Pod>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, .. } = change else { return };
            let owners: BTreeSet<&Arc<str>> =
                [old, new].into_iter().flatten().filter_map(|pod| pod.owner.as_ref()).collect();
            for owner in owners {
                // Where everything is to be looked at anew, names are of no use; a standby would collect them for ever.
                self.tell_owner(owner, |changes| {
                    if !changes.is_stale {
                        changes.pods.insert(key.name.clone());
                    }
                });
            }
            let is_known =
                |new: &Pod| old.as_ref().is_some_and(|old| (&old.owner, &old.labels) == (&new.owner, &new.labels));
            // One that nobody owns may be a set's: left by another that is gone, or by a person.
            if let Some(orphan) = new.as_ref().filter(|new| new.owner.is_none() && !is_known(new)) {
                self.tell_selecting(&key.namespace, |label| orphan.labels.get(label));
            }
        }
    }

    /// Tells the sets of a namespace that select these labels.
    fn tell_selecting<'l>(&self, namespace: &str, label: impl Fn(&str) -> Option<&'l str>) {
        for set in self.sets.in_namespace(namespace) {
            if set.selector.as_ref().is_some_and(|selector| selector.matches(&label)) {
                self.tell(&set.meta.key, Urgency::Change, |changes| changes.is_stale = true);
            }
        }
    }

    /// A node that comes, goes or changes what pods may run there concerns every set.
    pub(super) fn on_node(self: Arc<Self>) -> impl FnMut(&Change<Node>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, .. } = change else { return };
            let is_same = |old: &Node, new: &Node| {
                (&old.labels, &old.taints) == (&new.labels, &new.taints) || is_on(Mutant::LabelsIgnored)
            };
            let is_stale = !matches!((old, new), (Some(old), Some(new)) if is_same(old, new));
            if !is_stale && old.as_ref().map(|old| old.ready) == new.as_ref().map(|new| new.ready) {
                return;
            }
            let sets: Vec<Key> = self.state().owners.values().cloned().collect();
            for set in sets {
                self.tell(&set, Urgency::Change, |changes| {
                    changes.is_stale |= is_stale;
                    changes.nodes.insert(key.name.clone());
                });
            }
        }
    }
}
