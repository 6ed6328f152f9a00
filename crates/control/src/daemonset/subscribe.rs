//! What changed since a set was looked at last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_plan::daemonset::reads::{Readers, Reads};

use super::NAME;
use super::claim::selects;
use crate::caches::store::{Change, Store};
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::signal::Signal;
use crate::slim::{Key, Node, Pod, Revision, Set, selected};

/// What changed for one set.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Something that concerns more than single pods: everything is to be looked at anew.
    pub(super) is_stale: bool,
    /// Pods by name, as they were told last; nothing where one is gone. Not as the store has them, which may be ahead: of two
    /// pods, one would be seen as it is and the other as it was before.
    pub(super) pods: BTreeMap<Arc<str>, Option<Arc<Pod>>>,
    /// Names of nodes that came, went, or changed in something that the set reads.
    pub(super) nodes: BTreeSet<Arc<str>>,
}

/// What changed for every set, and the queue that sets are put into when something does.
pub(super) struct News {
    queue: Arc<Queue<Key>>,
    metrics: Arc<Metrics>,
    sets: Arc<Store<Set>>,
    /// The term in which this process leads.
    leading: Signal,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Which set a UID belongs to.
    owners: BTreeMap<Arc<str>, Key>,
    changes: BTreeMap<Key, Changes>,
    readers: Readers<Key>,
}

/// So many names of pods and nodes are kept for a set: beyond that it is cheaper to look at everything anew, and a standby,
/// which takes nothing, must not collect what is long gone.
const MOST_NAMES: usize = 4096;

impl Changes {
    fn note_pod(&mut self, name: &Arc<str>, pod: Option<&Arc<Pod>>) {
        // Where everything is to be looked at anew, they are of no use.
        if !self.is_stale {
            self.pods.insert(name.clone(), pod.cloned());
            self.bound();
        }
    }

    fn note_node(&mut self, name: &Arc<str>) {
        if !self.is_stale {
            self.nodes.insert(name.clone());
            self.bound();
        }
    }

    fn bound(&mut self) {
        if self.pods.len() + self.nodes.len() > MOST_NAMES {
            *self = Self { is_stale: true, ..Self::default() };
        }
    }
}

