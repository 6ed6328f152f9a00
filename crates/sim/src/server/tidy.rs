//! The form in which objects are stored: what the real server drops and fills in when it reads what it is sent.

use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds::Kind;
use super::output::event_in;
use super::pods;

/// Brings an object as it was sent into the form in which it is stored.
pub(super) fn tidy(kind: &Kind, mut object: Value) -> Result<Value, Failure> {
    if let Some(wrong) = misshapen(kind, &object) {
        let Kind { kind, version, .. } = kind;
        let why = format!("{kind} in version {version:?} cannot be handled as a {kind}: {wrong}");
        return Err(Failure::bad_request(why));
    }
    if kind.group == "events.k8s.io" {
        object = event_in(object);
    } else {
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(kind.api_version);
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("selfLink");
        metadata.retain(|_, value| !is_nothing(value));
    }
    match &kind.schema {
        Some(schema) => schema.settle(&mut object),
        None => {
            for (name, value) in object.as_object_mut().into_iter().flatten() {
                // The data of a revision is kept letter by letter.
                if name != "data" {
                    drop_nothing(value);
                }
            }
            // Where Go has a struct there is always an object.
            if (kind.has_status || kind.plural == "leases") && object.get("spec").is_none() {
                object["spec"] = json!({});
            }
            object.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
        }
    }
    if kind.is_pod() {
        pods::fill_in(&mut object);
    }
    Ok(object)
}

/// What of an object is not what every reader may expect: an object where there must be one, and a list.
fn misshapen(kind: &Kind, object: &Value) -> Option<String> {
    let is_object = |value: &Value| value.is_null() || value.is_object();
    let wrong = |path: &str, what: &str| Some(format!("{path} must be {what}"));
    if !object.is_object() {
        return wrong("it", "an object");
    }
    for path in ["/metadata", "/metadata/labels", "/metadata/annotations"] {
        if !object.pointer(path).is_none_or(is_object) {
            return wrong(path, "an object");
        }
    }
    for path in ["/metadata/finalizers", "/metadata/ownerReferences"] {
        if !object.pointer(path).is_none_or(|value| value.is_null() || value.is_array()) {
            return wrong(path, "a list");
        }
    }
    if kind.is_custom() {
        return None;
    }
    for path in ["/spec", "/status", "/status/disruptedPods"] {
        if !object.pointer(path).is_none_or(is_object) {
            return wrong(path, "an object");
        }
    }
    let lists = ["/spec/containers", "/spec/initContainers"].map(|path| object.pointer(path)).into_iter().flatten();
    for container in lists.flat_map(|list| list.as_array().into_iter().flatten()) {
        let amounts = ["", "/resources", "/resources/requests", "/resources/limits"];
        if container.is_null() || !amounts.iter().all(|path| container.pointer(path).is_none_or(is_object)) {
            return wrong("/spec/containers", "a list of containers");
        }
    }
    None
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Drops nulls and empty lists, which built-in kinds do not tell from fields that are not there.
fn drop_nothing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_nothing);
            fields.retain(|_, value| !value.is_null() && !value.as_array().is_some_and(Vec::is_empty));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nothing),
        _ => {}
    }
}

/// The text at a field of metadata; empty if there is none.
pub(super) fn meta<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The finalizers of an object.
pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Sets a field, or takes it out if there is nothing to set.
pub(super) fn set(fields: &mut Value, name: &str, value: Option<&Value>) {
    let Some(fields) = fields.as_object_mut() else { return };
    match value {
        Some(value) => _ = fields.insert(name.to_owned(), value.clone()),
        None => _ = fields.remove(name),
    }
}

/// Sets the finalizers of an object.
pub(super) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let list = (!finalizers.is_empty()).then(|| json!(finalizers));
    set(&mut object["metadata"], "finalizers", list.as_ref());
}

/// Everything of an object but its metadata and status.
pub(super) fn content(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "metadata" && *name != "status")
}
