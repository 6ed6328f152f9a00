//! One operation of JSON patch (RFC 6902) at a time.

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, patch_unsafe};
use serde_json::Value;

use crate::check::is_index;
use crate::edit::PlainOperator;
use crate::field::known;

/// Why an operation does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlainError {
    /// The path is not one of RFC 6901.
    #[error("{path:?} is not a path: {reason}; write it as /spec/containers/0/image, with ~1 for / and ~0 for ~")]
    Path {
        /// The path.
        path: String,
        /// Why not.
        reason: String,
    },
    /// There is nothing at the path, or nothing that can hold it.
    #[error("{path}: {reason}")]
    Missing {
        /// The path.
        path: String,
        /// What is missing.
        reason: String,
    },
}

/// Reads a path; its first slash may be missing.
pub(crate) fn pointer(path: &str) -> Result<PointerBuf, PlainError> {
    let full = if path.is_empty() || path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    PointerBuf::parse(full).map_err(|_| {
        let is_broken = |step: &&str| step.replace("~0", "").replace("~1", "").contains('~');
        let step = path.split('/').find(is_broken).unwrap_or_default();
        let reason = format!("a ~ in {step:?} has neither 0 nor 1 behind it");
        PlainError::Path { path: path.to_owned(), reason }
    })
}

/// Applies one operation. A `replace` or a `remove` of what is not there is an error, as RFC 6902 says.
pub(crate) fn apply_plain(
    document: &mut Value,
    path: &str,
    operator: PlainOperator,
    value: &Value,
) -> Result<(), PlainError> {
    let at = pointer(path)?;
    let operation = match operator {
        PlainOperator::Add => PatchOperation::Add(AddOperation { path: at.clone(), value: value.clone() }),
        PlainOperator::Replace => PatchOperation::Replace(ReplaceOperation { path: at.clone(), value: value.clone() }),
        PlainOperator::Remove => PatchOperation::Remove(RemoveOperation { path: at.clone() }),
    };
    patch_unsafe(document, &[operation]).map_err(|_| {
        let reason = missing_part(document, &at, operator == PlainOperator::Add);
        PlainError::Missing {
            path: path.to_owned(),
            reason: reason.unwrap_or_else(|| "it cannot be changed".to_owned()),
        }
    })
}

/// Which part of a path is missing in a document, if any is. The end of it need not be there for what is added.
pub(crate) fn missing_part(document: &Value, path: &Pointer, is_added: bool) -> Option<String> {
    let (mut at, mut before) = (document, String::new());
    let count = path.tokens().count();
    for (number, token) in path.tokens().enumerate() {
        let (step, is_last) = (token.decoded(), number + 1 == count);
        let place = if before.is_empty() { "the pod" } else { before.as_str() };
        let next = match at {
            Value::Object(fields) => fields.get(step.as_ref()),
            Value::Array(items) if is_index(&step) => step.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        let Some(next) = next else {
            return match at {
                Value::Object(_) if is_last && is_added => None,
                Value::Object(_) => {
                    let hint =
                        if is_added { format!(": add {before}/{} first", token.encoded()) } else { String::new() };
                    Some(format!("there is no {step:?} in {place}; it has {}{hint}", known(at)))
                }
                Value::Array(items) => missing_item(items.len(), &step, place, is_last && is_added),
                _ => Some(format!("{place} is a plain value, and has no {step:?} inside")),
            };
        };
        before = format!("{before}/{}", token.encoded());
        at = next;
    }
    None
}

/// Why a list of so many items has no such item; nothing if it can get one there.
fn missing_item(count: usize, step: &str, place: &str, is_added: bool) -> Option<String> {
    if !is_index(step) {
        return Some(format!("{place} is a list, and {step:?} is none of its items: count them from 0"));
    }
    let fits = step == "-" || step.parse::<usize>().is_ok_and(|index| index == count);
    match (fits && is_added, step) {
        (true, _) => None,
        (false, "-") => Some("- stands for an item that is yet to come: only add can have it, as the end".to_owned()),
        (false, _) => Some(format!("{place} has no item {step}: it has {count}, counted from 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(path: &str, operator: PlainOperator, value: Value) -> Result<Value, PlainError> {
        let mut document = json!({"spec": {"args": ["a", "b"], "labels": {"x/y": "1", "t~u": "2"}}});
        apply_plain(&mut document, path, operator, &value)?;
        Ok(document["spec"].take())
    }

    #[test]
    fn operations_follow_the_rfc() {
        let labels = json!({"x/y": "1", "t~u": "2"});
        for (path, operator, value, expected) in [
            ("/spec/args/1", PlainOperator::Add, json!("c"), json!({"args": ["a", "c", "b"], "labels": labels})),
            ("/spec/args/-", PlainOperator::Add, json!("c"), json!({"args": ["a", "b", "c"], "labels": labels})),
            ("spec/args/0", PlainOperator::Replace, json!("c"), json!({"args": ["c", "b"], "labels": labels})),
            ("/spec/args", PlainOperator::Remove, Value::Null, json!({"labels": labels})),
            (
                "/spec/labels/x~1y",
                PlainOperator::Replace,
                json!("3"),
                json!({"args": ["a", "b"], "labels": {"x/y": "3", "t~u": "2"}}),
            ),
            (
                "/spec/labels/t~0u",
                PlainOperator::Remove,
                Value::Null,
                json!({"args": ["a", "b"], "labels": {"x/y": "1"}}),
            ),
        ] {
            assert_eq!(applied(path, operator, value), Ok(expected), "{path} {operator:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_that_says_which_part() {
        use PlainOperator::{Add, Remove, Replace};
        for (path, operator, part) in [
            ("/spec/none", Replace, "there is no \"none\" in /spec; it has args, labels"),
            ("spec/none", Remove, "there is no \"none\" in /spec; it has args, labels"),
            ("/none/deep", Replace, "there is no \"none\" in the pod; it has spec"),
            ("/none/deep", Add, "there is no \"none\" in the pod; it has spec: add /none first"),
            ("/spec/labels/x~1y/z", Add, "/spec/labels/x~1y is a plain value, and has no \"z\" inside"),
            ("/spec/a~1b/c", Add, "there is no \"a/b\" in /spec; it has args, labels: add /spec/a~1b first"),
            ("/spec/args/7", Add, "/spec/args has no item 7: it has 2, counted from 0"),
            ("/spec/args/2", Replace, "/spec/args has no item 2: it has 2, counted from 0"),
            ("/spec/args/x", Replace, "/spec/args is a list, and \"x\" is none of its items: count them from 0"),
            ("/spec/args/01", Remove, "none of its items"),
            ("/spec/args/-", Remove, "only add can have it"),
            ("/spec/args/-/x", Add, "only add can have it, as the end"),
        ] {
            let message = applied(path, operator, json!(1)).expect_err(path).to_string();
            assert!(message.starts_with(path) && message.contains(part), "{message}");
        }
        let message = applied("/spec/a~b", Add, json!(1)).expect_err("a bad escape").to_string();
        assert!(message.contains("is not a path: a ~ in \"a~b\" has neither 0 nor 1 behind it"), "{message}");
    }
}