impl News {
    pub(super) fn new(queue: Arc<Queue<Key>>, metrics: Arc<Metrics>, sets: Arc<Store<Set>>, leading: Signal) -> Self {
        Self { queue, metrics, sets, leading, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what changed for a set.
    pub(super) fn take(&self, set: &Key) -> Changes {
        self.state().changes.remove(set).unwrap_or_default()
    }

    /// A set is gone.
    pub(super) fn forget(&self, set: &Key) {
        let mut state = self.state();
        state.changes.remove(set);
        state.readers.remove(set);
    }

    /// What a set reads of nodes from now on.
    pub(super) fn reads(&self, set: &Key, reads: Reads) {
        self.state().readers.put(set.clone(), Some(reads));
    }

    /// What a set reads of nodes is about to be found out: until then everything concerns it.
    pub(super) fn forget_reads(&self, set: &Key) {
        self.state().readers.put(set.clone(), None);
    }

    fn tell(&self, set: &Key, urgency: Urgency, note: impl FnOnce(&mut Changes)) {
        note(self.state().changes.entry(set.clone()).or_default());
        if self.queue.add(set.clone(), urgency) {
            self.metrics.queue_added(NAME);
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
            match new {
                Some(new) => {
                    let mut state = self.state();
                    state.owners.insert(new.meta.uid.clone(), key.clone());
                    if !state.readers.has(key) {
                        state.readers.put(key.clone(), None);
                    }
                }
                // A standby, which works on nothing, would keep its key and what has changed for ever. A worker that is not
                // done with it yet may leave something, though: it is looked at once more, whenever that is.
                None if self.leading.get() == 0 && self.queue.remove(key) => return self.forget(key),
                None => self.state().readers.remove(key),
            }
            let is_stale = !old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| new.asks_as(old));
            let urgency = if *listed { Urgency::Sweep } else { Urgency::Change };
            self.tell(key, urgency, |changes| changes.is_stale |= is_stale);
        }
    }

    pub(super) fn on_revision(self: Arc<Self>) -> impl FnMut(&Change<Revision>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, .. } = change else { return };
            let owners: BTreeSet<&Arc<str>> =
                [old, new].into_iter().flatten().filter_map(|it| Some(&it.owner.as_ref()?.uid)).collect();
            for owner in owners {
                self.tell_owner(owner, |changes| changes.is_stale = true);
            }
            if let Some(orphan) = new.as_ref().filter(|new| new.is_orphan) {
                let labels = orphan.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                self.tell_selecting(&key.namespace, labels, |label| orphan.label(label));
            }
        }
    }

    pub(super) fn on_pod(self: Arc<Self>) -> impl FnMut(&Change<Pod>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, .. } = change else { return };
            let owners: BTreeSet<&Arc<str>> =
                [old, new].into_iter().flatten().filter_map(|pod| pod.owner.as_ref()).collect();
            for owner in owners {
                self.tell_owner(owner, |changes| changes.note_pod(&key.name, new.as_ref()));
            }
            let is_known =
                |new: &Pod| old.as_ref().is_some_and(|old| (&old.owner, &old.labels) == (&new.owner, &new.labels));
            // One that nobody owns may be a set's: left by another that is gone, or by a person.
            if let Some(orphan) = new.as_ref().filter(|new| new.owner.is_none() && !is_known(new)) {
                self.tell_selecting(&key.namespace, orphan.labels.iter(), |label| orphan.labels.get(label));
            }
        }
    }

    /// Tells the sets of a namespace that select these labels.
    fn tell_selecting<'l>(
        &self,
        namespace: &str,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        label: impl Fn(&str) -> Option<&'l str>,
    ) {
        for place in labels.map(Some).chain([None]) {
            for set in self.sets.find(Set::BY_SELECTED, &selected(namespace, place)) {
                if selects(&set, &label) {
                    self.tell(&set.meta.key, Urgency::Change, |changes| changes.is_stale = true);
                }
            }
        }
    }

    /// What policies or groups say concerns the sets that are found by policy under this value.
    pub(super) fn on_policies(&self, value: &str) {
        for set in self.sets.find(Set::BY_POLICY, value) {
            self.tell(&set.meta.key, Urgency::Change, |changes| changes.is_stale = true);
        }
    }

    /// A node concerns the sets that read of it what has changed.
    pub(super) fn on_node(self: Arc<Self>) -> impl FnMut(&Change<Node>) + Send + 'static {
        move |change| {
            let Change::Object { key, old, new, .. } = change else { return };
            let change = Node::change(old.as_deref(), new.as_deref());
            let sets = self.state().readers.concerned(&change);
            for set in sets {
                self.tell(&set, Urgency::Change, |changes| changes.note_node(&key.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::daemonset::BACKOFF;
    use crate::env::{Env, SystemClock};
    use crate::slim::{Interner, read};

    fn set(name: &str) -> Arc<Set> {
        let template = json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": []}});
        let set = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
        });
        Arc::new(read(&set, &mut Interner::default()).unwrap())
    }

    #[test]
    fn a_standby_keeps_nothing_of_sets_that_are_gone() {
        let (leading, queue) = (Signal::default(), Arc::new(Queue::new(BACKOFF, Env::new(SystemClock, 1))));
        let news = News::new(queue.clone(), Arc::new(Metrics::new()), Arc::default(), leading.clone());
        let news = Arc::new(news);
        let mut tell = news.clone().on_set();
        let mut come_and_go = |name: &str| {
            let (key, set) = (Key::new("default", name), Some(set(name)));
            tell(&Change::Object { key: key.clone(), old: None, new: set.clone(), listed: false });
            assert!(news.state().changes.contains_key(&key) && queue.depth() > 0);
            tell(&Change::Object { key, old: set, new: None, listed: false });
        };
        for number in 0..3 {
            come_and_go(&format!("agent-{number}"));
        }
        let state = news.state();
        assert!(state.changes.is_empty() && state.owners.is_empty() && queue.depth() == 0);
        drop(state);
        // Whoever leads has more of it to let go of.
        leading.set(1);
        come_and_go("agent-3");
        assert_eq!((news.state().changes.len(), queue.depth()), (1, 1));
    }
}
