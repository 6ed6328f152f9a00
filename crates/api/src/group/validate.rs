//! What NodeGroups and PropagationPolicies must be, and groups that policies name. OverridePolicies are the matter of
//! the engine that applies them.

use std::collections::BTreeSet;

use super::{
    NodeGroup, NumRange, OverridePolicy, PropagationPolicy, PropagationPolicySpec, PropagationStrategy,
    StaticNodeGroupWeight,
};
use crate::verdict::{Reason, Verdict};
use crate::{metadata, syntax};

/// The greatest weight that a group may have.
const MAX_WEIGHT: i64 = 1_000_000;

/// The most items of a list of groups, and the most names in one of them.
const MAX_NAMES: usize = 256;

/// Everything that is to be said of a NodeGroup.
pub fn validate_node_group(group: &NodeGroup) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check_label_sized(&group.metadata, &mut verdict);
    let spec = &group.spec;
    verdict.at_most("spec.nodes", spec.nodes.len(), 5000);
    let mut known = BTreeSet::new();
    for (index, node) in spec.nodes.iter().enumerate() {
        let field = format!("spec.nodes[{index}]");
        if !known.insert(node) {
            verdict.refuse(&field, Reason::Duplicate, format!("{node:?} is named already: once is enough"));
        }
        verdict.check(field, syntax::dns_subdomain(node));
    }
    syntax::labels(&spec.match_labels, "spec.matchLabels", &mut verdict);
    if spec.nodes.is_empty() && spec.match_labels.is_empty() {
        verdict.warn("spec", "the group has neither nodes nor matchLabels, so no node is in it");
    }
    verdict
}

/// Everything that is to be said of a PropagationPolicy.
pub fn validate_propagation_policy(policy: &PropagationPolicy) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&policy.metadata, &mut verdict);
    let spec = &policy.spec;
    check_strategy(spec, &mut verdict);
    check_weights(&spec.static_weight_list, &mut verdict);
    check_ranges(&spec.num_range, &mut verdict);
    verdict
}

fn check_strategy(spec: &PropagationPolicySpec, verdict: &mut Verdict) {
    use PropagationStrategy::{NumRange, StaticWeight};
    let (has_weights, has_ranges) = (!spec.static_weight_list.is_empty(), !spec.num_range.is_empty());
    let strategy = "spec.propagationStrategy";
    match (spec.propagation_strategy, has_weights, has_ranges) {
        (None, true, true) => {
            let text = "staticWeightList and numRange are both set: say which one counts with propagationStrategy";
            verdict.refuse(strategy, Reason::Required, text);
        }
        (None, false, false) => {
            verdict.refuse("spec", Reason::Required, "set staticWeightList or numRange, or no group gets a pod");
        }
        (Some(StaticWeight), false, _) => {
            let text = "propagationStrategy StaticWeight needs staticWeightList";
            verdict.refuse("spec.staticWeightList", Reason::Required, text);
        }
        (Some(NumRange), _, false) => {
            verdict.refuse("spec.numRange", Reason::Required, "propagationStrategy NumRange needs numRange");
        }
        (Some(StaticWeight), true, true) => {
            verdict.warn("spec.numRange", "propagationStrategy is StaticWeight, so this list does not count");
        }
        (Some(NumRange), true, true) => {
            verdict.warn("spec.staticWeightList", "propagationStrategy is NumRange, so this list does not count");
        }
        _ => {}
    }
}

fn check_weights(weights: &[StaticNodeGroupWeight], verdict: &mut Verdict) {
    let list = "spec.staticWeightList";
    check_names(list, weights.iter().map(|item| item.node_group_names.as_slice()), verdict);
    for (index, item) in weights.iter().enumerate() {
        if !(1..=MAX_WEIGHT).contains(&item.weight) {
            let text = format!("a weight is from 1 to {MAX_WEIGHT}, and this is {}", item.weight);
            verdict.refuse(format!("{list}[{index}].weight"), Reason::Invalid, text);
        }
    }
}

fn check_ranges(ranges: &[NumRange], verdict: &mut Verdict) {
    let list = "spec.numRange";
    check_names(list, ranges.iter().map(|item| item.node_group_names.as_slice()), verdict);
    let mut least: i64 = 0;
    for (index, item) in ranges.iter().enumerate() {
        let field = format!("{list}[{index}]");
        for (name, number) in [("min", item.min), ("max", item.max)] {
            if let Some(number) = number.filter(|number| *number < 0) {
                let text = format!("a number of pods is at least 0, and this is {number}");
                verdict.refuse(format!("{field}.{name}"), Reason::Invalid, text);
            }
        }
        if let Some(max) = item.max.filter(|max| item.min() > *max) {
            let text = format!("min must not be above max, and {} is above {max}", item.min());
            verdict.refuse(field, Reason::Invalid, text);
        }
        let groups = i64::try_from(item.node_group_names.len()).unwrap_or(i64::MAX);
        least = least.saturating_add(i64::from(item.min()).saturating_mul(groups));
    }
    if least > i64::from(i32::MAX) {
        let text = format!("all groups together ask for {least} pods at least, and no workload can have so many");
        verdict.refuse(list, Reason::Invalid, text);
    }
}

