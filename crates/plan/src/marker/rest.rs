//! Pods that a marker changes again and again, since what it asks for comes and goes, or somebody sets its marks back.
//!
//! Invariant: a pod that a marker has changed four times in ten minutes is left as it is for the next ten. Changes of the marker's
//! spec do not count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::mutant::{Mutant, is_on};

/// So many changes of a pod are too many.
pub const TOO_MANY: usize = 4;
/// In so long; and for so long it rests then.
pub const REST: Duration = Duration::from_secs(600);

/// The pods that a marker has changed lately, by UID. Times are those of one clock that never goes back.
#[derive(Debug, Default)]
pub struct Rests {
    pods: BTreeMap<Arc<str>, Changed>,
}

#[derive(Debug, Default)]
struct Changed {
    /// When it was changed, oldest first.
    at: Vec<Duration>,
    rests_until: Option<Duration>,
}

impl Changed {
    fn is_over(&self, now: Duration) -> bool {
        let is_past = |at: Duration| at.saturating_add(REST) <= now;
        self.rests_until.is_none_or(|until| until <= now) && self.at.iter().all(|at| is_past(*at))
    }
}

impl Rests {
    /// A pod was changed. Returns until when it rests, if it does.
    pub fn changed(&mut self, pod: &Arc<str>, now: Duration) -> Option<Duration> {
        let changed = self.pods.entry(pod.clone()).or_default();
        changed.at.retain(|at| at.saturating_add(REST) > now);
        changed.at.push(now);
        if changed.at.len() >= TOO_MANY && !is_on(Mutant::RestsForgotten) {
            changed.at.clear();
            changed.rests_until = Some(now.saturating_add(REST));
        }
        changed.rests_until.filter(|until| *until > now)
    }

    /// Until when a pod rests, if it does.
    #[must_use]
    pub fn until(&self, pod: &str, now: Duration) -> Option<Duration> {
        self.pods.get(pod)?.rests_until.filter(|until| *until > now)
    }

    /// How many pods rest.
    #[must_use]
    pub fn resting(&self, now: Duration) -> usize {
        self.pods.values().filter(|changed| changed.rests_until.is_some_and(|until| until > now)).count()
    }

    /// When the next pod has rested.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        self.pods.values().filter_map(|changed| changed.rests_until).filter(|until| *until > now).min()
    }

    /// A pod is gone.
    pub fn forget(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    /// Forgets what makes no difference any more; returns the pods that have rested.
    pub fn tidy(&mut self, now: Duration) -> Vec<Arc<str>> {
        let over = self.pods.iter().filter(|(_, changed)| changed.is_over(now));
        let over: Vec<(Arc<str>, bool)> =
            over.map(|(pod, changed)| (pod.clone(), changed.rests_until.is_some())).collect();
        over.iter().for_each(|(pod, _)| _ = self.pods.remove(pod));
        over.into_iter().filter(|(_, has_rested)| *has_rested).map(|(pod, _)| pod).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }

    fn pod(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn a_pod_that_is_changed_four_times_in_ten_minutes_rests_for_ten() {
        let mut rests = Rests::default();
        for minute in [1, 4, 7] {
            assert_eq!(rests.changed(&pod("a"), minutes(minute)), None);
        }
        assert_eq!(rests.changed(&pod("b"), minutes(8)), None, "another pod is another");
        assert_eq!(rests.changed(&pod("a"), minutes(10)), Some(minutes(20)));
        assert_eq!(rests.until("a", minutes(19)), Some(minutes(20)));
        assert_eq!((rests.resting(minutes(19)), rests.until("b", minutes(19))), (1, None));
        assert_eq!((rests.next(minutes(19)), rests.next(minutes(20))), (Some(minutes(20)), None));
        assert_eq!((rests.resting(minutes(20)), rests.until("a", minutes(20))), (0, None));
        assert_eq!(rests.changed(&pod("a"), minutes(21)), None, "then it is counted anew");
    }

    #[test]
    fn changes_that_are_further_apart_do_not_matter() {
        let mut rests = Rests::default();
        for minute in [0, 4, 7, 10, 14, 17, 20, 24] {
            assert_eq!(rests.changed(&pod("a"), minutes(minute)), None, "minute {minute}");
        }
    }

    #[test]
    fn nothing_is_remembered_for_ever() {
        let mut rests = Rests::default();
        for _ in 0..4 {
            rests.changed(&pod("a"), minutes(1));
        }
        rests.changed(&pod("b"), minutes(1));
        rests.changed(&pod("c"), minutes(9));
        assert_eq!(rests.tidy(minutes(10)), Vec::<Arc<str>>::new());
        assert_eq!(rests.tidy(minutes(11)), [pod("a")], "it may be changed again");
        assert_eq!(rests.pods.keys().collect::<Vec<_>>(), [&pod("c")]);
        rests.forget("c");
        assert!(rests.pods.is_empty());
    }
}
