//! Which results of probes count.
//!
//! Invariant: a result counts for the definition and the run of the container that it is of, and while its prober is heard: what is
//! old, late or an error is unknown, and never a failure.

use std::sync::Arc;

use dapple_api::marker::{ContainerProbeState, ProbeState};

use crate::mutant::{Mutant, is_on};

/// A container of a pod, as far as probes are concerned: one that runs as long as the pod does, so no init container that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// Its ports that have a name.
    pub ports: Vec<(Arc<str>, u16)>,
    /// What the pod's status says of it.
    pub run: Run,
}

/// Whether a container runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// It has not run yet.
    NotYet,
    /// It runs.
    Runs {
        /// Which run it is.
        id: Arc<str>,
        /// Since when, in seconds since 1970.
        since: i64,
    },
    /// It has run, and does not.
    Stopped,
}

/// What is known of a probe in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// Nothing that counts.
    Unknown {
        /// Why.
        why: Doubt,
        /// Whether it succeeded when it was last known.
        before: Option<bool>,
    },
}

/// Why something is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// The probe has not run in this container yet.
    NotRun,
    /// The runtime or the prober could not run it.
    Error,
    /// It is more than a node runs.
    Beyond,
    /// The prober of the node is not heard.
    Silent,
    /// The node does not answer: what pods on it say of themselves may be old.
    NodeUnknown,
    /// The node that the pod runs on is not there.
    NodeGone,
}

/// What is told of a probe beside the pod's status.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told<'a> {
    /// The result that is stored under its name for the pod's UID.
    pub stored: Option<&'a ContainerProbeState>,
    /// Whether the node's prober is heard.
    pub is_heard: bool,
    /// Whether it is more than a node runs, so that it is not asked for.
    pub is_beyond: bool,
    /// Whether the node's condition Ready is Unknown.
    pub is_node_unknown: bool,
}

/// What is known of a probe in a container.
#[must_use]
pub fn outcome(run: &Run, told: &Told<'_>) -> Outcome {
    let before = match told.stored.map(|stored| stored.state) {
        Some(ProbeState::Succeeded) => Some(true),
        Some(ProbeState::Failed) => Some(false),
        Some(ProbeState::Unknown) | None => None,
    };
    let unknown = |why| if is_on(Mutant::UnknownIsFailed) { Outcome::Failed } else { Outcome::Unknown { why, before } };
    if told.is_node_unknown {
        return unknown(Doubt::NodeUnknown);
    }
    let id = match run {
        Run::NotYet => return unknown(Doubt::NotRun),
        // As for the kubelet.
        Run::Stopped => return Outcome::Failed,
        Run::Runs { id, .. } => id,
    };
    if told.is_beyond {
        return unknown(Doubt::Beyond);
    }
    if !told.is_heard {
        return unknown(Doubt::Silent);
    }
    match told.stored {
        Some(stored) if *stored.container_id == **id || is_on(Mutant::OldResultTaken) => match stored.state {
            ProbeState::Succeeded => Outcome::Succeeded,
            ProbeState::Failed => Outcome::Failed,
            ProbeState::Unknown => unknown(Doubt::Error),
        },
        _ => unknown(Doubt::NotRun),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(state: ProbeState, id: &str) -> ContainerProbeState {
        ContainerProbeState {
            name: "p".to_owned(),
            container_id: id.to_owned(),
            state,
            ..ContainerProbeState::default()
        }
    }

    fn runs(id: &str) -> Run {
        Run::Runs { id: Arc::from(id), since: 100 }
    }

    fn unknown(why: Doubt, before: Option<bool>) -> Outcome {
        Outcome::Unknown { why, before }
    }

    #[test]
    fn a_result_of_this_run_counts_while_its_prober_is_heard() {
        for (state, expected) in [
            (ProbeState::Succeeded, Outcome::Succeeded),
            (ProbeState::Failed, Outcome::Failed),
            (ProbeState::Unknown, unknown(Doubt::Error, None)),
        ] {
            let stored = stored(state, "a");
            let told = Told { stored: Some(&stored), is_heard: true, ..Told::default() };
            assert_eq!(outcome(&runs("a"), &told), expected, "{state:?}");
        }
    }

    #[test]
    fn what_is_old_late_or_refused_is_unknown() {
        let stored = stored(ProbeState::Failed, "a");
        let heard = Told { stored: Some(&stored), is_heard: true, ..Told::default() };
        let before = Some(false);
        assert_eq!(outcome(&runs("b"), &heard), unknown(Doubt::NotRun, before), "of another run of the container");
        assert_eq!(outcome(&runs("a"), &Told { stored: None, ..heard }), unknown(Doubt::NotRun, None));
        assert_eq!(outcome(&Run::NotYet, &heard), unknown(Doubt::NotRun, before));
        assert_eq!(outcome(&runs("a"), &Told { is_heard: false, ..heard }), unknown(Doubt::Silent, before));
        assert_eq!(outcome(&runs("a"), &Told { is_beyond: true, ..heard }), unknown(Doubt::Beyond, before));
        assert_eq!(outcome(&runs("a"), &Told { is_node_unknown: true, ..heard }), unknown(Doubt::NodeUnknown, before));
    }

    #[test]
    fn a_container_that_has_run_and_does_not_has_failed() {
        assert_eq!(outcome(&Run::Stopped, &Told::default()), Outcome::Failed, "the prober need not be heard for that");
        let unknown_node = Told { is_node_unknown: true, ..Told::default() };
        assert_eq!(outcome(&Run::Stopped, &unknown_node), unknown(Doubt::NodeUnknown, None), "its node may be wrong");
    }
}