/// Checks the names of groups in a list. Each may be in one item only, since each gets one share; case does not count.
fn check_names<'a>(list: &str, items: impl ExactSizeIterator<Item = &'a [String]>, verdict: &mut Verdict) {
    verdict.at_most(list, items.len(), MAX_NAMES);
    let mut known = BTreeSet::new();
    for (index, names) in items.enumerate() {
        let field = format!("{list}[{index}].nodeGroupNames");
        if names.is_empty() {
            verdict.refuse(&field, Reason::Required, "name at least one group");
        }
        verdict.at_most(&field, names.len(), MAX_NAMES);
        for (number, name) in names.iter().enumerate() {
            let field = format!("{field}[{number}]");
            if !known.insert(name.to_ascii_lowercase()) {
                let text = format!("{name:?} is named already, and case does not count: a group gets one share");
                verdict.refuse(&field, Reason::Duplicate, text);
            }
            verdict.check(field, group_name(name));
        }
    }
}

/// Whether a group can have this name, in whatever case it is written.
pub fn group_name(name: &str) -> Result<(), String> {
    syntax::label_sized_name(&name.to_ascii_lowercase())
}

/// Warns of groups that a PropagationPolicy names and that do not exist. `exists` is asked in lower case, as NodeGroups
/// are named.
pub fn missing_in_propagation_policy(policy: &PropagationPolicy, exists: impl Fn(&str) -> bool) -> Verdict {
    let spec = &policy.spec;
    let weights = spec.static_weight_list.iter().map(|item| &item.node_group_names);
    let ranges = spec.num_range.iter().map(|item| &item.node_group_names);
    let fields = ["spec.staticWeightList", "spec.numRange"];
    let mut verdict = Verdict::default();
    for (list, items) in fields.into_iter().zip([weights.collect::<Vec<_>>(), ranges.collect()]) {
        for (index, names) in items.into_iter().enumerate() {
            let text = "does not exist: its share of the pods waits until it does";
            warn_of_missing(names, &format!("{list}[{index}].nodeGroupNames"), text, &exists, &mut verdict);
        }
    }
    verdict
}

/// Warns of groups that an OverridePolicy names and that do not exist. `exists` is asked in lower case, as NodeGroups
/// are named.
pub fn missing_in_override_policy(policy: &OverridePolicy, exists: impl Fn(&str) -> bool) -> Verdict {
    let mut verdict = Verdict::default();
    for (index, rule) in policy.spec.override_rules.iter().enumerate() {
        let field = format!("spec.overrideRules[{index}].targetNodeGroup");
        let names = rule.target_node_group.as_deref().unwrap_or_default();
        warn_of_missing(names, &field, "does not exist: the rule changes nothing there", &exists, &mut verdict);
    }
    verdict
}

fn warn_of_missing(names: &[String], field: &str, text: &str, exists: impl Fn(&str) -> bool, verdict: &mut Verdict) {
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !exists(&name.to_ascii_lowercase())) {
        verdict.warn(&format!("{field}[{index}]"), format_args!("the NodeGroup {name:?} {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_are_missing_are_warned_of_whatever_their_case() {
        let policy = r#"{"spec": {"staticWeightList": [{"nodeGroupNames": ["Beijing", "Xian"], "weight": 1}]}}"#;
        let policy: PropagationPolicy = serde_json::from_str(policy).expect("parses");
        let verdict = missing_in_propagation_policy(&policy, |name| name == "beijing");
        assert!(verdict.is_ok());
        let told = "spec.staticWeightList[0].nodeGroupNames[1]: the NodeGroup \"Xian\" does not exist";
        assert!(verdict.warnings.len() == 1 && verdict.warnings[0].starts_with(told), "{verdict:?}");
        let policy = r#"{"spec": {"overrideRules": [{"targetNodeGroup": ["Beijing", "Xian"]}, {}]}}"#;
        let policy: OverridePolicy = serde_json::from_str(policy).expect("parses");
        let warnings = missing_in_override_policy(&policy, |name| name == "beijing").warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with("spec.overrideRules[0].targetNodeGroup[1]"));
    }
}
