//! What the labels of an application or a pod say of its policies: whether they are asked for, and confirmed.

use dapple_api::group::{
    BINDING_OVERRIDE_LABEL, BINDING_PROPAGATION_LABEL, REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL,
};

use crate::node::Labels;

/// A kind of policy, with the pair of labels by which it is asked for and confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pair {
    /// PropagationPolicies.
    Propagation,
    /// OverridePolicies.
    Override,
}

impl Pair {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Propagation, Self::Override];

    /// The label by which a policy is asked for.
    #[must_use]
    pub fn required(self) -> &'static str {
        match self {
            Self::Propagation => REQUIRED_PROPAGATION_LABEL,
            Self::Override => REQUIRED_OVERRIDE_LABEL,
        }
    }

    /// The label by which a policy is confirmed.
    #[must_use]
    pub fn binding(self) -> &'static str {
        match self {
            Self::Propagation => BINDING_PROPAGATION_LABEL,
            Self::Override => BINDING_OVERRIDE_LABEL,
        }
    }

    /// How it stands with such a policy, by the labels of an application or a pod.
    #[must_use]
    pub fn situation<'l>(self, labels: &'l dyn Labels) -> Situation<'l> {
        match (labels.get(self.required()), labels.get(self.binding())) {
            (Some(policy), None) => Situation::Asked(policy),
            (Some(policy), Some(bound)) if policy != bound => Situation::Differs { policy, bound },
            (Some(policy), Some(_)) => Situation::Bound(policy),
            (None, _) => Situation::None,
        }
    }
}

/// How it stands with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation<'l> {
    /// It is asked for, and not confirmed.
    Asked(&'l str),
    /// One is asked for, and another was confirmed.
    Differs {
        /// The one that is asked for.
        policy: &'l str,
        /// The one that was confirmed.
        bound: &'l str,
    },
    /// It is asked for, and confirmed.
    Bound(&'l str),
    /// None is asked for. A confirmation that is left over counts for nothing.
    None,
}

impl Situation<'_> {
    /// Whether a pod has to wait until the policy is confirmed.
    #[must_use]
    pub fn holds_back(self) -> bool {
        matches!(self, Self::Asked(_) | Self::Differs { .. })
    }
}

/// Whether a pod with these labels may be handed to its node for the first time: the filter of CloudCore. A policy of either
/// kind that is asked for and not confirmed holds it back.
#[must_use]
pub fn may_be_sent(labels: &dyn Labels) -> bool {
    !Pair::ALL.iter().any(|pair| pair.situation(labels).holds_back())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn labels(pair: Pair, required: Option<&str>, binding: Option<&str>) -> BTreeMap<String, String> {
        let with = |key: &str, value: Option<&str>| value.map(|value| (key.to_owned(), value.to_owned()));
        [with(pair.required(), required), with(pair.binding(), binding)].into_iter().flatten().collect()
    }

    #[test]
    fn the_four_situations_of_either_pair() {
        for pair in Pair::ALL {
            let holds = |required, binding| pair.situation(&labels(pair, required, binding)).holds_back();
            assert!(holds(Some("a"), None), "1: asked for");
            assert!(holds(Some("a"), Some("b")), "2: another one is confirmed");
            assert!(!holds(Some("a"), Some("a")), "3: confirmed");
            assert!(!holds(None, None), "4: none is asked for");
            assert!(!holds(None, Some("b")), "what is left over counts for nothing");
            assert!(holds(Some(""), None), "a label without a name asks for what cannot be there");
            assert_eq!(pair.situation(&labels(pair, Some("a"), Some("a"))), Situation::Bound("a"));
        }
    }

    #[test]
    fn either_pair_holds_a_pod_back() {
        let mut both = labels(Pair::Propagation, Some("a"), Some("a"));
        assert!(may_be_sent(&both));
        both.extend(labels(Pair::Override, Some("o"), None));
        assert!(!may_be_sent(&both));
        both.insert(Pair::Override.binding().to_owned(), "o".to_owned());
        assert!(may_be_sent(&both));
        both.insert(Pair::Propagation.binding().to_owned(), "other".to_owned());
        assert!(!may_be_sent(&both));
    }
}
