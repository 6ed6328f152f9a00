//! Which fields differ between two templates.
//!
//! A template is taken apart into leaves: plain values, empty objects, and lists that do not merge. Items of lists that
//! merge by a key are told apart by it, so that `env[name=CACHE].value` stays one field wherever it stands; the order of
//! such a list is a place of its own, and differs only if items that both have changed places.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::lookup::Lookup;
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
    let at = At::start(shape);
    if before != after {
        compare(Some(before), Some(after), at, &Trail::Start, &mut found);
    }
    found
}

/// Whether items that both have are in the same order in both.
fn same_order(before: &Lookup<'_>, after: &Lookup<'_>) -> bool {
    let in_before = before.values().iter().filter(|key| after.position(key).is_some());
    in_before.eq(after.values().iter().filter(|key| before.position(key).is_some()))
}

/// What the schema says of a value.
#[derive(Clone, Copy)]
pub(crate) struct At {
    shape: Shape,
    merge: Merge,
}

impl At {
    /// At the document itself.
    pub(crate) fn start(shape: Shape) -> Self {
        Self { shape, merge: Merge::DEFAULT }
    }

    pub(crate) fn field(self, name: &str) -> Self {
        let field = match self.shape {
            Shape::Object(id) => id.get().field(name),
            _ => None,
        };
        field.map_or(Self { shape: Shape::Any, merge: Merge::DEFAULT }, |field| Self {
            shape: field.shape,
            merge: field.merge,
        })
    }

    pub(crate) fn item(self) -> Self {
        let shape = if let Shape::List(item) = self.shape { *item } else { Shape::Any };
        Self { shape, merge: Merge::DEFAULT }
    }
}

/// How a value is taken apart.
pub(crate) enum Parts<'a> {
    Fields(&'a Map<String, Value>),
    Items(&'static str, Vec<(&'a Value, &'a Value)>),
    Leaf(&'a Value),
}

impl<'a> Parts<'a> {
    fn of(value: &'a Value, at: At) -> Self {
        match value {
            Value::Object(map) if !map.is_empty() => Self::Fields(map),
            Value::Array(items) => {
                Self::of_items(items, at).map_or(Self::Leaf(value), |(key, items)| Self::Items(key, items))
            }
            _ => Self::Leaf(value),
        }
    }

    /// The items of a list, each with what tells it apart from the others, and the field that does; none if nothing does.
    pub(crate) fn of_items(items: &'a [Value], at: At) -> Option<(&'static str, Vec<(&'a Value, &'a Value)>)> {
        let key = at.merge.key.filter(|_| at.merge.lists && !items.is_empty())?;
        let keyed =
            items.iter().map(|item| Some((item.get(key).filter(|key| !key.is_object() && !key.is_array())?, item)));
        let keyed = keyed.collect::<Option<Vec<_>>>()?;
        Lookup::of(keyed.iter().map(|(key, _)| *key)).is_distinct().then_some((key, keyed))
    }
}

/// Compares what differs. What is equal is told by the caller, before a step is taken: most of a template is.
fn compare(before: Option<&Value>, after: Option<&Value>, at: At, trail: &Trail<'_>, found: &mut Vec<Difference>) {
    let (whole_before, whole_after) = (before, after);
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
        // Items that cannot be told apart on one side make the whole list one leaf on both.
        (Some(Parts::Items(..)), Some(Parts::Leaf(Value::Array(_))))
        | (Some(Parts::Leaf(Value::Array(_))), Some(Parts::Items(..))) => {
            found.push((leaf_at(trail), whole_before.cloned(), whole_after.cloned()));
        }
        (before, after) => {
            // A leaf that was there before and is there after is one difference, not two.
            let mut known: BTreeMap<Place, usize> = BTreeMap::new();
            if let Some(before) = before {
                each_leaf(before, at, trail, &mut |trail, leaf| {
                    known.insert(leaf_at(trail), found.len());
                    found.push((leaf_at(trail), Some(leaf.clone()), None));
                });
            }
            if let Some(after) = after {
                each_leaf(after, at, trail, &mut |trail, leaf| match known.get(&leaf_at(trail)) {
                    Some(index) => found[*index].2 = Some(leaf.clone()),
                    None => found.push((leaf_at(trail), None, Some(leaf.clone()))),
                });
            }
        }
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
    let (old_keys, new_keys) =
        (Lookup::of(before.iter().map(|(key, _)| *key)), Lookup::of(after.iter().map(|(key, _)| *key)));
    let both = before.iter().map(|(value, item)| {
        let now = new_keys.position(value).map(|index| after[index].1);
        (*value, Some(*item), now)
    });
    let new = after
        .iter()
        .filter(|(value, _)| old_keys.position(value).is_none())
        .map(|(value, item)| (*value, None, Some(*item)));
    for (value, old, now) in both.chain(new).filter(|(_, old, now)| old != now) {
        compare(old, now, at.item(), &trail.keyed(key, value), found);
    }
    if !same_order(&old_keys, &new_keys) {
        let list = |keys: Lookup<'_>| Some(Value::Array(keys.values().iter().copied().cloned().collect()));
        found.push((Place { path: trail.path(), is_order: true }, list(old_keys), list(new_keys)));
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
