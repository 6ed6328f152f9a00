//! What stands against a pod's getting the marks of a marker: for the marker such a pod does not match, and it looks for another.
//!
//! Invariants:
//! - Over one key with different values the older marker wins, whatever the policy and whoever was there first.
//! - No pod loses a label that its owner selects on.

use std::sync::Arc;

use dapple_api::marker::{ConflictPolicy, MarkItems};
use dapple_edit::marker::{OwnerKeys, Place, wanted};

use super::rule::{Rule, Rules};
use super::standing::Pod;
use crate::mutant::{Mutant, is_on};

/// What deleting a pod costs. Where a PropagationPolicy divides pods, it is the policy's.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What stands against marking a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// What it is.
    pub cause: Cause,
    /// The key that it is about.
    pub key: Arc<str>,
}

/// Why a key cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// An older marker sets it to another value.
    Marker(Arc<str>),
    /// It has another value, and the marker does not overwrite.
    Value,
    /// The pod's owner selects on it.
    OwnersLabel,
    /// It has another value, and the pod's owner could not be read: it may select on it.
    UnreadOwner,
    /// A PropagationPolicy sets it.
    Policy,
}

/// What stands against giving a pod the marks of a marker; nothing if it may have all of them. `rules` are the markers of the
/// namespace: only those that are there are older or younger than others, what one has left that is deleted is a value like any.
#[must_use]
pub fn clash(rule: &Rule, pod: &Pod<'_>, rules: &Rules) -> Option<Clash> {
    wanted(&rule.items).find_map(|(place, key, value)| {
        let cause = cause(rule, pod, rules, (place, key, value))?;
        Some(Clash { cause, key: Arc::from(key) })
    })
}

fn cause(rule: &Rule, pod: &Pod<'_>, rules: &Rules, (place, key, value): (Place, &str, &str)) -> Option<Cause> {
    let older = pod.record.at(place, key).find_map(|entry| {
        let other = rules.get(entry.marker.as_str()).filter(|other| other.age < rule.age)?;
        value_in(&other.items, place, key).filter(|theirs| *theirs != value).map(|_| other.age.name.clone())
    });
    if let Some(older) = older {
        return Some(Cause::Marker(older));
    }
    let now = pod.value(place, key);
    if now == Some(value) {
        return None;
    }
    if place == Place::Label && pod.owner.has(key) {
        return Some(Cause::OwnersLabel);
    }
    if place == Place::Annotation && key == DELETION_COST && pod.is_divided {
        return Some(Cause::Policy);
    }
    let is_own_or_younger =
        |name: &str| rules.get(name).is_some_and(|other| other.age >= rule.age) || name == rule.name();
    let found = pod.record.without(&is_own_or_younger, place, key, now).filter(|found| *found != value);
    match (found, rule.policy) {
        (None, _) => None,
        (Some(_), _) if place == Place::Label && *pod.owner == OwnerKeys::Unread => Some(Cause::UnreadOwner),
        (Some(_), ConflictPolicy::Ignore) if !is_on(Mutant::ConflictsIgnored) => Some(Cause::Value),
        (Some(_), ConflictPolicy::Ignore) => None,
        (Some(_), ConflictPolicy::Overwrite) => None,
    }
}

