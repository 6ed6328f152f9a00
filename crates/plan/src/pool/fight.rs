//! Who else writes what a pool puts on nodes, and when dapple gives way to them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::attributes::{Attribute, AttributeKind};

/// After so many repairs of one node within [`COUNTED_FOR`] there is none for [`RESTS_FOR`], or until its pool changes.
pub const REPAIRS: usize = 3;
/// For so many seconds a repair counts.
pub const COUNTED_FOR: u64 = 600;
/// For so many seconds a node is left alone that others keep changing.
pub const RESTS_FOR: u64 = 3600;

/// Who has changed these on a node, as far as the API server knows: it does not keep who took something away.
#[must_use]
pub fn blamed(node: &Value, changed: &[Attribute]) -> String {
    let entries: Vec<&Value> = node["metadata"]["managedFields"].as_array().into_iter().flatten().collect();
    let mut said = Vec::new();
    for attribute in changed {
        let has = |entry: &&&Value| {
            let key = format!("f:{}", attribute.key);
            let fields = &entry["fieldsV1"];
            match attribute.kind {
                AttributeKind::Label => !fields["f:metadata"]["f:labels"][key].is_null(),
                AttributeKind::Annotation => !fields["f:metadata"]["f:annotations"][key].is_null(),
                AttributeKind::Taint => !fields["f:spec"]["f:taints"].is_null(),
            }
        };
        let managers: BTreeSet<&str> =
            entries.iter().filter(has).filter_map(|entry| entry["manager"].as_str()).collect();
        let managers: Vec<&str> = managers.into_iter().collect();
        said.push(match managers.as_slice() {
            [] => format!("{attribute}, which somebody takes off"),
            managers => format!("{attribute}, which {} changes", managers.join(", ")),
        });
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_changes_a_key_is_named() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "fieldsV1": fields});
        let node = json!({"metadata": {"managedFields": [
            entry("kubectl-label", json!({"f:metadata": {"f:labels": {"f:zone": {}}}})),
            entry("drainer", json!({"f:spec": {"f:taints": {}}})),
        ]}});
        let attribute = |kind, key: &str| Attribute { kind, key: key.to_owned() };
        let of = |kind, key| blamed(&node, &[attribute(kind, key)]);
        assert_eq!(of(AttributeKind::Label, "zone"), "label zone, which kubectl-label changes");
        assert_eq!(of(AttributeKind::Taint, "edge"), "taint edge, which drainer changes");
        assert_eq!(of(AttributeKind::Annotation, "zone"), "annotation zone, which somebody takes off");
    }
}
