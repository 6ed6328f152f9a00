//! What is kept of a set between two looks. All of it can be lost: it is made anew from the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::daemonset::status::Problem;
use dapple_plan::mutant::{Mutant, is_on};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tokio::time::Instant;

use super::Set;
use super::known::{Known, Rendered};
use super::proof::{Answer, Answers};
use super::steps::{Failure, Step};
use crate::caches::store::Key;

/// After so long a write should have come back.
const OVERDUE: Duration = Duration::from_secs(10);

/// What is kept of a set.
pub(super) struct Memory {
    /// Of which set: one of the same name is another.
    pub(super) uid: Arc<str>,
    /// Whether everything must be looked at anew.
    pub(super) is_stale: bool,
    /// Whether the last look ended before anything was decided, since nodes had changed meanwhile.
    pub(super) is_put_off: bool,
    pub(super) known: Option<Known>,
    /// The set that this follows from.
    pub(super) set: Option<Arc<Set>>,
    /// The selector that renderings were held against.
    pub(super) selector: Option<LabelSelector>,
    /// Renderings of each revision, with the version it was read at.
    pub(super) variants: Rendered,
    /// Pods that we wrote and have not seen since, with their nodes.
    pub(super) unseen: BTreeMap<Key, Unseen>,
    /// Pods of which we do not know what our last write has come to.
    doubts: BTreeMap<Key, Doubt>,
    /// Names of pods of which we know it since.
    settled: Vec<Arc<str>>,
    /// The version that the set is known to have, should our view of it be behind.
    behind: Option<u64>,
    /// Revisions that we wrote and have not seen since, and when.
    unseen_revisions: BTreeMap<Key, Instant>,
    /// What the API server has said of renderings, by what they mean.
    pub(super) answers: Answers,
    /// What fails, by step and object.
    pub(super) failed: BTreeMap<(Step, Arc<str>), Failure>,
    /// What has ended every look for a while.
    pub(super) failure: Option<Problem>,
    /// Whether the revision that nodes are held back at is gone.
    pub(super) is_gone: bool,
    /// Whether the newest revision cannot be written: no pod is updated meanwhile.
    pub(super) is_blocked: bool,
    /// UIDs of revisions that the API server was asked about and lets be changed.
    pub(super) sound: BTreeSet<Arc<str>>,
    /// UIDs of revisions that it let nobody change when that was tried.
    pub(super) unsound: BTreeSet<Arc<str>>,
    /// UIDs of pods that cannot be changed where they run, though it looked so.
    pub(super) unchangeable: BTreeSet<Arc<str>>,
    /// By node: how often a pod's name was taken by somebody else's.
    pub(super) collisions: BTreeMap<Arc<str>, u32>,
    /// Whether the last pods were made without an error.
    pub(super) is_flowing: bool,
    /// How many writes were done.
    pub(super) written: u64,
    /// By node: what the API server refused there.
    pub(super) refusals: BTreeMap<Arc<str>, NodeRefusal>,
    /// Problems that were reported since everything was looked at first.
    pub(super) reported: BTreeSet<(&'static str, String)>,
    /// The revision whose images were asked for.
    pub(super) pulled_for: Option<Arc<str>>,
    /// When the status was written last.
    pub(super) told: Option<Instant>,
    /// Whether something has changed since that may have set a revision free.
    pub(super) may_prune: bool,
    /// When revisions were looked through last.
    pub(super) pruned: Option<Instant>,
}

/// A write that has not come back.
#[derive(Debug, Clone)]
pub(super) struct Unseen {
    pub(super) node: Arc<str>,
    since: Instant,
}

/// A write of which nobody knows what it has come to.
#[derive(Debug, Clone)]
struct Doubt {
    node: Arc<str>,
    /// When to ask.
    ask: Instant,
    /// Whether it was found to be gone.
    is_gone: bool,
}

/// What the API server refused on a node.
#[derive(Debug, Clone)]
pub(super) struct NodeRefusal {
    pub(super) reason: &'static str,
    pub(super) text: String,
    pub(super) times: u32,
    /// Not before this time is it tried again.
    pub(super) until: i64,
}

impl Memory {
    pub(super) fn new(uid: Arc<str>) -> Self {
        Self {
            uid,
            is_stale: true,
            is_put_off: false,
            known: None,
            set: None,
            selector: None,
            variants: BTreeMap::new(),
            unseen: BTreeMap::new(),
            doubts: BTreeMap::new(),
            settled: Vec::new(),
            behind: None,
            unseen_revisions: BTreeMap::new(),
            answers: Answers::new(),
            failed: BTreeMap::new(),
            failure: None,
            is_gone: false,
            is_blocked: false,
            sound: BTreeSet::new(),
            unsound: BTreeSet::new(),
            unchangeable: BTreeSet::new(),
            collisions: BTreeMap::new(),
            is_flowing: false,
            written: 0,
            refusals: BTreeMap::new(),
            reported: BTreeSet::new(),
            pulled_for: None,
            told: None,
            may_prune: false,
            pruned: None,
        }
    }

