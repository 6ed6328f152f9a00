//! What markers have set on a pod, as an annotation of the pod remembers it: by marker and key the value set, the value found in
//! its place, and when.
//!
//! Entries stand in the order in which they were set. Of a key, the last has set what is there, if nobody else has since, and each
//! has found what the one before had set. So marks that were set over each other can be taken off in any order.
//!
//! The annotation is input like any other: whoever may write the pod may write anything into it. What cannot be read, and what
//! no marker can have set, counts as not there; what it was about is then nobody's.

use std::collections::BTreeSet;

use dapple_api::marker::reserved;
use dapple_api::syntax;
use serde::Deserialize;
use serde_json::{Value, json};

/// Where a mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Among the labels.
    Label,
    /// Among the annotations.
    Annotation,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Annotation => "annotation",
        }
    }
}

/// The labels that the owner of a pod selects on. A pod that loses one of them is released, and another is made for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OwnerKeys {
    /// Nothing owns the pod.
    #[default]
    None,
    /// These.
    Known(BTreeSet<String>),
    /// The owner could not be read.
    Unread,
}

impl OwnerKeys {
    /// Whether the owner is known to select on this label.
    pub fn has(&self, key: &str) -> bool {
        matches!(self, Self::Known(keys) if keys.contains(key))
    }
}

/// A mark that a marker has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The marker's name.
    pub marker: String,
    /// Where the mark is.
    pub place: Place,
    /// Its key.
    pub key: String,
    /// The value set.
    pub set: String,
    /// The value that was there, if any.
    pub found: Option<String>,
    /// When, in seconds since 1970.
    pub at: i64,
}

/// An entry as it is written.
#[derive(Deserialize)]
struct Written {
    marker: String,
    label: Option<String>,
    annotation: Option<String>,
    set: String,
    found: Option<String>,
    at: i64,
}

impl Entry {
    /// Nothing if no marker can have set it.
    fn read(written: Value, owner: &OwnerKeys) -> Option<Self> {
        let Written { marker, label, annotation, set, found, at } = serde_json::from_value(written).ok()?;
        let (place, key) = match (label, annotation) {
            (Some(key), None) => (Place::Label, key),
            (None, Some(key)) => (Place::Annotation, key),
            _ => return None,
        };
        let is_value = |value: &String| place == Place::Annotation || syntax::label_value(value).is_ok();
        let is_key = match place {
            Place::Label => syntax::key(&key).is_ok() && !owner.has(&key),
            Place::Annotation => syntax::annotation_key(&key).is_ok(),
        };
        let is_mark = is_key && reserved(&key).is_none() && is_value(&set) && found.iter().all(is_value);
        let is_possible = is_mark && syntax::dns_subdomain(&marker).is_ok();
        is_possible.then_some(Self { marker, place, key, set, found, at })
    }

    fn written(&self) -> Value {
        let mut written = json!({"marker": self.marker, "set": self.set, "at": self.at});
        written[self.place.name()] = json!(self.key);
        if let Some(found) = &self.found {
            written["found"] = json!(found);
        }
        written
    }

    fn is_at(&self, place: Place, key: &str) -> bool {
        self.place == place && self.key == key
    }
}

/// What markers have set on a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record(Vec<Entry>);

impl Record {
    /// From the annotation. Of several entries of a marker for a key, the last counts.
    pub fn read(text: Option<&str>, owner: &OwnerKeys) -> Self {
        let written: Option<Vec<Value>> = text.and_then(|text| serde_json::from_str(text).ok());
        let entries = written.unwrap_or_default().into_iter().rev().filter_map(|entry| Entry::read(entry, owner));
        let mut known = BTreeSet::new();
        let is_last = |entry: &Entry| known.insert((entry.marker.clone(), entry.place, entry.key.clone()));
        let mut entries: Vec<Entry> = entries.filter(is_last).collect();
        entries.reverse();
        Self(entries)
    }

