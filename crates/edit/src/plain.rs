//! One operation of JSON patch (RFC 6902) at a time.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, patch_unsafe};
use serde_json::Value;

use crate::edit::PlainOperator;

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
    PointerBuf::parse(full).map_err(|error| PlainError::Path { path: path.to_owned(), reason: error.to_string() })
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
        PlainOperator::Add => PatchOperation::Add(AddOperation { path: at, value: value.clone() }),
        PlainOperator::Replace => PatchOperation::Replace(ReplaceOperation { path: at, value: value.clone() }),
        PlainOperator::Remove => PatchOperation::Remove(RemoveOperation { path: at }),
    };
    patch_unsafe(document, &[operation])
        .map_err(|error| PlainError::Missing { path: path.to_owned(), reason: error.kind.to_string() })
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
    fn what_is_not_there_is_an_error() {
        for (path, operator) in [
            ("/spec/none", PlainOperator::Replace),
            ("/spec/none", PlainOperator::Remove),
            ("/spec/args/7", PlainOperator::Add),
            ("/none/deep", PlainOperator::Add),
            ("/spec/args/x", PlainOperator::Replace),
        ] {
            let message = applied(path, operator, json!(1)).expect_err(path).to_string();
            assert!(message.contains(path), "{message}");
        }
        let message = applied("/spec/~2", PlainOperator::Add, json!(1)).expect_err("a bad escape").to_string();
        assert!(message.contains("is not a path"), "{message}");
    }
}
