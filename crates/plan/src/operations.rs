//! Changes of an object as operations of a JSON patch (RFC 6902), which is how webhooks answer.

use serde_json::{Value, json};

/// Replaces these parts of an object by those of another, each as a whole where they differ.
#[must_use]
pub fn replace(before: &Value, after: &Value, parts: &[&str]) -> Vec<Value> {
    let mut operations = Vec::new();
    for path in parts {
        match (before.pointer(path), after.pointer(path)) {
            (before, after) if before == after => {}
            (_, Some(after)) => operations.push(json!({"op": "add", "path": path, "value": after})),
            (_, None) => operations.push(json!({"op": "remove", "path": path})),
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_differ_are_replaced_added_and_removed() {
        let before = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"a": 1}});
        let after = json!({"metadata": {"name": "b", "annotations": {"y": "2"}}, "spec": {"a": 1}});
        let operations = replace(&before, &after, &["/metadata/labels", "/metadata/annotations", "/spec"]);
        assert_eq!(operations.len(), 2, "the spec is the same: {operations:?}");
        let mut changed = before;
        let patch: json_patch::Patch = serde_json::from_value(operations.into()).expect("a patch");
        json_patch::patch(&mut changed, &patch).expect("it applies");
        assert_eq!(changed, json!({"metadata": {"name": "a", "annotations": {"y": "2"}}, "spec": {"a": 1}}));
    }
}
