//! Whether a pod may be handed to its node: what a node gateway asks before it passes a pod on.
//!
//! It goes by the four labels that were copied to the pod, so that no workload has to be read. A pod is held back while a
//! policy of either kind is asked for and not confirmed, or another is confirmed than is asked for.

use super::placing::PodRule;
use super::why::Why;
use crate::node::Labels;

/// Why a pod with these labels is not handed to its node; none if it is. One that the node has already stays there, whatever
/// becomes of its policies.
#[must_use]
pub fn held_back(labels: &dyn Labels, was_handed_over: bool) -> Option<Why> {
    match PodRule::of(labels) {
        PodRule::Hold { pair, policy } if !was_handed_over => {
            Some(Why::NotConfirmed { pair, policy: policy.to_owned() })
        }
        PodRule::Hold { .. } | PodRule::Divide(_) | PodRule::Release => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::group::binding::Pair;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// The four situations of one pair, and whether each holds a pod back.
    pub(in crate::group) fn situations(pair: Pair) -> [(BTreeMap<String, String>, bool); 4] {
        let (required, binding) = (pair.required(), pair.binding());
        [
            (labels(&[(required, "a")]), true),
            (labels(&[(required, "a"), (binding, "b")]), true),
            (labels(&[(required, "a"), (binding, "a")]), false),
            (labels(&[]), false),
        ]
    }

    #[test]
    fn either_pair_in_situation_1_or_2_holds_a_pod_back() {
        for (spread, holds_spread) in situations(Pair::Propagation) {
            for (images, holds_images) in situations(Pair::Override) {
                let both: BTreeMap<String, String> = spread.clone().into_iter().chain(images).collect();
                let held = held_back(&both, false);
                assert_eq!(held.is_some(), holds_spread || holds_images, "{both:?}");
                assert_eq!(held_back(&both, true), None, "it is there already: {both:?}");
            }
        }
    }

    #[test]
    fn it_says_which_policy_is_waited_for() {
        let asked = labels(&[(Pair::Override.required(), "o"), (Pair::Override.binding(), "p")]);
        let why = held_back(&asked, false).map(|why| (why.reason(), why.to_string()));
        assert!(
            why.is_some_and(|(reason, text)| reason == "WaitingForPolicy" && text.contains("OverridePolicy \"o\""))
        );
    }
}