    /// Whether it is time to ask again whether a rendering is taken.
    pub(super) fn asks_again(&self, now: i64) -> bool {
        self.answers.values().filter_map(Answer::ask_again).any(|at| at <= now)
    }

    /// Whether our view of the set is known to be behind.
    pub(super) fn is_behind(&self, version: u64) -> bool {
        self.behind.is_some_and(|newest| version < newest)
    }

    /// The set has this version by now, or is gone: this is not it any more.
    pub(super) fn is_to_wait_for(&mut self, version: Option<u64>) {
        self.behind = Some(version.unwrap_or(u64::MAX));
    }

    /// Remembers a write until it has come back.
    pub(super) fn wrote(&mut self, pod: Key, node: &Arc<str>) {
        let is_new = self.unseen.insert(pod, Unseen { node: node.clone(), since: Instant::now() }).is_none();
        if is_new {
            self.freeze(node);
        }
    }

    /// Remembers that a write may have been done.
    pub(super) fn doubt(&mut self, pod: Key, node: &Arc<str>) {
        let is_new =
            self.doubts.insert(pod, Doubt { node: node.clone(), ask: Instant::now(), is_gone: false }).is_none();
        if is_new {
            self.freeze(node);
        }
    }

    /// Pods to be asked for now, with their nodes.
    pub(super) fn open_doubts(&self) -> Vec<(Key, Arc<str>)> {
        let now = Instant::now();
        let open = self.doubts.iter().filter(|(_, doubt)| doubt.ask <= now);
        open.map(|(pod, doubt)| (pod.clone(), doubt.node.clone())).collect()
    }

    pub(super) fn doubtful_nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.doubts.values().map(|doubt| &doubt.node)
    }

    /// It is gone, and our view still has it: it is asked for again, should nobody tell.
    pub(super) fn ask_later(&mut self, pod: &Key) {
        if let Some(doubt) = self.doubts.get_mut(pod) {
            (doubt.ask, doubt.is_gone) = (Instant::now() + OVERDUE, true);
        }
    }

    /// Lets go of doubts about pods that are gone, once our view does not have them any more.
    pub(super) fn settle_gone(&mut self, is_in_view: impl Fn(&Key) -> bool) {
        let gone = self.doubts.iter().filter(|(pod, doubt)| doubt.is_gone && !is_in_view(pod));
        let gone: Vec<Key> = gone.map(|(pod, _)| pod.clone()).collect();
        gone.iter().for_each(|pod| self.settle(pod));
    }

    /// Whether nothing is to be done about a pod yet.
    pub(super) fn is_open(&self, pod: &Key) -> bool {
        self.unseen.contains_key(pod) || self.doubts.contains_key(pod)
    }

    /// Whether there are writes whose outcome is yet to be seen.
    pub(super) fn awaits_writes(&self) -> bool {
        !self.unseen.is_empty() || !self.doubts.is_empty()
    }

    /// As many writes as are unseen are under way on a node that is new to the fleet.
    pub(super) fn freeze_again(&mut self, node: &str) {
        let unseen = self.unseen.values().filter(|unseen| *unseen.node == *node).count();
        let doubts = self.doubts.values().filter(|doubt| *doubt.node == *node).count();
        (0..unseen + doubts).for_each(|_| self.freeze(node));
    }

