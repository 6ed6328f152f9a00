//! Writes JSON values as YAML: the same bytes whatever the version of a library, and quoted so that no reader, old or
//! new, takes a string for something else.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Words that some version of YAML reads as a boolean or as null.
const RESERVED: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// A line of a document, and what it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The text, indented.
    pub text: String,
    /// The fields and items that begin on it, as RFC 6901 pointers, the innermost last.
    pub shows: Vec<String>,
}

/// A value as a YAML document, keys sorted.
pub fn document(value: &Value) -> String {
    lines(value).into_iter().fold(String::new(), |text, line| text + &line.text + "\n")
}

/// The lines of [`document`].
pub fn lines(value: &Value) -> Vec<Line> {
    let mut writer = Writer::default();
    match value {
        Value::Object(fields) if !fields.is_empty() => writer.object(fields, 0, ""),
        Value::Array(items) if !items.is_empty() => writer.list(items, 0, ""),
        _ => writer.line(0, "", String::new(), |text| scalar(text, value)),
    }
    writer.lines
}

#[derive(Default)]
struct Writer {
    lines: Vec<Line>,
    /// A dash that the next line begins with, and the item it stands for.
    dash: Option<String>,
}

impl Writer {
    fn line(&mut self, indent: usize, start: &str, pointer: String, write: impl FnOnce(&mut String)) {
        let (mut text, mut shows) = (String::new(), Vec::new());
        match self.dash.take() {
            Some(item) => {
                spaces(&mut text, indent - 2);
                text.push_str("- ");
                shows.push(item);
            }
            None => spaces(&mut text, indent),
        }
        text.push_str(start);
        write(&mut text);
        shows.push(pointer);
        self.lines.push(Line { text, shows });
    }

    fn object(&mut self, fields: &Map<String, Value>, indent: usize, pointer: &str) {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        for (key, value) in sorted {
            let mut start = String::new();
            string(&mut start, key);
            start.push(':');
            let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
            match value {
                Value::Object(fields) if !fields.is_empty() => {
                    self.line(indent, &start, pointer.clone(), |_| {});
                    self.object(fields, indent + 2, &pointer);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.line(indent, &start, pointer.clone(), |_| {});
                    self.list(items, indent, &pointer);
                }
                value => self.line(indent, &start, pointer, |text| {
                    text.push(' ');
                    scalar(text, value);
                }),
            }
        }
    }

    /// The items of a list, at the indentation of its key, as kubectl writes them.
    fn list(&mut self, items: &[Value], indent: usize, pointer: &str) {
        for (index, item) in items.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            match item {
                Value::Object(fields) if !fields.is_empty() => {
                    self.dash = Some(pointer.clone());
                    self.object(fields, indent + 2, &pointer);
                }
                item => self.line(indent, "- ", pointer, |text| scalar(text, item)),
            }
        }
    }
}

fn scalar(text: &mut String, value: &Value) {
    match value {
        Value::String(value) => string(text, value),
        value => json(text, value),
    }
}

/// A string: plain where nothing in it could mean anything to a reader, else quoted as in JSON.
fn string(text: &mut String, value: &str) {
    if is_plain(value) {
        text.push_str(value);
    } else {
        json(text, &Value::from(value));
    }
}

/// JSON is YAML, but for some control characters that YAML only has escaped.
fn json(text: &mut String, value: &Value) {
    for letter in value.to_string().chars() {
        match letter {
            // Writing to a string can't fail.
            '\u{7f}'..='\u{9f}' => write!(text, "\\u{:04x}", u32::from(letter)).unwrap_or_default(),
            letter => text.push(letter),
        }
    }
}

/// Whether every reader takes it for the text that it is, without quotes.
fn is_plain(value: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || " ._/-(),;:=@+".contains(letter);
    let begins_well = value.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/') || is_amount(value);
    begins_well
        && value.chars().all(letter)
        && !value.ends_with([' ', ':'])
        && !value.contains(": ")
        && !RESERVED.contains(&value.to_ascii_lowercase().as_str())
}

/// An amount such as `500Mi`. Without one of these endings it might be read as a number.
fn is_amount(value: &str) -> bool {
    let number = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &value[number.len()..];
    !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && ["m", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti", "P", "Pi", "Ei"].contains(&unit)
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
        assert_eq!(document(&json!([{"a": 1, "b": [2]}, []])), "- a: 1\n  b:\n  - 2\n- []\n");
        let shown: Vec<Vec<String>> = lines(&json!([{"a": 1}])).into_iter().map(|line| line.shows).collect();
        assert_eq!(shown, [["/0", "/0/a"]]);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let words =
            proptest::sample::select(vec!["", "y", "No", "~", "1e3", "0x1", "a #b", "a: b", "- a", " a", "a\n\nb"]);
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            words.prop_map(Value::from),
            "[ -~é\n\u{7f}-\u{9f}]{0,20}".prop_map(Value::from),
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
