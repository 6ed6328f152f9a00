//! Who of an owner's pods has which seat, kept from look to look and told of every pod that changes. It is made of pods
//! alone, and anew whenever the policy says something else, or a StatefulSet counts from another number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::group::PropagationPolicySpec;
use dapple_plan::group::is_member;
use dapple_plan::group::placing::{Decision, GATE, Known, Placement, Placing, PodFacts, selector};
use dapple_plan::mutant::{Mutant, is_on};

use super::Group;
use super::editions::EditionsOfOwner;
use super::owner::{OwnerKey, is_gated, is_live, ordinal, pods_of};
use super::policy::Policy;
use crate::caches::store::Store;
use crate::caches::{Caches, Opened, Subscription};
use crate::slim::{Index, Key, Node, Pod};

/// What tells where pods are.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) pods: Arc<Store<Pod>>,
    pub(super) nodes: Arc<Store<Node>>,
    pub(super) groups: Arc<Store<Group>>,
}

/// What keeps them true.
pub(super) struct StoreSubscriptions {
    pub(super) pods: Subscription<Pod>,
    pub(super) nodes: Subscription<Node>,
    pub(super) groups: Subscription<Group>,
}

impl StoreSubscriptions {
    /// Waits until all were told a full view that was begun in this term, or later.
    pub(super) async fn synced(&self, term: u64) {
        self.pods.synced(term).await;
        self.nodes.synced(term).await;
        self.groups.synced(term).await;
    }
}

/// How an owner numbers its pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbering {
    /// The label that tells the number; none if it does not number them.
    pub(super) label: Option<&'static str>,
    /// The first number.
    pub(super) start: usize,
    /// The generation of the owner that says so.
    pub(super) generation: Option<i64>,
}

/// What is known of an owner's pods.
struct Seated {
    placing: Placing,
    /// The policy's UID and generation.
    policy: (Arc<str>, Option<i64>),
    numbering: Numbering,
    /// How many lists the view had taken in when it was made. After another, what the list did not name any more may be told later
    /// than the list is done, and would keep its seat until then.
    lists_done: u64,
    /// Whether some pod says no group, so that the groups of its node count.
    has_strays: bool,
}

/// What is known besides of an owner's pods that wait.
pub(super) struct Facts<'a> {
    pub(super) editions: &'a EditionsOfOwner,
    /// The only groups that volumes allow, of pods that have such volumes.
    pub(super) allowed: &'a BTreeMap<Arc<str>, BTreeSet<usize>>,
    /// Whether a group has room for a pod, beside so many others.
    pub(super) has_room: &'a dyn Fn(&str, usize, usize) -> bool,
}

/// What comes of a look at an owner's pods.
pub(super) enum Decided {
    /// What is done about each that waits.
    Decisions(Vec<(Arc<str>, Decision)>),
    /// Our own last writes are not in the view yet.
    Behind,
    /// The policy does not say how to divide pods.
    Undivided,
}

/// All owners that have, or had, pods behind the gate.
pub(super) struct Seatings {
    pub(super) stores: Stores,
    all: Mutex<BTreeMap<OwnerKey, Seated>>,
}

impl Stores {
    /// Has a pod's facts told.
    fn tell(&self, pod: &Pod, seated: &mut Seated) {
        let is_stray = is_live(pod) && !is_gated(pod) && pod.labels.get(GATE).is_none();
        seated.has_strays |= is_stray;
        let groups_of_node = if is_stray { self.groups_of(pod, seated.placing.groups()) } else { BTreeSet::new() };
        let number = seated.numbering.label.and_then(|label| pod.labels.get(label));
        let facts = PodFacts {
            is_gated: is_gated(pod),
            is_live: is_live(pod),
            labels: &pod.labels,
            annotations: &pod.annotations,
            node_selector: &pod.node_selector,
            groups_of_node: &groups_of_node,
            ordinal: number.and_then(|number| ordinal(number, seated.numbering.start)),
            created: pod.created,
        };
        seated.placing.put(&pod.meta.key.name, &facts);
    }

    /// The node that a pod is bound to.
    pub(super) fn node_of(&self, pod: &Pod) -> Option<Arc<Node>> {
        let name = pod.node.as_ref().filter(|_| pod.is_bound)?;
        self.nodes.get(&Key { namespace: Arc::from(""), name: name.clone() })
    }

