//! A step that fails: from when on that is the step's own failure, and when it is tried again.

use crate::backoff;

/// The first wait before a step that failed is tried again, and the longest, in seconds.
const RETRY: (i64, i64) = (2, 60);
/// For so many seconds an error of the API server itself is taken for one that passes.
const PASSING: i64 = 10;

/// What failed, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFailure {
    /// What to tell.
    pub text: String,
    since: i64,
    /// How often it was the step's own failure.
    times: u32,
    until: i64,
}

impl StepFailure {
    /// The same step failed again, or for the first time. `may_pass`: the API server said that the trouble is its own (5xx),
    /// which a webhook that cannot be called looks like too, and something else is done once the step has failed.
    ///
    /// Invariant: nothing is done in place of what the step was to do because of an error that passes. With OnDelete, a pod
    /// that was made of the revision before would stay.
    #[must_use]
    pub fn after(before: Option<&Self>, text: String, may_pass: bool, now: i64) -> Self {
        let since = before.map_or(now, |before| before.since);
        let times = before.map_or(0, |before| before.times);
        if may_pass && times == 0 && now - since < PASSING {
            return Self { text, since, times, until: now };
        }
        let times = times.saturating_add(1);
        Self { text, since, times, until: now.saturating_add(backoff::wait(RETRY, times)) }
    }

    /// Whether it is the step's own failure: the other steps go on without it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.times > 0
    }

    /// When the step is tried again.
    #[must_use]
    pub fn until(&self) -> i64 {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(before: Option<&StepFailure>, may_pass: bool, now: i64) -> StepFailure {
        StepFailure::after(before, "no".into(), may_pass, now)
    }

    #[test]
    fn a_refusal_is_the_steps_own_at_once_and_is_tried_ever_more_rarely() {
        let mut failure = next(None, false, 100);
        assert!(failure.is_own());
        let mut waits = vec![failure.until() - 100];
        for _ in 0..70 {
            failure = next(Some(&failure), false, 200);
            waits.push(failure.until() - 200);
        }
        assert_eq!(waits[..7], [2, 4, 8, 16, 32, 60, 60]);
        assert!(waits[5..].iter().all(|wait| *wait == 60), "however often");
    }

    #[test]
    fn an_error_of_the_server_is_the_steps_own_once_it_lasts() {
        let first = next(None, true, 100);
        let second = next(Some(&first), true, 109);
        assert!(!first.is_own() && !second.is_own());
        assert_eq!(second.until(), 109, "it is tried again at once");
        let third = next(Some(&second), true, 110);
        assert!(third.is_own());
        assert_eq!(third.until(), 112);
        assert!(next(Some(&third), true, 111).is_own(), "it stays so until the step succeeds");
    }
}
