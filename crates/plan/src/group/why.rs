//! Why pods stay behind the gate, in words.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::binding::Pair;
use super::placing::GATE;

/// So many pods of an application say why they wait.
pub const MOST_TOLD: usize = 20;

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
    /// Policies and groups are not served, so that nobody places it.
    NotServed {
        /// What is in the way, and what to do about it.
        text: String,
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
            Self::NotServed { .. } => "NotServed",
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
            Self::NotServed { text } => write!(
                f,
                "it waits since nobody takes its scheduling gate {GATE} off: {text}. Until then pods that are made anew come without \
                 the gate, and go anywhere"
            ),
        }
    }
}

/// Those of some pods that say why they wait where nothing is known of their applications: the first few of each owner.
#[must_use]
pub fn telling<P, O: Ord>(pods: impl IntoIterator<Item = P>, owner: impl Fn(&P) -> O) -> Vec<P> {
    let mut told: BTreeMap<O, usize> = BTreeMap::new();
    let is_told = |pod: &P| {
        let told = told.entry(owner(pod)).or_default();
        *told += 1;
        *told <= MOST_TOLD
    };
    pods.into_iter().filter(is_told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_of_each_owner_say_why_they_wait() {
        let pods: Vec<(char, usize)> = (0..30).flat_map(|number| [('a', number), ('b', number)]).collect();
        let told = telling(pods, |(owner, _)| *owner);
        let expected: Vec<(char, usize)> = (0..MOST_TOLD).flat_map(|number| [('a', number), ('b', number)]).collect();
        assert_eq!(told, expected);
        assert_eq!(telling([('c', 0)], |(owner, _)| *owner), [('c', 0)]);
    }

    #[test]
    fn a_pod_that_nobody_places_names_what_is_in_the_way_and_its_gate() {
        let why = Why::NotServed { text: "the CRD x is not installed; `install` installs it".to_owned() };
        assert_eq!(why.reason(), "NotServed");
        let said = why.to_string();
        assert!(said.contains(GATE) && said.contains("the CRD x is not installed; `install` installs it. "), "{said}");
    }
}
