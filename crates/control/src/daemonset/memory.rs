//! What is kept of a set between two looks. All of it can be lost: it is made anew from the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_plan::daemonset::consequence::Refusal;
use dapple_plan::daemonset::failure::Failure;
use dapple_plan::daemonset::stale::Stale;
use dapple_plan::daemonset::status::Problem;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::proof::{Answers, ask_again_at};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tokio::time::Instant;

use super::Set;
use super::known::{Known, Rendered};
use super::steps::Step;
use crate::caches::store::Key;
use crate::writes::ledger::Ledger;

/// What is kept of a set.
pub(super) struct Memory {
    /// Of which set: one of the same name is another.
    pub(super) uid: Arc<str>,
    /// Why everything must be looked at anew, if it must.
    stale: Option<Stale>,
    /// Whether the last look ended before anything was decided, since nodes had changed meanwhile.
    pub(super) is_put_off: bool,
    pub(super) known: Option<Known>,
    /// The set that this follows from.
    pub(super) set: Option<Arc<Set>>,
    /// The selector that renderings were held against.
    pub(super) selector: Option<LabelSelector>,
    /// Renderings of each revision, with the version it was read at.
    pub(super) variants: Rendered,
    /// Writes of pods that are open, with their nodes.
    pub(super) ledger: Ledger<Arc<str>>,
    /// Names of pods whose writes were settled by asking.
    settled: Vec<Arc<str>>,
    /// The version that the set is known to have, should our view of it be behind.
    behind: Option<u64>,
    /// Writes of revisions that are open.
    revisions: Ledger<()>,
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
    pub(super) refusals: BTreeMap<Arc<str>, Refusal>,
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

impl Memory {
    pub(super) fn new(uid: Arc<str>) -> Self {
        Self {
            uid,
            stale: Some(Stale::Unseen),
            is_put_off: false,
            known: None,
            set: None,
            selector: None,
            variants: BTreeMap::new(),
            ledger: Ledger::default(),
            settled: Vec::new(),
            behind: None,
            revisions: Ledger::default(),
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

    /// Whether everything must be looked at anew.
    pub(super) fn is_stale(&self) -> bool {
        self.stale.is_some()
    }

    /// Why that is so.
    pub(super) fn stale(&self) -> Option<Stale> {
        self.stale
    }

    /// Has everything looked at anew, should there be a reason. The first reason is kept.
    pub(super) fn make_stale(&mut self, why: Option<Stale>) {
        self.stale = self.stale.or(why);
    }

    /// Everything was looked at. What is left to be looked at anew, should there be something.
    pub(super) fn set_stale(&mut self, why: Option<Stale>) {
        self.stale = why;
    }

    /// Whether a question may be asked again by now, or a step tried again.
    pub(super) fn is_due(&self, now: i64) -> bool {
        ask_again_at(&self.answers).into_iter().chain(self.retry_at()).any(|at| at <= now)
    }

    /// Whether our view of the set is known to be behind.
    pub(super) fn is_behind(&self, version: u64) -> bool {
        self.behind.is_some_and(|newest| version < newest)
    }

    /// The set has this version by now, or is gone: this is not it any more.
    pub(super) fn is_to_wait_for(&mut self, version: Option<u64>) {
        self.behind = Some(version.unwrap_or(u64::MAX));
    }

    /// A write of a pod is sent.
    pub(super) fn begin(&mut self, pod: Key, node: &Arc<str>) {
        if self.ledger.begin(pod, node.clone()) {
            self.freeze(node);
        }
    }

    /// It was done: until it is in the view.
    pub(super) fn wrote(&mut self, pod: Key, node: &Arc<str>) {
        if self.ledger.wrote(pod, node.clone()) {
            self.freeze(node);
        }
    }

    /// It may have been done: until somebody was asked.
    pub(super) fn doubt(&mut self, pod: Key, node: &Arc<str>) {
        if self.ledger.doubt(pod, node.clone()) {
            self.freeze(node);
        }
    }

    /// Nothing was done, if it is still in flight.
    pub(super) fn abandon(&mut self, pod: &Key) {
        if let Some(node) = self.ledger.abandon(pod) {
            self.thaw(&node);
        }
    }

    /// It is known what has become of a pod.
    pub(super) fn settle(&mut self, pod: &Key) {
        if let Some(node) = self.ledger.settle(pod) {
            self.thaw(&node);
            self.settled.push(pod.name.clone());
        }
    }

    /// Lets go of writes that the view includes, or whose pods are gone from it, and doubts those that it should include.
    /// Names their pods: what became of them may not be news yet.
    pub(super) fn see(&mut self, is_seen: impl Fn(&Key) -> bool, is_in_view: impl Fn(&Key) -> bool) -> Vec<Arc<str>> {
        let mut seen = self.ledger.take_gone(is_in_view);
        seen.extend(self.ledger.take_confirmed(is_seen));
        self.ledger.doubt_overdue();
        seen.iter().for_each(|(_, node)| self.thaw(node));
        let settled = std::mem::take(&mut self.settled);
        seen.into_iter().map(|(pod, _)| pod.name).chain(settled).collect()
    }

    /// As many writes as are open are under way on a node that is new to the fleet.
    pub(super) fn freeze_again(&mut self, node: &str) {
        let open = self.ledger.about().filter(|of| ***of == *node).count();
        (0..open).for_each(|_| self.freeze(node));
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

    /// Remembers a revision until it is in the view.
    pub(super) fn wrote_revision(&mut self, revision: Key) {
        self.revisions.wrote(revision, ());
    }

    /// Whether the view includes every revision that we wrote. One that it should and does not may have been deleted while
    /// a list was under way, and is not waited for: it is made under the same name again, or found to be there.
    pub(super) fn sees_revisions(&mut self, is_seen: impl Fn(&Key) -> bool) -> bool {
        self.revisions.take_confirmed(is_seen);
        self.revisions.forget_overdue();
        self.revisions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::ledger::OVERDUE;

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
