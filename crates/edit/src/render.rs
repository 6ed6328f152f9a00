//! Rendering: a base document and edits in order give a document, and say of every field that differs who set it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::document::Document;
use crate::edit::{Edit, EditError, Source, Warning};
use crate::leaves::{Place, differences};
use crate::path::Path;

/// A rendered document: a pod template, or a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendering {
    /// The document.
    pub document: Value,
    /// Names the rendering: equal documents have equal hashes, on every machine and in every version of dapple.
    pub hash: String,
    /// Every field that differs from the base, by path, with who set it.
    pub origins: Vec<Origin>,
    /// What is probably not meant.
    pub warnings: Vec<Warning>,
}

/// Where a field's value came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// The field.
    pub path: Path,
    /// What the base has there, if anything. For the order of a list, the keys of its items.
    pub before: Option<Value>,
    /// What the document has there now, if anything.
    pub after: Option<Value>,
    /// Who set it.
    pub set_by: Source,
    /// Who set it before, with what, and was overruled; in the order of application.
    pub overruled: Vec<(Source, Option<Value>)>,
}

/// Applies the edits in order. The first that does not apply fails the whole: half a rendering is none.
pub fn render(kind: Document, base: &Value, edits: &[&Edit]) -> Result<Rendering, EditError> {
    let mut document = base.clone();
    let mut histories: BTreeMap<Place, Vec<Step>> = BTreeMap::new();
    let (mut warnings, mut last_changes) = (Vec::new(), Vec::new());
    for (number, edit) in edits.iter().enumerate() {
        // Before the first edit, the base is what was there: no copy is needed.
        let copy = (number > 0).then(|| document.clone());
        warnings.extend(edit.apply(kind, &mut document)?);
        last_changes = differences(copy.as_ref().unwrap_or(base), &document, kind.shape());
        for (place, _, value) in &last_changes {
            histories.entry(place.clone()).or_default().push(Step { source: &edit.source, value: value.clone() });
        }
    }
    // What differs in the end is told by comparing the ends; the steps only say who did it.
    let changes = if edits.len() > 1 { differences(base, &document, kind.shape()) } else { last_changes };
    let origins = changes.into_iter().filter_map(|(place, before, after)| origin(place, before, after, &histories));
    let mut origins: Vec<Origin> = origins.collect();
    origins.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Rendering { hash: hash(&document), document, origins, warnings })
}

/// One edit's doing at one place.
struct Step<'a> {
    source: &'a Source,
    value: Option<Value>,
}

fn origin(
    place: Place,
    before: Option<Value>,
    after: Option<Value>,
    histories: &BTreeMap<Place, Vec<Step<'_>>>,
) -> Option<Origin> {
    let path = place.path().clone();
    if let Some((last, earlier)) = histories.get(&place).and_then(|steps| steps.split_last()) {
        let overruled = earlier.iter().map(|step| (step.source.clone(), step.value.clone())).collect();
        return Some(Origin { path, before, after, set_by: last.source.clone(), overruled });
    }
    // An order that no single edit changed: one took an item out and another put it back elsewhere. The last that
    // touched the list did it.
    let below = histories.iter().filter(|(known, _)| known.path().is_below(&path));
    let last = below.filter_map(|(_, steps)| steps.last()).next_back()?;
    Some(Origin { path, before, after, set_by: last.source.clone(), overruled: Vec::new() })
}

/// Applies the edits in order, without saying who set what: the document and its hash.
pub fn render_plain(kind: Document, base: &Value, edits: &[&Edit]) -> Result<(Value, String), EditError> {
    let mut document = base.clone();
    for edit in edits {
        edit.apply(kind, &mut document)?;
    }
    let hash = hash(&document);
    Ok((document, hash))
}

/// The name of a document: the first 16 digits of the SHA-256 of its canonical JSON.
pub fn hash(document: &Value) -> String {
    let digest = Sha256::digest(canonical(document).as_bytes());
    let mut text = String::with_capacity(16);
    for byte in digest.iter().take(8) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// JSON without spaces, keys sorted, whatever the order in memory is.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut names: Vec<&String> = map.keys().collect();
            // Sorted already, unless somebody builds serde_json to keep the order of insertion.
            names.sort();
            text.push('{');
            for (number, name) in names.into_iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write_text(name, text);
                text.push(':');
                write_canonical(&map[name], text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::String(plain) => write_text(plain, text),
        plain => {
            let _ = write!(text, "{plain}");
        }
    }
}

/// Text as JSON. Most has nothing to escape, and is copied.
fn write_text(plain: &str, text: &mut String) {
    if plain.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(plain);
        text.push('"');
    } else {
        let _ = write!(text, "{}", Value::from(plain));
    }
}

/// A field that differs between two documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The field.
    pub path: Path,
    /// What the one has there, if anything. For the order of a list, the keys of its items.
    pub before: Option<Value>,
    /// What the other has there, if anything.
    pub after: Option<Value>,
}

/// Every field that differs between two documents of a kind, by path.
pub fn changes(kind: Document, before: &Value, after: &Value) -> Vec<Changed> {
    let places = differences(before, after, kind.shape()).into_iter();
    let mut changes: Vec<Changed> =
        places.map(|(place, before, after)| Changed { path: place.path().clone(), before, after }).collect();
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes
}
