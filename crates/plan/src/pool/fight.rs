//! Who else writes what a pool puts on nodes, or an application into its workloads, and when dapple gives way to them.

use std::collections::BTreeSet;

use dapple_edit::path::{Path, Step};
use serde_json::{Map, Value};

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

/// Who has a field of an object, apart from dapple, which writes by the name of `own`: as far as the API server knows, which does not
/// keep who took something away.
#[must_use]
pub fn changers(object: &Value, field: &Path, own: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let others = entries.filter(|entry| entry["manager"] != own && has(&entry["fieldsV1"], field));
    let names: BTreeSet<&str> = others.filter_map(|entry| entry["manager"].as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Whether fields, as the API server notes them, have one among them, or something around it as a whole.
fn has(fields: &Value, field: &Path) -> bool {
    let mut at = fields;
    for step in field.steps() {
        let below = match step {
            Step::Field(name) => at.get(format!("f:{name}")),
            Step::Keyed { key, value } => item(at, key, value),
            Step::Item(_) => None,
        };
        let Some(below) = below else { return at.as_object().is_some_and(Map::is_empty) };
        at = below;
    }
    true
}

/// An item of a list, which is noted by what tells it from others: `k:{"name":"c"}`.
fn item<'f>(fields: &'f Value, key: &str, value: &str) -> Option<&'f Value> {
    let is_it = |(noted, _): &(&String, &Value)| {
        let told = noted.strip_prefix("k:").and_then(|text| serde_json::from_str::<Value>(text).ok());
        // Ports are numbers there.
        told.is_some_and(|told| told[key].as_str().map_or_else(|| told[key].to_string(), str::to_owned) == value)
    };
    fields.as_object()?.iter().find(is_it).map(|(_, below)| below)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_changes_a_field_of_a_workload_is_named() {
        let containers = |fields: Value| json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {r#"k:{"name":"web"}"#: fields}}}}});
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "fieldsV1": fields});
        let object = json!({"metadata": {"managedFields": [
            entry("dapple", containers(json!({".": {}, "f:name": {}, "f:image": {}}))),
            entry("yurt-manager", containers(json!({"f:image": {}}))),
            entry("helm", json!({"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:template": {"f:spec": {
                "f:affinity": {}}}}})),
        ]}});
        let field = |name: &str| Step::Field(name.to_owned());
        let spec = ["spec", "template", "spec"].map(field);
        let of = |steps: &[Step]| changers(&object, &Path::of(steps), "dapple");
        let web = Step::Keyed { key: "name", value: "web".to_owned() };
        let of_web = |last: &str| of(&[&spec[..], &[field("containers"), web.clone(), field(last)]].concat());
        assert_eq!(of_web("image"), ["yurt-manager"]);
        assert_eq!(of_web("name"), Vec::<String>::new(), "it is ours alone");
        assert_eq!(of(&["metadata", "labels", "app"].map(field)), ["helm"]);
        assert_eq!(of(&[&spec[..], &[field("affinity"), field("nodeAffinity")]].concat()), ["helm"], "as a whole");
        assert_eq!(of(&["metadata", "labels", "other"].map(field)), Vec::<String>::new());
    }

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
