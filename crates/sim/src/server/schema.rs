//! Structural schemas of custom resources: what is pruned, filled in and refused.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::failure::Fault;

/// A schema, read once.
#[derive(Debug, Default)]
pub(super) struct Schema {
    of_type: Option<String>,
    is_int_or_string: bool,
    is_nullable: bool,
    /// Fields that are not described are kept.
    preserves: bool,
    fields: BTreeMap<String, Schema>,
    values: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    allowed: Vec<Value>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    /// Whether there are rules in it or below, which we do not check.
    has_rules: bool,
}

/// What the server itself knows of every object.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    pub(super) fn read(schema: &Value) -> Self {
        let is_set = |keyword: &str| schema[keyword] == true;
        let inner = |keyword: &str| {
            schema.get(keyword).filter(|inner| inner.is_object()).map(|inner| Box::new(Self::read(inner)))
        };
        let fields = schema["properties"].as_object().into_iter().flatten();
        let list = |keyword: &str| schema[keyword].as_array().cloned().unwrap_or_default();
        let fields: BTreeMap<String, Self> = fields.map(|(name, field)| (name.clone(), Self::read(field))).collect();
        let (values, items) = (inner("additionalProperties"), inner("items"));
        let mut below = fields.values().chain(values.as_deref()).chain(items.as_deref());
        let has_rules = schema.get("x-kubernetes-validations").is_some() || below.any(|schema| schema.has_rules);
        Self {
            of_type: schema["type"].as_str().map(str::to_owned),
            is_int_or_string: is_set("x-kubernetes-int-or-string"),
            is_nullable: is_set("nullable"),
            preserves: is_set("x-kubernetes-preserve-unknown-fields"),
            fields,
            values,
            items,
            required: list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            default: schema.get("default").cloned(),
            allowed: list("enum"),
            minimum: schema["minimum"].as_i64(),
            maximum: schema["maximum"].as_i64(),
            has_rules,
        }
    }

    /// Drops what is not described and fills in what is left out.
    pub(super) fn settle(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        fields.retain(|name, _| {
            OF_EVERY_OBJECT.contains(&name.as_str()) || self.preserves || self.fields.contains_key(name)
        });
        self.settle_fields(fields, true);
    }

    fn settle_fields(&self, fields: &mut Map<String, Value>, is_top: bool) {
        for (name, schema) in &self.fields {
            if is_top && OF_EVERY_OBJECT.contains(&name.as_str()) {
                continue;
            }
            if fields.get(name).is_some_and(|value| value.is_null() && !schema.is_nullable) {
                fields.remove(name);
            }
            if let (None, Some(default)) = (fields.get(name), &schema.default) {
                fields.insert(name.clone(), default.clone());
            }
            if let Some(value) = fields.get_mut(name) {
                schema.settle_value(value);
            }
        }
        if let Some(schema) = &self.values {
            fields.values_mut().for_each(|value| schema.settle_value(value));
        }
    }

    fn settle_value(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let keeps_all = self.preserves || self.values.is_some() || self.of_type.as_deref() != Some("object");
                if !keeps_all {
                    fields.retain(|name, _| self.fields.contains_key(name));
                }
                self.settle_fields(fields, false);
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.settle_value(item));
                }
            }
            _ => {}
        }
    }

    /// What is wrong with an object.
    pub(super) fn faults(&self, object: &Value) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (name, schema) in self.fields.iter().filter(|(name, _)| !OF_EVERY_OBJECT.contains(&name.as_str())) {
            if let Some(value) = object.get(name) {
                schema.check(value, name, &mut faults);
            }
        }
        self.check_required(object, "", &mut faults);
        if self.has_rules && faults.iter().any(Fault::is_blocking) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing \
                       errors to complete validation";
            faults.push(Fault::invalid("<nil>", &Value::Null, why));
        }
        faults
    }

    fn check_required(&self, value: &Value, path: &str, faults: &mut Vec<Fault>) {
        for name in self.required.iter().filter(|name| value.get(name).is_none()) {
            faults.push(Fault::required(&below(path, name), ""));
        }
    }

    fn check(&self, value: &Value, path: &str, faults: &mut Vec<Fault>) {
        if value.is_null() && self.is_nullable {
            return;
        }
        if let Some(fault) = self.type_fault(value, path) {
            faults.push(fault);
            return;
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            faults.push(Fault::unsupported(path, value, &self.allowed));
        }
        if let Some(number) = value.as_i64() {
            if let Some(least) = self.minimum.filter(|least| number < *least) {
                let why = format!("{path} in body should be greater than or equal to {least}");
                faults.push(Fault::invalid(path, value, &why));
            }
            if let Some(most) = self.maximum.filter(|most| number > *most) {
                let why = format!("{path} in body should be less than or equal to {most}");
                faults.push(Fault::invalid(path, value, &why));
            }
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(schema) = self.fields.get(name).or(self.values.as_deref()) {
                        schema.check(value, &below(path, name), faults);
                    }
                }
                self.check_required(value, path, faults);
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for (index, item) in items.iter().enumerate() {
                    schema.check(item, &format!("{path}[{index}]"), faults);
                }
            }
            _ => {}
        }
    }

    fn type_fault(&self, value: &Value, path: &str) -> Option<Fault> {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let wanted = match self.of_type.as_deref() {
            None if self.is_int_or_string && !matches!(found, "integer" | "string") => "integer,string",
            None => return None,
            Some(wanted) if wanted == found || (wanted == "number" && found == "integer") => return None,
            Some(wanted) => wanted,
        };
        // The real server shows the type that it found in the place of the value.
        let why = format!("{path} in body must be of type {wanted}: {found:?}");
        Some(Fault::wrong_type(path, &Value::from(found), &why))
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
