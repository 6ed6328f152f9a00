//! Lists that merge: by a key, or as sets of plain values, and in which order the result is.

use serde_json::{Map, Value};

use super::{DIRECTIVE, MergeError, Nulls, Problem, added, known_list, merge_map, same_type};
use crate::path::Path;
use crate::schema::Shape;

type Result<T> = std::result::Result<T, MergeError>;

/// Merges the items of `patch` into `original`. Returns the order that counts as the server's if one is given besides.
pub(super) fn merge(
    original: &mut Vec<Value>,
    patch: &[Value],
    item: Shape,
    key: Option<&'static str>,
    path: &mut Path,
) -> Result<Vec<Value>> {
    if original.is_empty() && patch.is_empty() {
        return Ok(Vec::new());
    }
    check_items(original, patch, path)?;
    let are_objects = original.iter().chain(patch).any(Value::is_object);
    match (are_objects, key) {
        (true, Some(key)) => merge_objects(original, patch, item, key, path),
        (true, None) => Err(Problem::NoKeyToMergeBy.at(path)),
        (false, Some(key)) => Err(Problem::NoMergeKey(key).at(path)),
        (false, None) => {
            let server_order = original.clone();
            let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
            for value in original.drain(..).chain(patch.iter().cloned()) {
                if !merged.contains(&value) {
                    merged.push(value);
                }
            }
            let in_patch = |value: &Value| patch.contains(value);
            let (ours, theirs) = merged.into_iter().partition(in_patch);
            *original = interleave(ours, theirs, patch, &server_order, Same::Whole);
            Ok(server_order)
        }
    }
}

/// Takes plain values out of a list.
pub(super) fn delete(
    original: &mut Vec<Value>,
    gone: &[Value],
    item: Shape,
    key: Option<&'static str>,
    path: &mut Path,
) -> Result<()> {
    if original.is_empty() && gone.is_empty() {
        return Ok(());
    }
    check_items(original, gone, path)?;
    if original.iter().chain(gone).any(Value::is_object) {
        // As upstream: over objects, the directive is an ordinary patch of the list.
        let Some(key) = key else { return Err(Problem::NoKeyToMergeBy.at(path)) };
        return merge_objects(original, gone, item, key, path).map(drop);
    }
    original.retain(|value| !gone.contains(value));
    Ok(())
}

/// Items must be of one type, and no lists: nobody knows how to merge anything else.
fn check_items(original: &[Value], patch: &[Value], path: &Path) -> Result<()> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else { return Err(Problem::NothingToOrder.at(path)) };
    let fits = |value: &Value| !value.is_array() && !value.is_null() && same_type(first, value);
    if fits(first) && items.all(fits) { Ok(()) } else { Err(Problem::MixedItems.at(path)) }
}

fn merge_objects(
    original: &mut Vec<Value>,
    patch: &[Value],
    item: Shape,
    key: &'static str,
    path: &mut Path,
) -> Result<Vec<Value>> {
    let before = original.len();
    let (plain, replaced) = apply_directives(original, patch, key, path)?;
    // The order that the server had, of what is left of it.
    let server_order: Vec<Value> =
        original.iter().map(|known| key_of(known, key).cloned().unwrap_or_default()).collect();
    for wanted in &plain {
        let value = plain_key(wanted, key, path)?;
        let known = original.iter_mut().find(|known| key_of(known, key) == Some(value));
        match (known, wanted) {
            (Some(Value::Object(known)), Value::Object(wanted)) => {
                path.in_keyed(key, value, |path| merge_map(known, wanted, item, path))?;
            }
            _ => original.push((*wanted).clone()),
        }
    }
    for known in original.iter() {
        // Upstream finds out that a key cannot be compared when it compares, so not in a list of one.
        if key_of(known, key).is_none() || original.len() > 1 {
            plain_key(known, key, path)?;
        }
    }
    let in_patch = |known: &Value| plain.iter().any(|wanted| key_of(wanted, key) == key_of(known, key));
    let patch_order: Vec<Value> = plain.iter().map(|wanted| key_of(wanted, key).cloned().unwrap_or_default()).collect();
    // Upstream deletes and appends in place, so what is added takes the places of what was deleted, and counts as the
    // server's own where an order is given too. kubectl's patches rely on it when they replace an item.
    let appended = original.iter().skip(server_order.len()).filter_map(|added| key_of(added, key).cloned());
    let places = server_order.iter().cloned().chain(appended).take(before).collect();
    let (ours, theirs) = std::mem::take(original).into_iter().partition(in_patch);
    *original = interleave(ours, theirs, &patch_order, &server_order, Same::Key(key));
    // What a whole new list replaced still counts as the server's order, though none of it is left.
    Ok(replaced.unwrap_or(places))
}

