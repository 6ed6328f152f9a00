//! Lists that merge: by a key, or as sets of plain values.

use serde_json::{Map, Value};

use super::order::{Places, arrange, is_deleted};
use super::{DIRECTIVE, MergeError, Nulls, Problem, added, list_of, merge_map, same_type};
use crate::lookup::Lookup;
use crate::path::Trail;
use crate::schema::Shape;

type Result<T> = std::result::Result<T, MergeError>;

/// Merges the items of `patch` into `original`.
pub(super) fn merge(
    original: &mut Vec<Value>,
    patch: &[Value],
    item: Shape,
    key: Option<&'static str>,
    trail: &Trail<'_>,
) -> Result<()> {
    let merged = merge_items(original, patch, item, key, trail)?;
    arrange(original, &merged.places);
    Ok(())
}

/// What is known of a list whose items are merged and not yet in order: first what is left of the server's, then what the
/// patch added.
struct Merged {
    places: Vec<Places>,
    server_order: ServerOrder,
}

/// The order that counts as the server's where the patch gives an order too.
enum ServerOrder {
    /// That of the first items, this many.
    OfFirst(usize),
    /// That of these keys, whose items are gone.
    OfGone(Vec<Value>),
}

impl ServerOrder {
    /// What tells apart the items, of a list not yet in order.
    fn identities(self, items: &[Value], key: Option<&'static str>, trail: &Trail<'_>) -> Result<Vec<Value>> {
        match self {
            Self::OfFirst(count) => items.iter().take(count).map(|item| identity(item, key, trail).cloned()).collect(),
            Self::OfGone(keys) => Ok(keys),
        }
    }
}

fn merge_items(
    original: &mut Vec<Value>,
    patch: &[Value],
    item: Shape,
    key: Option<&'static str>,
    trail: &Trail<'_>,
) -> Result<Merged> {
    if original.is_empty() && patch.is_empty() {
        return Ok(Merged { places: Vec::new(), server_order: ServerOrder::OfFirst(0) });
    }
    let are_objects = check_items(original, patch, trail)?;
    match (are_objects, key) {
        (true, Some(key)) => merge_objects(original, patch, item, key, trail),
        (true, None) => Err(Problem::NoKeyToMergeBy.at(trail)),
        (false, Some(key)) => Err(Problem::NoMergeKey(key).at(trail)),
        (false, None) => Ok(merge_set(original, patch)),
    }
}

/// Merges plain values.
fn merge_set(original: &mut Vec<Value>, patch: &[Value]) -> Merged {
    let mut known = Lookup::with_capacity(original.len() + patch.len());
    for value in original.iter() {
        if known.position(value).is_none() {
            known.push(value);
        }
    }
    let server_count = known.len();
    for value in patch {
        if known.position(value).is_none() {
            known.push(value);
        }
    }
    let in_patch = Lookup::of(patch.iter());
    let places = known.values().iter().enumerate().map(|(index, value)| Places {
        in_patch: in_patch.position(value),
        in_server: (index < server_count).then_some(index),
    });
    let places = places.collect();
    *original = known.values().iter().copied().cloned().collect();
    Merged { places, server_order: ServerOrder::OfFirst(server_count) }
}

/// Takes plain values out of a list.
pub(super) fn delete(
    original: &mut Vec<Value>,
    gone: &[Value],
    item: Shape,
    key: Option<&'static str>,
    trail: &Trail<'_>,
) -> Result<()> {
    if original.is_empty() && gone.is_empty() {
        return Ok(());
    }
    if check_items(original, gone, trail)? {
        // As upstream: over objects, the directive is an ordinary patch of the list.
        let Some(key) = key else { return Err(Problem::NoKeyToMergeBy.at(trail)) };
        let merged = merge_objects(original, gone, item, key, trail)?;
        arrange(original, &merged.places);
        return Ok(());
    }
    let gone = Lookup::of(gone.iter());
    original.retain(|value| gone.position(value).is_none());
    Ok(())
}

/// Items must be of one type, and no lists: nobody knows how to merge anything else. Whether they are objects.
fn check_items(original: &[Value], patch: &[Value], trail: &Trail<'_>) -> Result<bool> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else { return Err(Problem::NothingToOrder.at(trail)) };
    let fits = |value: &Value| !value.is_array() && !value.is_null() && same_type(first, value);
    if fits(first) && items.all(fits) { Ok(first.is_object()) } else { Err(Problem::MixedItems.at(trail)) }
}

