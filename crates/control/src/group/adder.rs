//! Which owners are to be looked at when something changes that says where pods go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Group;
use super::owner::{GATED, OwnerKey};
use super::policy::{Policy, PolicySpec};
use super::quiet::joined_or_left;
use super::seated::Seatings;
use crate::caches::store::{Change, Store};
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::slim::{Node, Pod};

/// The name of the controller that places pods, in logs and metrics.
pub(super) const PLACEMENTS: &str = "group-placements";

/// So many changes of nodes are taken as one as come within this time.
const COALESCED: Duration = Duration::from_millis(50);

/// Adds owners to the queue.
#[derive(Clone)]
pub(super) struct Adder {
    pub(super) queue: Arc<Queue<OwnerKey>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) pods: Arc<Store<Pod>>,
}

impl Adder {
    fn add(&self, at: OwnerKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(PLACEMENTS);
        }
    }

    /// The owners of all pods of a namespace that wait.
    pub(super) fn add_gated(&self, namespace: &str) {
        self.pods.find(GATED, namespace).iter().for_each(|pod| self.add(OwnerKey::of(pod)));
    }

    /// The owners of all pods that wait.
    fn add_all_gated(&self) {
        self.pods.all_under(GATED).iter().for_each(|pod| self.add(OwnerKey::of(pod)));
    }

    /// The owners of those that have volumes.
    fn add_gated_with_claims(&self) {
        let gated = self.pods.all_under(GATED);
        gated.iter().filter(|pod| !pod.claims.is_empty()).for_each(|pod| self.add(OwnerKey::of(pod)));
    }
}

/// What a change of a pod means: its owner knows of it, and is looked at if some pod waits.
pub(super) fn on_pod(seatings: Arc<Seatings>, adder: Adder) -> impl FnMut(&Change<Pod>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        let owners: BTreeSet<OwnerKey> = [old, new].into_iter().flatten().map(|pod| OwnerKey::of(pod)).collect();
        seatings.pod_changed(key, owners).into_iter().for_each(|at| adder.add(at));
    }
}

/// Wakes the owners of all pods that wait, once for many changes: nodes come and change by the thousand.
struct Coalesced {
    adder: Adder,
    is_due: Arc<AtomicBool>,
}

impl Coalesced {
    fn new(adder: Adder) -> Self {
        Self { adder, is_due: Arc::default() }
    }

    fn add_all_gated(&self) {
        if self.is_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let (adder, is_due) = (self.adder.clone(), self.is_due.clone());
        tokio::spawn(async move {
            tokio::time::sleep(COALESCED).await;
            // Before they are added: what changes from here on is told again.
            is_due.store(false, Ordering::Relaxed);
            adder.add_all_gated();
        });
    }
}

/// What a change of a node means: it may have joined a group, or left one. Where volumes can go depends on its other labels too.
pub(super) fn on_node(seatings: Arc<Seatings>, adder: Adder) -> impl FnMut(&Change<Node>) + Send + 'static {
    let all = Coalesced::new(adder.clone());
    move |change| {
        let Change::Object { old, new, .. } = change else { return };
        if !joined_or_left(&seatings.stores.groups, change).is_empty() {
            seatings.groups_changed();
            all.add_all_gated();
        } else if old.as_ref().map(|node| &node.labels) != new.as_ref().map(|node| &node.labels) {
            adder.add_gated_with_claims();
        }
    }
}

/// What a change of a group means: it may have come, or have other nodes.
pub(super) fn on_group(seatings: Arc<Seatings>, adder: Adder) -> impl FnMut(&Change<Group>) + Send + 'static {
    move |change| {
        let Change::Object { old, new, .. } = change else { return };
        if old.as_ref().map(|group| &group.spec) != new.as_ref().map(|group| &group.spec) {
            seatings.groups_changed();
            adder.add_all_gated();
        }
    }
}

/// What a change of a policy means: pods may have places, or editions, that had none.
pub(super) fn on_policy<S: PolicySpec>(adder: Adder) -> impl FnMut(&Change<Policy<S>>) + Send + 'static {
    move |change| {
        if let Change::Object { key, .. } = change
            && Policy::is_news(change)
        {
            adder.add_gated(&key.namespace);
        }
    }
}
