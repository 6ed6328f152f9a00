//! Finding values in lists: by looking through a short one, by a table in a long one.
//!
//! Lists in templates are short, and looking through them is fastest. But whoever writes ten thousand containers must not
//! keep a manager busy for minutes.

use std::collections::HashMap;

use serde_json::Value;

/// From this length on a table pays.
const LONG: usize = 32;

/// Values in the order they were added. Only looked up, never walked by the table: its order escapes nowhere.
pub(crate) struct Lookup<'a> {
    values: Vec<&'a Value>,
    first: HashMap<String, usize>,
}

impl<'a> Lookup<'a> {
    /// With room for so many.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { values: Vec::with_capacity(capacity), first: HashMap::new() }
    }

    pub(crate) fn of(values: impl Iterator<Item = &'a Value>) -> Self {
        let mut lookup = Self::with_capacity(values.size_hint().0);
        values.for_each(|value| lookup.push(value));
        lookup
    }

    pub(crate) fn push(&mut self, value: &'a Value) {
        self.values.push(value);
        match self.values.len() {
            length if length < LONG => {}
            LONG => {
                for (index, value) in self.values.iter().enumerate() {
                    self.first.entry(text_of(value)).or_insert(index);
                }
            }
            length => _ = self.first.entry(text_of(value)).or_insert(length - 1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values, in the order they were added.
    pub(crate) fn values(&self) -> &[&'a Value] {
        &self.values
    }

    /// The place of the first value that equals this one.
    pub(crate) fn position(&self, wanted: &Value) -> Option<usize> {
        if self.values.len() < LONG {
            self.values.iter().position(|known| *known == wanted)
        } else {
            self.first.get(&text_of(wanted)).copied()
        }
    }

    /// Whether no two values are equal.
    pub(crate) fn is_distinct(&self) -> bool {
        if self.values.len() < LONG {
            self.values.iter().enumerate().all(|(number, value)| !self.values[..number].contains(value))
        } else {
            self.first.len() == self.values.len()
        }
    }
}

/// JSON: equal for equal values, as objects are sorted, and different for different ones.
fn text_of(value: &Value) -> String {
    crate::render::canonical(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_and_long_lists_find_the_same() {
        for length in [3, LONG - 1, LONG, LONG + 1, 100] {
            let values: Vec<Value> = (0..length)
                .map(|number| if number % 2 == 0 { json!(number) } else { json!(number.to_string()) })
                .collect();
            let lookup = Lookup::of(values.iter());
            assert!(lookup.is_distinct());
            for (index, value) in values.iter().enumerate() {
                assert_eq!(lookup.position(value), Some(index));
            }
            assert_eq!(lookup.position(&json!("2")), None, "a number is no text");
            let doubled = Lookup::of(values.iter().chain(&values[1..2]));
            assert!(!doubled.is_distinct());
            assert_eq!((doubled.position(&values[1]), doubled.len()), (Some(1), length + 1));
        }
    }
}
