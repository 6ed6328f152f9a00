//! Where in a document something is, as people read it: `spec.containers[name=agent].env[0]`.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Into a field.
    Field(String),
    /// Into an item of a list, by number.
    Item(usize),
    /// Into an item of a list, by the field that tells its items apart.
    Keyed {
        /// That field.
        key: &'static str,
        /// Its value in the item, as JSON.
        value: String,
    },
}

impl Step {
    /// Into the item of a list that has this value at `key`.
    pub(crate) fn keyed(key: &'static str, value: &Value) -> Self {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Self::Keyed { key, value }
    }
}

/// Whether a value is written like this in a path: text as it is, anything else as JSON.
pub(crate) fn is_written(value: &Value, text: &str) -> bool {
    match value {
        Value::String(plain) => plain == text,
        other => {
            let json = other.to_string();
            json == text
        }
    }
}

/// A place in a document. Cheap to clone: whoever tells of a place has it several times.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Arc<[Step]>);

impl Path {
    /// The place that these steps lead to.
    pub fn of(steps: &[Step]) -> Self {
        Self(steps.into())
    }

    /// The steps that lead there.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Where this is in a document, as an RFC 6901 pointer; nothing if it is not there.
    pub fn pointer_in(&self, document: &Value) -> Option<String> {
        let (mut pointer, mut at) = (String::new(), document);
        for step in self.0.iter() {
            let (part, next) = match step {
                Step::Field(name) => (name.replace('~', "~0").replace('/', "~1"), at.get(name)?),
                Step::Item(index) => (index.to_string(), at.get(index)?),
                Step::Keyed { key, value } => {
                    let index = at
                        .as_array()?
                        .iter()
                        .position(|item| item.get(key).is_some_and(|found| is_written(found, value)))?;
                    (index.to_string(), at.get(index)?)
                }
            };
            pointer.push('/');
            pointer.push_str(&part);
            at = next;
        }
        Some(pointer)
    }

    /// Where the innermost place around this is that a document still has.
    pub fn nearest_in(&self, document: &Value) -> Option<String> {
        (0..self.0.len()).rev().find_map(|length| Self::of(&self.0[..length]).pointer_in(document))
    }

    /// Whether this is inside the place at `other`, or that place.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

/// The way that a walk through a document has come. Its steps are on the walker's stack and borrow their names, so that
/// walking costs nothing: only who has something to tell of a place makes a [`Path`] of it.
#[derive(Clone, Copy)]
pub(crate) enum Trail<'a> {
    /// At the document itself.
    Start,
    /// From there into a field.
    Field(&'a Trail<'a>, &'a str),
    /// From there into the item of a list that has this value at the key.
    Keyed(&'a Trail<'a>, &'static str, &'a Value),
}

impl<'a> Trail<'a> {
    /// One field further in.
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    /// Inside the item of a list that has this value at `key`.
    pub(crate) fn keyed(&'a self, key: &'static str, value: &'a Value) -> Self {
        Self::Keyed(self, key, value)
    }

    /// The place that it has led to.
    pub(crate) fn path(&self) -> Path {
        Path(self.steps(0).into())
    }

    /// The steps up to here, with room for as many as follow.
    fn steps(&self, following: usize) -> Vec<Step> {
        let (before, step) = match self {
            Self::Start => return Vec::with_capacity(following),
            Self::Field(before, name) => (before, Step::Field((*name).to_owned())),
            Self::Keyed(before, key, value) => (before, Step::keyed(key, value)),
        };
        let mut steps = before.steps(following + 1);
        steps.push(step);
        steps
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the document");
        }
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if number == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item(index) => write!(f, "[{index}]")?,
                Step::Keyed { key, value } => write!(f, "[{key}={value}]")?,
            }
        }
        Ok(())
    }
}