fn merge_objects(
    original: &mut Vec<Value>,
    patch: &[Value],
    item: Shape,
    key: &'static str,
    trail: &Trail<'_>,
) -> Result<Merged> {
    let before = original.len();
    let (plain, replaced) = apply_directives(original, patch, key, trail)?;
    let Matches { targets, places } = match_items(original, &plain, key, trail)?;
    original.reserve_exact(places.len() - original.len());
    for (wanted, (value, target)) in plain.into_iter().zip(targets) {
        match (original.get_mut(target), wanted) {
            (Some(Value::Object(known)), Value::Object(wanted)) => {
                merge_map(known, wanted, item, &trail.keyed(key, value))?;
            }
            _ => original.push(wanted.clone()),
        }
    }
    // Upstream deletes and appends in place, so what is added takes the places of what was deleted, and counts as the
    // server's own where an order is given too. kubectl's patches rely on it when they replace an item. What a whole new
    // list replaced still counts as the server's order, though none of it is left.
    let server_order = replaced.map_or(ServerOrder::OfFirst(before), ServerOrder::OfGone);
    Ok(Merged { places, server_order })
}

/// Which items of a list are the same as those of a patch.
struct Matches<'a> {
    /// For each item of the patch: its key's value, and the index of its match, which may be one that the patch adds.
    targets: Vec<(&'a Value, usize)>,
    /// For each item of the list, and then for each that the patch adds.
    places: Vec<Places>,
}

/// Every key is looked up once, before anything is merged: merging an item leaves its key alone.
fn match_items<'a>(
    original: &[Value],
    patch: &[&'a Value],
    key: &'static str,
    trail: &Trail<'_>,
) -> Result<Matches<'a>> {
    let no_key = || Problem::NoMergeKey(key).at(trail);
    let mut keys = Lookup::with_capacity(original.len() + patch.len());
    let mut places: Vec<Places> = Vec::with_capacity(original.len() + patch.len());
    for known in original {
        let value = key_of(known, key).ok_or_else(no_key)?;
        let first = keys.position(value);
        places.push(Places { in_patch: None, in_server: first.or(Some(keys.len())) });
        keys.push(value);
    }
    let mut targets = Vec::with_capacity(patch.len());
    for (number, wanted) in patch.iter().enumerate() {
        let value = plain_key(wanted, key, trail)?;
        let target = keys.position(value);
        match target {
            // As everywhere in a patch, the null deletes the field, and then there is no key.
            Some(_) if value.is_null() => return Err(no_key()),
            Some(target) => places[target].in_patch = places[target].in_patch.or(Some(number)),
            None => {
                places.push(Places { in_patch: Some(number), in_server: None });
                keys.push(value);
            }
        }
        targets.push((value, target.unwrap_or(keys.len() - 1)));
    }
    // Upstream finds out that a key cannot be compared when it compares, so not in a list of one.
    if keys.len() > 1 && keys.values().iter().any(|value| !is_plain(value)) {
        return Err(Problem::KeyNotPlain(key).at(trail));
    }
    for known in 0..original.len() {
        // Of several items with one key the first is merged, and all are where it is.
        places[known].in_patch = places[known].in_server.and_then(|first| places[first].in_patch);
    }
    Ok(Matches { targets, places })
}

/// Carries out the items with a `$patch`, and returns the others. After a `replace` these are the list, and none is left;
/// then the keys of the list that was replaced come too.
fn apply_directives<'a>(
    original: &mut Vec<Value>,
    patch: &'a [Value],
    key: &'static str,
    trail: &Trail<'_>,
) -> Result<(Vec<&'a Value>, Option<Vec<Value>>)> {
    let (mut plain, mut replace) = (Vec::new(), false);
    for item in patch {
        match item.get(DIRECTIVE) {
            None => plain.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                let Some(value) = key_of(item, key) else { return Err(Problem::NoMergeKey(key).at(trail)) };
                original.retain(|known| key_of(known, key) != Some(value));
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(other) => return Err(Problem::Directive(other.to_string()).at(trail)),
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
fn plain_key<'a>(item: &'a Value, key: &'static str, trail: &Trail<'_>) -> Result<&'a Value> {
    match key_of(item, key) {
        None => Err(Problem::NoMergeKey(key).at(trail)),
        Some(value) if is_plain(value) => Ok(value),
        Some(_) => Err(Problem::KeyNotPlain(key).at(trail)),
    }
}

fn key_of<'a>(item: &'a Value, key: &str) -> Option<&'a Value> {
    item.get(key)
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

