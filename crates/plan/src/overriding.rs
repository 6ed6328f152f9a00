//! What an OverridePolicy makes of the pods of a DaemonSet: its rules apply after patches, by the groups that a node is in.
//!
//! Nodes that the same rules are for share renderings, whichever of their groups make it so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{NodeGroupSpec, OverridePolicySpec};
use dapple_edit::edit::Edit;
use dapple_edit::group::edits;

use crate::fit::Node;
use crate::group::has_all;

/// How it stands with the policy that a DaemonSet asks for.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Overriding {
    /// It asks for none.
    #[default]
    None,
    /// What the policy says is not known, or not to be used yet, for this reason: nodes keep what they run, and get nothing.
    Waits(String),
    /// Its rules apply.
    By(Arc<GroupRules>),
}

impl Overriding {
    /// The places of the rules that are for a node, in the order in which they apply.
    pub fn rules_of(&self, node: Node<'_>) -> Vec<usize> {
        self.rules().map(|rules| rules.of(node)).unwrap_or_default()
    }

    /// The rules, if they apply.
    pub fn rules(&self) -> Option<&GroupRules> {
        match self {
            Self::By(rules) => Some(rules),
            Self::None | Self::Waits(_) => None,
        }
    }

    /// Every label of nodes by which they are in a group that a rule is for.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let groups = self.rules().into_iter().flat_map(|rules| &rules.groups);
        groups.flat_map(|group| group.match_labels.keys()).map(String::as_str)
    }
}

/// The rules of a policy, and the groups that they are for.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRules {
    /// The policy, as people name it.
    policy: String,
    spec: Arc<OverridePolicySpec>,
    /// Groups that some rule is for. What no rule is for is not looked at.
    groups: Vec<Group>,
    /// By name of a node: the groups that name it.
    by_name: BTreeMap<String, Vec<usize>>,
    /// By one label that nodes of a group must have: one is enough to find every candidate.
    by_label: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Group {
    name: String,
    match_labels: BTreeMap<String, String>,
    /// The places of the rules that are for it.
    rules: BTreeSet<usize>,
}

