//! Strategic merge patch, as Kubernetes does it.
//!
//! Maps merge by key and `null` deletes. Lists merge or are replaced as the [`Shape`] says: by a merge key, or as sets of
//! plain values. Directives: `$patch: replace | delete` in a map or a list's item, `$deleteFromPrimitiveList/<field>`,
//! `$setElementOrder/<field>` and `$retainKeys`. Where upstream has a quirk (what a patch adds as a whole keeps some
//! directives, an empty order is legal), the quirk is kept: users' patches rely on kubectl giving the same result. The
//! differential test holds this against Go's own implementation.
//!
//! Unlike upstream, the order in which fields are handled is fixed, and every error says where it is. And a field that the
//! table lacks may be newer than the table, where upstream refuses to merge it: objects merge field by field and lists are
//! replaced, as kubectl does it for kinds that it does not know. Whether there is such a field is for the cluster to say.

use serde_json::{Map, Value};

use dapple_api::manifest::kind_of;

use crate::path::{Path, Trail};
use crate::schema::{Field, Merge, POD_TEMPLATE, Shape};

mod list;
mod order;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Why a patch does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct MergeError {
    /// Where.
    pub path: Path,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The patch is not an object.
    #[error("a strategic merge patch is an object, and this is {0}")]
    NotAnObject(&'static str),
    /// What is patched is not an object.
    #[error("a patch changes an object, and this is {0}")]
    NothingToPatch(&'static str),
    /// A `$patch` says something else than it may.
    #[error("$patch is {0}, and may be \"replace\" or \"delete\" here")]
    Directive(String),
    /// A directive that lists something is not a list.
    #[error("{0} must be a list")]
    DirectiveNotAList(String),
    /// A directive's name lacks the field it is about.
    #[error("{0:?} does not name a field: write it as \"{1}/<field>\"")]
    DirectiveWithoutField(String, &'static str),
    /// A field is in the patch and not among the keys to retain.
    #[error("$retainKeys does not name {0:?}, which the patch sets: add it, or take the field out")]
    NotRetained(String),
    /// Lists merge into lists.
    #[error("this is not a list in Kubernetes")]
    NotAListField,
    /// An object inside a map of plain values.
    #[error("objects cannot be merged here, since Kubernetes has no object here")]
    NotAnObjectField,
    /// An item lacks the field that tells items apart.
    #[error("an item has no {0:?}, which tells the items of this list apart")]
    NoMergeKey(&'static str),
    /// The field that tells items apart has an object or a list in it.
    #[error("{0:?} tells the items of this list apart, so it must be a plain value")]
    KeyNotPlain(&'static str),
    /// Items that merge by no key.
    #[error("a list of objects without a merge key cannot be merged")]
    NoKeyToMergeBy,
    /// Items of several kinds.
    #[error("the items of a list that merges must all be objects, or all be plain values of one type")]
    MixedItems,
    /// A list that merges has no items at all to go by.
    #[error("an order is given for a list that has no items")]
    NothingToOrder,
    /// The order says other than the list.
    #[error("the patch's items are not in the order that $setElementOrder gives, or not in it at all")]
    OrderMismatch,
}

impl Problem {
    fn at(self, trail: &Trail<'_>) -> MergeError {
        MergeError { path: trail.path(), problem: self }
    }
}

/// Applies a strategic merge patch to a pod template.
pub fn patch_template(template: &mut Value, patch: &Value) -> Result<(), MergeError> {
    patch_value(template, patch, POD_TEMPLATE)
}

/// Applies a strategic merge patch to a document of this shape. On an error the document is left half changed: patch a
/// copy if it is still needed.
pub fn patch_value(document: &mut Value, patch: &Value, shape: Shape) -> Result<(), MergeError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => return Ok(()),
        other => return Err(Problem::NotAnObject(kind_of(other)).at(&Trail::Start)),
    };
    if document.is_null() {
        *document = Value::Object(Map::new());
    }
    match document {
        Value::Object(map) => merge_map(map, patch, shape, &Trail::Start),
        other => Err(Problem::NothingToPatch(kind_of(other)).at(&Trail::Start)),
    }
}

/// Merges `patch` into `original`.
fn merge_map(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    shape: Shape,
    trail: &Trail<'_>,
) -> Result<(), MergeError> {
    // Most maps of a patch have no directive, and need not be asked for each.
    if patch.keys().any(|name| name.starts_with('$')) {
        return merge_with_directives(original, patch, shape, trail);
    }
    patch.iter().try_for_each(|(name, value)| merge_field(original, name, value, shape, trail))
}

fn merge_with_directives(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    shape: Shape,
    trail: &Trail<'_>,
) -> Result<(), MergeError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        *original = replacement(directive, patch, trail)?;
        return Ok(());
    }
    retain_keys(original, patch, trail)?;
    let mut done = Vec::new();
    for (name, order) in patch.iter().filter(|(name, _)| name.starts_with(SET_ORDER)) {
        let field = directive_field(name, SET_ORDER, trail)?;
        list::merge_ordered(original, patch, field, order, shape, &trail.field(field))?;
        done.push(field);
    }
    for (name, value) in patch {
        let is_directive = name == RETAIN_KEYS || name.starts_with(SET_ORDER);
        if is_directive || done.contains(&name.as_str()) {
            continue;
        }
        if name.starts_with(DELETE_FROM) {
            let field = directive_field(name, DELETE_FROM, trail)?;
            delete_from(original, field, value, shape, &trail.field(field))?;
        } else {
            merge_field(original, name, value, shape, trail)?;
        }
    }
    Ok(())
}

/// What a map becomes by a `$patch` directive in it.
fn replacement(
    directive: &Value,
    patch: &Map<String, Value>,
    trail: &Trail<'_>,
) -> Result<Map<String, Value>, MergeError> {
    match directive.as_str() {
        Some("replace") => {
            let mut whole = patch.clone();
            whole.remove(DIRECTIVE);
            Ok(whole)
        }
        Some("delete") => Ok(Map::new()),
        _ => Err(Problem::Directive(directive.to_string()).at(trail)),
    }
}

/// The field that a directive such as `$setElementOrder/containers` is about.
fn directive_field<'a>(name: &'a str, prefix: &'static str, trail: &Trail<'_>) -> Result<&'a str, MergeError> {
    let field = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
    field.ok_or_else(|| Problem::DirectiveWithoutField(name.to_owned(), prefix).at(trail))
}