    /// Those of some groups that the node of a pod is in.
    pub(super) fn groups_of(&self, pod: &Pod, among: &[Arc<str>]) -> BTreeSet<Arc<str>> {
        let Some(node) = self.node_of(pod) else { return BTreeSet::new() };
        let own = groups_of_node(&self.groups, &node);
        among.iter().filter(|group| own.contains(*group)).cloned().collect()
    }

    /// What pods of a group select their nodes by; none if there is no such group.
    pub(super) fn selector(&self, group: &str) -> Option<BTreeMap<String, String>> {
        self.groups.get(&Key::new("", group)).map(|found| selector(group, &found.spec))
    }

    /// Seats pods of an owner; none if the policy does not say how to divide them.
    fn seat(
        &self,
        mut pods: Vec<Arc<Pod>>,
        policy: &Policy<PropagationPolicySpec>,
        numbering: Numbering,
    ) -> Option<Seated> {
        let mut placing = Placing::new(&policy.meta.key.name, &policy.spec)?;
        placing.expect(pods.iter().filter(|pod| is_live(pod)).map(|pod| pod.meta.key.name.clone()));
        let made_by = (policy.meta.uid.clone(), policy.generation);
        let lists_done = self.pods.position().lists_done;
        let mut seated = Seated { placing, policy: made_by, numbering, lists_done, has_strays: false };
        // Those that say their group first: the others count where there is room beside them.
        pods.sort_by_key(|pod| pod.labels.get(GATE).is_none());
        pods.iter().for_each(|pod| self.tell(pod, &mut seated));
        Some(seated)
    }
}

/// All groups that a node is in, with commas between them.
pub(super) fn all_groups_of(nodes: &Store<Node>, groups: &Store<Group>, node: &str) -> Arc<str> {
    let Some(node) = nodes.get(&Key::new("", node)) else { return Arc::from("") };
    let names: Vec<Arc<str>> = groups_of_node(groups, &node).into_iter().collect();
    Arc::from(names.join(","))
}

/// Groups by each node that they name.
const BY_NAMED_NODE: Index<Group> =
    Index { name: "named-node", values: |group, add| group.spec.nodes.iter().for_each(|node| add(Arc::from(&**node))) };
/// Groups by one of the labels that their nodes have: one is enough to find them.
const BY_LABEL: Index<Group> = Index {
    name: "label",
    values: |group, add| {
        group.spec.match_labels.iter().take(1).for_each(|(key, value)| add(Arc::from(format!("{key}={value}"))));
    },
};

/// NodeGroups, opened so that those of a node are found.
pub(super) fn open_groups(caches: &Caches) -> Opened<Group> {
    caches.open().indexed_by([BY_NAMED_NODE, BY_LABEL])
}

/// The groups that a node is in.
pub(super) fn groups_of_node(groups: &Store<Group>, node: &Node) -> BTreeSet<Arc<str>> {
    let mut found = groups.find(BY_NAMED_NODE, node.name());
    for (key, value) in node.labels.iter() {
        found.extend(groups.find(BY_LABEL, &format!("{key}={value}")));
    }
    found.retain(|group| is_member(&group.spec, node.name(), &node.labels));
    found.into_iter().map(|group| group.meta.key.name.clone()).collect()
}

impl Seatings {
    pub(super) fn new(stores: Stores) -> Self {
        Self { stores, all: Mutex::default() }
    }

    /// Whether pods are being listed: until that is done, some that are gone count beside newer ones, and those that come would get
    /// the next seats.
    pub(super) fn are_half_listed(&self) -> bool {
        self.stores.pods.is_listing() && !is_on(Mutant::HalfListPlaced)
    }

    /// How an owner numbers its pods, if that is known already of this generation.
    pub(super) fn numbering(&self, at: &OwnerKey, generation: Option<i64>) -> Option<Numbering> {
        let known = lock(&self.all).get(at).map(|seated| seated.numbering)?;
        Some(known).filter(|known| known.generation >= generation)
    }

