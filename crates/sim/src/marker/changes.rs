//! What a manager may write to a pod: marks that markers ask for and that the pod remembers, and what they found in their place.

use std::collections::{BTreeMap, BTreeSet};

use dapple_api::marker::{MARKED_BY_ANNOTATION, MARKS_ANNOTATION};
use dapple_api::metadata::SUSPEND_ANNOTATION;
use dapple_edit::marker::{Place, Record};
use serde_json::{Map, Value};

use super::{name, record};
use crate::past::Past;
use crate::sim::Write;

/// Which marker has changed a pod, and how.
pub(super) struct Changed {
    pub(super) marker: String,
    /// Whether it has marked it; else it has taken its marks off.
    pub(super) is_marked: bool,
    /// Whether it had no marks on it before.
    pub(super) is_first: bool,
}

/// Where a record says that something was set.
type Set = BTreeSet<(Place, String, String, i64)>;

fn set_by(record: &Record, marker: &str) -> Set {
    record.of(marker).map(|entry| (entry.place, entry.key.clone(), entry.set.clone(), entry.at)).collect()
}

/// The marker that a write of a manager to a pod is of. A violation, if it is of none, or writes what is not its own to write.
pub(super) fn changed(write: &Write<'_>, markers: &BTreeMap<String, Past>) -> Result<Changed, String> {
    let none = Value::Null;
    let (after, before) = (&*write.change.object, write.change.previous.as_deref().unwrap_or(&none));
    let pod = name(after);
    if rest(before) != rest(after) {
        return Err(format!("a pod is written beyond its marks: {pod}"));
    }
    let (was, is) = (record(before), record(after));
    let names: BTreeSet<&str> = was.entries().chain(is.entries()).map(|entry| entry.marker.as_str()).collect();
    let mut doers = names.into_iter().filter(|marker| set_by(&was, marker) != set_by(&is, marker));
    let Some(marker) = doers.next() else { return Err(format!("a mark is not remembered: {pod}")) };
    if let Some(other) = doers.next() {
        return Err(format!("two markers change a pod at once: {pod}, {marker} and {other}"));
    }
    for (place, field) in [(Place::Label, "labels"), (Place::Annotation, "annotations")] {
        let (old, new) = (entries(before, field), entries(after, field));
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys.into_iter().filter(|key| ![MARKED_BY_ANNOTATION, MARKS_ANNOTATION].contains(&key.as_str())) {
            let (old, new) = (old.get(key).and_then(Value::as_str), new.get(key).and_then(Value::as_str));
            if old != new {
                is_its_own((&was, &is), (place, key), (old, new)).map_err(|what| format!("{what}: {pod}, {key}"))?;
            }
        }
    }
    let believed = markers.get(marker).map(|past| crate::past::believed(past, write)).unwrap_or_default();
    allowed(marker, &believed, (&was, &is), before).map_err(|what| format!("{what}: {pod}, by {marker}"))?;
    let (is_marked, is_first) = (!set_by(&is, marker).is_empty(), set_by(&was, marker).is_empty());
    Ok(Changed { marker: marker.to_owned(), is_marked, is_first })
}

fn rest(pod: &Value) -> Value {
    let mut rest = pod.clone();
    for field in ["labels", "annotations", "resourceVersion", "managedFields"] {
        rest["metadata"][field] = Value::Null;
    }
    rest
}

fn entries(pod: &Value, field: &str) -> Map<String, Value> {
    pod["metadata"][field].as_object().cloned().unwrap_or_default()
}

/// A key becomes what a marker has set, and what was there is remembered; or what was found there before a mark that it still has.
fn is_its_own(
    (was, is): (&Record, &Record),
    (place, key): (Place, &str),
    (old, new): (Option<&str>, Option<&str>),
) -> Result<(), String> {
    let is_mark = new.is_some_and(|new| is.is_set(place, key, new));
    if is_mark {
        let was_mark = old.is_some_and(|old| was.is_set(place, key, old));
        let is_kept = old.is_none() || is.at(place, key).any(|entry| entry.found.as_deref() == old);
        return if was_mark || is_kept { Ok(()) } else { Err("a value is lost".to_owned()) };
    }
    let was_mark = old.is_some_and(|old| was.is_set(place, key, old));
    let was_found = was.at(place, key).any(|entry| entry.found.as_deref() == new);
    if was_mark && was_found { Ok(()) } else { Err("a value is taken that no marker has set".to_owned()) }
}

/// Whether any version of the marker that its writer may have believed in allows this.
fn allowed(marker: &str, believed: &Past, (was, is): (&Record, &Record), before: &Value) -> Result<(), String> {
    let known = || believed.iter().filter_map(|(_, known)| known.as_ref());
    if known().next().is_none() {
        return Err("a pod is changed for a marker that is gone".to_owned());
    }
    if known().all(|known| known["metadata"]["annotations"][SUSPEND_ANNOTATION] == "true") {
        return Err("a pod is changed for a marker that is suspended".to_owned());
    }
    let overwrites = known().any(|known| known["spec"]["strategy"]["conflictPolicy"] == "Overwrite");
    for entry in is.of(marker).filter(|_| !overwrites) {
        let field = if entry.place == Place::Label { "labels" } else { "annotations" };
        let old = before["metadata"][field][&entry.key].as_str();
        let is_new = was.of(marker).all(|known| (known.place, &known.key) != (entry.place, &entry.key));
        let is_foreign = old.is_some_and(|old| old != entry.set && !was.is_set(entry.place, &entry.key, old));
        if is_new && is_foreign {
            return Err("a value of others is replaced though the marker ignores such pods".to_owned());
        }
    }
    Ok(())
}
