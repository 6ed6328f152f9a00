//! Makes the trimmed copy of Kubernetes' OpenAPI document that the template schemas are generated from.
//!
//! For the next version of Kubernetes, from the root of the repository:
//!
//! ```sh
//! cargo run -p dapple-api --example trim-kubernetes \
//!     < .../kubernetes@vX.Y.Z/api/openapi-spec/v3/apis__apps__v1_openapi.json > crates/api/kubernetes/openapi.json
//! ```
//!
//! It keeps what the roots below refer to, structure and `x-kubernetes-*` extensions, and drops every description.
#![allow(clippy::expect_used)] // A developer's tool: a broken document may end it.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value, json};

/// The definitions that our own kinds embed.
const ROOTS: [&str; 3] =
    ["io.k8s.api.core.v1.PodTemplateSpec", "io.k8s.api.apps.v1.DeploymentSpec", "io.k8s.api.apps.v1.StatefulSetSpec"];

/// Keywords of a schema that only documentation and other generators need.
const DROPPED: [&str; 4] =
    ["description", "x-kubernetes-group-version-kind", "x-kubernetes-unions", "x-kubernetes-selectable-fields"];

fn main() {
    let mut document: Value = serde_json::from_reader(io::stdin().lock()).expect("stdin is not JSON");
    let definitions = document["components"]["schemas"].as_object_mut().expect("not an OpenAPI v3 document");
    let mut kept = BTreeMap::new();
    let mut wanted: Vec<String> = ROOTS.map(str::to_owned).into();
    while let Some(name) = wanted.pop() {
        if let Some(definition) = definitions.remove(&name) {
            let trimmed = trim(&definition, &mut wanted);
            kept.insert(name, trimmed);
        }
    }
    let trimmed = json!({"components": {"schemas": kept}});
    println!("{}", serde_json::to_string_pretty(&trimmed).expect("JSON values serialise"));
}

/// A schema without the dropped keywords; adds the definitions it refers to. Knows properties from keywords, since a
/// property may be called `description`.
fn trim(schema: &Value, wanted: &mut Vec<String>) -> Value {
    let Some(schema) = schema.as_object() else {
        return schema.clone();
    };
    let mut trimmed = Map::new();
    for (keyword, value) in schema.iter().filter(|(keyword, _)| !DROPPED.contains(&keyword.as_str())) {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.iter().map(|(name, schema)| (name.clone(), trim(schema, wanted))).collect()
            }
            ("items" | "additionalProperties", schema) => trim(schema, wanted),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter().map(|schema| trim(schema, wanted)).collect()
            }
            ("$ref", Value::String(target)) => {
                wanted.push(target.rsplit('/').next().unwrap_or(target).to_owned());
                value.clone()
            }
            _ => value.clone(),
        };
        trimmed.insert(keyword.clone(), value);
    }
    Value::Object(trimmed)
}