    /// Decides about an owner's pods.
    pub(super) fn decide(
        &self,
        at: &OwnerKey,
        policy: &Policy<PropagationPolicySpec>,
        numbering: Numbering,
        Facts { editions, allowed, has_room }: &Facts<'_>,
    ) -> Decided {
        let made_by = (policy.meta.uid.clone(), policy.generation);
        let mut all = lock(&self.all);
        if self.are_half_listed() {
            return Decided::Behind;
        }
        let lists_done = self.stores.pods.position().lists_done;
        let is_as_now =
            |known: &Seated| known.policy == made_by && known.numbering == numbering && known.lists_done == lists_done;
        if !all.get(at).is_some_and(is_as_now) {
            let pods = pods_of(&self.stores.pods, at);
            // One that we have placed and that still seems to wait would lose its seat to another.
            if !pods.iter().all(|pod| self.stores.pods.caught_up(&pod.meta.key)) {
                return Decided::Behind;
            }
            let Some(seated) = self.stores.seat(pods, policy, numbering) else { return Decided::Undivided };
            // A list may have been begun meanwhile.
            if seated.lists_done != lists_done || self.are_half_listed() {
                return Decided::Behind;
            }
            all.insert(at.clone(), seated);
        }
        // Which seats are free is not known while pods that have one are given another.
        let is_reseated = |pod: &Arc<Pod>| !is_gated(pod) && OwnerKey::of(pod) == *at;
        if self.stores.pods.behind().iter().filter_map(|key| self.stores.pods.get(key)).any(|pod| is_reseated(&pod)) {
            return Decided::Behind;
        }
        let Some(seated) = all.get_mut(at) else { return Decided::Behind };
        let groups = seated.placing.groups().to_vec();
        Decided::Decisions(seated.placing.decide(&Known {
            selector_of: &|group| self.stores.selector(group),
            suits: &|edition| editions.suits(&groups, edition),
            unrendered: editions.unrendered(),
            allowed,
            has_room,
            are_kept: editions.are_kept,
        }))
    }

    /// Has somebody look at where an owner's pods are, by number alone. None if the policy does not say how to divide them.
    pub(super) fn look<T>(
        &self,
        at: &OwnerKey,
        policy: &Policy<PropagationPolicySpec>,
        look: impl FnOnce(&mut Placing) -> T,
    ) -> Option<T> {
        let made_by = (policy.meta.uid.clone(), policy.generation);
        let mut all = lock(&self.all);
        if let Some(seated) = all.get_mut(at).filter(|known| known.policy == made_by) {
            return Some(look(&mut seated.placing));
        }
        let mut seated = self.stores.seat(pods_of(&self.stores.pods, at), policy, Numbering::default())?;
        let found = look(&mut seated.placing);
        // Without pods nothing would ever tell that it is not needed any more.
        if seated.placing.is_empty() {
            all.remove(at);
        } else {
            all.insert(at.clone(), seated);
        }
        Some(found)
    }

    /// A pod was placed, or may have been. If it is gone by now, it has no seat, nor has another of its name.
    pub(super) fn note_placed(&self, at: &OwnerKey, pod: &Pod, placement: &Placement) {
        let mut all = lock(&self.all);
        let Some(seated) = all.get_mut(at) else { return };
        if self.stores.pods.get(&pod.meta.key).is_some_and(|now| now.meta.uid == pod.meta.uid) {
            seated.placing.note_placed(&pod.meta.key.name, placement);
        }
    }

    /// What is known of an owner is found out anew.
    pub(super) fn forget(&self, at: &OwnerKey) {
        lock(&self.all).remove(at);
    }

    /// Takes in how a pod is now. Returns which of these owners, its own and the one before, are to be looked at.
    pub(super) fn pod_changed(&self, key: &Key, owners: BTreeSet<OwnerKey>) -> Vec<OwnerKey> {
        let mut all = lock(&self.all);
        // Under the lock: what is made anew meanwhile must not be told of an older one after it.
        let pod = self.stores.pods.get(key);
        // What we have written of it ourselves is known already, until the view includes it.
        let is_behind = !self.stores.pods.caught_up(key);
        let mut waiting = Vec::new();
        for at in owners {
            let own = pod.as_ref().filter(|pod| OwnerKey::of(pod) == at);
            let mut waits = own.is_some_and(|pod| is_gated(pod));
            if let Some(seated) = all.get_mut(&at).filter(|_| !is_behind) {
                match own {
                    Some(pod) => self.stores.tell(pod, seated),
                    None => seated.placing.remove(&key.name),
                }
                // A seat that has become free may be for one that waits.
                waits |= seated.placing.has_waiting();
                if seated.placing.is_empty() {
                    all.remove(&at);
                }
            }
            if waits {
                waiting.push(at);
            }
        }
        waiting
    }

    /// Nodes have come into groups or left them: where pods count that say no group is found out anew.
    pub(super) fn groups_changed(&self) {
        lock(&self.all).retain(|_, seated| !seated.has_strays);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "seated_tests.rs"]
mod tests;
