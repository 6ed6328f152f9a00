//! Which nodes a rollout has touched, and which of them count against its budget.
//!
//! Invariant: what a rollout has touched counts until it is well again, whatever made it unwell. A bad agent may make its
//! own node NotReady: if that gave the budget back, the next node would follow, until all are lost. Everything is read off the
//! cluster, so that a new leader decides the same.

use std::sync::Arc;

use jiff::SignedDuration;

use super::cell::{Hold, PodState, Rollout, Rules};
use super::judge::Cell;
use crate::mutant::{Mutant, is_on};

/// The annotation that says how long a node counts that is not Ready after it was updated.
pub const SOAK_ANNOTATION: &str = "dapple.dev/soak";

/// The annotation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{SOAK_ANNOTATION} is {0:?}: use a time such as 6h or 90m; without it, such nodes count for ever")]
pub struct SoakError(String);

/// Reads the annotation: so many seconds.
pub fn soak(text: &str) -> Result<i64, SoakError> {
    let read: Result<SignedDuration, _> = text.trim().parse();
    read.ok().map(|soak| soak.as_secs()).filter(|seconds| *seconds > 0).ok_or_else(|| SoakError(text.to_owned()))
}

impl Rollout {
    /// Whether a revision was the newest after the current one was complete, and is not any more.
    pub(super) fn is_left_over(&self, number: i64) -> bool {
        number > self.complete && number != self.current && number != self.newest
    }
}

impl PodState {
    /// Whether the rollout, or one that came to no end, had to do with this pod.
    pub(super) fn is_touched(&self, newest: &Arc<str>, rules: &Rules) -> bool {
        let rollout = &rules.rollout;
        let last_written = self.changed.map_or(self.created, |changed| changed.max(self.created));
        self.is_begun()
            || self.leaving_since.is_some_and(|at| at >= rollout.began)
            || (last_written >= rollout.since && self.is_of_newest(newest, rules))
            // Where the last complete revision returns, nodes that others left behind hold up nobody: an undo is a way out.
            || (rollout.newest != rollout.current && self.is_left_over(rollout))
    }

    /// Whether it is of the newest revision. One whose node has other labels since is, though the node should have another
    /// rendering now; and one of a revision that is gone may be.
    fn is_of_newest(&self, newest: &Arc<str>, rules: &Rules) -> bool {
        self.is_right(newest, rules) || self.number.is_none_or(|number| number == rules.rollout.newest)
    }

    fn is_left_over(&self, rollout: &Rollout) -> bool {
        self.number.is_some_and(|number| rollout.is_left_over(number))
    }

    /// When somebody last had to do with it.
    pub(super) fn last_touched(&self) -> i64 {
        [self.changed, self.leaving_since].into_iter().flatten().fold(self.created, i64::max)
    }
}

impl Cell {
    /// Whether a pod may start there, or could if the node were well.
    pub(super) fn should_have_pod(&self) -> bool {
        self.node.can_start || self.node.is_barred_for_now
    }

    /// Whether a taint that does not pass keeps pods from the node, though the template is for it.
    pub(super) fn is_barred(&self) -> bool {
        let node = &self.node;
        node.is_selected && node.hold != Some(Hold::Unrendered) && !self.should_have_pod() && !node.is_out_of_service
    }

    /// Whether such a taint has driven off a pod that the rollout had to do with, as far as this is known.
    fn is_driven_off(&self) -> bool {
        self.is_barred() && self.pods.is_empty() && (self.driven_off.is_some() || self.was_driven_off)
    }

    /// Whether that has happened, or is about to, and the cluster does not remember it yet. Invariant: until it does, nothing is
    /// deleted there by us.
    pub(super) fn is_to_be_noted(&self, rules: &Rules, now: i64) -> bool {
        let is_going =
            || self.pods.iter().any(|pod| pod.is_touched(&self.node.newest, rules)) && !self.is_well_there(rules, now);
        self.driven_off.is_none() && self.is_barred() && (self.is_driven_off() || is_going())
    }

    /// Whether its pod is well, and may stay.
    fn is_well_there(&self, rules: &Rules, now: i64) -> bool {
        self.node.can_stay && self.is_well(rules, now)
    }

