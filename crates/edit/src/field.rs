//! Finding a field that somebody typed: `spec.containers[0].env[CACHE]`, `metadata.labels[app.kubernetes.io/name]`.

use serde_json::Value;

use crate::path::is_written;

/// A field that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The text is not the name of a field.
    #[error("{0:?} is not a field: write it like spec.containers[0].image or spec.containers[agent].env[CACHE]")]
    Syntax(String),
    /// There is no such field.
    #[error("there is no {missing} in {within}; it has {known}")]
    Missing {
        /// What was looked for.
        missing: String,
        /// Where.
        within: String,
        /// What is there instead.
        known: String,
    },
}

/// The fields that tell items of Kubernetes' lists apart, the most telling first.
const KEYS: [&str; 9] =
    ["name", "key", "mountPath", "containerPort", "devicePath", "topologyKey", "ip", "port", "type"];

/// The place of a field in a document, as an RFC 6901 pointer. In brackets stands a number, the name of an item, or
/// `key=value`; behind an object, a key that has dots in it.
pub fn find(document: &Value, field: &str) -> Result<String, FieldError> {
    let (mut pointer, mut within, mut at) = (String::new(), String::new(), document);
    for part in parts(field).ok_or_else(|| FieldError::Syntax(field.to_owned()))? {
        let found = match part {
            Part::Field(name) => at.get(name).map(|next| (name.to_owned(), next)),
            Part::Bracket(inside) => item(at, inside),
        };
        let (step, next) = found.ok_or_else(|| FieldError::Missing {
            missing: part.to_string(),
            within: if within.is_empty() { "the document".to_owned() } else { within.clone() },
            known: known(at),
        })?;
        pointer.push('/');
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
        within = if within.is_empty() { part.to_string() } else { format!("{within}{}{part}", part.separator()) };
        at = next;
    }
    Ok(pointer)
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Field(&'a str),
    Bracket(&'a str),
}

impl Part<'_> {
    fn separator(&self) -> &'static str {
        if matches!(self, Self::Field(_)) { "." } else { "" }
    }
}

impl std::fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Bracket(inside) => write!(f, "[{inside}]"),
        }
    }
}

fn parts(text: &str) -> Option<Vec<Part<'_>>> {
    let (mut parts, mut rest) = (Vec::new(), text.strip_prefix('.').unwrap_or(text));
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (inside, after) = inside.split_once(']')?;
            parts.push(Part::Bracket(inside));
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            parts.push(Part::Field(&rest[..end]));
            rest = &rest[end..];
            rest = rest.strip_prefix('.').unwrap_or(rest);
        }
    }
    (!parts.is_empty()).then_some(parts)
}

/// An item of a list, or an entry of an object, by what stands in brackets.
fn item<'a>(at: &'a Value, inside: &str) -> Option<(String, &'a Value)> {
    let Value::Array(items) = at else { return at.get(inside).map(|next| (inside.to_owned(), next)) };
    let is = |value: Option<&Value>, wanted: &str| value.is_some_and(|value| is_written(value, wanted));
    let index = inside.parse::<usize>().ok().filter(|index| *index < items.len());
    let by_key = || {
        let (key, value) = inside.split_once('=')?;
        items.iter().position(|item| is(item.get(key), value))
    };
    let by_name = || KEYS.iter().find_map(|key| items.iter().position(|item| is(item.get(key), inside)));
    let index = index.or_else(by_key).or_else(by_name)?;
    Some((index.to_string(), &items[index]))
}

/// What can be named at a place.
pub(crate) fn known(at: &Value) -> String {
    match at {
        Value::Object(map) if !map.is_empty() => map.keys().cloned().collect::<Vec<_>>().join(", "),
        Value::Array(items) if !items.is_empty() => {
            let name = |(index, item): (usize, &Value)| {
                let name = KEYS.iter().find_map(|key| item.get(key));
                name.map_or_else(
                    || format!("[{index}]"),
                    |name| format!("[{}]", name.as_str().unwrap_or(&name.to_string())),
                )
            };
            items.iter().enumerate().map(name).collect::<Vec<_>>().join(", ")
        }
        _ => "nothing in it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}, "spec": {"containers": [
            {"name": "a", "ports": [{"containerPort": 80}]},
            {"name": "b", "env": [{"name": "CACHE", "value": "1"}]}]}})
    }

    #[test]
    fn every_way_to_name_an_item_is_understood() {
        for (field, pointer) in [
            ("spec.containers[1].env[CACHE]", "/spec/containers/1/env/0"),
            ("spec.containers[b].env[0].value", "/spec/containers/1/env/0/value"),
            ("spec.containers[name=b]", "/spec/containers/1"),
            (".spec.containers[a].ports[80]", "/spec/containers/0/ports/0"),
            ("metadata.labels[app.kubernetes.io/name]", "/metadata/labels/app.kubernetes.io~1name"),
        ] {
            assert_eq!(find(&pod(), field).as_deref(), Ok(pointer), "{field}");
        }
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let message = |field: &str| find(&pod(), field).unwrap_err().to_string();
        assert_eq!(message("spec.containers[c]"), "there is no [c] in spec.containers; it has [a], [b]");
        assert_eq!(message("spec.volumes"), "there is no volumes in spec; it has containers");
        assert_eq!(message("status"), "there is no status in the document; it has metadata, spec");
        for field in ["", "spec..containers", "spec.containers[0"] {
            assert!(message(field).contains("is not a field"), "{field}");
        }
    }
}