    /// Something is under way on a node.
    pub(super) fn freeze(&mut self, node: &str) {
        if let Some(known) = self.known.as_mut().filter(|_| !is_on(Mutant::ExpectationDropped)) {
            known.fleet.wrote(node);
        }
    }

    /// It has ended.
    pub(super) fn thaw(&mut self, node: &str) {
        if let Some(known) = self.known.as_mut() {
            known.fleet.saw(node);
        }
    }

    /// Lets go of writes that have come back, and names their pods, and those of doubts that were settled: what became
    /// of them may not be news yet.
    pub(super) fn see(&mut self, is_seen: impl Fn(&Key) -> bool) -> Vec<Arc<str>> {
        let seen: Vec<Key> = self.unseen.keys().filter(|pod| is_seen(pod)).cloned().collect();
        for pod in &seen {
            self.forget_unseen(pod);
        }
        let settled = std::mem::take(&mut self.settled);
        seen.into_iter().map(|pod| pod.name).chain(settled).collect()
    }

    /// Remembers a revision until it has come back.
    pub(super) fn wrote_revision(&mut self, revision: Key) {
        self.unseen_revisions.insert(revision, Instant::now());
    }

    /// Whether every revision that we wrote has come back. One that should have and has not may have been deleted while
    /// a list was under way, and is not waited for: it is made under the same name again, or found to be there.
    pub(super) fn sees_revisions(&mut self, is_seen: impl Fn(&Key) -> bool) -> bool {
        self.unseen_revisions.retain(|revision, since| !is_seen(revision) && since.elapsed() < OVERDUE);
        self.unseen_revisions.is_empty()
    }

    /// Doubts writes that should have come back by now: a pod that was deleted and is gone may be passed over by a list
    /// that was begun before, and then no watch ever tells of it.
    pub(super) fn doubt_overdue(&mut self) {
        let is_overdue = |unseen: &Unseen| unseen.since.elapsed() >= OVERDUE;
        let overdue: Vec<Key> =
            self.unseen.iter().filter(|(_, unseen)| is_overdue(unseen)).map(|(pod, _)| pod.clone()).collect();
        for pod in overdue {
            if let Some(node) = self.forget_unseen(&pod) {
                self.doubt(pod, &node);
            }
        }
    }

    fn forget_unseen(&mut self, pod: &Key) -> Option<Arc<str>> {
        let node = self.unseen.remove(pod)?.node;
        self.thaw(&node);
        Some(node)
    }

    /// A doubt is settled.
    pub(super) fn settle(&mut self, pod: &Key) {
        if let Some(doubt) = self.doubts.remove(pod) {
            self.thaw(&doubt.node);
            self.settled.push(pod.name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that was begun before a deletion and read after it does not name the pod, and its versions may all be older
    /// than the deletion: no watch ever says that the view includes it. Found by the simulator: nothing was done any more.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_no_watch_tells_of_is_asked_for() {
        let (pod, node) = (Key::new("default", "agent-1"), Arc::from("node-1"));
        let mut memory = Memory::new(Arc::from("uid"));
        memory.wrote(pod.clone(), &node);
        memory.doubt_overdue();
        assert!(memory.unseen.contains_key(&pod) && memory.doubts.is_empty(), "it may still come");
        tokio::time::advance(OVERDUE).await;
        memory.doubt_overdue();
        assert!(memory.unseen.is_empty());
        assert_eq!(memory.open_doubts(), [(pod, node)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_that_no_watch_tells_of_is_not_waited_for() {
        let mut memory = Memory::new(Arc::from("uid"));
        memory.wrote_revision(Key::new("default", "agent-1"));
        assert!(!memory.sees_revisions(|_| false), "it may still come");
        assert!(memory.sees_revisions(|_| true));
        memory.wrote_revision(Key::new("default", "agent-1"));
        tokio::time::advance(OVERDUE).await;
        assert!(memory.sees_revisions(|_| false));
    }
}
