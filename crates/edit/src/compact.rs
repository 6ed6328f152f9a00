//! JSON without spaces, with the keys of every object in the order of their bytes.

use serde_json::{Number, Value};

/// What is left to choose: how texts and numbers are written.
pub(crate) trait Form {
    /// Writes a text, with its quotes.
    fn write_text(out: &mut String, text: &str);
    /// Writes a number.
    fn write_number(out: &mut String, number: &Number);
}

/// Writes a value.
pub(crate) fn write<F: Form>(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => F::write_number(out, number),
        Value::String(text) => F::write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write::<F>(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            // In order already, unless somebody builds serde_json to keep the order of insertion.
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                F::write_text(out, key);
                out.push(':');
                write::<F>(out, value);
            }
            out.push('}');
        }
    }
}
