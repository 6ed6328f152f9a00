//! The steps of a look: one that fails stops only itself.
//!
//! Invariant: whatever the API server refuses, the status is written with the set's generation and says what fails, and
//! what does not depend on the step that fails goes on.

use std::sync::Arc;

use dapple_plan::daemonset::status::Problem;
use dapple_plan::mutant::{Mutant, is_on};

use super::memory::Memory;
use super::{DaemonSets, Set};
use crate::writes::client::{in_words, is_not_leading};

/// The first wait before a step that failed is tried again, and the longest, in seconds.
const RETRY: (i64, i64) = (2, 60);

/// A part of a look that can fail alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Changing whose a pod or a revision is.
    Owners,
    /// Making a revision, numbering it anew, or replacing one that nobody can change.
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
            Self::Revisions => "FailedRevision",
            Self::History => "FailedHistory",
            Self::Images => "FailedImagePull",
        }
    }
}

/// What failed, and when it is tried again.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    text: String,
    times: u32,
    until: i64,
}

impl DaemonSets {
    /// What a step has come to. An error that is the answer to its own request is this step's alone: it is noted, and
    /// nothing is returned. Any other ends the look.
    pub(super) fn stepped<T>(
        &self,
        set: &Set,
        memory: &mut Memory,
        (step, object): (Step, &str),
        outcome: Result<T, kube::Error>,
    ) -> Result<Option<T>, kube::Error> {
        let error = match outcome {
            Ok(done) => {
                memory.failed.remove(&(step, Arc::from(object)));
                return Ok(Some(done));
            }
            Err(error) if is_of_request(&error) && !is_on(Mutant::StopsAtFirstError) => error,
            Err(error) => return Err(error),
        };
        let place = (step, Arc::from(object));
        let text = format!("{object}: {}", in_words(&error));
        let before = memory.failed.get(&place);
        if before.is_none_or(|before| before.text != text) {
            self.report(set, step.reason(), text.clone());
        }
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let wait = RETRY.0.checked_shl(times - 1).unwrap_or(RETRY.1).clamp(RETRY.0, RETRY.1);
        memory.failed.insert(place, Failure { text, times, until: self.env.now().as_second() + wait });
        Ok(None)
    }
}

impl Memory {
    /// What fails, for the status.
    pub(super) fn failures(&self) -> impl Iterator<Item = Problem> {
        let of_steps = self.failed.iter().map(|((step, _), failure)| Problem::new(step.reason(), failure.text.clone()));
        self.failure.iter().cloned().chain(of_steps)
    }

    /// Forgets what failed of a step about objects that it is not about any more.
    pub(super) fn keep_failures(&mut self, step: Step, is_about: impl Fn(&str) -> bool) {
        self.failed.retain(|(known, object), _| *known != step || is_about(object));
    }

    /// Whether a step has failed about this object.
    pub(super) fn has_failed(&self, step: Step, object: &str) -> bool {
        self.failed.contains_key(&(step, Arc::from(object)))
    }

    /// Why the set is failing, in a word.
    pub(super) fn failing(&self) -> Option<&'static str> {
        self.failed.keys().next().map(|(step, _)| step.reason())
    }

    /// When what failed is tried again.
    pub(super) fn retry_at(&self) -> Option<i64> {
        self.failed.values().map(|failure| failure.until).min()
    }
}

/// Whether an error is the API server's answer to this very request, and would be the same for no other: it refuses the
/// object, or a webhook that it asks does. Not what happens to all: that we do not lead, or ask too much, or that the
/// object has changed since.
pub(super) fn is_of_request(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if ![409, 429].contains(&status.code)) && !is_not_leading(error)
}
