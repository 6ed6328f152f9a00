//! What a DaemonSet says about the order of its rollout: canaries, and numbers that may be shares of the nodes.

use dapple_api::selector::{Selector, SelectorError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The annotation that says which nodes are updated first.
pub const CANARY_ANNOTATION: &str = "dapple.dev/canary";

/// The nodes that are updated first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Canary {
    /// Those with certain labels.
    Selector(Selector),
    /// One of each variant.
    EachVariant,
}

/// Why the annotation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanaryError {
    /// It is neither `each-variant` nor a selector of the form `key=value,key=value`.
    #[error("{CANARY_ANNOTATION} is {0:?}: use each-variant, or labels such as rollout=first,zone=a")]
    Text(String),
    /// The selector is not valid.
    #[error("{CANARY_ANNOTATION}: {0}")]
    Selector(#[from] SelectorError),
}

impl std::str::FromStr for Canary {
    type Err = CanaryError;

    fn from_str(text: &str) -> Result<Self, CanaryError> {
        if text == "each-variant" {
            return Ok(Self::EachVariant);
        }
        let pair = |part: &str| {
            let (key, value) = part.split_once('=')?;
            let (key, value) = (key.trim(), value.trim());
            (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
        };
        let labels =
            text.split(',').map(pair).collect::<Option<_>>().ok_or_else(|| CanaryError::Text(text.to_owned()))?;
        let selector = LabelSelector { match_labels: Some(labels), match_expressions: None };
        Ok(Self::Selector(Selector::new(&selector)?))
    }
}

/// How many nodes a partition holds back: a percentage is rounded down, and never more than there are. What cannot be
/// read holds back everything: a typo must not update a fleet.
pub(super) fn held_back(partition: &IntOrString, of: usize) -> usize {
    part(partition, of, |whole| whole / 100).unwrap_or(of).min(of)
}

/// How many of so many nodes may be unavailable at once: a percentage is rounded up. What cannot be read allows none.
pub fn budget(max_unavailable: &IntOrString, of: usize) -> usize {
    part(max_unavailable, of, |whole| whole.div_ceil(100)).unwrap_or(0)
}

/// A number, or a percentage of `of`; nothing if it is neither.
fn part(value: &IntOrString, of: usize, by_hundred: impl Fn(usize) -> usize) -> Option<usize> {
    match value {
        IntOrString::Int(number) => Some(usize::try_from(*number).unwrap_or(0)),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(digits) => digits.parse().ok().map(|percent: usize| by_hundred(of.saturating_mul(percent))),
            None => text.parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_rounded_up_and_a_typo_allows_nothing() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (value, expected) in [(IntOrString::Int(2), 2), (text("10%"), 1), (text("50%"), 3), (text("half"), 0)] {
            assert_eq!(budget(&value, 5), expected, "{value:?}");
        }
    }

    #[test]
    fn a_canary_that_cannot_be_is_told() {
        for text in ["", "each", "=x"] {
            let error = text.parse::<Canary>().unwrap_err().to_string();
            assert!(error.contains("use each-variant, or labels"), "{error}");
        }
    }
}
