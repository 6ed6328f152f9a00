//! Reads the files that users write: YAML and JSON, many documents, lists of objects. Bytes in, values out.
//!
//! The input is hostile until read. Every limit below is checked while reading, so that no file costs more than a few
//! hundred megabytes or a second, and every error names the file, the line, the column and the field.
//!
//! What a scalar means is what `sigs.k8s.io/yaml`, and so kubectl, makes of it: `yes`, `on` and `y` are true, `010` is
//! 8, `1_000` is 1000, `1.0` is the integer 1, and a key that is an integer or a boolean becomes text. Where kubectl
//! changes what was written without a word, the file is refused instead:
//!
//! - duplicate keys, of which kubectl takes the last;
//! - a key written before the merge key `<<` that sets it too, where kubectl takes the merged value and the
//!   specification of YAML the written one; and a second `<<`;
//! - numbers beyond 64 bits, which kubectl rounds (`18446744073709551616`) or takes for text (`1e400`);
//! - keys with a fraction, of which kubectl makes `1.2` out of `1.20`;
//! - tags other than those of YAML's core schema, which kubectl ignores.
//!
//! Values are read with their places, so that whatever is found later at a field can name its line; see
//! [`Manifest::locate`].

mod error;
mod locate;
mod object;
mod scalar;
mod syntax;
mod text;
mod tree;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod read_tests;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::error::MESSAGE_CHARACTERS;
pub use self::error::{ManifestError, Position, Problem, kind_of};
pub(crate) use self::error::{SHOWN_CHARACTERS, shown};
use self::locate::Mark;
use self::tree::Document;
use crate::reading;
use crate::verdict::FieldError;

/// The bytes a file may have, and the bytes of text its aliases may repeat.
pub const MAX_BYTES: usize = 16 << 20;

/// How deep lists and objects may nest.
pub const MAX_DEPTH: usize = 100;

/// The values a file may have, those that aliases repeat included.
pub const MAX_VALUES: usize = 1_000_000;

/// An object out of a file.
#[derive(Debug, Clone)]
pub struct Manifest {
    file: Arc<str>,
    value: Value,
    mark: Mark,
}

/// The objects of a file, in order. Empty documents are left out, and lists (`List`, `NodeList`) replaced by their
/// items. `name` is the file's, for errors.
pub fn read(name: &str, bytes: &[u8]) -> Result<Vec<Manifest>, ManifestError> {
    let text = text::checked(name, bytes)?;
    let file = Arc::from(name);
    let mut manifests = Vec::new();
    for document in tree::documents(name, text)? {
        flatten(&file, document, &mut manifests)?;
    }
    Ok(manifests)
}

/// Adds an object, or the items of a list of objects.
fn flatten(file: &Arc<str>, document: Document, manifests: &mut Vec<Manifest>) -> Result<(), ManifestError> {
    let value = &document.value;
    if !value.is_object() {
        let problem = Problem::NotAnObject { found: kind_of(value) };
        return Err(ManifestError::new(file, document.mark.position(), problem));
    }
    let list_kind = value["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let Some(item_kind) = list_kind.filter(|_| value["items"].is_array()).map(str::to_owned) else {
        manifests.push(Manifest { file: Arc::clone(file), value: document.value, mark: document.mark });
        return Ok(());
    };
    let version = value["apiVersion"].clone();
    for (index, mut item) in document.into_items().into_iter().enumerate() {
        // The items of a typed list, as the API serves it, leave out what the list says.
        if let Value::Object(fields) = &mut item.value
            && !item_kind.is_empty()
            && !fields.contains_key("kind")
        {
            fields.insert("kind".to_owned(), Value::from(item_kind.as_str()));
            fields.entry("apiVersion").or_insert_with(|| version.clone());
        }
        flatten(file, item, manifests).map_err(|error| error.in_item(index).in_field("items"))?;
    }
    Ok(())
}

impl Manifest {
    /// The file it came from.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What it says.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Where it begins.
    #[must_use]
    pub fn position(&self) -> Position {
        self.mark.position()
    }

    /// Where the field at `path` is written, as in `spec.containers[name=agent].env[0]`, or what is nearest around it:
    /// of something that is missing the place where it would be, of what an alias or merge key repeats that alias.
    #[must_use]
    pub fn locate(&self, path: &str) -> Position {
        locate::locate(&self.mark, &self.value, path)
    }

    /// The object as a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ManifestError> {
        reading::read(&self.value).map_err(|FieldError { field, text, .. }| {
            let problem = Problem::Type { message: shown(&text, MESSAGE_CHARACTERS), object: self.object() };
            ManifestError { file: self.file.to_string(), position: self.locate(&field), field, problem }
        })
    }

    /// The kind and name, as far as they are known: `DaemonSet kube-system/agent`.
    fn object(&self) -> String {
        let known = |value: &Value| value.as_str().map(|text| shown(text, MESSAGE_CHARACTERS));
        let metadata = &self.value["metadata"];
        let name = match (known(&metadata["namespace"]), known(&metadata["name"])) {
            (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
            (_, name) => name,
        };
        [known(&self.value["kind"]), name].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}
