//! What each group gets of a workload, by its OverridePolicy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec, PropagationStrategy};
use dapple_edit::document::Document;
use dapple_edit::edit::{Edit, Source};
use dapple_edit::group::edits;
use serde_json::Value;

use super::division::Division;
use crate::fate::Update;
use crate::fit::Node;
use crate::overrides::Overrides;
use crate::variant::{Draft, ObjectName, Plan, Reason, Share, Sketch, Spread, Warning};

/// No cluster has more pods. A number that somebody mistyped is not to take all memory.
const MOST_PODS: usize = 1_000_000;

/// The groups of a fleet: name, and names of its nodes.
pub type Groups = BTreeMap<String, BTreeSet<String>>;

/// A policy and its name.
pub struct Named<'a, T> {
    /// As people name it.
    pub object: String,
    /// What it says.
    pub spec: &'a T,
}

/// A workload that asks for policies.
pub struct Workload<'a> {
    /// Its name.
    pub object: ObjectName,
    /// Its pod template.
    pub template: &'a Value,
    /// The field that has it.
    pub template_field: &'static str,
    /// How pods get what the workload changes.
    pub update: Update,
    /// How many pods it has at a time.
    pub pods: usize,
    /// How its pods are divided among groups; without, they run anywhere.
    pub propagation: Option<Named<'a, PropagationPolicySpec>>,
    /// What differs between groups.
    pub overrides: Option<Named<'a, OverridePolicySpec>>,
}

/// What an OverridePolicy does to pods that belong to their nodes: a node may be in several groups. Compiled once for each
/// combination of groups that nodes are in.
pub fn overrides(policy: &Named<'_, OverridePolicySpec>, groups: &Groups) -> Overrides {
    let mut groups_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, nodes) in groups {
        for node in nodes {
            groups_of.entry(node).or_default().push(group);
        }
    }
    let (mut lists, mut known) = (Vec::new(), BTreeMap::new());
    let mut by_node = BTreeMap::new();
    for (node, groups) in groups_of {
        let list = *known.entry(groups).or_insert_with_key(|groups| {
            lists.push(edits(&policy.object, policy.spec, groups));
            lists.len() - 1
        });
        by_node.insert(node.to_owned(), list);
    }
    Overrides::new(lists, by_node)
}

/// Plans a workload whose pods each belong to one group: one variant for groups that get the same.
pub fn plan<'a>(workload: &Workload<'_>, groups: &Groups, nodes: impl Iterator<Item = Node<'a>>) -> Plan {
    let nodes: BTreeMap<&str, Node<'a>> = nodes.map(|node| (node.name, node)).collect();
    let mut warnings = Vec::new();
    let chosen: Vec<(&str, &BTreeSet<String>)> = match &workload.propagation {
        Some(policy) => chosen(policy, groups, &mut warnings),
        None => groups.iter().map(|(name, members)| (name.as_str(), members)).collect(),
    };
    let compiled: Vec<Vec<Edit>> = chosen
        .iter()
        .map(|(group, _)| {
            workload.overrides.as_ref().map_or_else(Vec::new, |policy| edits(&policy.object, policy.spec, &[group]))
        })
        .collect();
    let mut drafts: Vec<Draft<'_>> = Vec::new();
    for ((group, members), edits) in chosen.iter().zip(&compiled) {
        let nodes = members.iter().filter_map(|name| nodes.get(name.as_str()).copied()).collect();
        drafts.push(Draft { places: vec![format!("group {group}")], edits: edits.iter().collect(), nodes });
    }
    if workload.propagation.is_none() {
        let elsewhere = nodes.values().filter(|node| !groups.values().any(|members| members.contains(node.name)));
        let elsewhere: Vec<Node<'_>> = elsewhere.copied().collect();
        if !elsewhere.is_empty() {
            drafts.push(Draft { places: vec!["no group".to_owned()], edits: Vec::new(), nodes: elsewhere });
        }
    }
    if let Some(policy) = &workload.overrides {
        warnings.extend(unused(policy, chosen.iter().map(|(group, _)| *group)));
    }
    let sketch = Sketch {
        object: workload.object.clone(),
        document: Document::PodTemplate,
        base: workload.template,
        base_field: workload.template_field,
        is_daemon: false,
        update: workload.update,
        // One policy, and its order is what its author wrote.
        fight: &|_, _| false,
        is_default: &|_| false,
    };
    let mut plan = sketch.plan(drafts);
    plan.warnings.splice(0..0, warnings);
    if workload.pods > MOST_PODS {
        let rule = Source { object: workload.object.to_string(), rule: "spec".to_owned() };
        let text = format!("it asks for {} pods; how more than {MOST_PODS} are divided is not told", workload.pods);
        plan.warnings.push(Warning { reason: Reason::Odd, rule, text });
        return plan;
    }
    plan.spread = workload.propagation.as_ref().and_then(|policy| spread(policy.spec, workload.pods, groups));
    plan
}

