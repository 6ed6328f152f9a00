//! Which nodes belong to which NodeGroup.
//!
//! [`Membership`] is an index that is kept true one change at a time: a node that comes, goes or is relabelled costs
//! its own labels and the groups that name one of them, never the whole fleet. A new or changed group is held against
//! every node once, because a selector nobody has asked before has no answer yet.
//!
//! Invariant: after any sequence of changes, the members of a group are exactly the nodes for which
//! [`Rule::matches`] holds. The property test below checks it against that definition.

pub mod binding;
pub mod costs;
pub mod disruption;
pub mod division;
pub mod edition;
pub mod editions;
pub mod extender;
pub mod filter;
pub mod gate;
pub mod label;
pub mod open;
pub mod placing;
pub mod repair;
pub mod replacing;
pub mod rollout;
pub mod running;
pub mod seating;
pub mod standing;
pub mod status;
pub mod version;
pub mod volumes;
pub mod why;
pub mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{NodeGroupSpec, NodeGroupStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::condition::condition;
use crate::node::Labels;

/// The condition of a NodeGroup that says whether the nodes it asks for are there.
pub const NODES_FOUND: &str = "NodesFound";

/// The condition of a NodeGroup that says whether its nodes are in no other group.
pub const EXCLUSIVE: &str = "Exclusive";

/// The most nodes that a message names one by one.
const NAMED_IN_MESSAGE: usize = 5;

/// What a NodeGroup selects: the union of nodes by name and nodes by label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Nodes named one by one.
    pub nodes: BTreeSet<String>,
    /// Nodes that carry all of these labels. Empty selects nothing: an empty map must not sweep up the whole fleet.
    pub match_labels: BTreeMap<String, String>,
}

impl From<&NodeGroupSpec> for Rule {
    fn from(spec: &NodeGroupSpec) -> Self {
        Self { nodes: spec.nodes.iter().cloned().collect(), match_labels: spec.match_labels.clone() }
    }
}

impl Rule {
    /// The definition of membership, for one node.
    pub fn matches(&self, node: &str, labels: &dyn Labels) -> bool {
        self.nodes.contains(node) || self.matches_labels(labels)
    }

    fn matches_labels(&self, labels: &dyn Labels) -> bool {
        has_all(&self.match_labels, labels)
    }
}

/// Whether a node is in a group: as [`Rule::matches`] says, of one that is asked for once.
pub fn is_member(group: &NodeGroupSpec, node: &str, labels: &dyn Labels) -> bool {
    group.nodes.iter().any(|named| named == node) || has_all(&group.match_labels, labels)
}

/// Whether a node has all of these labels, and there are some.
pub(crate) fn has_all(wanted: &BTreeMap<String, String>, labels: &dyn Labels) -> bool {
    !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// What the status of a NodeGroup should say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roll {
    /// Names of all member nodes, sorted.
    pub members: Vec<String>,
    /// Names in the group's `nodes` that no node has, sorted.
    pub missing: Vec<String>,
    /// Whether the group asks for nothing: neither names nor labels.
    pub asks_nothing: bool,
    /// Members that are in other groups too.
    pub shared: Shared,
}

/// Members of a group that are in other groups too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shared {
    /// How many there are.
    pub count: usize,
    /// The first of them by name, each with its other groups: as many as a message names.
    pub first: Vec<(String, Vec<String>)>,
}

/// The status that says what `roll` says, for this generation of the group. A condition that stays keeps its time, so
/// equal facts give an equal status and need no write.
pub fn status(roll: Roll, generation: Option<i64>, before: Option<&NodeGroupStatus>, now: &Time) -> NodeGroupStatus {
    let known = before.map(|before| before.conditions.as_slice()).unwrap_or_default();
    let (found, reason, message) = match (roll.missing.as_slice(), roll.members.len()) {
        ([], 0) if roll.asks_nothing => (false, "NothingAskedFor", "Set spec.nodes or spec.matchLabels.".to_owned()),
        ([], 0) => (false, "NoNodes", "No node has the labels in spec.matchLabels.".to_owned()),
        ([], count) => (true, "NodesFound", format!("The group has {count} node{}.", plural(count))),
        (missing, _) => (false, "NodesMissing", missing_message(missing)),
    };
    let exclusive = match roll.shared.count {
        0 => (EXCLUSIVE, true, "NoNodeShared", "No node of the group is in another group.".to_owned()),
        _ => (EXCLUSIVE, false, "NodesShared", shared_message(&roll.shared)),
    };
    let all = [(NODES_FOUND, found, reason, message), exclusive];
    let conditions = all.into_iter().map(|found| condition(found, generation, known, now)).collect();
    NodeGroupStatus {
        node_count: i32::try_from(roll.members.len()).unwrap_or(i32::MAX),
        contained_nodes: roll.members,
        observed_generation: generation,
        conditions,
    }
}

