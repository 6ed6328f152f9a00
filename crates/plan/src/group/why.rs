//! Why pods stay behind the gate, in words.

use std::fmt;
use std::sync::Arc;

use super::binding::Pair;

/// Why a pod stays behind the gate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A policy is asked for and not confirmed.
    NotConfirmed {
        /// Of which kind.
        pair: Pair,
        /// Its name.
        policy: String,
    },
    /// Every group has as many pods as it may have.
    NoSeat {
        /// By which policy.
        policy: String,
    },
    /// Its group is not there.
    NoGroup {
        /// The group.
        group: Arc<str>,
        /// By which policy.
        policy: String,
    },
    /// Its group has no edition that renders.
    NoEdition {
        /// The group.
        group: Arc<str>,
        /// Why.
        text: String,
    },
    /// A claim of it is yet to be bound, to a volume that may be on any node.
    Unbound {
        /// The claim.
        claim: Arc<str>,
    },
    /// Its volumes can be used on no node of any group.
    OutOfReach {
        /// By which policy.
        policy: String,
    },
    /// It wants another value of a label than the nodes of its group have.
    Contradiction {
        /// The group.
        group: Arc<str>,
        /// The label.
        key: String,
        /// What the group's nodes have.
        value: String,
    },
}

impl Why {
    /// One word in CamelCase, for machines.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotConfirmed { .. } => "WaitingForPolicy",
            Self::NoSeat { .. } => "NoSeat",
            Self::NoGroup { .. } => "WaitingForGroup",
            Self::NoEdition { .. } => "WaitingForEdition",
            Self::Unbound { .. } => "WaitingForVolume",
            Self::OutOfReach { .. } => "VolumesOutOfReach",
            Self::Contradiction { .. } => "NodeSelectorContradicts",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfirmed { pair, policy } => write!(
                f,
                "it waits until the {} {policy:?} is confirmed, which label {} asks for: the Events of its application say \
                 what is in the way",
                pair.kind().kind,
                pair.required()
            ),
            Self::NoSeat { policy } => write!(
                f,
                "it waits since every group of the PropagationPolicy {policy:?} has its greatest number of pods: raise a max, \
                 or list another group"
            ),
            Self::NoGroup { group, policy } => write!(
                f,
                "it waits for the NodeGroup {group:?}, which the PropagationPolicy {policy:?} lists and which is not there: \
                 create it, or take it off the list"
            ),
            Self::NoEdition { group, text } => {
                write!(f, "it waits since its OverridePolicy cannot be carried out in its group {group:?}: {text}")
            }
            Self::Unbound { claim } => write!(
                f,
                "it waits until its PersistentVolumeClaim {claim:?} is bound: only then is it known which groups have nodes that \
                 can use the volume"
            ),
            Self::OutOfReach { policy } => write!(
                f,
                "it waits since its PersistentVolumes can be used on no node of the groups of the PropagationPolicy {policy:?}: \
                 list a group that has such a node"
            ),
            Self::Contradiction { group, key, value } => write!(
                f,
                "it waits since no node of its group {group:?} fits it: nodes of the group have {key}={value}, and the pod's own \
                 nodeSelector asks for another value"
            ),
        }
    }
}
