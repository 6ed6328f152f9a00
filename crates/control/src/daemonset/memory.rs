//! What is kept of a set between two looks. All of it can be lost: it is made anew from the cluster.
//!
//! It is in parts, so that a step of a look is given what it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_plan::daemonset::consequence::Refusal;
use dapple_plan::daemonset::failure::Failures;
use dapple_plan::daemonset::stale::Stale;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::proof::Answers;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tokio::time::Instant;

use super::Set;
use super::known::{Known, Past, VariantsOfRevisions};
use crate::overriding::Asked;
use crate::slim::Key;
use crate::writes::ledger::Ledger;

/// What is kept of a set.
pub(super) struct Memory {
    /// Of which set: one of the same name is another.
    pub(super) uid: Arc<str>,
    /// What is known of the set, its revisions, pods and nodes.
    pub(super) view: View,
    /// Writes of its pods.
    pub(super) pods: PodWrites,
    /// Writes of its revisions.
    pub(super) revisions: RevisionWrites,
    /// What the API server has said of renderings, by what they mean.
    pub(super) answers: Answers,
    /// What fails.
    pub(super) failures: Failures,
    /// What was told.
    pub(super) said: Said,
}

impl Memory {
    pub(super) fn new(uid: Arc<str>) -> Self {
        Self {
            uid,
            view: View::default(),
            pods: PodWrites::default(),
            revisions: RevisionWrites::default(),
            answers: Answers::new(),
            failures: Failures::default(),
            said: Said::default(),
        }
    }
}

/// What follows from everything that was looked at, and is brought up to date pod by pod and node by node.
pub(super) struct View {
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
    pub(super) variants: VariantsOfRevisions,
    /// What the set has of the policy that it asks for.
    pub(super) asked: Asked,
    /// What pods still have of what it had before.
    pub(super) past: Past,
    /// When it is to be looked at again whether policies are served.
    pub(super) served_at: Option<i64>,
    /// Whether the revision that nodes are held back at is gone.
    pub(super) is_gone: bool,
    /// Whether the newest revision cannot be written: no pod is updated meanwhile.
    pub(super) is_blocked: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            stale: Some(Stale::Unseen),
            is_put_off: false,
            known: None,
            set: None,
            selector: None,
            variants: VariantsOfRevisions::new(),
            asked: Asked::default(),
            past: Past::new(),
            served_at: None,
            is_gone: false,
            is_blocked: false,
        }
    }
}

impl View {
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

    /// Something is under way on a node.
    fn freeze(&mut self, node: &str) {
        if let Some(known) = self.known.as_mut().filter(|_| !is_on(Mutant::ExpectationDropped)) {
            known.fleet.wrote(node);
        }
    }

    /// It has ended.
    fn thaw(&mut self, node: &str) {
        if let Some(known) = self.known.as_mut() {
            known.fleet.saw(node);
        }
    }
}

/// Writes of pods: those that are open, and what was learnt from those that are not.
///
/// Invariant: as many writes as are open about a node are under way there in the view.
#[derive(Default)]
pub(super) struct PodWrites {
    /// Those that are open, with their nodes.
    ledger: Ledger<Arc<str>>,
    /// Names of pods whose writes were settled by asking.
    settled: Vec<Arc<str>>,
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
}

impl PodWrites {
    /// Whether a write of this pod is open.
    pub(super) fn is_open(&self, pod: &Key) -> bool {
        self.ledger.is_open(pod)
    }

    /// Whether any write is open.
    pub(super) fn has_open(&self) -> bool {
        !self.ledger.is_empty()
    }