/// Carries out the items with a `$patch`, and returns the others. After a `replace` these are the list, and none is left;
/// then the keys of the list that was replaced come too.
fn apply_directives<'a>(
    original: &mut Vec<Value>,
    patch: &'a [Value],
    key: &'static str,
    path: &Path,
) -> Result<(Vec<&'a Value>, Option<Vec<Value>>)> {
    let (mut plain, mut replace) = (Vec::new(), false);
    for item in patch {
        match item.get(DIRECTIVE) {
            None => plain.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                let Some(value) = key_of(item, key) else { return Err(Problem::NoMergeKey(key).at(path)) };
                original.retain(|known| key_of(known, key) != Some(value));
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(other) => return Err(Problem::Directive(other.to_string()).at(path)),
        }
    }
    if !replace {
        return Ok((plain, None));
    }
    let replaced = original.iter().map(|known| key_of(known, key).cloned().unwrap_or_default()).collect();
    *original = plain.drain(..).cloned().collect();
    Ok((plain, Some(replaced)))
}

/// The value that tells an item of a list apart from the others.
fn plain_key<'a>(item: &'a Value, key: &'static str, path: &Path) -> Result<&'a Value> {
    match key_of(item, key) {
        None => Err(Problem::NoMergeKey(key).at(path)),
        Some(Value::Object(_) | Value::Array(_)) => Err(Problem::KeyNotPlain(key).at(path)),
        Some(plain) => Ok(plain),
    }
}

fn key_of<'a>(item: &'a Value, key: &str) -> Option<&'a Value> {
    item.get(key)
}

/// Merges a list together with the order that the patch wants it to have.
pub(super) fn merge_ordered(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    order: &Value,
    shape: Shape,
    path: &mut Path,
) -> Result<()> {
    let Value::Array(order) = order else {
        return Err(Problem::DirectiveNotAList(format!("{}/{name}", super::SET_ORDER)).at(path));
    };
    let as_list = |value: Option<&Value>| match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(_) => Err(Problem::NotAListField.at(path)),
    };
    let (known, wanted) = (as_list(original.get(name))?, as_list(patch.get(name))?);
    let (item, merge) = known_list(shape, name, path)?;
    check_order(wanted.as_deref().unwrap_or_default(), order, merge.key, path)?;
    let server_list = known.clone().unwrap_or_default();
    let patch_list = wanted.clone().unwrap_or_default();
    let place = |item: &Value| identity(item, merge.key, path).cloned();
    let mut server_order = server_list.iter().map(place).collect::<Result<Vec<_>>>()?;
    let merged = match (known, wanted) {
        (None, None) => return Ok(()),
        (Some(known), None) => known,
        (None, Some(wanted)) => wanted.iter().filter_map(|item| added(item, Nulls::Keep)).collect(),
        (Some(mut known), Some(wanted)) if merge.lists => {
            server_order = self::merge(&mut known, &wanted, item, merge.key, path)?;
            known
        }
        (Some(_), Some(wanted)) => wanted,
    };
    check_items(&server_list, &patch_list, path)?;
    let are_objects = server_list.iter().chain(&patch_list).any(Value::is_object);
    let has_any = !(order.is_empty() && merged.is_empty() && server_list.is_empty());
    if are_objects && merge.key.is_none() && has_any {
        return Err(Problem::NoKeyToMergeBy.at(path));
    }
    let sorted = put_in_order(merged, order, &server_order, merge.key, path)?;
    original.insert(name.to_owned(), Value::Array(sorted));
    Ok(())
}

