//! Noting what the steps of a reconciliation have come to.

use dapple_plan::daemonset::failure::{Failures, Fault, Follows, Step};

use super::Set;
use super::io::Io;
use crate::writes::client::{in_words, is_not_leading};

/// Notes what a step has come to about an object. An error that stops this step alone is told, and nothing is returned; any
/// other ends the reconciliation.
pub(super) fn note<T>(
    failures: &mut Failures,
    (io, set): (&Io, &Set),
    (step, object): (Step, &str),
    outcome: Result<T, kube::Error>,
) -> Result<Option<T>, kube::Error> {
    let error = match outcome {
        Ok(done) => {
            failures.succeed(step, object);
            return Ok(Some(done));
        }
        Err(error) => error,
    };
    let text = format!("{object}: {}", in_words(&error));
    match failures.fail((step, object), fault_of(&error), text.clone(), io.now()) {
        Follows::Ends => return Err(error),
        Follows::GoesOnAndTells => io.reporter.report(set, step.reason(), text),
        Follows::GoesOn => {}
    }
    Ok(None)
}

/// What an error says of the request that got it.
fn fault_of(error: &kube::Error) -> Fault {
    match error {
        error if is_not_leading(error) => Fault::OfAll,
        kube::Error::Api(status) if [409, 429].contains(&status.code) => Fault::OfAll,
        kube::Error::Api(status) if status.code >= 500 => Fault::OfServer,
        kube::Error::Api(_) => Fault::OfRequest,
        _ => Fault::OfAll,
    }
}
