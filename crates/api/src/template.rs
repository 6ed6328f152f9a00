//! Pod and workload templates: JSON values in code, and in the CRDs the full field tree of Kubernetes that prunes
//! nothing.
//!
//! The schema is generated from a trimmed copy of Kubernetes' own OpenAPI document (`kubernetes/openapi.json`; the
//! example `trim-kubernetes` makes it anew for the next version).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The trimmed OpenAPI document of the Kubernetes version that the CRDs describe: definitions under
/// `components.schemas`, without descriptions, with list types, patch strategies and merge keys.
pub const KUBERNETES_OPENAPI: &str = include_str!("../kubernetes/openapi.json");

/// Keyword by which a type's schema asks for a Kubernetes definition. The generator replaces it, see [`expand`].
pub(crate) const DEFINITION: &str = "x-dapple-definition";

/// Properties that a template can't have or that mean nothing there. They are not pruned, only not described.
const OMITTED: [&str; 2] = ["ephemeralContainers", "managedFields"];

/// Declares a JSON value that Kubernetes knows under the given definition.
macro_rules! kubernetes_value {
    ($(#[$doc:meta])* $name:ident, $definition:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Value);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"x-dapple-definition": $definition})
            }
        }
    };
}

kubernetes_value!(
    /// A pod template (`metadata` and `spec`), as JSON.
    PodTemplate, "io.k8s.api.core.v1.PodTemplateSpec"
);
kubernetes_value!(
    /// The spec of a Deployment, as JSON.
    DeploymentSpec, "io.k8s.api.apps.v1.DeploymentSpec"
);
kubernetes_value!(
    /// The spec of a StatefulSet, as JSON.
    StatefulSetSpec, "io.k8s.api.apps.v1.StatefulSetSpec"
);
kubernetes_value!(
    /// Metadata of an object that is made from a template, as JSON.
    TemplateMetadata, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
);
kubernetes_value!(
    /// A probe of a container, as JSON.
    Probe, "io.k8s.api.core.v1.Probe"
);
kubernetes_value!(
    /// One term of a node selector, as JSON.
    NodeSelectorTerm, "io.k8s.api.core.v1.NodeSelectorTerm"
);
kubernetes_value!(
    /// A toleration of a pod, as JSON.
    Toleration, "io.k8s.api.core.v1.Toleration"
);

/// A strategic merge patch, as JSON. Its schema is any object: a patch holds nulls and directives that the schema of
/// what it patches would refuse or prune.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Patch(pub Value);

impl JsonSchema for Patch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Patch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// Replaces every [`DEFINITION`] below `schema`: by the definition's field tree if `full`, else by an object that
/// takes anything. Versions that are never served get the latter, since nobody can read their schema.
pub(crate) fn expand(schema: &mut Value, definitions: &Map<String, Value>, full: bool) {
    match schema {
        Value::Object(fields) => {
            let Some(Value::String(name)) = fields.remove(DEFINITION) else {
                fields.values_mut().for_each(|value| expand(value, definitions, full));
                return;
            };
            let anything = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let expanded = if full { resolve(&name, definitions) } else { anything() };
            if let Value::Object(expanded) = expanded {
                fields.extend(expanded);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| expand(value, definitions, full)),
        _ => {}
    }
}

/// The definitions of [`KUBERNETES_OPENAPI`].
pub(crate) fn definitions() -> Map<String, Value> {
    let mut document: Value = serde_json::from_str(KUBERNETES_OPENAPI).unwrap_or_default();
    match document["components"]["schemas"].take() {
        Value::Object(definitions) => definitions,
        _ => Map::new(),
    }
}

/// The structural schema of a definition.
fn resolve(name: &str, definitions: &Map<String, Value>) -> Value {
    match name.rsplit('.').next() {
        Some("IntOrString") => json!({"x-kubernetes-int-or-string": true}),
        // A quantity may be a string, an integer or a fraction (`cpu: 0.5`): no structural type allows all three.
        Some("Quantity") => json!({"x-kubernetes-preserve-unknown-fields": true}),
        _ => structural(&definitions[name], definitions),
    }
}

/// The structural form of one schema of the document. References can't loop: Kubernetes' templates don't.
fn structural(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let reference = schema.get("$ref").or_else(|| schema["allOf"][0].get("$ref")).and_then(Value::as_str);
    if let Some(reference) = reference {
        return resolve(reference.rsplit('/').next().unwrap_or(reference), definitions);
    }
    match schema["type"].as_str() {
        Some("array") => list(schema, definitions),
        Some("object") => object(schema, definitions),
        Some(scalar) => match schema.get("format") {
            Some(format) => json!({"type": scalar, "format": format}),
            None => json!({"type": scalar}),
        },
        None => json!({"x-kubernetes-preserve-unknown-fields": true}),
    }
}

/// An object: a map of like values, or known properties that leave room for those of other Kubernetes versions.
fn object(schema: &Value, definitions: &Map<String, Value>) -> Value {
    if let Some(values) = schema.get("additionalProperties") {
        return json!({"type": "object", "additionalProperties": structural(values, definitions)});
    }
    let mut fields = Map::new();
    fields.insert("type".into(), "object".into());
    fields.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|item| item == name));
    let mut known = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if OMITTED.contains(&name.as_str()) {
            continue;
        }
        let mut property = structural(property, definitions);
        if !required(name) {
            // Kubernetes takes null for absent, and rendered charts are full of it; server-side apply would refuse it.
            property["nullable"] = true.into();
        }
        known.insert(name.clone(), property);
    }
    if !known.is_empty() {
        fields.insert("properties".into(), known.into());
    }
    for keyword in ["required", "x-kubernetes-map-type"] {
        if let Some(value) = schema.get(keyword) {
            fields.insert(keyword.into(), value.clone());
        }
    }
    Value::Object(fields)
}

/// A list. Keys of a list-map must be required or have a default, which the document states on the property.
fn list(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let mut items = structural(&schema["items"], definitions);
    let mut fields = Map::new();
    fields.insert("type".into(), "array".into());
    let kind = schema["x-kubernetes-list-type"].as_str().unwrap_or("atomic");
    // Atomic is what a list is when nothing is said.
    if kind != "atomic" {
        fields.insert("x-kubernetes-list-type".into(), kind.into());
    }
    if let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() {
        let source = item_definition(&schema["items"], definitions);
        for key in keys.iter().filter_map(Value::as_str) {
            // What isn't required is nullable, which a key may not be.
            let property = items["properties"][key].as_object_mut();
            if let Some(property) = property.filter(|property| property.contains_key("nullable")) {
                property.remove("nullable");
                property.insert("default".into(), source["properties"][key]["default"].clone());
            }
        }
        fields.insert("x-kubernetes-list-map-keys".into(), keys.clone().into());
    }
    fields.insert("items".into(), items);
    Value::Object(fields)
}

/// The definition that a list's items refer to.
fn item_definition<'a>(items: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    let reference = items.get("$ref").or_else(|| items["allOf"][0].get("$ref")).and_then(Value::as_str);
    reference.and_then(|reference| definitions.get(reference.rsplit('/').next()?)).unwrap_or(items)
}
