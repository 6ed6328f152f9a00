//! Patches: JSON patch, merge patch, and strategic merge patch for built-in kinds.

use dapple_edit::merge::{MergeError, patch_value};
use dapple_edit::schema::{DEPLOYMENT, POD_TEMPLATE, STATEFUL_SET, Shape};
use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds::Kind;

/// A patch, read.
pub(super) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// What custom resources take. We have all but apply.
const FOR_CUSTOM: [&str; 3] = ["application/json-patch+json", MERGE, "application/apply-patch+yaml"];

impl Patch {
    pub(super) fn read(kind: &Kind, content_type: &str, body: &[u8]) -> Result<Self, Failure> {
        let bad = |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
        match content_type {
            "application/json-patch+json" => Ok(Self::Json(serde_json::from_slice(body).map_err(bad)?)),
            MERGE => Ok(Self::Merge(serde_json::from_slice(body).map_err(bad)?)),
            STRATEGIC if !kind.is_custom() => Ok(Self::Strategic(serde_json::from_slice(body).map_err(bad)?)),
            _ if kind.is_custom() => Err(Failure::unsupported_media_type(&FOR_CUSTOM)),
            _ => Err(Failure::unsupported_media_type(&[])),
        }
    }

    /// The object with the patch applied.
    pub(super) fn apply(&self, kind: &Kind, object: &Value) -> Result<Value, Failure> {
        let mut patched = object.clone();
        match self {
            Self::Json(patch) => {
                json_patch::patch(&mut patched, patch).map_err(|error| Failure::unprocessable(error.to_string()))?;
            }
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => strategic(kind, &mut patched, patch)?,
        }
        Ok(patched)
    }
}

/// The metadata of any kind is merged as that of a pod template, and specs as Kubernetes says where we know what it says.
/// In the specs of other kinds lists are replaced.
fn strategic(kind: &Kind, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let refused = |error: MergeError| Failure::unprocessable(error.to_string());
    let Some(fields) = patch.as_object() else {
        return Err(Failure::bad_request("a strategic merge patch is an object"));
    };
    for (name, patch) in fields {
        let shape = match (name.as_str(), kind.qualified.as_str()) {
            ("metadata", _) | ("spec", "pods") => Some(POD_TEMPLATE),
            ("spec", "deployments.apps") => Some(DEPLOYMENT),
            ("spec", "statefulsets.apps") => Some(STATEFUL_SET),
            _ => None,
        };
        match shape {
            Some(shape) => merge_field(object, name, patch, shape).map_err(refused)?,
            None if name == "status" => merge_status(&mut object["status"], patch),
            None => json_patch::merge(object, &json!({name: patch})),
        }
    }
    Ok(())
}

/// Merges one field of an object that has this shape.
fn merge_field(object: &mut Value, field: &str, patch: &Value, shape: Shape) -> Result<(), MergeError> {
    let mut part = json!({field: object[field].take()});
    let merged = patch_value(&mut part, &json!({field: patch}), shape);
    object[field] = part[field].take();
    merged
}

/// Conditions and addresses merge by type, as in every status that has them; all else is as in a merge patch.
fn merge_status(status: &mut Value, patch: &Value) {
    let mut rest = patch.clone();
    for field in ["conditions", "addresses"] {
        let Some(Value::Array(changes)) = rest.as_object_mut().and_then(|fields| fields.remove(field)) else {
            continue;
        };
        let before = status[field].as_array().cloned().unwrap_or_default();
        let mut list = before.clone();
        for change in &changes {
            let found = list.iter().position(|known| known["type"] == change["type"]);
            match (found, change["$patch"] == "delete") {
                (Some(index), true) => _ = list.remove(index),
                (Some(index), false) => json_patch::merge(&mut list[index], change),
                (None, true) => {}
                (None, false) => {
                    let mut added = json!({});
                    json_patch::merge(&mut added, change);
                    list.push(added);
                }
            }
        }
        status[field] = Value::Array(in_order(list, &changes, &before));
    }
    json_patch::merge(status, &rest);
}

/// The order that Kubernetes gives a list that was merged by type: what the patch does not name stays where it is before
/// what it does name, as far as that was in this order before; all else that the patch names comes first.
fn in_order(list: Vec<Value>, changes: &[Value], before: &[Value]) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|known| known["type"] == item["type"]);
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| place(changes, item).is_some());
    named.sort_by_key(|item| place(changes, item));
    let mut ordered = Vec::new();
    let mut others = others.into_iter().peekable();
    for item in named {
        let here = place(before, &item);
        while others.peek().is_some_and(|other| here.is_some() && place(before, other) < here) {
            ordered.extend(others.next());
        }
        ordered.push(item);
    }
    ordered.extend(others);
    ordered
}
