//! The order in which a rollout takes nodes, and which it leaves alone.
//!
//! One order, by name, for everything: the partition holds back the first nodes of it, and a rollout goes from its end to
//! its beginning. So lowering the partition step by step goes on where it stopped, as with a StatefulSet. Canaries stand
//! at the end: they are the first to be updated and the last to be held back.

use std::collections::BTreeSet;

use dapple_api::daemonset::RollingUpdate;
use dapple_api::selector::{Selector, SelectorError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::cell::Hold;
use crate::fit::Node;
use crate::mutant::{Mutant, is_on};

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

/// A node in its place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its number among the nodes that were to be put in order.
    pub number: usize,
    /// Why a rollout leaves it alone.
    pub hold: Option<Hold>,
    /// Whether the partition holds it back, whatever else does.
    pub is_partitioned: bool,
}

/// Puts nodes, each with the number of its variant, in order. The partition holds back the first; the selector of the
/// strategy leaves others alone; paused holds all.
pub fn order(
    nodes: &[(Node<'_>, usize)],
    rolling: &RollingUpdate,
    canary: Option<&Canary>,
) -> Result<Vec<Placed>, SelectorError> {
    let selector = rolling.selector.as_ref().map(Selector::new).transpose()?;
    let mut sorted: Vec<usize> = (0..nodes.len()).collect();
    sorted.sort_unstable_by_key(|number| nodes[*number].0.name);
    // The last by name of each variant, so that a node that comes later seldom changes who is the canary.
    let mut seen = BTreeSet::new();
    let mut firsts: BTreeSet<&str> = BTreeSet::new();
    for (node, variant) in sorted.iter().rev().map(|number| &nodes[*number]) {
        if seen.insert(*variant) {
            firsts.insert(node.name);
        }
    }
    let is_canary = |node: &Node<'_>| match canary {
        None => false,
        Some(Canary::EachVariant) => firsts.contains(node.name),
        Some(Canary::Selector(selector)) => selector.matches(|key| node.labels.get(key)),
    };
    // Stable: canaries come last, and each part stays in order.
    sorted.sort_by_cached_key(|number| is_canary(&nodes[*number].0));
    let held = if is_on(Mutant::PartitionForgotten) { 0 } else { held_back(&rolling.partition(), sorted.len()) };
    let is_left_alone =
        |node: &Node<'_>| selector.as_ref().is_some_and(|known| !known.matches(|key| node.labels.get(key)));
    let hold = |place: usize, node: &Node<'_>| match () {
        () if rolling.paused() && !is_on(Mutant::PauseForgotten) => Some(Hold::Paused),
        () if is_left_alone(node) => Some(Hold::Selector),
        () if place < held => Some(Hold::Partition),
        () => None,
    };
    let placed = sorted.into_iter().enumerate();
    Ok(placed
        .map(|(place, number)| Placed { number, hold: hold(place, &nodes[number].0), is_partitioned: place < held })
        .collect())
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
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    /// Names in order, those that are held in brackets. Nodes are named by a letter; capital letters have a label.
    fn ordered(nodes: &[(&str, usize)], rolling: Value, canary: Option<&str>) -> String {
        let labels = BTreeMap::from([("first".to_owned(), "yes".to_owned())]);
        let none = BTreeMap::new();
        let nodes: Vec<(Node<'_>, usize)> = nodes
            .iter()
            .map(|(name, variant)| {
                let is_labelled = name.chars().all(char::is_uppercase);
                (Node { name, labels: if is_labelled { &labels } else { &none }, taints: &[] }, *variant)
            })
            .collect();
        let canary: Option<Canary> = canary.map(|text| text.parse().unwrap());
        let placed = order(&nodes, &serde_json::from_value(rolling).unwrap(), canary.as_ref()).unwrap();
        let name = |placed: Placed| nodes[placed.number].0.name;
        let shown = |placed: Placed| match placed.hold {
            Some(_) => format!("({})", name(placed)),
            None => name(placed).to_owned(),
        };
        placed.into_iter().map(shown).collect()
    }

    const NODES: [(&str, usize); 4] = [("d", 0), ("b", 1), ("a", 0), ("c", 1)];

    #[test]
    fn the_partition_holds_back_the_first() {
        for (partition, expected) in [
            (json!(0), "abcd"),
            (json!(2), "(a)(b)cd"),
            (json!(9), "(a)(b)(c)(d)"),
            (json!("50%"), "(a)(b)cd"),
            (json!("40%"), "(a)bcd"),
            (json!("all"), "(a)(b)(c)(d)"),
        ] {
            assert_eq!(ordered(&NODES, json!({"partition": partition}), None), expected, "{partition}");
        }
    }

    #[test]
    fn the_budget_is_rounded_up_and_a_typo_allows_nothing() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (value, expected) in [(IntOrString::Int(2), 2), (text("10%"), 1), (text("50%"), 3), (text("half"), 0)] {
            assert_eq!(budget(&value, 5), expected, "{value:?}");
        }
    }

    #[test]
    fn canaries_come_last_in_the_order_and_so_first_in_the_rollout() {
        assert_eq!(ordered(&NODES, json!({"partition": 2}), Some("each-variant")), "(a)(b)cd");
        let kinds = [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 1)];
        assert_eq!(ordered(&kinds, json!({"partition": 3}), Some("each-variant")), "(a)(c)(d)be");
        assert_eq!(ordered(&[("b", 0), ("A", 0), ("c", 0)], json!({"partition": 2}), Some("first=yes")), "(b)(c)A");
    }

    #[test]
    fn the_selector_and_a_pause_leave_nodes_alone() {
        let nodes = [("a", 0), ("B", 0)];
        assert_eq!(ordered(&nodes, json!({"selector": {"matchLabels": {"first": "yes"}}}), None), "B(a)");
        assert_eq!(ordered(&nodes, json!({"paused": true}), None), "(B)(a)");
    }

    #[test]
    fn a_canary_that_cannot_be_is_told() {
        for text in ["", "each", "=x"] {
            let error = text.parse::<Canary>().unwrap_err().to_string();
            assert!(error.contains("use each-variant, or labels"), "{error}");
        }
    }
}
