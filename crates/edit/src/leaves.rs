//! Which fields differ between two templates.
//!
//! A template is taken apart into leaves: plain values, empty objects, and lists that do not merge. Items of lists that
//! merge by a key are told apart by it, so that `env[name=CACHE].value` stays one field wherever it stands; the order of
//! such a list is a place of its own, and differs only if items that both have changed places.

use serde_json::{Map, Value};

use crate::path::{Path, Trail};
use crate::schema::{Merge, Shape};

/// A leaf, or the order of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    path: Path,
    is_order: bool,
}

impl Place {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A place, what was there and what is there.
pub(crate) type Difference = (Place, Option<Value>, Option<Value>);

/// Every place at which the two differ.
pub(crate) fn differences(before: &Value, after: &Value, shape: Shape) -> Vec<Difference> {
    let mut found = Vec::new();
    let at = At { shape, merge: Merge::DEFAULT };
    if before != after {
        compare(Some(before), Some(after), at, &Trail::Start, &mut found);
    }
    found
}

/// Whether items that both have are in the same order in both.
fn same_order(before: &[&Value], after: &[&Value]) -> bool {
    let in_before = before.iter().filter(|key| after.contains(key));
    in_before.eq(after.iter().filter(|key| before.contains(key)))
}

/// What the schema says of a value.
#[derive(Clone, Copy)]
struct At {
    shape: Shape,
    merge: Merge,
}

impl At {
    fn field(self, name: &str) -> Self {
        let field = match self.shape {
            Shape::Object(id) => id.get().field(name),
            _ => None,
        };
        field.map_or(Self { shape: Shape::Any, merge: Merge::DEFAULT }, |field| Self {
            shape: field.shape,
            merge: field.merge,
        })
    }

    fn item(self) -> Self {
        let shape = if let Shape::List(item) = self.shape { *item } else { Shape::Any };
        Self { shape, merge: Merge::DEFAULT }
    }
}

/// How a value is taken apart.
enum Parts<'a> {
    Fields(&'a Map<String, Value>),
    Items(&'static str, Vec<(&'a Value, &'a Value)>),
    Leaf(&'a Value),
}

impl<'a> Parts<'a> {
    fn of(value: &'a Value, at: At) -> Self {
        match (value, at.merge.key) {
            (Value::Object(map), _) if !map.is_empty() => Self::Fields(map),
            (Value::Array(items), Some(key)) if at.merge.lists && !items.is_empty() => {
                let keyed = items
                    .iter()
                    .map(|item| Some((item.get(key).filter(|key| !key.is_object() && !key.is_array())?, item)));
                match keyed.collect::<Option<Vec<_>>>() {
                    Some(keyed) if are_distinct(&keyed) => Self::Items(key, keyed),
                    _ => Self::Leaf(value),
                }
            }
            _ => Self::Leaf(value),
        }
    }
}

fn are_distinct(keyed: &[(&Value, &Value)]) -> bool {
    keyed.iter().enumerate().all(|(number, (key, _))| keyed[..number].iter().all(|(other, _)| other != key))
}

/// Compares what differs. What is equal is told by the caller, before a step is taken: most of a template is.
fn compare(before: Option<&Value>, after: Option<&Value>, at: At, trail: &Trail<'_>, found: &mut Vec<Difference>) {
    match (before.map(|value| Parts::of(value, at)), after.map(|value| Parts::of(value, at))) {
        (Some(Parts::Fields(before)), Some(Parts::Fields(after))) => {
            let both = before.iter().map(|(name, value)| (name, Some(value), after.get(name)));
            let new = after
                .iter()
                .filter(|(name, _)| !before.contains_key(*name))
                .map(|(name, value)| (name, None, Some(value)));
            for (name, old, now) in both.chain(new).filter(|(_, old, now)| old != now) {
                compare(old, now, at.field(name), &trail.field(name), found);
            }
        }
        (Some(Parts::Items(key, before)), Some(Parts::Items(_, after))) => {
            compare_items(key, &before, &after, at, trail, found);
        }
        (Some(Parts::Leaf(before)), Some(Parts::Leaf(after))) => {
            found.push((leaf_at(trail), Some(before.clone()), Some(after.clone())));
        }
        (before, after) => {
            let known = found.len();
            if let Some(before) = before {
                each_leaf(before, at, trail, &mut |trail, leaf| found.push((leaf_at(trail), Some(leaf.clone()), None)));
            }
            if let Some(after) = after {
                each_leaf(after, at, trail, &mut |trail, leaf| set_after(found, known, leaf_at(trail), leaf));
            }
        }
    }
}

/// A leaf that was there before and is there after is one difference, not two. What was there before is behind `known`.
fn set_after(found: &mut Vec<Difference>, known: usize, place: Place, leaf: &Value) {
    match found[known..].iter_mut().find(|(known, _, _)| *known == place) {
        Some((_, _, after)) => *after = Some(leaf.clone()),
        None => found.push((place, None, Some(leaf.clone()))),
    }
}

fn compare_items(
    key: &'static str,
    before: &[(&Value, &Value)],
    after: &[(&Value, &Value)],
    at: At,
    trail: &Trail<'_>,
    found: &mut Vec<Difference>,
) {
    fn find<'a>(items: &[(&Value, &'a Value)], wanted: &Value) -> Option<&'a Value> {
        items.iter().find(|(known, _)| *known == wanted).map(|(_, item)| *item)
    }
    let both = before.iter().map(|(value, item)| (*value, Some(*item), find(after, value)));
    let new = after
        .iter()
        .filter(|(value, _)| find(before, value).is_none())
        .map(|(value, item)| (*value, None, Some(*item)));
    for (value, old, now) in both.chain(new).filter(|(_, old, now)| old != now) {
        compare(old, now, at.item(), &trail.keyed(key, value), found);
    }
    let (old, new): (Vec<&Value>, Vec<&Value>) =
        (before.iter().map(|(key, _)| *key).collect(), after.iter().map(|(key, _)| *key).collect());
    if !same_order(&old, &new) {
        let list = |keys: Vec<&Value>| Some(Value::Array(keys.into_iter().cloned().collect()));
        found.push((Place { path: trail.path(), is_order: true }, list(old), list(new)));
    }
}

fn each_leaf(parts: Parts<'_>, at: At, trail: &Trail<'_>, visit: &mut dyn FnMut(&Trail<'_>, &Value)) {
    match parts {
        Parts::Leaf(leaf) => visit(trail, leaf),
        Parts::Fields(map) => {
            for (name, value) in map {
                let at = at.field(name);
                each_leaf(Parts::of(value, at), at, &trail.field(name), visit);
            }
        }
        Parts::Items(key, items) => {
            for (value, item) in items {
                each_leaf(Parts::of(item, at.item()), at.item(), &trail.keyed(key, value), visit);
            }
        }
    }
}

fn leaf_at(trail: &Trail<'_>) -> Place {
    Place { path: trail.path(), is_order: false }
}
