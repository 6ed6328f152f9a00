//! The steps of a look: one that fails stops only itself.
//!
//! Invariant: whatever the API server refuses, the status is written with the set's generation and says what fails, and
//! what does not depend on the step that fails goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_plan::daemonset::failure::StepFailure;
use dapple_plan::daemonset::status::Problem;
use dapple_plan::mutant::{Mutant, is_on};

use super::Set;
use super::io::Io;
use crate::writes::client::{in_words, is_not_leading};

/// A part of a look that can fail alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
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
    fn reason(self) -> &'static str {
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

/// What fails of a set.
#[derive(Default)]
pub(super) struct Failures {
    /// By step and object.
    steps: BTreeMap<(Step, Arc<str>), StepFailure>,
    /// What has ended every look for a while.
    pub(super) whole: Option<Problem>,
}

impl Failures {
    /// What a step has come to. An error that is the answer to its own request is this step's alone: it is noted, and
    /// nothing is returned. Any other ends the look, as does one of the API server itself that may pass, where that matters.
    pub(super) fn note<T>(
        &mut self,
        io: &Io,
        set: &Set,
        (step, object): (Step, &str),
        outcome: Result<T, kube::Error>,
    ) -> Result<Option<T>, kube::Error> {
        let error = match outcome {
            Ok(done) => {
                self.steps.remove(&(step, Arc::from(object)));
                return Ok(Some(done));
            }
            Err(error) if is_of_request(&error) && !is_on(Mutant::StopsAtFirstError) => error,
            Err(error) => return Err(error),
        };
        let place = (step, Arc::from(object));
        let text = format!("{object}: {}", in_words(&error));
        let before = self.steps.get(&place);
        let is_new = before.is_none_or(|before| !before.is_own() || before.text != text);
        let failure = StepFailure::after(before, text.clone(), step.has_substitute() && is_servers(&error), io.now());
        let is_own = failure.is_own();
        self.steps.insert(place, failure);
        if !is_own {
            return Err(error);
        }
        if is_new {
            io.reporter.report(set, step.reason(), text);
        }
        Ok(None)
    }

    /// Steps that fail, but for what may pass.
    fn own(&self) -> impl Iterator<Item = (&(Step, Arc<str>), &StepFailure)> {
        self.steps.iter().filter(|(_, failure)| failure.is_own())
    }

    /// What fails, for the status.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let of_steps = self.own().map(|((step, _), failure)| Problem::new(step.reason(), failure.text.clone()));
        self.whole.iter().cloned().chain(of_steps)
    }

    /// Forgets what failed of a step about objects that it is not about any more.
    pub(super) fn keep(&mut self, step: Step, is_about: impl Fn(&str) -> bool) {
        self.steps.retain(|(known, object), _| *known != step || is_about(object));
    }

    /// Whether a step has failed about this object.
    pub(super) fn has(&self, step: Step, object: &str) -> bool {
        self.steps.get(&(step, Arc::from(object))).is_some_and(StepFailure::is_own)
    }

    /// Why the set is failing, in a word.
    pub(super) fn reason(&self) -> Option<&'static str> {
        self.own().next().map(|((step, _), _)| step.reason())
    }

    /// When what failed is tried again.
    pub(super) fn retry_at(&self) -> Option<i64> {
        self.own().map(|(_, failure)| failure.until()).min()
    }
}

/// Whether an error is the API server's answer to this very request, and would be the same for no other: it refuses the
/// object, or a webhook that it asks does. Not what happens to all: that we do not lead, or ask too much, or that the
/// object has changed since.
fn is_of_request(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if ![409, 429].contains(&status.code)) && !is_not_leading(error)
}

/// Whether the API server says that the trouble is its own, or that of a webhook that it cannot call.
fn is_servers(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code >= 500)
}
