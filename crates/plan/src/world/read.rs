//! Reading objects as JSON: their names, nodes as far as planning looks at them, and typed objects with the fields that
//! their kinds have not got.

use std::collections::BTreeMap;

use dapple_api::{kinds, reading};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fit::Taint;
use crate::variant::ObjectName;

/// An object that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {problem}")]
pub struct Malformed {
    /// The object, as people name it.
    pub object: String,
    /// Where in it.
    pub field: String,
    /// What is wrong there.
    pub problem: String,
}

/// A node, as far as planning looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
}

/// Whether planning knows the kind, be it in another version.
pub fn is_known(object: &Value) -> bool {
    let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = text(object, "/kind");
    // Where all kinds of a group that dapple knows are planned, whoever writes another one of it takes it for planned too.
    let mut of_group = kinds::OWN.into_iter().filter(|own| own.at.group == group).peekable();
    let is_planned_group = of_group.peek().is_some() && of_group.all(|own| own.is_planned);
    is_planned_group
        || kinds::find(group, kind).is_some_and(|own| own.is_planned)
        || (group, kind) == (kinds::NODE.group, kinds::NODE.kind)
}

/// An object's name, as people say it; objects without a namespace are in `default`. Kubernetes has DaemonSets too, which
/// are told from ours as kubectl does.
pub fn name_of(object: &Value) -> ObjectName {
    let namespace = Some(text(object, "/metadata/namespace")).filter(|text| !text.is_empty()).unwrap_or("default");
    let kind = kind_name(text(object, "/apiVersion"), text(object, "/kind"));
    ObjectName { kind, namespace: namespace.to_owned(), name: text(object, "/metadata/name").to_owned() }
}

/// How a kind is called where it could be mistaken for another.
pub fn kind_name(api_version: &str, kind: &str) -> String {
    let native = api_version.split_once('/').and_then(|(group, _)| kinds::find_native(group, kind));
    match native {
        Some(native) if kinds::OWN.iter().any(|own| own.at.kind == kind) => format!("{kind}.{}", native.at.group),
        _ => kind.to_owned(),
    }
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

pub(crate) fn record(object: &Value) -> NodeRecord {
    let taints = object.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let taint = |taint: &Value| Taint {
        key: text(taint, "/key").to_owned(),
        value: text(taint, "/value").to_owned(),
        effect: text(taint, "/effect").to_owned(),
    };
    NodeRecord { labels: labels_of(object), taints: taints.map(taint).collect() }
}

/// An object as its type. `unknown` gets the fields that the type has not got.
pub(super) fn read<T: DeserializeOwned + Serialize>(
    object: &Value,
    name: &ObjectName,
    unknown: &mut Vec<String>,
) -> Result<T, Malformed> {
    let malformed = |field: String, problem: String| Malformed { object: name.to_string(), field, problem };
    let typed: T = reading::read(object).map_err(|error| malformed(error.field, error.text))?;
    let back = serde_json::to_value(&typed).map_err(|error| malformed(String::new(), error.to_string()))?;
    for field in ["spec", "subject", "replacements"] {
        if let (Some(written), Some(read)) = (object.get(field), back.get(field)) {
            lost(written, read, field, unknown);
        }
    }
    Ok(typed)
}

/// Fields that got lost on the way to a type and back: it has no such fields.
pub(crate) fn lost(written: &Value, read: &Value, path: &str, found: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (name, value) in written {
                let path = format!("{path}.{name}");
                match read.get(name) {
                    Some(read) => lost(value, read, &path, found),
                    // Nothing is written as nothing.
                    None if is_nothing(value) => {}
                    None => found.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            for (index, (written, read)) in written.iter().zip(read).enumerate() {
                lost(written, read, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
