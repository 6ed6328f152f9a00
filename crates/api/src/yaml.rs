//! Writes JSON values as YAML: the same bytes whatever the version of a library, and quoted so that no reader, old or
//! new, takes a string for something else.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Words that some version of YAML reads as a boolean or as null.
const RESERVED: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// A value as a YAML document, keys sorted.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => object(&mut text, fields, 0, false),
        _ => {
            scalar(&mut text, value);
            text.push('\n');
        }
    }
    text
}

/// The fields of an object. `inline` if the first one follows the dash of a list.
fn object(text: &mut String, fields: &Map<String, Value>, indent: usize, mut inline: bool) {
    // Whether `serde_json` sorts keys depends on features that other crates may turn on.
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    for (key, value) in sorted {
        if !inline {
            spaces(text, indent);
        }
        inline = false;
        string(text, key);
        text.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                text.push('\n');
                object(text, fields, indent + 2, false);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                list(text, items, indent);
            }
            value => {
                text.push(' ');
                scalar(text, value);
                text.push('\n');
            }
        }
    }
}

/// The items of a list, dashes at the indentation of the key, as kubectl writes them.
fn list(text: &mut String, items: &[Value], indent: usize) {
    for item in items {
        spaces(text, indent);
        text.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => object(text, fields, indent + 2, true),
            item => {
                scalar(text, item);
                text.push('\n');
            }
        }
    }
}

/// Anything on one line. JSON is YAML, so lists of lists, of which schemas have none, come out right too.
fn scalar(text: &mut String, value: &Value) {
    match value {
        Value::String(value) => string(text, value),
        // Writing to a string can't fail.
        value => write!(text, "{value}").unwrap_or_default(),
    }
}

/// A string: plain where nothing in it could mean anything to a reader, else quoted as in JSON.
fn string(text: &mut String, value: &str) {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || " ._/-(),;".contains(letter);
    let plain = value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.chars().all(letter)
        && !value.ends_with(' ')
        && !RESERVED.contains(&value.to_ascii_lowercase().as_str());
    if plain {
        text.push_str(value);
    } else {
        write!(text, "{}", Value::from(value)).unwrap_or_default();
    }
}

fn spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_read_as_kubectl_writes_them() {
        let value = json!({"b": [{"y": "on", "x": 1}, "1.0", "*"], "a": {"empty": {}, "none": []}, "c": "a: b"});
        let expected = "a:\n  empty: {}\n  none: []\nb:\n- x: 1\n  \"y\": \"on\"\n- \"1.0\"\n- \"*\"\nc: \"a: b\"\n";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!("x")), "x\n");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let words =
            proptest::sample::select(vec!["", "y", "No", "~", "1e3", "0x1", "a #b", "a: b", "- a", " a", "a\n\nb"]);
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            words.prop_map(Value::from),
            "[ -~é\n]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{1,8}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in any_value()) {
            let text = document(&value);
            let read: Value = serde_saphyr::from_str(&text).expect(&text);
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
