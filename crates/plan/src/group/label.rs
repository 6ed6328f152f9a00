//! The label by which pods select the nodes of a group that names nodes: such nodes have no label of their own in common.
//!
//! Invariant: it is taken off a node only when no pod that selects on it is left there. A kubelet that restarts fails running
//! pods whose selector does not match their node any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::syntax;

use crate::mutant::{Mutant, is_on};
use crate::node::Labels;

pub use dapple_api::group::NODE_LABEL_PREFIX as PREFIX;
/// What they say.
pub const VALUE: &str = "true";
/// A node has to be out of a group for so long before it loses the label: what comes back meanwhile costs no write, and a pod
/// that the scheduler was about to bind to it is there by then.
pub const LEAVES_AFTER: Duration = Duration::from_secs(60);

/// The label of a group.
#[must_use]
pub fn label(group: &str) -> String {
    format!("{PREFIX}{group}")
}

/// Labels that a node is to get, and those that it may lose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelChange {
    /// Those that it lacks.
    pub add: BTreeSet<String>,
    /// Those that no group gives it, and no pod on it selects on.
    pub remove: BTreeSet<String>,
}

impl LabelChange {
    /// What is to be changed on a node that is in these groups, and whose pods select on these labels.
    #[must_use]
    pub fn of(labels: &dyn Labels, groups: &BTreeSet<Arc<str>>, selected: &BTreeSet<Arc<str>>) -> Self {
        // What pods select on is kept and never given: who may only write pods must not put nodes into groups.
        let is_kept = |key: &str| selected.contains(key) && !is_on(Mutant::LabelTakenFromPods);
        // A group whose name is too long for a label has none: its nodes get those of others all the same.
        let wanted: BTreeSet<String> =
            groups.iter().map(|group| label(group)).filter(|label| syntax::key(label).is_ok()).collect();
        let mut remove = BTreeSet::new();
        labels.each(&mut |key, _| {
            if key.starts_with(PREFIX) && !wanted.contains(key) && !is_kept(key) {
                remove.insert(key.to_owned());
            }
        });
        let add = wanted.into_iter().filter(|key| labels.get(key) != Some(VALUE)).collect();
        Self { add, remove }
    }

    /// Whether there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn keys(keys: &[&str]) -> BTreeSet<Arc<str>> {
        keys.iter().map(|key| Arc::from(*key)).collect()
    }

    fn change(labels: &[(&str, &str)], groups: &[&str], selected: &[&str]) -> (Vec<String>, Vec<String>) {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let LabelChange { add, remove } = LabelChange::of(&labels, &keys(groups), &keys(selected));
        (add.into_iter().collect(), remove.into_iter().collect())
    }

    fn only(key: &str) -> Vec<String> {
        vec![key.to_owned()]
    }

    const NONE: Vec<String> = Vec::new();

    #[test]
    fn a_node_has_the_labels_of_its_groups_and_no_other() {
        assert_eq!(change(&[], &["east"], &[]), (only("group.dapple.dev/east"), NONE));
        assert_eq!(change(&[("group.dapple.dev/east", "true")], &["east"], &[]), (NONE, NONE));
        assert_eq!(change(&[("group.dapple.dev/east", "no")], &["east"], &[]), (only("group.dapple.dev/east"), NONE));
        let labels = [("group.dapple.dev/east", "true"), ("zone", "1")];
        assert_eq!(change(&labels, &[], &[]), (NONE, only("group.dapple.dev/east")));
    }

    #[test]
    fn a_label_that_a_pod_selects_on_stays_and_is_not_given() {
        let selected = ["group.dapple.dev/east", "zone"];
        assert_eq!(change(&[("group.dapple.dev/east", "true")], &[], &selected), (NONE, NONE));
        assert_eq!(change(&[], &[], &selected), (NONE, NONE), "pods do not put their nodes into groups");
    }

    #[test]
    fn a_name_that_is_too_long_for_a_label_keeps_no_other_from_its_own() {
        let long = "a".repeat(64);
        assert_eq!(change(&[], &["east", &long], &[]), (only("group.dapple.dev/east"), NONE));
    }
}
