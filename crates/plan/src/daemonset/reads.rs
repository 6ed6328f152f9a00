//! What of its nodes a DaemonSet reads: a node that changes in anything else is none of its business.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dapple_api::selector::Selector;

use super::desired::Variants;
use super::layout::Strategy;
use crate::fit::{OUT_OF_SERVICE, Taint};
use crate::node::NodeChange;

/// Labels and taints that a DaemonSet goes by. They follow from its strategy and from what nodes have of it today: a node
/// that gets something else makes it to be read anew.
#[derive(Debug, Default)]
pub struct Reads {
    labels: BTreeSet<String>,
    /// One for each variant: the taints that keep its pods away.
    fits: Vec<crate::fit::Fit>,
}

impl Reads {
    /// What is read for these variants.
    pub fn of<'v>(strategy: &Strategy, variants: impl Iterator<Item = &'v Variants>) -> Self {
        let mut reads = Self::default();
        let keys = |selector: &Selector| -> Vec<String> {
            selector.requirements().iter().map(|known| known.key.clone()).collect()
        };
        reads.labels.extend(strategy.selectors().flat_map(keys));
        for known in variants {
            reads.labels.extend(known.patches().iter().flat_map(|patch| keys(&patch.selector)));
            reads.labels.extend(known.overriding().label_keys().map(str::to_owned));
            for fit in known.fits() {
                reads.labels.extend(fit.label_keys().map(str::to_owned));
                reads.fits.push(fit.clone());
            }
        }
        reads
    }

    /// Whether a label matters.
    pub fn has_label(&self, key: &str) -> bool {
        self.labels.contains(key)
    }

    /// Every label that matters.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(String::as_str)
    }

    /// Whether it matters that a taint comes or goes.
    pub fn has_taint(&self, taint: &Taint) -> bool {
        taint.key == OUT_OF_SERVICE || self.fits.iter().any(|fit| fit.is_repelled_by(taint))
    }
}

/// All DaemonSets, by what they read of nodes.
#[derive(Debug)]
pub struct Readers<K> {
    /// What each reads; nothing where that is not known yet.
    sets: BTreeMap<K, Option<Reads>>,
    /// Those of which it is not known.
    blank: usize,
    /// By label: how many read it.
    counts: HashMap<String, usize>,
}

impl<K> Default for Readers<K> {
    fn default() -> Self {
        Self { sets: BTreeMap::new(), blank: 0, counts: HashMap::new() }
    }
}

impl<K: Ord + Clone> Readers<K> {
    /// What a DaemonSet reads from now on; nothing if that is yet to be found out.
    pub fn put(&mut self, set: K, reads: Option<Reads>) {
        // Before the old ones are given up: a label that both read stays in its place.
        for label in reads.iter().flat_map(Reads::labels) {
            *self.counts.entry(label.to_owned()).or_default() += 1;
        }
        self.blank += usize::from(reads.is_none());
        let before = self.sets.insert(set, reads);
        self.give_up(before);
    }

    /// A DaemonSet is gone.
    pub fn remove(&mut self, set: &K) {
        let before = self.sets.remove(set);
        self.give_up(before);
    }

    fn give_up(&mut self, before: Option<Option<Reads>>) {
        self.blank -= usize::from(matches!(before, Some(None)));
        for label in before.iter().flatten().flat_map(Reads::labels) {
            if let Some(count) = self.counts.get_mut(label) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(label);
                }
            }
        }
    }

    /// Whether it is known that there is such a DaemonSet.
    pub fn has(&self, set: &K) -> bool {
        self.sets.contains_key(set)
    }

    /// The DaemonSets that a change of a node concerns: those that read what has changed, and those of which it is not
    /// known what they read. Where nobody does, that costs no more than a look at each label.
    pub fn concerned(&self, change: &NodeChange) -> Vec<K> {
        let is_read = change.labels.iter().any(|label| self.counts.contains_key(label.as_ref()));
        if !is_read && self.blank == 0 && change.taints.is_empty() && !change.is_whole {
            return Vec::new();
        }
        let concerns = |reads: &Option<Reads>| {
            let Some(reads) = reads.as_ref().filter(|_| !change.is_whole) else { return true };
            change.labels.iter().any(|label| reads.has_label(label))
                || change.taints.iter().any(|taint| reads.has_taint(taint))
        };
        self.sets.iter().filter(|(_, reads)| concerns(reads)).map(|(set, _)| set.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn reads(labels: &[&str]) -> Option<Reads> {
        Some(Reads { labels: labels.iter().map(ToString::to_string).collect(), fits: Vec::new() })
    }

    fn label(key: &str) -> NodeChange {
        NodeChange { labels: vec![Arc::from(key)], ..NodeChange::default() }
    }

    #[test]
    fn a_change_concerns_those_who_read_it() {
        let mut readers = Readers::default();
        readers.put("a", reads(&["disk"]));
        readers.put("b", reads(&["disk", "gpu"]));
        assert_eq!(readers.concerned(&label("disk")), ["a", "b"]);
        assert_eq!(readers.concerned(&label("gpu")), ["b"]);
        assert!(readers.concerned(&label("rack")).is_empty());
        let whole = NodeChange { is_whole: true, ..NodeChange::default() };
        assert_eq!(readers.concerned(&whole), ["a", "b"]);
        let lost = Taint { key: OUT_OF_SERVICE.into(), value: String::new(), effect: "NoExecute".into() };
        assert_eq!(readers.concerned(&NodeChange { taints: vec![lost], ..NodeChange::default() }), ["a", "b"]);
    }

    #[test]
    fn one_of_which_nothing_is_known_is_concerned_by_everything() {
        let mut readers = Readers::default();
        readers.put("a", None);
        readers.put("b", reads(&["gpu"]));
        assert_eq!(readers.concerned(&label("rack")), ["a"]);
        readers.put("a", reads(&["disk"]));
        assert!(readers.concerned(&label("rack")).is_empty());
        readers.put("a", None);
        readers.remove(&"a");
        assert!(readers.concerned(&label("rack")).is_empty() && !readers.has(&"a"));
    }

    #[test]
    fn nothing_is_left_of_what_is_gone() {
        let mut readers = Readers::default();
        readers.put("a", reads(&["disk", "gpu"]));
        readers.put("a", reads(&["gpu"]));
        assert!(readers.concerned(&label("disk")).is_empty());
        assert_eq!(readers.concerned(&label("gpu")), ["a"]);
        readers.remove(&"a");
        assert!(readers.counts.is_empty() && readers.sets.is_empty());
    }
}