    /// Whether the node is kept without a pod on purpose.
    fn is_kept_empty(&self, rules: &Rules) -> bool {
        rules.partitioned_scaling && self.node.is_partitioned && self.pods.is_empty()
    }

    /// Whether the rollout has touched the node: its pod is missing or being changed, a write of ours is unseen, or a pod
    /// there is the rollout's doing.
    fn is_touched(&self, rules: &Rules) -> bool {
        let is_missing = self.pods.is_empty() && self.should_have_pod();
        self.unseen > 0
            || is_missing
            || self.is_driven_off()
            || self.pods.iter().any(|pod| pod.is_touched(&self.node.newest, rules))
    }

    /// Whether an available pod runs on a Node that is Ready.
    pub(super) fn is_well(&self, rules: &Rules, now: i64) -> bool {
        self.unseen == 0 && self.node.health.is_ready() && self.is_served(rules, now)
    }

    /// Whether a pod is in service there.
    pub(super) fn is_served(&self, rules: &Rules, now: i64) -> bool {
        self.pods.iter().any(|pod| pod.is_in_service(rules, now))
    }

    /// Whether the Node itself keeps the rollout's pod from serving.
    pub(super) fn is_ill(&self) -> bool {
        !self.node.health.is_ready() || self.is_driven_off()
    }

    /// When the node ceases to count though it is not Ready, should the set say so.
    pub(super) fn soaked_at(&self, rules: &Rules) -> Option<i64> {
        // Of a pod that is gone nobody knows when that was; of the Node, since when it is not Ready.
        let last =
            self.pods.iter().map(PodState::last_touched).max().or(self.driven_off).or(self.node.health.since())?;
        let is_ill = self.is_ill() && self.unseen == 0;
        // Times have whole seconds: from the end of that one.
        rules.rollout.soak.filter(|_| is_ill).map(|soak| last.saturating_add(1 + soak))
    }

    /// Whether a rollout, this one or one that came to no end, has had to do with a pod there.
    pub(super) fn is_of_rollout(&self, rules: &Rules) -> bool {
        let is_its = |pod: &PodState| pod.is_touched(&self.node.newest, rules) || pod.is_left_over(&rules.rollout);
        self.pods.iter().any(is_its)
    }

    /// Whether the node is one that the rollout has touched and that is not well.
    pub(super) fn is_unwell_by_rollout(&self, rules: &Rules, now: i64) -> bool {
        let has_pod = self.should_have_pod() || !self.pods.is_empty() || self.is_driven_off();
        let is_there = self.node.is_selected && has_pod;
        // When a pod was taken out of service for a change is not known here. A node that was not Ready before would have
        // soaked the moment it is touched, and the next one with it: such count for ever.
        let is_under_way = self.pods.iter().any(PodState::is_begun);
        let is_soaked = !is_under_way && self.soaked_at(rules).is_some_and(|at| at <= now);
        let is_forgotten = is_on(Mutant::TouchedForgotten) && !self.node.health.is_ready();
        is_there
            && !self.node.is_out_of_service
            && !self.is_kept_empty(rules)
            && !self.is_well_there(rules, now)
            && self.is_touched(rules)
            && !is_soaked
            && !is_forgotten
    }

    /// Whether the node takes from `maxUnavailable`: the rollout has touched it and it is not well, or it is Ready and has
    /// no pod in service.
    pub(super) fn is_down(&self, rules: &Rules, now: i64) -> bool {
        let is_idle = || {
            let node = &self.node;
            let is_open = node.can_start && node.health.is_ready() && !node.is_out_of_service;
            is_open && !self.is_kept_empty(rules) && !self.is_served(rules, now)
        };
        self.is_unwell_by_rollout(rules, now) || is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("6h", 21_600), ("90m", 5_400), ("1h30m", 5_400), ("5s", 5), (" 2h ", 7_200)] {
            assert_eq!(soak(text), Ok(seconds), "{text}");
        }
        for text in ["", "6", "soon", "-1h", "0s"] {
            let error = soak(text).unwrap_err().to_string();
            assert!(error.contains("dapple.dev/soak") && error.contains("such as 6h"), "{error}");
        }
    }
}
