//! The change of a marker's spec that is being carried out: how fast marks may move does not hold for it.
//!
//! Invariant: what goes free is the choice as it was when the change was first seen, each pod of it once. What becomes of nodes and
//! probes meanwhile is held back as ever, and a leader that goes on with a change frees no more pods than were left.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::marker::{PodMarkerStatus, SpecChange};

use super::choice::Changes;

/// What a marker's status says of the change of its spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// Nobody has seen this generation yet.
    New,
    /// It is being carried out, and has so many pods to come to.
    Half(usize),
    /// It was carried out.
    Done,
}

impl Begun {
    /// Of this generation of a marker.
    #[must_use]
    pub fn of(generation: i64, status: Option<&PodMarkerStatus>) -> Self {
        let Some(status) = status.filter(|status| status.observed_generation == Some(generation)) else {
            return Self::New;
        };
        match &status.carrying_out {
            Some(change) if change.generation == generation => Self::Half(usize::try_from(change.pods).unwrap_or(0)),
            _ => Self::Done,
        }
    }
}

/// The pods that a change of the spec has yet to come to, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carrying {
    generation: i64,
    pods: BTreeSet<Arc<str>>,
}

impl Carrying {
    /// Carries out a generation, by the choice that follows from it: all of it, or no more than whoever led before had left.
    #[must_use]
    pub fn new(generation: i64, begun: Begun, choice: &Changes) -> Self {
        let most = match begun {
            Begun::New => usize::MAX,
            Begun::Half(left) => left,
            Begun::Done => 0,
        };
        let all = choice.unmark.iter().chain(&choice.amend).chain(&choice.mark);
        Self { generation, pods: all.take(most).cloned().collect() }
    }

    /// Whether changing a pod belongs to it.
    #[must_use]
    pub fn has(&self, pod: &str) -> bool {
        self.pods.contains(pod)
    }

    /// A pod was patched or refused, or is gone.
    pub fn done(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    /// Leaves out pods that there is nothing to change at any more.
    pub fn keep(&mut self, is_to_be_changed: impl Fn(&str) -> bool) {
        self.pods.retain(|pod| is_to_be_changed(pod));
    }

    /// For the status; nothing once it is carried out.
    #[must_use]
    pub fn told(&self) -> Option<SpecChange> {
        let pods = i32::try_from(self.pods.len()).unwrap_or(i32::MAX);
        (pods > 0).then_some(SpecChange { generation: self.generation, pods })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(unmark: &[&str], amend: &[&str], mark: &[&str]) -> Changes {
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        Changes { unmark: names(unmark), amend: names(amend), mark: names(mark) }
    }

    fn status(observed: i64, carrying_out: Option<(i64, i32)>) -> PodMarkerStatus {
        let carrying_out = carrying_out.map(|(generation, pods)| SpecChange { generation, pods });
        PodMarkerStatus { observed_generation: Some(observed), carrying_out, ..PodMarkerStatus::default() }
    }

    #[test]
    fn a_generation_that_nobody_has_seen_is_carried_out() {
        assert_eq!(Begun::of(1, None), Begun::New);
        assert_eq!(Begun::of(2, Some(&status(1, None))), Begun::New);
        assert_eq!(Begun::of(2, Some(&status(1, Some((1, 7))))), Begun::New, "what came before it is over");
        assert_eq!(Begun::of(2, Some(&status(2, None))), Begun::Done);
        assert_eq!(Begun::of(2, Some(&status(2, Some((2, 7))))), Begun::Half(7));
        assert_eq!(Begun::of(2, Some(&status(2, Some((2, -7))))), Begun::Half(0));
        assert_eq!(Begun::of(2, Some(&status(2, Some((1, 7))))), Begun::Done);
    }

    #[test]
    fn each_pod_of_the_choice_is_free_once() {
        let mut carrying = Carrying::new(3, Begun::New, &changes(&["a"], &["b"], &["c", "d"]));
        assert_eq!(carrying.told(), Some(SpecChange { generation: 3, pods: 4 }));
        for pod in ["a", "b", "c", "d"] {
            assert!(carrying.has(pod));
            carrying.done(pod);
            assert!(!carrying.has(pod));
        }
        assert!(!carrying.has("e"), "what is chosen later is held back as ever");
        assert_eq!(carrying.told(), None);
    }

    #[test]
    fn the_next_leader_frees_no_more_than_were_left() {
        let choice = changes(&["a", "b"], &[], &["c", "d", "e"]);
        let carrying = Carrying::new(3, Begun::Half(3), &choice);
        assert_eq!(["a", "b", "c", "d", "e"].map(|pod| carrying.has(pod)), [true, true, true, false, false]);
        assert_eq!(Carrying::new(3, Begun::Done, &choice).told(), None);
    }

    #[test]
    fn what_needs_no_change_any_more_is_done() {
        let mut carrying = Carrying::new(3, Begun::New, &changes(&["a"], &["b"], &["c"]));
        carrying.keep(|pod| pod == "b");
        assert_eq!(carrying.told(), Some(SpecChange { generation: 3, pods: 1 }));
    }
}