/// Merges a list together with the order that the patch wants it to have.
pub(super) fn merge_ordered(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    order: &Value,
    shape: Shape,
    trail: &Trail<'_>,
) -> Result<()> {
    let Value::Array(order) = order else {
        return Err(Problem::DirectiveNotAList(format!("{}/{name}", super::SET_ORDER)).at(trail));
    };
    let known = match original.get_mut(name) {
        None => None,
        Some(Value::Array(items)) => Some(std::mem::take(items)),
        Some(_) => return Err(Problem::NotAListField.at(trail)),
    };
    let wanted = match patch.get(name) {
        None => None,
        Some(Value::Array(items)) => Some(items),
        Some(_) => return Err(Problem::NotAListField.at(trail)),
    };
    let (item, merge) = list_of(shape, name, trail)?;
    let (server_list, patch_list) =
        (known.as_deref().unwrap_or_default(), wanted.map(Vec::as_slice).unwrap_or_default());
    check_order(patch_list, order, merge.key, trail)?;
    if known.is_none() && wanted.is_none() {
        return Ok(());
    }
    let are_objects = check_items(server_list, patch_list, trail)?;
    let place = |item: &Value| identity(item, merge.key, trail).cloned();
    let mut server_order = server_list.iter().map(place).collect::<Result<Vec<_>>>()?;
    let mut merged = match (known, wanted) {
        (None, wanted) => wanted.into_iter().flatten().filter_map(|item| added(item, Nulls::Keep)).collect(),
        (Some(known), None) => known,
        (Some(mut known), Some(wanted)) if merge.lists => {
            let merged = merge_items(&mut known, wanted, item, merge.key, trail)?;
            server_order = merged.server_order.identities(&known, merge.key, trail)?;
            arrange(&mut known, &merged.places);
            known
        }
        (Some(_), Some(wanted)) => wanted.clone(),
    };
    if are_objects && merge.key.is_none() && !(order.is_empty() && merged.is_empty()) {
        return Err(Problem::NoKeyToMergeBy.at(trail));
    }
    put_in_order(&mut merged, order, &server_order, merge.key, trail)?;
    original.insert(name.to_owned(), Value::Array(merged));
    Ok(())
}

/// The patch's items must be in the order that it gives.
fn check_order(items: &[Value], order: &[Value], key: Option<&'static str>, trail: &Trail<'_>) -> Result<()> {
    if items.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some() && !items.iter().all(Value::is_object) {
        return Err(Problem::MixedItems.at(trail));
    }
    let mut places = order.iter();
    for item in items.iter().filter(|item| key.is_none() || !is_deleted(item)) {
        if places.len() > 0 && item.get(DIRECTIVE).is_some() {
            continue;
        }
        loop {
            let Some(place) = places.next() else { return Err(Problem::OrderMismatch.at(trail)) };
            if identity(item, key, trail)? == identity(place, key, trail)? {
                break;
            }
        }
    }
    Ok(())
}

/// What tells an item apart: the value at its key, or the plain value itself.
fn identity<'a>(item: &'a Value, key: Option<&'static str>, trail: &Trail<'_>) -> Result<&'a Value> {
    match (key, item) {
        (None, Value::Object(_) | Value::Array(_)) | (Some(_), Value::Array(_)) => Err(Problem::MixedItems.at(trail)),
        (None, plain) => Ok(plain),
        (Some(key), Value::Object(map)) => map.get(key).ok_or_else(|| Problem::NoMergeKey(key).at(trail)),
        (Some(_), _) => Err(Problem::MixedItems.at(trail)),
    }
}

/// Puts a merged list into the order that the patch gives; what the order does not name stays where the server had it.
fn put_in_order(
    merged: &mut Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    key: Option<&'static str>,
    trail: &Trail<'_>,
) -> Result<()> {
    let patch_order = order.iter().map(|place| identity(place, key, trail)).collect::<Result<Vec<_>>>()?;
    // Upstream finds out that keys cannot be compared when it compares two of one type: those of a list with the given
    // order always, and with the server's unless there is but one.
    let (is_alone, server_order) = (merged.len() == 1, Lookup::of(server_order.iter()));
    let patch_order = Lookup::of(patch_order.into_iter());
    let is_compared = |what: &Value| {
        let server_keys = if is_alone { &[] } else { server_order.values() };
        patch_order.values().iter().chain(server_keys).any(|key| same_type(key, what))
    };
    let places = merged.iter().map(|item| {
        let what = identity(item, key, trail)?;
        if let Some(key) = key.filter(|_| !is_plain(what) && is_compared(what)) {
            return Err(Problem::KeyNotPlain(key).at(trail));
        }
        Ok(Places { in_patch: patch_order.position(what), in_server: server_order.position(what) })
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    arrange(merged, &places);
    Ok(())
}
