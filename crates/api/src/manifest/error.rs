//! What can be wrong with a file, each as one line that names the place and the remedy.

use std::fmt;

use serde_json::Value;

use super::{MAX_BYTES, MAX_DEPTH, MAX_VALUES};

/// How much of a key or a scalar is shown; both may be as long as a file.
pub(crate) const SHOWN_CHARACTERS: usize = 60;

/// How much of a path, or of what is wrong with a field, is shown; both may quote the input.
pub(super) const MESSAGE_CHARACTERS: usize = 300;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// From one.
    pub line: usize,
    /// From one, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a file, or an object in it, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{position}: {}{problem}", prefix(.field))]
pub struct ManifestError {
    /// The file.
    pub file: String,
    /// Where in the file.
    pub position: Position,
    /// The field, from the top of its document or object. Empty for the whole.
    pub field: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// More than a file may have.
    #[error("the file has more than the {MAX_BYTES} bytes (16 MiB) that are read: split it")]
    TooLarge,
    /// Another encoding.
    #[error("the file is UTF-16: save it as UTF-8")]
    Utf16,
    /// Another encoding, or no text at all.
    #[error("byte 0x{byte:02X} at offset {offset} is not UTF-8: save the file as UTF-8")]
    NotUtf8 {
        /// The first byte that is wrong.
        byte: u8,
        /// Its number, from zero.
        offset: usize,
    },
    /// A character that YAML and JSON forbid.
    #[error("control character U+{character:04X}: remove it, or write it as \"\\u{character:04X}\" in double quotes")]
    Control {
        /// Its number.
        character: u32,
    },
    /// Neither YAML nor JSON.
    #[error("{message}")]
    Syntax {
        /// What is wrong, and what to do.
        message: String,
    },
    /// Lists and objects within each other.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// Too much for one file, or a few bytes that say the same thing again and again.
    #[error("more than {MAX_VALUES} values, those that aliases repeat included: split the file, or use fewer aliases")]
    TooManyValues,
    /// Long text repeated.
    #[error("aliases repeat more than {MAX_BYTES} bytes (16 MiB) of text: use fewer")]
    TooMuchRepeated,
    /// One key twice in an object.
    #[error("duplicate key {key:?}, first at {first}: remove one")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it was seen first.
        first: Position,
    },
    /// Readers disagree on who wins.
    #[error("{key:?} is written before the merge key << that sets it too: put << first")]
    KeyBeforeMerge {
        /// The key.
        key: String,
    },
    /// Only objects can be merged into an object.
    #[error("the merge key << takes an object or a list of objects, not {found}")]
    Merge {
        /// What it was given.
        found: &'static str,
    },
    /// A key that is no text and does not become text.
    #[error("{found} cannot be a key: put the key in quotes")]
    Key {
        /// What it is.
        found: &'static str,
    },
    /// What a template engine's placeholder looks like to YAML.
    #[error("{found} cannot be a key: if this is a template, render it first")]
    NestedKey {
        /// What it is.
        found: &'static str,
    },
    /// JSON numbers are read into 64 bits.
    #[error("the number {text} does not fit in 64 bits: put it in quotes if it is meant as text")]
    Number {
        /// As written.
        text: String,
    },
    /// Not a number that JSON has.
    #[error("{text} is no number in JSON: put it in quotes if it is meant as text")]
    NotFinite {
        /// As written.
        text: String,
    },
    /// A type that is not known here.
    #[error("unknown tag {tag}: remove it")]
    Tag {
        /// As written.
        tag: String,
    },
    /// A scalar that its tag does not fit.
    #[error("{text:?} is not of the type that its tag {tag} names: remove the tag")]
    TagMismatch {
        /// The tag.
        tag: String,
        /// The scalar.
        text: String,
    },
    /// A value that would contain itself.
    #[error("the alias {alias} is inside the value that it repeats")]
    AliasInside {
        /// As written.
        alias: String,
    },
    /// A document that can be no manifest.
    #[error("expected an object, found {found}")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// A field that is missing, unknown or of the wrong type.
    #[error("{message}{}", suffix(.object))]
    Type {
        /// What is wrong with it.
        message: String,
        /// The kind and name of the object, as far as they are known.
        object: String,
    },
}

impl ManifestError {
    pub(super) fn new(file: &str, position: Position, problem: Problem) -> Self {
        Self { file: file.to_owned(), position, field: String::new(), problem }
    }

    /// The error, seen from the object whose field it is in.
    pub(super) fn in_field(mut self, name: &str) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("{}{dot}{}", shown(name, SHOWN_CHARACTERS), self.field);
        self
    }

    /// The error, seen from the list whose item it is in.
    pub(super) fn in_item(mut self, index: usize) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("[{index}]{dot}{}", self.field);
        self
    }
}

fn prefix(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{}: ", shown(field, MESSAGE_CHARACTERS)) }
}

fn suffix(object: &str) -> String {
    if object.is_empty() { String::new() } else { format!(" ({object})") }
}

/// Text out of a file, fit for a terminal: not longer than so many characters, and none that would steer it.
pub(crate) fn shown(text: &str, characters: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(characters)
        .flat_map(|character| {
            let escaped = character.is_control().then(|| character.escape_unicode());
            escaped.is_none().then_some(character).into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(characters).is_some() {
        shown.push('…');
    }
    shown
}

/// What a value is, in words.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
