//! The steps of a reconciliation: one that fails stops only itself. From when on a failure is the step's own, and when it is
//! tried again.
//!
//! Invariant: whatever the API server refuses, the status is written with the set's generation and says what fails, and
//! what does not depend on the step that fails goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::status::Problem;
use crate::backoff;
use crate::mutant::{Mutant, is_on};

/// The first wait before a step that failed is tried again, and the longest, in seconds.
const RETRY: (i64, i64) = (2, 60);
/// For so many seconds an error of the API server itself is taken for one that passes.
const PASSING: i64 = 10;

/// A part of a reconciliation that can fail alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Changing whose a pod or a revision is.
    Owners,
    /// Making the newest revision, or numbering one anew.
    Newest,
    /// Replacing a revision that nobody can change.
    Revisions,
    /// Dropping revisions that nobody needs.
    History,
    /// Having images pulled beforehand.
    Images,
}

impl Step {
    /// One word for machines.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Owners => "FailedAdoption",
            Self::Newest | Self::Revisions => "FailedRevision",
            Self::History => "FailedHistory",
            Self::Images => "FailedImagePull",
        }
    }

    /// Whether something else is done in its place once it has failed: pods are made of the revision before. Then it is worth
    /// waiting whether an error passes. Of other steps, the next object has its turn, and this one comes again.
    fn has_substitute(self) -> bool {
        self == Self::Newest
    }
}

/// What an error says of the request that got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The API server, or a webhook that it asks, refuses the object: it would refuse no other for it.
    OfRequest,
    /// The trouble is the API server's own, or that of a webhook that it cannot call.
    OfServer,
    /// It concerns every request, or none in particular: this process does not lead, or asks too much, the object has changed
    /// since, or there was no answer.
    OfAll,
}

/// What follows from the failure of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// The reconciliation ends with the error.
    Ends,
    /// The other steps go on, and the failure is told for the first time.
    GoesOnAndTells,
    /// The other steps go on.
    GoesOn,
}

/// What fails of a set.
#[derive(Debug, Default)]
pub struct Failures {
    /// By step and object.
    steps: BTreeMap<(Step, Arc<str>), StepFailure>,
    /// What has ended every reconciliation for a while.
    pub whole: Option<Problem>,
}

impl Failures {
    /// A step was done about this object.
    pub fn succeed(&mut self, step: Step, object: &str) {
        self.steps.remove(&(step, Arc::from(object)));
    }

    /// A step failed about this object.
    pub fn fail(&mut self, (step, object): (Step, &str), fault: Fault, text: String, now: i64) -> Follows {
        if fault == Fault::OfAll || is_on(Mutant::StopsAtFirstError) {
            return Follows::Ends;
        }
        let key = (step, Arc::from(object));
        let before = self.steps.get(&key);
        let is_new = before.is_none_or(|before| !before.is_own() || before.text != text);
        let failure = StepFailure::after(before, text, step.has_substitute() && fault == Fault::OfServer, now);
        let follows = match (failure.is_own(), is_new) {
            (false, _) => Follows::Ends,
            (true, true) => Follows::GoesOnAndTells,
            (true, false) => Follows::GoesOn,
        };
        self.steps.insert(key, failure);
        follows
    }

    /// Steps that fail, but for what may pass.
    fn own(&self) -> impl Iterator<Item = (&(Step, Arc<str>), &StepFailure)> {
        self.steps.iter().filter(|(_, failure)| failure.is_own())
    }

    /// What fails, for the status.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let of_steps = self.own().map(|((step, _), failure)| Problem::new(step.reason(), failure.text.clone()));
        self.whole.iter().cloned().chain(of_steps)
    }

    /// Forgets what failed of a step about objects that it is not about any more.
    pub fn keep(&mut self, step: Step, is_about: impl Fn(&str) -> bool) {
        self.steps.retain(|(known, object), _| *known != step || is_about(object));
    }

    /// Whether a step has failed about this object.
    #[must_use]
    pub fn has(&self, step: Step, object: &str) -> bool {
        self.steps.get(&(step, Arc::from(object))).is_some_and(StepFailure::is_own)
    }

    /// Why the set is failing, in a word.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.own().next().map(|((step, _), _)| step.reason())
    }

    /// When what failed is tried again.
    #[must_use]
    pub fn retry_at(&self) -> Option<i64> {
        self.own().map(|(_, failure)| failure.until()).min()
    }
}

/// What failed, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StepFailure {
    /// What to tell.
    text: String,
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
    fn after(before: Option<&Self>, text: String, may_pass: bool, now: i64) -> Self {
        let since = before.map_or(now, |before| before.since);
        let times = before.map_or(0, |before| before.times);
        if may_pass && times == 0 && now - since < PASSING {
            return Self { text, since, times, until: now };
        }
        let times = times.saturating_add(1);
        Self { text, since, times, until: now.saturating_add(backoff::wait(RETRY, times)) }
    }

    /// Whether it is the step's own failure: the other steps go on without it.
    fn is_own(&self) -> bool {
        self.times > 0
    }

    /// When the step is tried again.
    fn until(&self) -> i64 {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNERS: (Step, &str) = (Step::Owners, "Pod a");
    const NEWEST: (Step, &str) = (Step::Newest, "the newest");

    #[test]
    fn a_step_that_is_refused_stops_itself_alone_and_is_told_once() {
        let mut failures = Failures::default();
        assert_eq!(failures.fail(OWNERS, Fault::OfRequest, "no".into(), 100), Follows::GoesOnAndTells);
        assert_eq!(failures.fail(OWNERS, Fault::OfRequest, "no".into(), 102), Follows::GoesOn);
        assert_eq!(failures.fail(OWNERS, Fault::OfRequest, "never".into(), 106), Follows::GoesOnAndTells);
        assert_eq!((failures.reason(), failures.retry_at()), (Some("FailedAdoption"), Some(114)));
        assert!(failures.has(OWNERS.0, OWNERS.1) && !failures.has(NEWEST.0, NEWEST.1));
        failures.keep(Step::Newest, |_| false);
        assert_eq!(failures.problems().count(), 1, "another step's are kept");
        failures.keep(Step::Owners, |object| object != OWNERS.1);
        assert_eq!(failures.problems().count(), 0);
    }

    #[test]
    fn what_concerns_every_request_ends_the_reconciliation_and_is_no_steps_own() {
        let mut failures = Failures::default();
        assert_eq!(failures.fail(OWNERS, Fault::OfAll, "not leading".into(), 100), Follows::Ends);
        assert_eq!(failures.reason(), None);
    }

    #[test]
    fn an_error_of_the_server_ends_the_reconciliation_while_it_may_pass_where_something_else_would_be_done() {
        let mut failures = Failures::default();
        let told = |failures: &mut Failures, of, now| failures.fail(of, Fault::OfServer, "500".into(), now);
        assert_eq!(told(&mut failures, OWNERS, 100), Follows::GoesOnAndTells);
        assert_eq!(told(&mut failures, NEWEST, 100), Follows::Ends);
        assert!(!failures.has(NEWEST.0, NEWEST.1));
        assert_eq!(told(&mut failures, NEWEST, 110), Follows::GoesOnAndTells);
        assert!(failures.has(NEWEST.0, NEWEST.1));
        failures.succeed(NEWEST.0, NEWEST.1);
        assert_eq!(told(&mut failures, NEWEST, 200), Follows::Ends, "it is another one");
    }

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
