//! When a prober writes: its results, and that it is there.
//!
//! Invariants:
//! - Results are written when they change, a little later, and seldom; nothing that changed is forgotten, whatever fails.
//! - A prober says that it is there only once all that it knows is stored: whoever hears it may go by what is stored.
//! - Where many probers fail together, they do not come back together.

use std::time::Duration;

/// So long after a change its result is stored at the latest, at random: results that change together are stored apart.
pub const SPREAD: Duration = Duration::from_secs(2);
/// Results of a node are stored no more often.
pub const BETWEEN: Duration = Duration::from_secs(5);
/// A prober says so often that it is there.
pub const RENEWED_EVERY: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long to wait after so many failures in a row: anything up to a time that doubles. `fraction` is a number at random, from 0
/// to 1.
#[must_use]
pub fn pause(failures: u32, fraction: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    part(doubled.min(LONGEST_PAUSE), fraction)
}

fn part(whole: Duration, fraction: f64) -> Duration {
    whole.mul_f64(fraction.clamp(0.0, 1.0))
}

/// When results are stored. Times are those of one clock that never goes back.
#[derive(Debug, Default)]
pub struct Storing {
    /// When what has changed is to be stored.
    at: Option<Duration>,
    last: Option<Duration>,
    is_under_way: bool,
    failures: u32,
}

impl Storing {
    /// Something has changed.
    pub fn changed(&mut self, now: Duration, fraction: f64) {
        let earliest = self.last.map_or(Duration::ZERO, |last| last.saturating_add(BETWEEN));
        self.at.get_or_insert(now.saturating_add(part(SPREAD, fraction)).max(earliest));
    }

    /// When to store, unless that is under way.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.at.filter(|_| !self.is_under_way)
    }

    /// What is known now is being stored.
    pub fn begun(&mut self, now: Duration) {
        (self.at, self.last, self.is_under_way) = (None, Some(now), true);
    }

    /// It is stored.
    pub fn stored(&mut self) {
        (self.is_under_way, self.failures) = (false, 0);
    }

    /// It is not, as far as is known.
    pub fn failed(&mut self, now: Duration, fraction: f64) {
        self.is_under_way = false;
        self.failures = self.failures.saturating_add(1);
        let again = now.saturating_add(pause(self.failures, fraction));
        let earliest = self.last.map_or(again, |last| again.max(last.saturating_add(BETWEEN)));
        self.at = Some(earliest);
    }

    /// Whether all that is known is stored.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.at.is_none() && !self.is_under_way
    }
}

/// When a prober says that it is there.
#[derive(Debug, Default)]
pub struct Renewing {
    /// Not before.
    at: Duration,
    is_under_way: bool,
    failures: u32,
}

impl Renewing {
    /// When to renew, unless that is under way, or something is not stored yet. A node without probes needs no prober.
    #[must_use]
    pub fn due(&self, has_probes: bool, storing: &Storing) -> Option<Duration> {
        (has_probes && !self.is_under_way && storing.is_settled()).then_some(self.at)
    }

    /// It is being renewed.
    pub fn begun(&mut self, now: Duration) {
        (self.at, self.is_under_way) = (now.saturating_add(RENEWED_EVERY), true);
    }

    /// It is renewed.
    pub fn renewed(&mut self) {
        (self.is_under_way, self.failures) = (false, 0);
    }

    /// It is not, as far as is known.
    pub fn failed(&mut self, now: Duration, fraction: f64) {
        self.failures = self.failures.saturating_add(1);
        (self.at, self.is_under_way) = (now.saturating_add(pause(self.failures, fraction)), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_change_is_stored_within_two_seconds_and_with_it_what_comes_meanwhile() {
        let mut storing = Storing::default();
        assert_eq!((storing.due(), storing.is_settled()), (None, true));
        storing.changed(seconds(10), 0.5);
        storing.changed(seconds(11), 0.9);
        assert_eq!((storing.due(), storing.is_settled()), (Some(seconds(11)), false), "the first one says when");
        storing.begun(seconds(11));
        assert_eq!((storing.due(), storing.is_settled()), (None, false));
        storing.stored();
        assert!(storing.is_settled());
        let mut late = Storing::default();
        late.changed(seconds(10), 1.0);
        assert_eq!(late.due(), Some(seconds(12)));
    }

    #[test]
    fn results_are_stored_once_in_five_seconds_at_most() {
        let mut storing = Storing::default();
        storing.changed(seconds(10), 0.0);
        storing.begun(seconds(10));
        storing.changed(seconds(10), 0.0);
        assert_eq!(storing.due(), None, "one is under way");
        storing.stored();
        assert_eq!(
            (storing.due(), storing.is_settled()),
            (Some(seconds(15)), false),
            "what came meanwhile is not stored"
        );
        storing.begun(seconds(15));
        storing.stored();
        storing.changed(seconds(100), 0.5);
        assert_eq!(storing.due(), Some(seconds(101)));
    }

    #[test]
    fn what_could_not_be_stored_is_tried_again() {
        let mut storing = Storing::default();
        storing.changed(seconds(10), 0.0);
        storing.begun(seconds(10));
        storing.failed(seconds(40), 0.5);
        assert_eq!((storing.due(), storing.is_settled()), (Some(Duration::from_millis(40_500)), false));
        storing.begun(seconds(41));
        storing.failed(seconds(41), 0.0);
        assert_eq!(storing.due(), Some(seconds(46)), "failing does not make it faster");
        for _ in 0..100 {
            storing.begun(seconds(100));
            storing.failed(seconds(100), 1.0);
        }
        assert_eq!(storing.due(), Some(seconds(160)));
    }

    #[test]
    fn pauses_are_anything_up_to_a_time_that_doubles() {
        for (failures, longest) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (100, 60), (u32::MAX, 60)] {
            assert_eq!(pause(failures, 1.0), seconds(longest), "{failures} failures");
            assert_eq!(pause(failures, 0.0), Duration::ZERO);
        }
    }

    #[test]
    fn it_says_that_it_is_there_each_minute_once_all_is_stored() {
        let (mut renewing, mut storing) = (Renewing::default(), Storing::default());
        assert_eq!(renewing.due(false, &storing), None, "there is nothing to probe");
        assert_eq!(renewing.due(true, &storing), Some(Duration::ZERO));
        storing.changed(seconds(10), 0.0);
        assert_eq!(renewing.due(true, &storing), None);
        storing.begun(seconds(10));
        assert_eq!(renewing.due(true, &storing), None);
        storing.stored();
        renewing.begun(seconds(11));
        assert_eq!(renewing.due(true, &storing), None, "that is under way");
        renewing.renewed();
        assert_eq!(renewing.due(true, &storing), Some(seconds(71)));
        renewing.begun(seconds(71));
        renewing.failed(seconds(100), 0.5);
        assert_eq!(renewing.due(true, &storing), Some(Duration::from_millis(100_500)));
    }
}
