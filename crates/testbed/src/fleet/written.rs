//! Reading a fleet description, and saying what is wrong with it and where.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::Spanned;

use super::{Fleet, Kind, MOST, Taint};
use crate::error::{Error, Result};

/// The file as written; places are kept for messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kinds: Vec<WrittenKind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKind {
    name: Spanned<String>,
    count: Spanned<u32>,
    #[serde(default)]
    labels: BTreeMap<String, Spanned<Values>>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<Spanned<Taint>>,
    #[serde(default)]
    capacity: BTreeMap<String, Spanned<Quantity>>,
}

/// One value, or several that the nodes of the fleet take in turn.
struct Values(Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Values;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a string or a list of strings (quote numbers and true/false)")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Values, E> {
                Ok(Values(vec![value.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = items.next_element()? {
                    values.push(value);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A quantity, written as a string or as a whole number.
struct Quantity(String);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a quantity like 8, 500m or 32Gi")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Quantity, E> {
                Ok(Quantity(value.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Fleet {
    /// Reads a description; `file` is only for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self> {
        let written: Written = serde_saphyr::from_str(text).map_err(|error| {
            let message = error.without_snippet().to_string();
            let line = error.location().map_or(0, |location| location.line());
            // Serde names the offending field in backticks.
            let field = message.split('`').nth(1).unwrap_or("fleet").to_owned();
            Error::Fleet { file: file.to_owned(), line, field, message: first_line(&message) }
        })?;
        let mut names = BTreeSet::new();
        let mut kinds = Vec::new();
        for kind in written.kinds {
            let checked = check(kind).and_then(|(kind, line)| {
                if names.insert(kind.name.clone()) {
                    Ok(kind)
                } else {
                    Err(Wrong { line, field: "name".into(), message: format!("{} is there twice", kind.name) })
                }
            });
            let Wrong { line, field, message } = match checked {
                Ok(kind) => {
                    kinds.push(kind);
                    continue;
                }
                Err(wrong) => wrong,
            };
            return Err(Error::Fleet { file: file.to_owned(), line, field, message });
        }
        if kinds.is_empty() {
            let (line, field, message) = (0, "kinds".to_owned(), "is empty: name at least one kind".to_owned());
            return Err(Error::Fleet { file: file.to_owned(), line, field, message });
        }
        Ok(Self { kinds })
    }
}

/// What is wrong, and where.
struct Wrong {
    line: u64,
    field: String,
    message: String,
}

fn check(written: WrittenKind) -> Result<(Kind, u64), Wrong> {
    let line = written.name.referenced.line();
    let name = written.name.value;
    let is_name = name.len() <= 50
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure(is_name, line, "name", || format!("`{name}` must be lower case letters, digits and dashes, at most 50"))?;
    let count = written.count.value;
    ensure(count <= MOST, written.count.referenced.line(), "count", || format!("{count} is more than {MOST}"))?;
    let mut labels = BTreeMap::new();
    for (key, spanned) in written.labels {
        let (line, values) = (spanned.referenced.line(), spanned.value.0);
        let field = format!("labels.{key}");
        ensure(is_label_key(&key), line, &field, || "is no label key: [prefix/]name is expected".into())?;
        ensure(!values.is_empty(), line, &field, || "is an empty list: give at least one value".into())?;
        let bad = values.iter().find(|value| !is_label_value(value)).cloned();
        ensure(bad.is_none(), line, &field, || {
            format!("`{}` is no label value: at most 63 letters, digits, - _ .", bad.unwrap_or_default())
        })?;
        labels.insert(key, values);
    }
    let mut taints = Vec::new();
    for spanned in written.taints {
        let (line, taint) = (spanned.referenced.line(), spanned.value);
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str());
        ensure(known, line, "taints.effect", || {
            format!("`{}` must be NoSchedule, PreferNoSchedule or NoExecute", taint.effect)
        })?;
        ensure(is_label_key(&taint.key), line, "taints.key", || format!("`{}` is no taint key", taint.key))?;
        taints.push(taint);
    }
    let mut capacity = BTreeMap::new();
    for (resource, spanned) in written.capacity {
        let (line, quantity) = (spanned.referenced.line(), spanned.value.0);
        let field = format!("capacity.{resource}");
        ensure(is_quantity(&quantity), line, &field, || format!("`{quantity}` is no quantity like 8, 500m or 32Gi"))?;
        capacity.insert(resource, quantity);
    }
    Ok((Kind { name, count, labels, annotations: written.annotations, taints, capacity }, line))
}

fn ensure(holds: bool, line: u64, field: &str, message: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong { line, field: field.to_owned(), message: message() }) }
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("x", key));
    !name.is_empty() && is_label_value(name) && !prefix.is_empty() && prefix.len() <= 253 && !name.contains('/')
}

fn is_label_value(value: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    value.len() <= 63
        && value.chars().all(inside)
        && !value.starts_with(['-', '_', '.'])
        && !value.ends_with(['-', '_', '.'])
}

pub(super) fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[number.len()..];
    let known = ["", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"];
    number.starts_with(|c: char| c.is_ascii_digit()) && number.parse::<f64>().is_ok() && known.contains(&suffix)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
