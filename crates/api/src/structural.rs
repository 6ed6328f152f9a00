//! From the JSON schema of a Rust type to the structural OpenAPI v3 schema that a CRD demands.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Formats that the API server knows. Others, such as `uint32`, it reports as unrecognised.
const FORMATS: [&str; 5] = ["int32", "int64", "double", "date-time", "byte"];

/// Keywords of which each schema needs one: without, it describes any value, and a CRD must say so.
const TYPES: [&str; 4] =
    ["type", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", crate::template::DEFINITION];

/// Keyword under which descriptions of an enum's values wait until the description of the field is known.
const VALUES: &str = "x-dapple-values";

/// The structural schema of `T`, all references inlined. Template definitions are not expanded yet.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    describe_values(&mut schema);
    for field in ["apiVersion", "kind", "metadata"] {
        // The API server describes these itself; a default would be refused.
        if let Some(property) = schema["properties"][field].as_object_mut() {
            property.retain(|keyword, _| keyword == "type");
        }
    }
    schema
}

/// Rewrites a schema in place, from the leaves up.
fn simplify(schema: &mut Value) {
    if schema.is_boolean() {
        // `true`, the schema of any value.
        *schema = Value::Object(Map::new());
    }
    let Value::Object(fields) = schema else { return };
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(values) = fields.get_mut(keyword).filter(|values| values.is_object()) {
            simplify(values);
            // `kubectl explain` appends it to what the field says of itself.
            values.as_object_mut().and_then(|values| values.remove("description"));
        }
    }
    if fields.contains_key("properties") {
        fields.remove("additionalProperties");
    }
    drop_null(fields);
    merge_alternatives(fields);
    fields.remove("title");
    if !TYPES.iter().any(|keyword| fields.contains_key(*keyword)) {
        fields.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    if fields.get("format").is_some_and(|format| !FORMATS.iter().any(|known| format == known)) {
        fields.remove("format");
    }
    if let Some(Value::String(description)) = fields.get_mut("description") {
        *description = unwrap_lines(description);
    }
}

/// Optional fields are left out of `required`; the API server drops nulls in them by itself.
fn drop_null(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            fields.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// `anyOf` with null is an optional value; `oneOf` constants are an enum whose values each have a description.
fn merge_alternatives(fields: &mut Map<String, Value>) {
    let alternatives = match (fields.remove("anyOf"), fields.remove("oneOf")) {
        (Some(Value::Array(alternatives)), None) | (None, Some(Value::Array(alternatives))) => alternatives,
        _ => return,
    };
    let mut values = Vec::new();
    let mut lines = Vec::new();
    for mut alternative in alternatives.into_iter().filter(|alternative| alternative["type"] != "null") {
        let Some(value) = alternative.get("const").cloned() else {
            // The one alternative besides null. What the field says of itself goes before what its type says.
            simplify(&mut alternative);
            for (keyword, value) in alternative.as_object().into_iter().flatten() {
                fields.entry(keyword).or_insert_with(|| value.clone());
            }
            continue;
        };
        if let (Some(text), Some(name)) = (alternative["description"].as_str(), value.as_str()) {
            lines.push(Value::from(format!("{name}: {}", unwrap_lines(text))));
        }
        values.push(value);
    }
    if !values.is_empty() {
        fields.insert("type".into(), "string".into());
        fields.insert("enum".into(), values.into());
        if !lines.is_empty() {
            fields.insert(VALUES.into(), lines.into());
        }
    }
}

/// Adds what is said of an enum's values to the description of the field, where `kubectl explain` shows it.
fn describe_values(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(lines)) = fields.remove(VALUES) {
                let own = fields.remove("description");
                let paragraphs: Vec<_> = own.iter().chain(&lines).filter_map(Value::as_str).collect();
                fields.insert("description".into(), paragraphs.join("\n\n").into());
            }
            fields.values_mut().for_each(describe_values);
        }
        Value::Array(values) => values.iter_mut().for_each(describe_values),
        _ => {}
    }
}

/// Doc comments are wrapped at our line width; paragraphs are what counts.
fn unwrap_lines(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A mode of working.
    #[derive(Deserialize, JsonSchema)]
    enum Mode {
        /// All at once.
        Fast,
        /// One after
        /// the other.
        Slow,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is of interest")]
    struct Sample {
        /// How to work.
        mode: Option<Mode>,
        count: Option<u32>,
        anything: Value,
    }

    #[test]
    fn options_and_enums_become_structural() {
        let schema = schema_of::<Sample>();
        let mode = &schema["properties"]["mode"];
        assert_eq!(mode["type"], "string");
        assert_eq!(mode["enum"], serde_json::json!(["Fast", "Slow"]));
        assert_eq!(mode["description"], "How to work.\n\nFast: All at once.\n\nSlow: One after the other.");
        let count = &schema["properties"]["count"];
        assert_eq!(*count, serde_json::json!({"type": "integer", "minimum": 0}));
        assert_eq!(schema["properties"]["anything"]["x-kubernetes-preserve-unknown-fields"], true);
        assert_eq!(schema["required"], serde_json::json!(["anything"]));
    }
}