/// Drops every field that `$retainKeys` does not name.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    trail: &Trail<'_>,
) -> Result<(), MergeError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(Problem::DirectiveNotAList(RETAIN_KEYS.to_owned()).at(trail)) };
    let is_kept = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    for (name, value) in patch {
        let is_directive = name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
        if !value.is_null() && !is_directive && !is_kept(name) {
            return Err(Problem::NotRetained(name.clone()).at(trail));
        }
    }
    original.retain(|name, _| is_kept(name));
    Ok(())
}

/// Merges one field of a patch.
fn merge_field(
    original: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    shape: Shape,
    trail: &Trail<'_>,
) -> Result<(), MergeError> {
    if value.is_null() {
        original.remove(name);
        return Ok(());
    }
    let Some(known) = original.get_mut(name) else {
        if let Some(added) = added(value, Nulls::Drop) {
            original.insert(name.to_owned(), added);
        }
        return Ok(());
    };
    let trail = &trail.field(name);
    match (known, value) {
        (Value::Object(known), Value::Object(patch)) => {
            merge_map(known, patch, field_of(shape, name, trail)?.shape, trail)?;
        }
        (Value::Array(known), Value::Array(patch)) => {
            let (item, merge) = list_of(shape, name, trail)?;
            if merge.lists {
                list::merge(known, patch, item, merge.key, trail)?;
            } else {
                known.clone_from(patch);
            }
        }
        (known, value) => match added(value, Nulls::Drop) {
            Some(added) => *known = added,
            None => drop(original.remove(name)),
        },
    }
    Ok(())
}

