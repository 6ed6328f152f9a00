//! Owners of pods, as placing goes by them: one revision of a controller, or the pods of nobody's that ask for one policy.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dapple_plan::group::binding::Pair;
use dapple_plan::group::placing::GATE;
pub(super) use dapple_plan::group::standing::{number_label, ordinal};
use dapple_plan::inplace::STATE_ANNOTATION;
use dapple_plan::mutant::{Mutant, is_on};
use serde_json::Value;

use super::application::Applications;
use crate::caches::store::Store;
use crate::slim::{Index, Pod};

/// By which the pods of one revision are told apart from those of another: of Deployments, then of StatefulSets.
const REVISIONS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];
/// Pods that wait behind our gate, by namespace.
pub(super) const GATED: Index<Pod> = Index {
    name: "gated",
    values: |pod, add| {
        if is_gated(pod) {
            add(pod.meta.key.namespace.clone());
        }
    },
};

/// Pods that wait behind our gate, by owner.
pub(super) const GATED_BY_OWNER: Index<Pod> = Index {
    name: "gated-by-owner",
    values: |pod, add| {
        if is_gated(pod) {
            add(OwnerKey::of(pod).index());
        }
    },
};

/// Pods that have a group and are not ready, by group; under no name those that say none, and were changed where they run.
pub(super) const UNWELL: Index<Pod> = Index {
    name: "unwell",
    values: |pod, add| {
        if pod.ready_since.is_some() || is_gated(pod) || !is_live(pod) {
            return;
        }
        match pod.labels.get_shared(GATE) {
            Some(group) => add(group),
            None if pod.annotations.get(STATE_ANNOTATION).is_some() => add(Arc::from("")),
            None => {}
        }
    },
};

/// Whose pods are decided about together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerKey {
    /// The namespace.
    pub(super) namespace: Arc<str>,
    /// The owner in it.
    pub(super) owner: Owner,
}

/// An owner of pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// One revision of what controls them.
    Revision {
        /// The UID of that.
        uid: Arc<str>,
        /// What its pods of this revision are labelled with; empty if it has no revisions.
        hash: Arc<str>,
    },
    /// Nobody: they ask for this PropagationPolicy themselves, or for none.
    Nobody {
        /// The policy.
        policy: Arc<str>,
    },
}

impl OwnerKey {
    /// The owner of a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        Self::by(pod.meta.key.namespace.clone(), pod.owner.clone(), |key| pod.labels.get_shared(key))
    }

    /// The owner of a pod in this namespace, controlled by the object of this UID, with these labels.
    pub(super) fn by(
        namespace: Arc<str>,
        controller: Option<Arc<str>>,
        label: impl Fn(&str) -> Option<Arc<str>>,
    ) -> Self {
        let owner = match controller {
            Some(uid) => {
                let hash = REVISIONS.iter().find_map(|key| label(key)).unwrap_or_else(|| Arc::from(""));
                Owner::Revision { uid, hash }
            }
            None => {
                let policy = label(Pair::Propagation.required()).unwrap_or_else(|| Arc::from(""));
                Owner::Nobody { policy }
            }
        };
        Self { namespace, owner }
    }

    /// The owner of a pod that is about to be made.
    pub(super) fn of_new(namespace: &str, pod: &Value, labels: &BTreeMap<String, String>) -> Self {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let uid = owner.and_then(|owner| owner["uid"].as_str()).map(Arc::from);
        Self::by(Arc::from(namespace), uid, |key| labels.get(key).map(|value| Arc::from(value.as_str())))
    }

    /// Whether its pods are owned by nothing.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self.owner, Owner::Nobody { .. })
    }

    /// The UID of what controls its pods.
    pub(super) fn uid(&self) -> Option<&Arc<str>> {
        match &self.owner {
            Owner::Revision { uid, .. } => Some(uid),
            Owner::Nobody { .. } => None,
        }
    }

    /// What [`GATED_BY_OWNER`] has its pods under.
    pub(super) fn index(&self) -> Arc<str> {
        match &self.owner {
            Owner::Revision { uid, hash } => Arc::from(format!("{uid}/{hash}")),
            Owner::Nobody { policy } => Arc::from(format!("{}//{policy}", self.namespace)),
        }
    }
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Owner::Revision { uid, hash } => write!(f, "{}, pods of {uid} {hash}", self.namespace),
            Owner::Nobody { policy } => write!(f, "{}, pods of nobody's that ask for {policy:?}", self.namespace),
        }
    }
}

/// All pods of an owner.
pub(super) fn pods_of(pods: &Store<Pod>, at: &OwnerKey) -> Vec<Arc<Pod>> {
    let found = match &at.owner {
        Owner::Revision { uid, .. } => pods.find(Pod::BY_OWNER, uid),
        Owner::Nobody { policy } => Applications::pods_asking(pods, Pair::Propagation, &at.namespace, policy),
    };
    found.into_iter().filter(|pod| OwnerKey::of(pod) == *at).collect()
}

/// Whether a pod waits behind our gate.
pub(super) fn is_gated(pod: &Pod) -> bool {
    pod.scheduling_gates.iter().any(|gate| **gate == *GATE)
}

/// Whether a pod runs, or is yet to.
pub(super) fn is_live(pod: &Pod) -> bool {
    let has_ended = ["Succeeded", "Failed"].contains(&&*pod.phase) && !is_on(Mutant::EndedKeepSeats);
    pod.leaving_since.is_none() && !has_ended
}