    /// As the annotation has it; nothing if there is nothing to remember.
    pub fn text(&self) -> Option<String> {
        let written: Vec<Value> = self.0.iter().map(Entry::written).collect();
        (!written.is_empty()).then(|| Value::Array(written).to_string())
    }

    /// Whether no marker has set anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The markers that have set something, sorted, with commas; nothing if there are none.
    pub fn names(&self) -> Option<String> {
        let names: BTreeSet<&str> = self.0.iter().map(|entry| entry.marker.as_str()).collect();
        (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(","))
    }

    /// All that was set, in the order in which it was.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// What a marker has set.
    pub fn of<'r>(&'r self, marker: &'r str) -> impl Iterator<Item = &'r Entry> {
        self.0.iter().filter(move |entry| entry.marker == marker)
    }

    /// When a marker last set something on the pod, in seconds since 1970.
    pub fn set_at(&self, marker: &str) -> Option<i64> {
        self.of(marker).map(|entry| entry.at).max()
    }

    /// What was set at a key, in the order in which it was.
    pub fn at<'r>(&'r self, place: Place, key: &'r str) -> impl DoubleEndedIterator<Item = &'r Entry> {
        self.0.iter().filter(move |entry| entry.is_at(place, key))
    }

    /// Whether the value that a key has is one that a marker has set.
    pub fn is_set(&self, place: Place, key: &str, value: &str) -> bool {
        self.at(place, key).next_back().is_some_and(|last| last.set == value)
    }

