//! Where in a document something is, as people read it: `spec.containers[name=agent].env[0]`.

use std::fmt;

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
        key: String,
        /// Its value in the item, as JSON.
        value: String,
    },
}

impl Step {
    /// Into the item of a list that has this value at `key`.
    pub(crate) fn keyed(key: &str, value: &Value) -> Self {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Self::Keyed { key: key.to_owned(), value }
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

/// A place in a document.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<Step>);

impl Path {
    /// The place that these steps lead to.
    pub(crate) fn of(steps: &[Step]) -> Self {
        Self(steps.to_vec())
    }

    /// The steps that lead there.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Where this is in a document, as an RFC 6901 pointer; nothing if it is not there.
    pub fn pointer_in(&self, document: &Value) -> Option<String> {
        let (mut pointer, mut at) = (String::new(), document);
        for step in &self.0 {
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

    /// Whether this is inside the place at `other`, or that place.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// Runs `act` one field further in.
    pub(crate) fn in_field<T>(&mut self, name: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        self.inside(Step::Field(name.to_owned()), act)
    }

    /// Runs `act` inside the item of a list that has this value at `key`.
    pub(crate) fn in_keyed<T>(&mut self, key: &str, value: &Value, act: impl FnOnce(&mut Self) -> T) -> T {
        self.inside(Step::keyed(key, value), act)
    }

    fn inside<T>(&mut self, step: Step, act: impl FnOnce(&mut Self) -> T) -> T {
        self.0.push(step);
        let result = act(self);
        self.0.pop();
        result
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
