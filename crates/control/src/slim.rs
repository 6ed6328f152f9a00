//! Objects as dapple keeps them: only what decisions read, with every repeated string held once.
//!
//! A fleet's objects are alike: ten thousand nodes share a few hundred label keys and values, thirty thousand pods a few
//! images. Keeping each distinct string once is what makes a cached Node a few hundred bytes instead of tens of
//! kilobytes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

mod cached;
mod crd;
mod hashes;
mod meta;
mod node;
mod pod;
mod revision;
mod set;

pub use cached::{Cached, Index, read};
pub use crd::{Crd, CrdWire};
pub use hashes::Hashes;
pub use meta::{Key, Meta};
pub use node::{Node, NodeWire, PoolAttributes, Taint, TaintEffect};
pub use pod::{Condition, ConditionStatus, Container, Pod, PodWire, ReadinessGate};
pub use revision::{ControllerRef, Revision, RevisionWire};
pub(crate) use set::selected;
pub use set::{Set, SetWire};

/// Hands out one shared copy of each distinct string. It belongs to one cache: nothing is process-wide.
#[derive(Debug, Default)]
pub struct Interner {
    strings: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Interner {
    /// The shared copy of `text`.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        let shared: Arc<str> = Arc::from(text);
        self.sweep();
        self.strings.insert(shared.clone());
        shared
    }

    /// Drops strings that no object holds any more, each time their number has doubled: values that never repeat
    /// (hashes, times) would otherwise pile up for as long as the process lives.
    fn sweep(&mut self) {
        if self.strings.len() >= self.sweep_at.max(1024) {
            self.strings.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = self.strings.len() * 2;
        }
    }

    /// Number of distinct strings held.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether no string is held.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}

/// Labels or annotations: sorted pairs of shared strings, in one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StringMap(Box<[(Arc<str>, Arc<str>)]>);

impl StringMap {
    /// Shares the pairs of `map`. A BTreeMap is sorted, so lookups can be by bisection.
    pub fn new(map: &BTreeMap<String, String>, strings: &mut Interner) -> Self {
        Self(map.iter().map(|(key, value)| (strings.share(key), strings.share(value))).collect())
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| known.as_ref().cmp(key)).ok()?;
        Some(self.0[found].1.as_ref())
    }

    /// The value of `key`, shared.
    pub fn get_shared(&self, key: &str) -> Option<Arc<str>> {
        let found = self.0.binary_search_by(|(known, _)| known.as_ref().cmp(key)).ok()?;
        Some(self.0[found].1.clone())
    }

    /// Keys that only one of two maps has, or that have another value in the other.
    pub fn changed_keys(&self, other: &Self) -> Vec<Arc<str>> {
        let (mut one, mut two) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut changed = Vec::new();
        loop {
            let order = match (one.peek(), two.peek()) {
                (None, None) => return changed,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                // Strings of one cache are shared: most are found to be the same without being read.
                (Some((a, _)), Some((b, _))) if Arc::ptr_eq(a, b) => Ordering::Equal,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            match order {
                Ordering::Less => changed.extend(one.next().map(|(key, _)| key.clone())),
                Ordering::Greater => changed.extend(two.next().map(|(key, _)| key.clone())),
                Ordering::Equal => {
                    let (before, after) = (one.next().map(|(_, value)| value), two.next());
                    let differs = |(_, value): &&(Arc<str>, Arc<str>)| {
                        before.is_none_or(|before| !Arc::ptr_eq(before, value) && before != value)
                    };
                    changed.extend(after.filter(differs).map(|(key, _)| key.clone()));
                }
            }
        }
    }

    /// Every pair, by key, shared.
    pub fn iter_shared(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
        self.0.iter().cloned()
    }

    /// Every pair, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

impl dapple_plan::node::Labels for StringMap {
    fn get(&self, key: &str) -> Option<&str> {
        StringMap::get(self, key)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (key, value) in self.iter() {
            visit(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one() {
        let mut strings = Interner::default();
        assert!(Arc::ptr_eq(&strings.share("zone"), &strings.share("zone")));
        assert_eq!(strings.len(), 1);
    }

    #[test]
    fn strings_that_nobody_holds_are_dropped() {
        let mut strings = Interner::default();
        let kept = strings.share("kept");
        for number in 0..10_000 {
            strings.share(&number.to_string());
        }
        assert!(strings.len() < 3_000, "{} strings", strings.len());
        assert!(Arc::ptr_eq(&kept, &strings.share("kept")));
    }

    #[test]
    fn maps_find_their_keys() {
        let map = BTreeMap::from([("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]);
        let slim = StringMap::new(&map, &mut Interner::default());
        assert_eq!((slim.get("a"), slim.get("b"), slim.get("c")), (Some("1"), Some("2"), None));
        assert_eq!(slim.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn what_two_maps_differ_in_is_found() {
        let mut strings = Interner::default();
        let mut map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            StringMap::new(&pairs, &mut strings)
        };
        let one = map(&[("a", "1"), ("b", "1"), ("d", "1")]);
        let other = map(&[("b", "2"), ("c", "1"), ("d", "1"), ("e", "1")]);
        let changed = |one: &StringMap, other: &StringMap| {
            one.changed_keys(other).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(changed(&one, &other), ["a", "b", "c", "e"]);
        assert_eq!(changed(&other, &one), ["a", "b", "c", "e"]);
        assert_eq!(changed(&one, &one), Vec::<String>::new());
    }
}