    /// The nodes of open writes, one for each.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.ledger.about()
    }

    /// Pods that have to be asked for now, with their nodes.
    pub(super) fn to_ask(&self) -> Vec<(Key, Arc<str>)> {
        self.ledger.to_ask()
    }

    /// A pod that was asked for is asked for again later.
    pub(super) fn ask_later(&mut self, pod: &Key) {
        self.ledger.ask_later(pod);
    }

    /// A write of a pod is sent.
    pub(super) fn begin(&mut self, view: &mut View, pod: Key, node: &Arc<str>) {
        if self.ledger.begin(pod, node.clone()) {
            view.freeze(node);
        }
    }

    /// It was done: until it is in the view.
    pub(super) fn wrote(&mut self, view: &mut View, pod: Key, node: &Arc<str>) {
        if self.ledger.wrote(pod, node.clone()) {
            view.freeze(node);
        }
    }

    /// It may have been done: until somebody was asked.
    pub(super) fn doubt(&mut self, view: &mut View, pod: Key, node: &Arc<str>) {
        if self.ledger.doubt(pod, node.clone()) {
            view.freeze(node);
        }
    }

    /// Nothing was done, if it is still in flight.
    pub(super) fn abandon(&mut self, view: &mut View, pod: &Key) {
        if let Some(node) = self.ledger.abandon(pod) {
            view.thaw(&node);
        }
    }

    /// It is known what has become of a pod.
    pub(super) fn settle(&mut self, view: &mut View, pod: &Key) {
        if let Some(node) = self.ledger.settle(pod) {
            view.thaw(&node);
            self.settled.push(pod.name.clone());
        }
    }

    /// Lets go of writes that the view includes, or whose pods are gone from it, and doubts those that it should include.
    /// Names their pods: what became of them may not be news yet.
    pub(super) fn see(
        &mut self,
        view: &mut View,
        is_seen: impl Fn(&Key) -> bool,
        is_in_view: impl Fn(&Key) -> bool,
    ) -> Vec<Arc<str>> {
        let mut seen = self.ledger.take_gone(is_in_view);
        seen.extend(self.ledger.take_confirmed(is_seen));
        self.ledger.doubt_overdue();
        seen.iter().for_each(|(_, node)| view.thaw(node));
        let settled = std::mem::take(&mut self.settled);
        seen.into_iter().map(|(pod, _)| pod.name).chain(settled).collect()
    }

    /// As many writes as are open are under way on a node that is new to the fleet.
    pub(super) fn freeze_again(&self, view: &mut View, node: &str) {
        let open = self.ledger.about().filter(|of| ***of == *node).count();
        (0..open).for_each(|_| view.freeze(node));
    }
}

/// Writes of revisions: those that are open, and what was learnt from those that are not.
#[derive(Default)]
pub(super) struct RevisionWrites {
    ledger: Ledger<()>,
    /// UIDs of revisions that the API server was asked about and lets be changed.
    pub(super) sound: BTreeSet<Arc<str>>,
    /// UIDs of revisions that it let nobody change when that was tried.
    pub(super) unsound: BTreeSet<Arc<str>>,
    /// Whether something has changed since that may have set a revision free.
    pub(super) may_prune: bool,
    /// When revisions were looked through last.
    pub(super) pruned: Option<Instant>,
}

impl RevisionWrites {
    /// Remembers a revision until it is in the view.
    pub(super) fn wrote(&mut self, revision: Key) {
        self.ledger.wrote(revision, ());
    }

    /// Whether the view includes every revision that we wrote. One that it should and does not may have been deleted while
    /// a list was under way, and is not waited for: it is made under the same name again, or found to be there.
    pub(super) fn take_seen(&mut self, is_seen: impl Fn(&Key) -> bool) -> bool {
        self.ledger.take_confirmed(is_seen);
        self.ledger.forget_overdue();
        self.ledger.is_empty()
    }
}

/// What was told of a set.
#[derive(Default)]
pub(super) struct Said {
    /// The version that the set is known to have, should our view of it be behind.
    behind: Option<u64>,
    /// When the status was written last.
    pub(super) told: Option<Instant>,
    /// Problems that were reported since everything was looked at first.
    pub(super) reported: BTreeSet<(&'static str, String)>,
    /// The revision whose images were asked for.
    pub(super) pulled_for: Option<Arc<str>>,
}

impl Said {
    /// Whether our view of the set is known to be behind.
    pub(super) fn is_behind(&self, version: u64) -> bool {
        self.behind.is_some_and(|newest| version < newest)
    }

    /// The set has this version by now, or is gone: this is not it any more.
    pub(super) fn wait_for(&mut self, version: Option<u64>) {
        self.behind = Some(version.unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::ledger::OVERDUE;

    #[tokio::test(start_paused = true)]
    async fn a_revision_that_no_watch_tells_of_is_not_waited_for() {
        let mut revisions = RevisionWrites::default();
        revisions.wrote(Key::new("default", "agent-1"));
        assert!(!revisions.take_seen(|_| false), "it may still come");
        assert!(revisions.take_seen(|_| true));
        revisions.wrote(Key::new("default", "agent-1"));
        tokio::time::advance(OVERDUE).await;
        assert!(revisions.take_seen(|_| false));
    }
}
