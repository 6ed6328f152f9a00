//! What hashes of pods stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::inplace::{Difference, difference};

/// Renderings by hash, and what lies between two of them.
#[derive(Debug, Default)]
pub struct Renderings {
    known: BTreeMap<Arc<str>, Arc<Value>>,
    /// From one hash to another.
    differences: BTreeMap<Pair, Option<Arc<Difference>>>,
}

/// One hash and another.
pub(super) type Pair = (Arc<str>, Arc<str>);

impl Renderings {
    /// Adds the template that a hash stands for.
    pub fn add(&mut self, hash: &Arc<str>, template: &Arc<Value>) {
        self.known.entry(hash.clone()).or_insert_with(|| template.clone());
    }

    /// The template that a hash stands for.
    pub(super) fn get(&self, hash: &str) -> Option<&Arc<Value>> {
        self.known.get(hash)
    }

    /// What must be changed of a pod to bring it from one hash to another; nothing if it must be replaced, or if
    /// nobody knows what it is.
    pub fn between(&mut self, from: &str, to: &str) -> Option<Arc<Difference>> {
        let key = (Arc::from(from), Arc::from(to));
        let known = &self.known;
        let found = self.differences.entry(key).or_insert_with(|| {
            let (before, after) = (known.get(from)?, known.get(to)?);
            difference(before, after).map(Arc::new)
        });
        found.clone()
    }
}