fn missing_message(missing: &[String]) -> String {
    let named = missing.iter().take(NAMED_IN_MESSAGE).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = missing.len().saturating_sub(NAMED_IN_MESSAGE);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("No such node{}: {named}{rest}. Correct spec.nodes, or wait until they join.", plural(missing.len()))
}

fn shared_message(shared: &Shared) -> String {
    let named: Vec<String> =
        shared.first.iter().map(|(node, groups)| format!("{node} ({})", groups.join(", "))).collect();
    let more = shared.count.saturating_sub(named.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let are = if shared.count == 1 { "node is" } else { "nodes are" };
    format!("{} {are} in other groups too: {}{rest}.", shared.count, named.join(", "))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Groups and their members, kept true change by change.
#[derive(Debug, Default)]
pub struct Membership {
    groups: BTreeMap<Arc<str>, Group>,
    /// Groups by one label each must have: the first of its `match_labels`. One is enough to find every candidate.
    by_label: BTreeMap<(String, String), BTreeSet<Arc<str>>>,
    by_node_name: BTreeMap<String, BTreeSet<Arc<str>>>,
    nodes: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

#[derive(Debug, Default)]
struct Group {
    rule: Rule,
    members: BTreeSet<Arc<str>>,
}

impl Membership {
    /// Takes in that a node appeared or has these labels now. Returns the groups whose roll may say something else: those it
    /// joined, left or newly exists for, and then all others it is in.
    pub fn node_changed(&mut self, node: &str, labels: &dyn Labels) -> BTreeSet<Arc<str>> {
        let mut now = self.by_node_name.get(node).cloned().unwrap_or_default();
        labels.each(&mut |key, value| {
            let candidates = self.by_label.get(&(key.to_owned(), value.to_owned()));
            for group in candidates.into_iter().flatten() {
                if self.groups.get(group).is_some_and(|known| known.rule.matches_labels(labels)) {
                    now.insert(group.clone());
                }
            }
        });
        let name: Arc<str> = Arc::from(node);
        let before = self.nodes.insert(name.clone(), now.clone()).unwrap_or_default();
        let changed: BTreeSet<_> = before.symmetric_difference(&now).cloned().collect();
        for group in &changed {
            let Some(entry) = self.groups.get_mut(group) else { continue };
            if now.contains(group) {
                entry.members.insert(name.clone())
            } else {
                entry.members.remove(node)
            };
        }
        if changed.is_empty() { changed } else { before.union(&now).cloned().collect() }
    }

    /// Takes in that a node is gone. Returns the groups it was a member of.
    pub fn node_removed(&mut self, node: &str) -> BTreeSet<Arc<str>> {
        let left = self.nodes.remove(node).unwrap_or_default();
        for group in &left {
            if let Some(entry) = self.groups.get_mut(group) {
                entry.members.remove(node);
            }
        }
        left
    }

    /// Takes in that a group selects this now. If that is new, holds it against every node once: `fleet` is called to
    /// visit them, and only then. Returns the other groups that share a node with it, or did.
    pub fn group_changed(
        &mut self,
        group: &str,
        rule: Rule,
        fleet: impl FnOnce(&mut dyn FnMut(&str, &dyn Labels)),
    ) -> BTreeSet<Arc<str>> {
        if self.groups.get(group).is_some_and(|known| known.rule == rule) {
            return BTreeSet::new();
        }
        let mut neighbours = self.group_removed(group);
        let name: Arc<str> = Arc::from(group);
        for node in &rule.nodes {
            self.by_node_name.entry(node.clone()).or_default().insert(name.clone());
        }
        if let Some((key, value)) = rule.match_labels.first_key_value() {
            self.by_label.entry((key.clone(), value.clone())).or_default().insert(name.clone());
        }
        let mut entry = Group { rule, members: BTreeSet::new() };
        fleet(&mut |node, labels| {
            if entry.rule.matches(node, labels) {
                let node: Arc<str> = Arc::from(node);
                let groups = self.nodes.entry(node.clone()).or_default();
                neighbours.extend(groups.iter().cloned());
                groups.insert(name.clone());
                entry.members.insert(node);
            }
        });
        self.groups.insert(name, entry);
        neighbours
    }

    /// Takes in that a group is gone. Returns the other groups that shared a node with it.
    pub fn group_removed(&mut self, group: &str) -> BTreeSet<Arc<str>> {
        let mut neighbours = BTreeSet::new();
        let Some(Group { rule, members }) = self.groups.remove(group) else { return neighbours };
        for node in &rule.nodes {
            remove_from(&mut self.by_node_name, node, group);
        }
        if let Some((key, value)) = rule.match_labels.first_key_value() {
            remove_from(&mut self.by_label, &(key.clone(), value.clone()), group);
        }
        for node in members {
            if let Some(groups) = self.nodes.get_mut(&node) {
                groups.remove(group);
                neighbours.extend(groups.iter().cloned());
            }
        }
        neighbours
    }

    /// The nodes of a group.
    pub fn members(&self, group: &str) -> BTreeSet<Arc<str>> {
        self.groups.get(group).map(|known| known.members.clone()).unwrap_or_default()
    }

    /// The groups that a node is in.
    pub fn groups_of(&self, node: &str) -> BTreeSet<Arc<str>> {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    /// What the status of this group should say, or `None` for a group that is not known.
    pub fn roll(&self, group: &str) -> Option<Roll> {
        let Group { rule, members } = self.groups.get(group)?;
        Some(Roll {
            members: members.iter().map(|node| node.to_string()).collect(),
            missing: rule.nodes.iter().filter(|node| !members.contains(node.as_str())).cloned().collect(),
            asks_nothing: *rule == Rule::default(),
            shared: self.shared(group, members),
        })
    }

    fn shared(&self, group: &str, members: &BTreeSet<Arc<str>>) -> Shared {
        let others = |node: &Arc<str>| -> Vec<String> {
            let groups = self.nodes.get(node).into_iter().flatten();
            groups.filter(|other| ***other != *group).map(|other| other.to_string()).collect()
        };
        let is_shared = |node: &&Arc<str>| self.nodes.get(*node).is_some_and(|groups| groups.len() > 1);
        let mut shared = Shared::default();
        for node in members.iter().filter(is_shared) {
            shared.count += 1;
            if shared.first.len() < NAMED_IN_MESSAGE {
                shared.first.push((node.to_string(), others(node)));
            }
        }
        shared
    }
}

/// Takes `group` out of the set at `key`, and the set out of the map once it is empty.
fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<Arc<str>>>, key: &K, group: &str) {
    if let Some(set) = map.get_mut(key) {
        set.remove(group);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Map = BTreeMap<String, String>;

    fn labels(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn rule(nodes: &[&str], pairs: &[(&str, &str)]) -> Rule {
        Rule { nodes: nodes.iter().map(|n| n.to_string()).collect(), match_labels: labels(pairs) }
    }

    fn names(set: BTreeSet<Arc<str>>) -> Vec<String> {
        set.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn names_and_labels_are_a_union() {
        let both = rule(&["a"], &[("zone", "1")]);
        assert!(both.matches("a", &labels(&[])));
        assert!(both.matches("b", &labels(&[("zone", "1"), ("x", "y")])));
        assert!(!both.matches("b", &labels(&[("zone", "2")])));
    }

    #[test]
    fn empty_rule_selects_nothing() {
        assert!(!Rule::default().matches("a", &labels(&[("zone", "1")])));
    }

    #[test]
    fn a_node_is_reported_to_the_groups_it_joins_and_leaves() {
        let mut index = Membership::default();
        for (group, zone) in [("one", "1"), ("two", "2")] {
            index.group_changed(group, rule(&[], &[("zone", zone)]), |_| {});
        }
        assert_eq!(names(index.node_changed("a", &labels(&[("zone", "1")]))), ["one"]);
        assert!(index.node_changed("a", &labels(&[("zone", "1"), ("other", "x")])).is_empty());
        assert_eq!(names(index.node_changed("a", &labels(&[("zone", "2")]))), ["one", "two"]);
        assert_eq!(names(index.node_removed("a")), ["two"]);
        assert_eq!(index.roll("two").unwrap(), Roll::default());
        assert_eq!(index.roll("three"), None);
    }

    #[test]
    fn a_group_that_did_not_change_does_not_look_at_the_fleet() {
        let mut index = Membership::default();
        index.group_changed("g", rule(&["a"], &[]), |_| {});
        index.group_changed("g", rule(&["a"], &[]), |_| panic!("the fleet was visited"));
    }

    #[test]
    fn named_nodes_that_do_not_exist_are_told_apart() {
        let mut index = Membership::default();
        index.group_changed("g", rule(&["a", "ghost"], &[]), |visit| visit("a", &labels(&[])));
        assert_eq!(
            index.roll("g").unwrap(),
            Roll { members: vec!["a".into()], missing: vec!["ghost".into()], ..Roll::default() }
        );
        assert_eq!(names(index.node_changed("ghost", &labels(&[]))), ["g"]);
        assert!(index.roll("g").unwrap().missing.is_empty());
    }

    #[test]
    fn groups_that_share_a_node_are_told_of_each_other() {
        let mut index = Membership::default();
        let fleet = |visit: &mut dyn FnMut(&str, &dyn Labels)| visit("a", &labels(&[("zone", "1")]));
        assert!(index.group_changed("one", rule(&["a"], &[]), fleet).is_empty());
        assert_eq!(names(index.group_changed("two", rule(&[], &[("zone", "1")]), fleet)), ["one"]);
        let shared = |index: &Membership, group: &str| index.roll(group).unwrap().shared;
        let with = |other: &str| Shared { count: 1, first: vec![("a".into(), vec![other.into()])] };
        assert_eq!((shared(&index, "one"), shared(&index, "two")), (with("two"), with("one")));
        assert_eq!(names(index.node_changed("a", &labels(&[("zone", "2")]))), ["one", "two"], "both say another thing");
        assert_eq!(shared(&index, "one"), Shared::default());
        index.node_changed("a", &labels(&[("zone", "1")]));
        assert_eq!(names(index.group_removed("two")), ["one"]);
        assert_eq!(shared(&index, "one"), Shared::default());
    }

    #[test]
    fn a_status_names_nodes_that_are_in_several_groups() {
        let said = |count: usize| {
            let first = (0..count.min(NAMED_IN_MESSAGE)).map(|node| (format!("n{node}"), vec!["b".into(), "c".into()]));
            let roll = Roll { shared: Shared { count, first: first.collect() }, ..Roll::default() };
            let condition = status(roll, Some(2), None, &time(1)).conditions.remove(1);
            (condition.type_, condition.status, condition.reason, condition.message)
        };
        let expect = |status: &str, reason: &str, message: &str| {
            ("Exclusive".to_owned(), status.to_owned(), reason.to_owned(), message.to_owned())
        };
        assert_eq!(said(0), expect("True", "NoNodeShared", "No node of the group is in another group."));
        assert_eq!(said(1), expect("False", "NodesShared", "1 node is in other groups too: n0 (b, c)."));
        let message =
            "7 nodes are in other groups too: n0 (b, c), n1 (b, c), n2 (b, c), n3 (b, c), n4 (b, c) and 2 more.";
        assert_eq!(said(7), expect("False", "NodesShared", message));
    }

    fn time(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_status_says_what_is_there_and_what_is_missing() {
        let roll = |members: &[&str], missing: usize| Roll {
            members: members.iter().map(|n| n.to_string()).collect(),
            missing: (0..missing).map(|n| format!("ghost-{n}")).collect(),
            ..Roll::default()
        };
        let said = |roll| {
            let status = status(roll, Some(2), None, &time(1));
            (status.node_count, status.conditions[0].reason.clone(), status.conditions[0].message.clone())
        };
        assert_eq!(said(roll(&["a"], 0)), (1, "NodesFound".into(), "The group has 1 node.".into()));
        let message = "No node has the labels in spec.matchLabels.";
        assert_eq!(said(roll(&[], 0)), (0, "NoNodes".into(), message.into()));
        let nothing = Roll { asks_nothing: true, ..Roll::default() };
        assert_eq!(said(nothing), (0, "NothingAskedFor".into(), "Set spec.nodes or spec.matchLabels.".into()));
        let message = "No such nodes: ghost-0, ghost-1, ghost-2, ghost-3, ghost-4 and 2 more. \
                       Correct spec.nodes, or wait until they join.";
        assert_eq!(said(roll(&["a", "b"], 7)), (2, "NodesMissing".into(), message.into()));
    }

    #[test]
    fn equal_facts_give_an_equal_status() {
        let roll = || Roll { members: vec!["a".into()], ..Roll::default() };
        let first = status(roll(), Some(1), None, &time(1));
        assert_eq!(status(roll(), Some(1), Some(&first), &time(2)), first);
        let changed = status(Roll::default(), Some(1), Some(&first), &time(2));
        assert_eq!(changed.conditions[0].last_transition_time, time(2));
    }

    #[derive(Debug, Clone)]
    enum Change {
        Node(u8, Vec<(u8, u8)>),
        NodeGone(u8),
        Group(u8, Vec<u8>, Vec<(u8, u8)>),
        GroupGone(u8),
    }

    fn change() -> impl Strategy<Value = Change> {
        let pairs = || proptest::collection::vec((0..3u8, 0..3u8), 0..3);
        prop_oneof![
            4 => (0..6u8, pairs()).prop_map(|(node, labels)| Change::Node(node, labels)),
            1 => (0..6u8).prop_map(Change::NodeGone),
            2 => (0..4u8, proptest::collection::vec(0..6u8, 0..3), pairs()).prop_map(|(g, n, l)| Change::Group(g, n, l)),
            1 => (0..4u8).prop_map(Change::GroupGone),
        ]
    }

    fn map_of(pairs: &[(u8, u8)]) -> Map {
        pairs.iter().map(|(k, v)| (format!("k{k}"), format!("v{v}"))).collect()
    }

    proptest! {
        /// Whatever happened in whatever order, the index says what the definition says.
        #[test]
        fn index_equals_definition(changes in proptest::collection::vec(change(), 1..60)) {
            let (mut index, mut nodes, mut groups) = (Membership::default(), BTreeMap::new(), BTreeMap::new());
            for change in changes {
                match change {
                    Change::Node(node, pairs) => {
                        let (node, labels) = (format!("n{node}"), map_of(&pairs));
                        index.node_changed(&node, &labels);
                        nodes.insert(node, labels);
                    }
                    Change::NodeGone(node) => {
                        index.node_removed(&format!("n{node}"));
                        nodes.remove(&format!("n{node}"));
                    }
                    Change::Group(group, named, pairs) => {
                        let nodes_named = named.iter().map(|n| format!("n{n}")).collect();
                        let rule = Rule { nodes: nodes_named, match_labels: map_of(&pairs) };
                        let group = format!("g{group}");
                        index.group_changed(&group, rule.clone(), |visit| {
                            nodes.iter().for_each(|(node, labels)| visit(node, labels));
                        });
                        groups.insert(group, rule);
                    }
                    Change::GroupGone(group) => {
                        index.group_removed(&format!("g{group}"));
                        groups.remove(&format!("g{group}"));
                    }
                }
                for (group, rule) in &groups {
                    let members: Vec<String> =
                        nodes.iter().filter(|(n, l)| rule.matches(n, *l)).map(|(n, _)| n.clone()).collect();
                    let missing: Vec<String> =
                        rule.nodes.iter().filter(|n| !nodes.contains_key(*n)).cloned().collect();
                    let asks_nothing = rule.nodes.is_empty() && rule.match_labels.is_empty();
                    let is_shared = |node: &&String| {
                        groups.iter().any(|(other, rule)| other != group && rule.matches(node, &nodes[*node]))
                    };
                    let roll = index.roll(group).unwrap();
                    prop_assert_eq!(roll.shared.count, members.iter().filter(is_shared).count());
                    let shared = roll.shared.clone();
                    prop_assert_eq!(roll, Roll { members, missing, asks_nothing, shared });
                }
                prop_assert_eq!(index.groups.len(), groups.len());
            }
        }
    }
}
