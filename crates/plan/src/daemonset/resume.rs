//! Changes in place that were begun and not ended.
//!
//! Whatever the target has become since, and whatever holds the node back: a pod is given what its label says, unless the
//! next step makes it something else or takes it away.

use super::cell::{Act, PodState};
use super::inplace::{Intent, Progress};
use super::judge::{Chore, Verdict};

/// Adds the next steps to end them. `candidate` is what waits for its turn.
pub(super) fn resume(pods: &[PodState], verdict: &mut Verdict, candidate: &mut Option<Chore>) {
    for pod in pods.iter().filter(|pod| pod.is_live()) {
        let act = match pod.intent {
            Intent::None => continue,
            // The API server has refused it.
            Intent::Pending if pod.edit == Progress::Stuck => continue,
            Intent::Pending => Act::Resize,
            Intent::Done => Act::ClearResize,
        };
        if verdict.chores.iter().all(|(name, _)| name.as_ref() != Some(&pod.name)) {
            verdict.chores.push((Some(pod.name.clone()), act));
            // One thing at a time: it waits for the budget no longer than for this.
            candidate.take_if(|(name, _)| name.as_ref() == Some(&pod.name));
        }
    }
}
