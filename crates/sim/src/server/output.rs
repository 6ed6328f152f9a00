//! The text of answers: objects, lists and metadata alone, in each API that an object has.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::request::Shape;
use super::store::{Object, bare};

/// Appends an object. Items of a list of built-in objects do without kind and API version.
pub(super) fn write_object(out: &mut Vec<u8>, kind: &Kind, shape: Shape, object: &Object, is_item: bool) {
    match shape {
        Shape::Partial => {
            out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
            out.extend_from_slice(object.value["metadata"].to_string().as_bytes());
            out.push(b'}');
        }
        Shape::Whole => {
            let converted = (kind.group == "events.k8s.io").then(|| bare(&event_out(&object.value)));
            let text = converted.as_deref().unwrap_or_else(|| object.bare());
            if is_item && !kind.is_custom() {
                out.extend_from_slice(text);
                return;
            }
            let head = format!(r#"{{"kind":"{}","apiVersion":"{}","#, kind.kind, kind.api_version);
            out.extend_from_slice(head.as_bytes());
            // After the brace that opens it. An object is never empty: it has metadata.
            out.extend_from_slice(text.get(1..).unwrap_or_default());
        }
    }
}

/// A list.
pub(super) fn list_text(kind: &Kind, shape: Shape, metadata: &Value, items: &[Object]) -> Vec<u8> {
    let (name, api_version) = match shape {
        Shape::Whole => (format!("{}List", kind.kind), kind.api_version.as_str()),
        Shape::Partial => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1"),
    };
    let head = format!(r#"{{"kind":"{name}","apiVersion":"{api_version}","metadata":{metadata},"items":["#);
    let mut out = head.into_bytes();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_object(&mut out, kind, shape, item, true);
    }
    out.extend_from_slice(b"]}");
    out
}

/// Fields that both APIs of events have under different names: of the core API, and of `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// An event of the core API, as it is stored, for `events.k8s.io`.
fn event_out(event: &Value) -> Value {
    let mut event = event.clone();
    rename(&mut event, EVENT_FIELDS.iter().copied());
    event
}

/// An event of `events.k8s.io`, as it is stored.
pub(super) fn event_in(mut event: Value) -> Value {
    rename(&mut event, EVENT_FIELDS.iter().map(|(core, new)| (*new, *core)));
    event["apiVersion"] = json!("v1");
    event
}

fn rename<'a>(event: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
