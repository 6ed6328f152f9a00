//! How the marks of a marker are set on a pod, and taken off: one merge patch for labels and annotations, for the names of markers
//! and for the record.
//!
//! Invariants, tested as properties:
//! - Whatever markers set over each other, in whatever order they are taken out, in the end the pod has what it had.
//! - A value that is not the one that a marker set is never replaced when it is taken out.

use std::collections::BTreeMap;

use dapple_api::marker::{MARKED_BY_ANNOTATION, MARKS_ANNOTATION, MarkItems, reserved};
use serde_json::{Map, Value, json};

use super::record::{OwnerKeys, Place, Record};

/// What becomes of a pod's labels and annotations: values, or none where a key goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Labels that change.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations that change, the record and the names of markers included.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl Change {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// As a merge patch. It does nothing to another pod of the name, nor to one that has changed since.
    pub fn patch(&self, uid: &str, version: u64) -> Value {
        let mut metadata = json!({"uid": uid, "resourceVersion": version.to_string()});
        for (name, keys) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !keys.is_empty() {
                let keys: Map<String, Value> = keys.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
                metadata[name] = Value::Object(keys);
            }
        }
        json!({"metadata": metadata})
    }

    fn insert(&mut self, place: Place, key: &str, value: Option<String>) {
        let keys = match place {
            Place::Label => &mut self.labels,
            Place::Annotation => &mut self.annotations,
        };
        keys.insert(key.to_owned(), value);
    }
}

/// Everything that a marker's items ask for: where, key and value.
pub fn wanted(items: &MarkItems) -> impl Iterator<Item = (Place, &str, &str)> {
    let labels = items.labels.iter().map(|(key, value)| (Place::Label, key.as_str(), value.as_str()));
    labels.chain(items.annotations.iter().map(|(key, value)| (Place::Annotation, key.as_str(), value.as_str())))
}

/// Gives a pod the marks of a marker, and takes off those that it had set and that are none any more. `value` says what the pod
/// has, `before` what it remembers. Keys that no marker sets, and labels that the pod's owner selects on, are left out.
pub fn mark<'v>(
    before: &Record,
    value: &dyn Fn(Place, &str) -> Option<&'v str>,
    marker: &str,
    items: &MarkItems,
    owner: &OwnerKeys,
    at: i64,
) -> Change {
    let mut draft = Draft { record: before.clone(), change: Change::default(), value, marker };
    for entry in before.of(marker) {
        if wanted(items).all(|(place, key, _)| (place, key) != (entry.place, entry.key.as_str())) {
            draft.take_off(entry.place, &entry.key);
        }
    }
    for (place, key, wanted) in wanted(items) {
        let is_owners = place == Place::Label && owner.has(key);
        if reserved(key).is_none() && !is_owners {
            draft.put_on(place, key, wanted, at);
        }
    }
    draft.end(before)
}

/// Takes off all marks that a marker has set on a pod.
pub fn unmark<'v>(before: &Record, value: &dyn Fn(Place, &str) -> Option<&'v str>, marker: &str) -> Change {
    let mut draft = Draft { record: before.clone(), change: Change::default(), value, marker };
    for entry in before.of(marker) {
        draft.take_off(entry.place, &entry.key);
    }
    draft.end(before)
}

struct Draft<'a, 'v> {
    record: Record,
    change: Change,
    value: &'a dyn Fn(Place, &str) -> Option<&'v str>,
    marker: &'a str,
}

impl Draft<'_, '_> {
    fn take_off(&mut self, place: Place, key: &str) {
        let value = (self.value)(place, key);
        if let Some(becomes) = self.record.take_off(self.marker, place, key, value) {
            self.change.insert(place, key, becomes);
        }
    }

    fn put_on(&mut self, place: Place, key: &str, wanted: &str, at: i64) {
        let value = (self.value)(place, key);
        if let Some(becomes) = self.record.put_on(self.marker, (place, key, wanted), value, at) {
            self.change.insert(place, key, becomes);
        }
    }

    fn end(mut self, before: &Record) -> Change {
        if self.record != *before {
            self.change.insert(Place::Annotation, MARKS_ANNOTATION, self.record.text());
        }
        let names = self.record.names();
        if (self.value)(Place::Annotation, MARKED_BY_ANNOTATION) != names.as_deref() {
            self.change.insert(Place::Annotation, MARKED_BY_ANNOTATION, names);
        }
        self.change
    }
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