    /// What a key would have without the marks of some markers, where it has this value with them.
    pub fn without<'v>(
        &'v self,
        are_left_out: &dyn Fn(&str) -> bool,
        place: Place,
        key: &str,
        value: Option<&'v str>,
    ) -> Option<&'v str> {
        let mut value = value;
        for entry in self.0.iter().rev().filter(|entry| entry.is_at(place, key)) {
            if !are_left_out(&entry.marker) {
                break;
            }
            if value == Some(entry.set.as_str()) {
                value = entry.found.as_deref();
            }
        }
        value
    }

    /// Forgets what a marker has set at a key that has this value. Returns what the key becomes, if that is something else.
    pub(super) fn take_off(
        &mut self,
        marker: &str,
        place: Place,
        key: &str,
        value: Option<&str>,
    ) -> Option<Option<String>> {
        let index = self.0.iter().position(|entry| entry.marker == marker && entry.is_at(place, key))?;
        let taken = self.0.remove(index);
        if let Some(next) = self.0[index..].iter_mut().find(|entry| entry.is_at(place, key)) {
            // It has found what this one had set, unless somebody else came between.
            if next.found.as_deref() == Some(taken.set.as_str()) {
                next.found = taken.found;
            }
            return None;
        }
        let gives_back = value == Some(taken.set.as_str()) && taken.found.as_deref() != value;
        gives_back.then_some(taken.found)
    }

    /// Remembers that a marker sets a key that has this value. Returns what the key becomes, if that is something else.
    pub(super) fn put_on(
        &mut self,
        marker: &str,
        (place, key, wanted): (Place, &str, &str),
        value: Option<&str>,
        at: i64,
    ) -> Option<Option<String>> {
        if value == Some(wanted) && self.of(marker).any(|own| own.is_at(place, key) && own.set == wanted) {
            return None;
        }
        let change = self.take_off(marker, place, key, value);
        let found = match &change {
            Some(given_back) => given_back.clone(),
            None => value.map(str::to_owned),
        };
        let is_there = found.as_deref() == Some(wanted);
        // What is there already is nobody's, unless another marker has set it: then it is shared.
        if !is_there || self.is_set(place, key, wanted) {
            let (marker, key, set) = (marker.to_owned(), key.to_owned(), wanted.to_owned());
            self.0.push(Entry { marker, place, key, set, found, at });
        }
        if is_there { change } else { Some(Some(wanted.to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Record {
        Record::read(Some(text), &OwnerKeys::None)
    }

    fn keys(record: &Record) -> Vec<&str> {
        record.0.iter().map(|entry| entry.key.as_str()).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = r#"[{"annotation":"b","at":2,"marker":"m","set":"any text"},{"at":3,"found":"1","label":"a","marker":"n","set":"2"}]"#;
        let record = read(text);
        assert_eq!(keys(&record), ["b", "a"]);
        assert_eq!(record.0[1].found.as_deref(), Some("1"));
        let again: Value = serde_json::from_str(&record.text().expect("a text")).expect("JSON");
        assert_eq!(again, serde_json::from_str::<Value>(text).expect("JSON"));
        assert_eq!((record.names().as_deref(), record.set_at("n"), record.set_at("x")), (Some("m,n"), Some(3), None));
        assert_eq!((Record::default().text(), Record::default().names()), (None, None));
    }

    #[test]
    fn a_record_that_is_missing_or_unreadable_remembers_nothing() {
        for text in [None, Some(""), Some("{"), Some("{}"), Some("[1, null, {}]"), Some(r#"{"m": {"a": "b"}}"#)] {
            assert!(Record::read(text, &OwnerKeys::None).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn what_no_marker_can_have_set_is_ignored() {
        let entry = |rest: &str| format!(r#"[{{"marker":"m","at":1,{rest}}}]"#);
        for rest in [
            r#""label":"pod-template-hash","set":"1""#,
            r#""label":"apps.kruise.io/a","set":"1""#,
            r#""annotation":"dapple.dev/seat","set":"1""#,
            r#""annotation":"kruise.io/marked-by-podmarker","set":"1""#,
            r#""label":"a b","set":"1""#,
            r#""label":"a","set":"1 2""#,
            r#""label":"a","set":"1","found":"x y""#,
            r#""label":"a","annotation":"a","set":"1""#,
            r#""set":"1""#,
            r#""label":"a""#,
            r#""marker":"A, b","label":"a","set":"1""#,
        ] {
            assert!(read(&entry(rest)).is_empty(), "{rest}");
        }
        assert_eq!(
            keys(&read(&entry(r#""annotation":"Example.com/a","set":"any thing","found":"x y""#))),
            ["Example.com/a"]
        );
    }

    #[test]
    fn labels_that_the_owner_selects_on_are_ignored() {
        let text =
            r#"[{"marker":"m","at":1,"label":"app","set":"1"},{"marker":"m","at":1,"annotation":"app","set":"1"}]"#;
        let known = OwnerKeys::Known(BTreeSet::from(["app".to_owned()]));
        let record = Record::read(Some(text), &known);
        assert_eq!(record.0.iter().map(|entry| entry.place).collect::<Vec<_>>(), [Place::Annotation]);
        assert_eq!(Record::read(Some(text), &OwnerKeys::Unread).0.len(), 2);
    }

    #[test]
    fn of_several_entries_for_a_key_the_last_counts() {
        let entry = |set: &str| format!(r#"{{"marker":"m","at":1,"label":"a","set":"{set}"}}"#);
        let record = read(&format!("[{},{}]", entry("1"), entry("2")));
        assert_eq!(record.0.iter().map(|entry| entry.set.as_str()).collect::<Vec<_>>(), ["2"]);
    }

    #[test]
    fn marks_can_be_left_out_of_sight() {
        let record = read(
            r#"[{"marker":"a","at":1,"label":"k","set":"1","found":"0"},{"marker":"b","at":2,"label":"k","set":"2","found":"1"}]"#,
        );
        let seen =
            |names: &[&str], value| record.without(&|name: &str| names.contains(&name), Place::Label, "k", value);
        assert_eq!(seen(&["b"], Some("2")), Some("1"));
        assert_eq!(seen(&["a", "b"], Some("2")), Some("0"));
        assert_eq!(seen(&["a"], Some("2")), Some("2"), "another marker's is on top of it");
        assert_eq!(seen(&["a", "b"], Some("9")), Some("9"), "somebody else's value is no mark");
        assert_eq!(seen(&["a", "b"], None), None);
        assert_eq!(record.without(&|_| true, Place::Annotation, "k", Some("2")), Some("2"));
    }
}