/// Takes plain values out of a list.
fn delete_from(
    original: &mut Map<String, Value>,
    name: &str,
    values: &Value,
    shape: Shape,
    trail: &Trail<'_>,
) -> Result<(), MergeError> {
    if values.is_null() {
        original.remove(name);
        return Ok(());
    }
    let (Some(Value::Array(known)), Value::Array(gone)) = (original.get_mut(name), values) else {
        // Upstream lets a directive pass that finds nothing to delete from; objects and plain values it takes as patches.
        return delete_from_other(original, name, values, shape, trail);
    };
    let (item, merge) = list_of(shape, name, trail)?;
    list::delete(known, gone, item, merge.key, trail)
}

/// `$deleteFromPrimitiveList` over something that is no list.
fn delete_from_other(
    original: &mut Map<String, Value>,
    name: &str,
    values: &Value,
    shape: Shape,
    trail: &Trail<'_>,
) -> Result<(), MergeError> {
    match (original.get_mut(name), values) {
        (Some(Value::Object(known)), Value::Object(patch)) => {
            let field = field_of(shape, name, trail)?;
            merge_map(known, patch, field.shape, trail)
        }
        (Some(known), plain) if same_type(known, plain) => {
            *known = plain.clone();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether upstream holds both for values of one type.
pub(crate) fn same_type(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.is_f64() == right.is_f64(),
        _ => std::mem::discriminant(left) == std::mem::discriminant(right),
    }
}

/// A field that the table lacks, and any field inside it.
static NEWER: Field = Field { name: "", shape: Shape::Any, merge: Merge::DEFAULT };

/// The field `name` of an object of this shape.
fn field_of(shape: Shape, name: &str, trail: &Trail<'_>) -> Result<&'static Field, MergeError> {
    match shape {
        Shape::Object(id) => Ok(id.get().field(name).unwrap_or(&NEWER)),
        Shape::Any => Ok(&NEWER),
        _ => Err(Problem::NotAnObjectField.at(trail)),
    }
}

/// The shape of the items of the list `name`, and how it merges.
fn list_of(shape: Shape, name: &str, trail: &Trail<'_>) -> Result<(Shape, Merge), MergeError> {
    let field = field_of(shape, name, trail)?;
    match field.shape {
        Shape::List(item) => Ok((*item, field.merge)),
        Shape::Any => Ok((Shape::Any, field.merge)),
        _ => Err(Problem::NotAListField.at(trail)),
    }
}

/// What becomes of `null` in what a patch adds as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// There is nothing to delete, so it goes.
    Drop,
    /// It stays, as upstream has it for a list that comes with an order.
    Keep,
}

/// A value that a patch adds as a whole: without what carries a `$patch`. `None` if that is the value itself.
fn added(value: &Value, nulls: Nulls) -> Option<Value> {
    // There is seldom anything to take out, and a copy of the whole is cheaper than one made piece by piece.
    let mut copy = value.clone();
    prune(&mut copy, nulls).then_some(copy)
}

/// Takes out of a value what a patch does not add. Returns whether the value itself is added.
fn prune(value: &mut Value, nulls: Nulls) -> bool {
    let is_dropped = |value: &Value| nulls == Nulls::Drop && value.is_null();
    match value {
        Value::Object(map) => {
            if map.get(DIRECTIVE).is_some_and(|directive| !is_dropped(directive)) {
                return false;
            }
            map.retain(|_, value| !is_dropped(value) && prune(value, nulls));
        }
        Value::Array(items) => items.retain_mut(|item| prune(item, nulls)),
        _ => (),
    }
    true
}