/// The patch's items must be in the order that it gives.
fn check_order(items: &[Value], order: &[Value], key: Option<&'static str>, path: &Path) -> Result<()> {
    if items.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some() && !items.iter().all(Value::is_object) {
        return Err(Problem::MixedItems.at(path));
    }
    let mut places = order.iter();
    for item in items.iter().filter(|item| key.is_none() || !is_deleted(item)) {
        if places.len() > 0 && item.get(DIRECTIVE).is_some() {
            continue;
        }
        loop {
            let Some(place) = places.next() else { return Err(Problem::OrderMismatch.at(path)) };
            if identity(item, key, path)? == identity(place, key, path)? {
                break;
            }
        }
    }
    Ok(())
}

/// What tells an item apart: the value at its key, or the plain value itself.
fn identity<'a>(item: &'a Value, key: Option<&'static str>, path: &Path) -> Result<&'a Value> {
    match (key, item) {
        (None, Value::Object(_) | Value::Array(_)) | (Some(_), Value::Array(_)) => Err(Problem::MixedItems.at(path)),
        (None, plain) => Ok(plain),
        (Some(key), Value::Object(map)) => map.get(key).ok_or_else(|| Problem::NoMergeKey(key).at(path)),
        (Some(_), _) => Err(Problem::MixedItems.at(path)),
    }
}

/// Puts a merged list into the order that the patch gives; what the order does not name stays where the server had it.
fn put_in_order(
    merged: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    key: Option<&'static str>,
    path: &Path,
) -> Result<Vec<Value>> {
    let identities =
        |items: &[Value]| items.iter().map(|item| identity(item, key, path).cloned()).collect::<Result<Vec<_>>>();
    let patch_order = identities(order)?;
    for item in &merged {
        key.map_or_else(|| identity(item, None, path), |key| plain_key(item, key, path))?;
    }
    let same = key.map_or(Same::Whole, Same::Key);
    let (ours, theirs) = merged.into_iter().partition(|item| same.place(item, &patch_order).is_some());
    Ok(interleave(ours, theirs, &patch_order, server_order, same))
}

/// By what two items are the same.
#[derive(Clone, Copy)]
enum Same {
    Whole,
    Key(&'static str),
}

impl Same {
    /// The first place of an item in an order.
    fn place(self, item: &Value, order: &[Value]) -> Option<usize> {
        let what = match self {
            Self::Whole => item,
            Self::Key(key) => key_of(item, key)?,
        };
        order.iter().position(|known| known == what)
    }
}

/// One list of the patch's items in the patch's order and the server's own in the server's, in which an item of the
/// server's comes first only where the server had both and had it first.
fn interleave(
    ours: Vec<Value>,
    theirs: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    same: Same,
) -> Vec<Value> {
    let mut all = Vec::with_capacity(ours.len() + theirs.len());
    let mut ours = sort_by_order(ours, patch_order, same).into_iter().peekable();
    let mut theirs = sort_by_order(theirs, server_order, same).into_iter().peekable();
    while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
        let places = same.place(their, server_order).zip(same.place(our, server_order));
        let theirs_first = places.is_some_and(|(their, our)| their < our);
        all.extend(if theirs_first { theirs.next() } else { ours.next() });
    }
    all.extend(ours.chain(theirs));
    all
}

/// Sorts by insertion, with upstream's comparison: an item without a place counts as less than any other. That is no
/// order in the strict sense, so the result depends on the algorithm, and this is upstream's for short lists. Items that
/// a patch brought with their `$patch: delete` go last.
fn sort_by_order(items: Vec<Value>, order: &[Value], same: Same) -> Vec<Value> {
    let (deleted, mut items): (Vec<_>, Vec<_>) = items.into_iter().partition(is_deleted);
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            let places = same.place(&items[at], order).zip(same.place(&items[at - 1], order));
            if places.is_some_and(|(one, before)| one >= before) {
                break;
            }
            items.swap(at, at - 1);
        }
    }
    items.extend(deleted);
    items
}

fn is_deleted(item: &Value) -> bool {
    item.get(DIRECTIVE).is_some_and(|directive| directive == "delete")
}
