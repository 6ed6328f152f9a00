//! An object that is being read: its fields, and those that a merge key brought.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::error::{Position, Problem, SHOWN_CHARACTERS, kind_of, shown};
use super::locate::{Inside, Mark};

/// The fields so far.
#[derive(Default)]
pub(super) struct Fields {
    values: Map<String, Value>,
    marks: Vec<(Box<str>, Mark)>,
    /// Where the merge key is, if there is one.
    merge: Option<Position>,
    /// The fields that have been set by it, and not yet by themselves.
    merged: BTreeSet<String>,
}

impl Fields {
    /// Whether `key` can still be written.
    pub(super) fn admit(&self, key: &str) -> Result<(), Problem> {
        if !self.values.contains_key(key) || self.merged.contains(key) {
            return Ok(());
        }
        let first = self.marks.iter().find(|(name, _)| &**name == key).map(|(_, mark)| mark.position());
        let first = first.unwrap_or(Position { line: 1, column: 1 });
        Err(Problem::DuplicateKey { key: shown(key, SHOWN_CHARACTERS), first })
    }

    /// Adds a field that was admitted.
    pub(super) fn insert(&mut self, key: String, value: Value, mark: Mark) {
        self.merged.remove(&key);
        self.marks.push((key.as_str().into(), mark));
        self.values.insert(key, value);
    }

    /// Notes a merge key.
    pub(super) fn begin_merge(&mut self, at: Position) -> Result<(), Problem> {
        match self.merge.replace(at) {
            Some(first) => Err(Problem::DuplicateKey { key: "<<".to_owned(), first }),
            None => Ok(()),
        }
    }

    /// Adds the fields of the merge key's value: an object, or a list of objects of which earlier ones win.
    pub(super) fn merge(&mut self, value: Value) -> Result<(), Problem> {
        match value {
            Value::Object(fields) => self.merge_one(fields),
            Value::Array(items) => items.into_iter().try_for_each(|item| match item {
                Value::Object(fields) => self.merge_one(fields),
                other => Err(Problem::Merge { found: kind_of(&other) }),
            }),
            other => Err(Problem::Merge { found: kind_of(&other) }),
        }
    }

    fn merge_one(&mut self, fields: Map<String, Value>) -> Result<(), Problem> {
        for (key, value) in fields {
            if self.merged.contains(&key) {
                continue;
            }
            if self.values.contains_key(&key) {
                return Err(Problem::KeyBeforeMerge { key: shown(&key, SHOWN_CHARACTERS) });
            }
            self.merged.insert(key.clone());
            self.values.insert(key, value);
        }
        Ok(())
    }

    /// The object, and the places in it.
    pub(super) fn finish(mut self) -> (Value, Inside) {
        if let Some(at) = self.merge {
            let merged = self.merged.iter().map(|key| (key.as_str().into(), Mark::new(at, Inside::Nothing)));
            self.marks.extend(merged);
        }
        self.marks.shrink_to_fit();
        (Value::Object(self.values), Inside::Fields(self.marks))
    }
}