/// How many pods each group of a policy gets.
fn spread(policy: &PropagationPolicySpec, pods: usize, groups: &Groups) -> Option<Spread> {
    let mut division = Division::of(policy)?;
    let counts = division.counts(pods);
    let share = |(group, pods): (&Arc<str>, &usize)| Share {
        group: group.to_string(),
        pods: *pods,
        is_there: groups.contains_key(&**group),
        edition: None,
        pod: None,
    };
    let without_place = pods - counts.iter().sum::<usize>();
    Some(Spread { groups: division.groups().iter().zip(&counts).map(share).collect(), without_place, together: None })
}

/// The groups that a policy divides pods among, in its order.
fn chosen<'a>(
    policy: &Named<'_, PropagationPolicySpec>,
    groups: &'a Groups,
    warnings: &mut Vec<Warning>,
) -> Vec<(&'a str, &'a BTreeSet<String>)> {
    let (field, lists): (&str, Vec<&Vec<String>>) = match policy.spec.strategy() {
        Some(PropagationStrategy::StaticWeight) => {
            ("staticWeightList", policy.spec.static_weight_list.iter().map(|item| &item.node_group_names).collect())
        }
        Some(PropagationStrategy::NumRange) => {
            ("numRange", policy.spec.num_range.iter().map(|item| &item.node_group_names).collect())
        }
        None => {
            let text = "it has no strategy: set propagationStrategy, or only one of staticWeightList and numRange";
            let rule = Source { object: policy.object.clone(), rule: "spec".to_owned() };
            warnings.push(Warning { reason: Reason::BadRule, rule, text: text.to_owned() });
            return Vec::new();
        }
    };
    let mut found: Vec<(&str, &BTreeSet<String>)> = Vec::new();
    for (index, names) in lists.into_iter().enumerate() {
        for name in names {
            match groups.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                Some((known, members)) if !found.iter().any(|(seen, _)| seen == known) => found.push((known, members)),
                Some(_) => {}
                None => {
                    let rule = Source { object: policy.object.clone(), rule: format!("spec.{field}[{index}]") };
                    let text = format!("there is no NodeGroup {name:?}");
                    warnings.push(Warning { reason: Reason::Missing, rule, text });
                }
            }
        }
    }
    found
}

/// Rules for groups that get no pod.
pub(crate) fn unused<'a>(
    policy: &Named<'_, OverridePolicySpec>,
    groups: impl Iterator<Item = &'a str> + Clone,
) -> Vec<Warning> {
    let rules = policy.spec.override_rules.iter().enumerate();
    let idle = rules.filter(|(_, rule)| !groups.clone().any(|group| rule.targets(group)));
    idle.map(|(index, _)| Warning {
        reason: Reason::Unused,
        rule: Source { object: policy.object.clone(), rule: format!("spec.overrideRules[{index}]") },
        text: "it targets no group that gets pods".to_owned(),
    })
    .collect()
}