fn value_in<'i>(items: &'i MarkItems, place: Place, key: &str) -> Option<&'i str> {
    let keys = match place {
        Place::Label => &items.labels,
        Place::Annotation => &items.annotations,
    };
    keys.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{SomePod, rule, rules};
    use super::*;

    fn cause_of(rules: &Rules, marker: &str, pod: &SomePod) -> Option<Cause> {
        pod.look(|pod| clash(&rules[marker], pod, rules).map(|clash| clash.cause))
    }

    fn marker(name: &str, created: i64, policy: &str, value: &str) -> Rule {
        rule(name, created, json!({"strategy": {"conflictPolicy": policy}, "markItems": {"labels": {"k": value}}}))
    }

    #[test]
    fn the_policy_says_what_becomes_of_pods_with_another_value() {
        let rules = rules([marker("ignores", 1, "Ignore", "1"), marker("overwrites", 2, "Overwrite", "1")]);
        let pod = SomePod::default().label("k", "theirs");
        assert_eq!(cause_of(&rules, "ignores", &pod), Some(Cause::Value));
        assert_eq!(cause_of(&rules, "overwrites", &pod), None);
        for free in [SomePod::default(), SomePod::default().label("k", "1")] {
            assert_eq!(cause_of(&rules, "ignores", &free), None);
        }
    }

    #[test]
    fn over_one_key_the_older_marker_wins_whoever_was_there_first() {
        for policy in ["Ignore", "Overwrite"] {
            let rules = rules([marker("old", 1, policy, "1"), marker("young", 2, policy, "2")]);
            let mut pod = SomePod::default();
            pod.mark(&rules["young"]);
            assert_eq!(cause_of(&rules, "young", &pod), None);
            assert_eq!(cause_of(&rules, "old", &pod), None, "marks of the younger stand against nothing ({policy})");
            pod.mark(&rules["old"]);
            assert_eq!(cause_of(&rules, "old", &pod), None);
            assert_eq!(cause_of(&rules, "young", &pod), Some(Cause::Marker(Arc::from("old"))), "{policy}");
            pod.unmark(&rules["young"]);
            assert_eq!(cause_of(&rules, "young", &pod), Some(Cause::Marker(Arc::from("old"))), "{policy}");
        }
    }

    #[test]
    fn of_markers_that_are_as_old_the_name_decides() {
        let rules = rules([marker("a", 1, "Overwrite", "1"), marker("b", 1, "Overwrite", "2")]);
        let mut pod = SomePod::default();
        pod.mark(&rules["a"]);
        assert_eq!(cause_of(&rules, "b", &pod), Some(Cause::Marker(Arc::from("a"))));
        assert_eq!(cause_of(&rules, "a", &pod), None);
    }

    #[test]
    fn equal_values_of_markers_are_shared() {
        let rules = rules([marker("old", 1, "Ignore", "1"), marker("young", 2, "Ignore", "1")]);
        let mut pod = SomePod::default();
        pod.mark(&rules["old"]);
        assert_eq!(cause_of(&rules, "young", &pod), None);
    }

    #[test]
    fn what_a_deleted_marker_has_left_is_a_value_like_any() {
        let gone = marker("gone", 1, "Overwrite", "1");
        let rules = rules([marker("ignores", 2, "Ignore", "2"), marker("overwrites", 3, "Overwrite", "2")]);
        let mut pod = SomePod::default();
        pod.mark(&gone);
        assert_eq!(cause_of(&rules, "ignores", &pod), Some(Cause::Value));
        assert_eq!(cause_of(&rules, "overwrites", &pod), None);
    }

    #[test]
    fn a_marker_with_other_items_by_now_does_not_stand_against_its_own() {
        let mut pod = SomePod::default();
        pod.mark(&marker("m", 1, "Ignore", "1"));
        let rules = rules([marker("m", 1, "Ignore", "2")]);
        assert_eq!(cause_of(&rules, "m", &pod), None, "no mark moves when items change");
    }

    #[test]
    fn labels_of_the_owner_are_not_touched() {
        let rules = rules([marker("m", 1, "Overwrite", "1")]);
        let owned = |pod: SomePod| pod.owned_by(&["app", "k"]);
        assert_eq!(cause_of(&rules, "m", &owned(SomePod::default().label("k", "0"))), Some(Cause::OwnersLabel));
        assert_eq!(
            cause_of(&rules, "m", &owned(SomePod::default())),
            Some(Cause::OwnersLabel),
            "it may ask that there is none"
        );
        assert_eq!(cause_of(&rules, "m", &owned(SomePod::default().label("k", "1"))), None, "there is nothing to set");
        let unread = |pod: SomePod| SomePod { owner: OwnerKeys::Unread, ..pod };
        assert_eq!(cause_of(&rules, "m", &unread(SomePod::default().label("k", "0"))), Some(Cause::UnreadOwner));
        assert_eq!(cause_of(&rules, "m", &unread(SomePod::default())), None);
        let mut own = SomePod::default();
        own.mark(&marker("m", 1, "Overwrite", "0"));
        assert_eq!(cause_of(&rules, "m", &unread(own)), None, "the label that it has is the marker's own");
    }

    #[test]
    fn the_cost_of_deletion_may_be_a_mark_but_where_a_policy_divides_pods() {
        let cost = |cost: &str| -> Value { json!({"annotations": {DELETION_COST: cost}}) };
        let rules = rules([rule("m", 1, json!({"strategy": {"conflictPolicy": "Overwrite"}, "markItems": cost("7")}))]);
        let pod = SomePod::default().annotation(DELETION_COST, "-3");
        assert_eq!(cause_of(&rules, "m", &pod), None);
        let divided = |pod: SomePod| SomePod { is_divided: true, ..pod };
        assert_eq!(cause_of(&rules, "m", &divided(pod)), Some(Cause::Policy));
        assert_eq!(cause_of(&rules, "m", &divided(SomePod::default().annotation(DELETION_COST, "7"))), None);
    }
}