impl GroupRules {
    /// The rules of a policy that people call so, and all groups that there are.
    pub fn new<'g>(
        policy: String,
        spec: Arc<OverridePolicySpec>,
        groups: impl Iterator<Item = (&'g str, &'g NodeGroupSpec)>,
    ) -> Self {
        let mut all = Self { policy, spec, groups: Vec::new(), by_name: BTreeMap::new(), by_label: BTreeMap::new() };
        for (name, group) in groups {
            let rules = all.spec.override_rules.iter().enumerate().filter(|(_, rule)| rule.targets(name));
            let rules: BTreeSet<usize> = rules.map(|(place, _)| place).collect();
            if rules.is_empty() {
                continue;
            }
            let number = all.groups.len();
            for node in &group.nodes {
                all.by_name.entry(node.clone()).or_default().push(number);
            }
            if let Some((key, value)) = group.match_labels.first_key_value() {
                let values = all.by_label.entry(key.clone()).or_default();
                values.entry(value.clone()).or_default().push(number);
            }
            all.groups.push(Group { name: name.to_owned(), match_labels: group.match_labels.clone(), rules });
        }
        all
    }

    /// The places of the rules that are for a node, each once.
    fn of(&self, node: Node<'_>) -> Vec<usize> {
        let mut rules = BTreeSet::new();
        let mut join = |number: &usize| rules.extend(self.groups[*number].rules.iter().copied());
        self.by_name.get(node.name).into_iter().flatten().for_each(&mut join);
        for (key, values) in &self.by_label {
            let candidates = node.labels.get(key).and_then(|value| values.get(value));
            let has_all = |number: &&usize| has_all(&self.groups[**number].match_labels, node.labels);
            candidates.into_iter().flatten().filter(has_all).for_each(&mut join);
        }
        rules.into_iter().collect()
    }

    /// What the rules at these places do.
    pub(super) fn edits(&self, rules: &[usize]) -> Vec<Edit> {
        // A set of rules comes of groups that have no others, so these groups together have just this set.
        let groups = self.groups.iter().filter(|group| group.rules.iter().all(|rule| rules.contains(rule)));
        edits(&self.policy, &self.spec, &groups.map(|group| group.name.as_str()).collect::<Vec<_>>())
    }

    /// The rules at these places, as people name them.
    pub(super) fn names(&self, rules: &[usize]) -> Vec<String> {
        rules.iter().map(|place| format!("{} spec.overrideRules[{place}]", self.policy)).collect()
    }

    /// Every set of rules that nodes of one group alone have.
    pub(super) fn of_groups(&self) -> BTreeSet<Vec<usize>> {
        self.groups.iter().map(|group| group.rules.iter().copied().collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::group::is_member;

    type Map = BTreeMap<String, String>;

    fn spec(targets: &[Option<Vec<&str>>]) -> Arc<OverridePolicySpec> {
        let rule = |(place, groups): (usize, &Option<Vec<&str>>)| {
            let mut rule = json!({"plaintext": [
                {"path": format!("/metadata/annotations/r{place}"), "operator": "add", "value": "x"}]});
            if let Some(groups) = groups {
                rule["targetNodeGroup"] = json!(groups);
            }
            rule
        };
        let rules: Vec<_> = targets.iter().enumerate().map(rule).collect();
        Arc::new(serde_json::from_value(json!({"overrideRules": rules})).unwrap())
    }

    fn group(nodes: &[&str], labels: &[(&str, &str)]) -> NodeGroupSpec {
        NodeGroupSpec { nodes: nodes.iter().map(ToString::to_string).collect(), match_labels: map(labels) }
    }

    fn map(labels: &[(&str, &str)]) -> Map {
        labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn a_node_in_several_groups_has_each_rule_once_in_list_order() {
        let spec = spec(&[Some(vec!["north"]), None, Some(vec!["EAST", "north"]), Some(vec!["west"])]);
        let groups = [
            ("east", group(&["b"], &[("zone", "e")])),
            ("north", group(&[], &[("climate", "cold"), ("zone", "n")])),
            ("other", group(&[], &[("rack", "1")])),
        ];
        let rules = GroupRules::new("OverridePolicy a/p".into(), spec, groups.iter().map(|(name, of)| (*name, of)));
        let on = |name: &str, labels: &[(&str, &str)]| {
            let labels = map(labels);
            rules.of(Node { name, labels: &labels, taints: &[] })
        };
        assert_eq!(on("a", &[]), [] as [usize; 0], "in no group, not even what is for all");
        assert_eq!(on("b", &[]), [1, 2]);
        assert_eq!(on("a", &[("zone", "n")]), [] as [usize; 0], "all labels of a group are needed");
        assert_eq!(on("b", &[("zone", "n"), ("climate", "cold")]), [0, 1, 2]);
        assert_eq!(on("a", &[("rack", "1")]), [1]);
        let places: Vec<String> = rules.edits(&[0, 1, 2]).iter().map(|edit| edit.source.to_string()).collect();
        let place = |number: usize| format!("OverridePolicy a/p spec.overrideRules[{number}].plaintext[0]");
        assert_eq!(places, [place(0), place(1), place(2)]);
        assert_eq!(rules.edits(&[1]).len(), 1);
        assert!(rules.edits(&[]).is_empty());
        let overriding = Overriding::By(Arc::new(rules));
        let keys: BTreeSet<&str> = overriding.label_keys().collect();
        assert_eq!(keys, ["climate", "rack", "zone"].into());
    }

    fn names() -> impl Strategy<Value = Vec<&'static str>> {
        proptest::sample::subsequence(vec!["g0", "g1", "g2", "g3"], 0..4)
    }

    fn labels() -> impl Strategy<Value = Map> {
        let label = (proptest::sample::select(vec!["x", "y"]), proptest::sample::select(vec!["1", "2"]));
        proptest::collection::vec(label, 0..3).prop_map(|labels| map(&labels))
    }

    proptest! {
        /// Against the definition: the edits are those of all groups that the node is a member of.
        #[test]
        fn rules_of_a_node_are_those_of_its_groups(
            targets in proptest::collection::vec(proptest::option::of(names()), 0..5),
            groups in proptest::collection::vec((proptest::sample::subsequence(vec!["a", "b"], 0..2), labels()), 0..5),
            node in proptest::sample::select(vec!["a", "b", "c"]),
            has in labels(),
        ) {
            let spec = spec(&targets);
            let groups: Vec<(String, NodeGroupSpec)> = groups.into_iter().enumerate().map(|(number, (nodes, labels))| {
                let nodes = nodes.into_iter().map(str::to_owned).collect();
                (format!("g{number}"), NodeGroupSpec { nodes, match_labels: labels })
            }).collect();
            let named = groups.iter().map(|(name, group)| (name.as_str(), group));
            let rules = GroupRules::new("p".into(), spec.clone(), named);
            let own = groups.iter().filter(|(_, group)| is_member(group, node, &has));
            let own: Vec<&str> = own.map(|(name, _)| name.as_str()).collect();
            let found = rules.of(Node { name: node, labels: &has, taints: &[] });
            prop_assert_eq!(rules.edits(&found), edits("p", &spec, &own));
        }
    }
}
