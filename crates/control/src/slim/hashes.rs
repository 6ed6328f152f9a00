//! Annotations that are not kept as text: enough of each to know whether an object has it, and whether with some value.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Of each annotation a hash of its key, and one of key and value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hashes(Box<[(u64, u64)]>);

impl Hashes {
    /// Of these annotations.
    pub(super) fn of(annotations: &BTreeMap<String, String>) -> Self {
        let pair = |(key, value): (&String, &String)| (hash_of(key), hash_of_pair(key, value));
        Self(annotations.iter().map(pair).collect())
    }

    /// Whether there is an annotation of this key.
    pub fn has(&self, key: &str) -> bool {
        !self.0.is_empty() && self.0.iter().any(|(known, _)| *known == hash_of(key))
    }

    /// Whether there is this annotation with this value.
    pub fn has_pair(&self, key: &str, value: &str) -> bool {
        !self.0.is_empty() && self.0.iter().any(|(_, known)| *known == hash_of_pair(key, value))
    }
}

fn hash_of(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Of an annotation with its value.
pub(super) fn hash_of_pair(key: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_pairs_are_known_again() {
        let map = BTreeMap::from([("a", "1"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned())));
        let hashes = Hashes::of(&map);
        assert!(hashes.has("a") && hashes.has("b") && !hashes.has("c") && !hashes.has("1"));
        assert!(hashes.has_pair("a", "1") && !hashes.has_pair("a", "2") && !hashes.has_pair("c", "1"));
        assert!(!Hashes::default().has("a") && !Hashes::default().has_pair("a", "1"));
    }
}
