//! How many pods a marker may change in a minute: nodes that are relabelled by mistake, or a prober that is broken, would move all
//! of its marks at once.
//!
//! Invariants:
//! - In no minute more pods are changed than the limit says; but for those that are young, and for a change of the marker's spec.
//! - A new leader begins with nothing: what whoever led before has changed in this minute is not known to it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::mutant::{Mutant, is_on};

/// Pods younger than this many seconds do not count: a rollout makes many that are to be marked.
pub const YOUNG: i64 = 300;

const MINUTE: Duration = Duration::from_secs(60);

/// How many pods a marker may change in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// So many at least.
    pub least: usize,
    /// So many in a hundred of those that match, if that is more.
    pub percent: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { least: 10, percent: 10 }
    }
}

impl Limit {
    /// Of so many that match.
    #[must_use]
    pub fn of(self, matched: usize) -> usize {
        self.least.max(matched.saturating_mul(self.percent) / 100)
    }
}

/// Whether a change of a pod counts, that was made at some second, and is changed at another.
#[must_use]
pub fn counts(created: i64, now: i64) -> bool {
    now.saturating_sub(created) >= YOUNG
}

/// What a marker has changed in the last minute. Times are those of one clock that never goes back.
#[derive(Debug)]
pub struct Allowance {
    /// When this process began to lead.
    since: Duration,
    /// When each change was made that counts.
    made: VecDeque<Duration>,
}

impl Allowance {
    /// Nothing may be changed yet.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { since: now, made: VecDeque::new() }
    }

    /// How many more may be changed now.
    pub fn left(&mut self, limit: usize, now: Duration) -> usize {
        while self.made.front().is_some_and(|made| made.saturating_add(MINUTE) <= now) {
            self.made.pop_front();
        }
        if is_on(Mutant::AllowanceForgotten) {
            return usize::MAX;
        }
        (limit - self.withheld(limit, now)).saturating_sub(self.made.len())
    }

    /// A pod was changed, and counts.
    pub fn spend(&mut self, now: Duration) {
        self.made.push_back(now);
    }

    /// When there may be more left than now, if nothing is changed meanwhile.
    #[must_use]
    pub fn next(&self, limit: usize, now: Duration) -> Option<Duration> {
        let oldest = self.made.front().map(|made| made.saturating_add(MINUTE));
        let is_first_minute = now < self.since.saturating_add(MINUTE);
        let one_more =
            is_first_minute.then(|| now.saturating_add(MINUTE / u32::try_from(limit).unwrap_or(u32::MAX).max(1)));
        oldest.into_iter().chain(one_more).min().map(|next| next.max(now))
    }

    /// How many of a minute's are withheld from a leader that is new: all at first, and none after a minute.
    fn withheld(&self, limit: usize, now: Duration) -> usize {
        if is_on(Mutant::AllowanceFullAtFirst) {
            return 0;
        }
        let left = MINUTE.saturating_sub(now.saturating_sub(self.since));
        let millis = |time: Duration| usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
        limit.saturating_mul(millis(left)).div_ceil(millis(MINUTE)).min(limit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_limit_is_ten_or_a_tenth_of_those_that_match() {
        let limit = Limit::default();
        assert_eq!([0, 50, 100, 109, 110, 10_000].map(|matched| limit.of(matched)), [10, 10, 10, 10, 11, 1_000]);
        assert_eq!(Limit { least: 3, percent: 50 }.of(10), 5);
    }

    #[test]
    fn pods_younger_than_five_minutes_do_not_count() {
        assert!(!counts(1_000, 1_000) && !counts(1_000, 1_299));
        assert!(counts(1_000, 1_300));
        assert!(!counts(1_000, 900), "by a clock that is behind it is young");
    }

    #[test]
    fn a_new_leader_begins_with_nothing() {
        let mut allowance = Allowance::new(seconds(100));
        assert_eq!(
            [100, 101, 105, 106, 130, 159, 160, 500].map(|now| allowance.left(10, seconds(now))),
            [0, 0, 0, 1, 5, 9, 10, 10]
        );
        assert_eq!(allowance.next(10, seconds(100)), Some(seconds(106)));
        assert_eq!(allowance.next(10, seconds(200)), None);
    }

    #[test]
    fn what_is_changed_is_free_again_after_a_minute() {
        let mut allowance = Allowance::new(seconds(0));
        for now in 100..110 {
            assert!(allowance.left(10, seconds(now)) > 0);
            allowance.spend(seconds(now));
        }
        assert_eq!(allowance.left(10, seconds(110)), 0);
        assert_eq!(allowance.next(10, seconds(110)), Some(seconds(160)));
        assert_eq!(allowance.left(10, seconds(159)), 0);
        assert_eq!(allowance.left(10, seconds(160)), 1);
        assert_eq!(allowance.left(10, seconds(169)), 10);
        assert_eq!(allowance.left(5, seconds(100_000)), 5);
    }

    #[test]
    fn a_limit_of_nothing_lets_nothing_through() {
        let mut allowance = Allowance::new(seconds(0));
        assert_eq!(allowance.left(0, seconds(1_000)), 0);
        assert!(allowance.next(0, seconds(1)).is_some());
    }

    proptest! {
        /// Whenever it is asked: no minute has more than the limit, and the first no more than its share.
        #[test]
        fn no_minute_has_more_changes_than_the_limit(limit in 1_usize..20, waits in vec(0_u64..9_000, 1..300)) {
            let mut allowance = Allowance::new(Duration::ZERO);
            let (mut now, mut made) = (Duration::ZERO, Vec::new());
            for wait in waits {
                now += Duration::from_millis(wait);
                if allowance.left(limit, now) > 0 {
                    allowance.spend(now);
                    made.push(now);
                }
                let lately = made.iter().filter(|made| **made + MINUTE > now).count();
                prop_assert!(lately <= limit);
                if now < MINUTE {
                    let share = limit as f64 * now.as_secs_f64() / 60.0;
                    prop_assert!(made.len() as f64 <= share, "{} of {share}", made.len());
                }
            }
        }
    }
}
