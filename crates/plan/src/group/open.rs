//! Steps that are open: a pod was moved to a group, or changed there, and it is not seen yet that another does well in its place.
//!
//! Each application has a budget of its own, so of a group where no pod becomes well every application would lose one. Invariant: an
//! available pod is disrupted for a group only while fewer than [`MOST_OPEN`] other applications have lost one there, whatever made
//! them lose it, and whoever led then: what is not remembered of steps is read off the pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mutant::{Mutant, is_on};

/// So many applications may have an open step towards one group.
pub const MOST_OPEN: usize = 5;
/// A pod that has been as it is for so many seconds is not counted for steps that nobody remembers: its application may have been
/// broken all along.
pub const LATELY: i64 = 600;
/// A step that is open for so many seconds is worth telling people.
pub const LONG: i64 = 15;

/// A live pod of an application in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSince {
    /// Tells it from all others, and from itself before it was last changed.
    pub id: Arc<str>,
    /// When it was made or last changed, in seconds since 1970.
    pub since: i64,
    /// Whether it is available.
    pub is_available: bool,
}

/// A step that was taken for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// When, in seconds since 1970.
    pub at: i64,
    /// The pods that the application had in the group before.
    pub before: BTreeSet<Arc<str>>,
}

/// The steps of an application that are open yet, oldest first, by their places among `taken`. `pods` are those that it has in the
/// group that they were taken for.
#[must_use]
pub fn still_open(taken: &[Taken], pods: &[PodSince], now: i64) -> Vec<usize> {
    let is_down = pods.iter().any(|pod| !pod.is_available);
    let available: Vec<&PodSince> = pods.iter().filter(|pod| pod.is_available).collect();
    let mut open = unanswered(taken, &available);
    // After some no pod comes: the application is made smaller meanwhile.
    open.retain(|number| is_down || taken[*number].at + LATELY > now);
    open
}

/// The steps that none of these pods is the outcome of, oldest first. Each pod is that of one step.
#[must_use]
pub fn unanswered(taken: &[Taken], pods: &[&PodSince]) -> Vec<usize> {
    let mut newest_first: Vec<usize> = (0..taken.len()).collect();
    newest_first.sort_by_key(|number| std::cmp::Reverse((taken[*number].at, *number)));
    let answers = |step: &Taken| pods.iter().filter(|pod| !step.before.contains(&pod.id)).count();
    let mut answered = 0;
    newest_first.retain(|number| {
        let is_answered = answers(&taken[*number]) > answered;
        answered += usize::from(is_answered);
        !is_answered
    });
    newest_first.reverse();
    newest_first
}

/// Since when an application has lost a pod in a group; none if it has not. `open` says when its steps were taken that are.
#[must_use]
pub fn lost_since(open: impl Iterator<Item = i64>, pods: &[PodSince], now: i64) -> Option<i64> {
    let down = pods.iter().filter(|pod| !pod.is_available && pod.since + LATELY > now).map(|pod| pod.since);
    down.chain(open).min()
}

/// What holds back a step towards a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// So many applications have lost a pod there.
    pub applications: usize,
    /// Whether that is so for long enough that people should know.
    pub is_long: bool,
}

/// Whether a pod may be disrupted for a group where other applications have lost pods since these seconds. One that is not available
/// may: nothing more is lost, and that it is changed may be what makes it well.
#[must_use]
pub fn held(is_available: bool, others: &[i64], now: i64) -> Option<Held> {
    if !is_available || others.len() < MOST_OPEN || is_on(Mutant::UnwellGroupForgotten) {
        return None;
    }
    let long = others.iter().filter(|since| **since + LONG <= now).count();
    Some(Held { applications: others.len(), is_long: long >= MOST_OPEN })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(id: &str, is_available: bool) -> PodSince {
        PodSince { id: id.into(), since: 101, is_available }
    }

    fn taken(at: i64, before: &[&str]) -> Taken {
        Taken { at, before: before.iter().map(|id| Arc::from(*id)).collect() }
    }

    #[test]
    fn a_step_is_open_until_a_pod_that_was_not_there_before_is_available() {
        let step = [taken(100, &["a"])];
        assert_eq!(still_open(&step, &[pod("a", true)], 110), [0]);
        assert_eq!(still_open(&step, &[pod("a", true), pod("b", false)], 110), [0]);
        assert!(still_open(&step, &[pod("a", true), pod("b", true)], 110).is_empty());
    }

    #[test]
    fn each_pod_is_the_outcome_of_one_step() {
        let steps = [taken(105, &["a", "b"]), taken(100, &["a"])];
        assert_eq!(still_open(&steps, &[], 110), [1, 0], "oldest first");
        assert_eq!(still_open(&steps, &[pod("b", true)], 110), [0], "it came before the second");
        assert_eq!(still_open(&steps, &[pod("c", true)], 110), [1]);
        assert!(still_open(&steps, &[pod("b", true), pod("c", true)], 110).is_empty());
    }

    #[test]
    fn what_no_pod_comes_after_is_given_up_but_not_while_one_is_down() {
        let step = [taken(100, &[])];
        assert_eq!(still_open(&step, &[], 99 + LATELY), [0]);
        assert!(still_open(&step, &[], 100 + LATELY).is_empty());
        assert_eq!(still_open(&step, &[pod("b", false)], 1_000 + LATELY), [0], "it is lost for as long as it is down");
    }

    #[test]
    fn a_leader_that_remembers_nothing_reads_it_off_the_pods() {
        let lost = |open: &[i64], pods: &[PodSince], now| lost_since(open.iter().copied(), pods, now);
        assert_eq!(lost(&[], &[pod("a", false), pod("b", true)], 110), Some(101));
        assert_eq!(lost(&[], &[pod("a", true)], 110), None);
        assert_eq!(lost(&[], &[pod("a", false)], 101 + LATELY), None, "it has been so all along");
        assert_eq!(lost(&[80], &[pod("a", false)], 110), Some(80));
        assert_eq!(lost(&[80], &[], 110), Some(80), "its successor is yet to be made");
    }

    #[test]
    fn five_applications_hold_up_the_sixth_unless_it_has_nothing_to_lose() {
        let others = [100, 101, 102, 103, 104];
        assert_eq!(held(true, &others[..4], 1_000), None);
        assert_eq!(held(true, &others, 110), Some(Held { applications: 5, is_long: false }));
        assert_eq!(held(true, &others, 104 + LONG), Some(Held { applications: 5, is_long: true }));
        assert_eq!(held(false, &others, 1_000), None);
    }
}
