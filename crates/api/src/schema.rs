//! Schemas of types that come from Kubernetes, described in our own words.

use schemars::{Schema, SchemaGenerator, json_schema};

/// `metadata`: the API server knows its schema, and a CRD may not restate it.
pub(crate) fn metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// A point in time.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// A few points in time.
pub(crate) fn times(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 3, "items": time(generator)})
}

/// A number or a string such as a percentage.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A number of at least 0, or a percentage from 0% to 100%.
pub(crate) fn count_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 0 : string(self).matches('^(100|[1-9]?[0-9])%$')",
            "message": "must be a number of at least 0, or a percentage from \"0%\" to \"100%\""
        }]
    })
}

/// A list of conditions, of which server-side apply merges those of the same type. Reason and message are not required:
/// other products write conditions without, and their objects must stay readable. What is required, our types need.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "description": "What the condition is about, one word in CamelCase."},
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Whether the condition holds: True, False or Unknown."
                },
                "reason": {"type": "string", "description": "Why, one word in CamelCase for programs."},
                "message": {"type": "string", "description": "Why, in a sentence for people."},
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "The metadata.generation that the condition was judged on."
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed."
                }
            }
        }
    })
}

/// A label selector. Bounded, so that rules over it stay within the API server's cost limit.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
                "description": "Labels that must all be there with these values, for example `arch: arm`."
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "description": "Further conditions on labels, which must all hold.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "maxLength": 317, "description": "The label's key."},
                        "operator": {
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "In, NotIn (with values), Exists or DoesNotExist (without)."
                        },
                        "values": {
                            "type": "array",
                            "maxItems": 256,
                            "items": {"type": "string", "maxLength": 63},
                            "description": "The values that In and NotIn compare with."
                        }
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "values must be given for In and NotIn, and left out for Exists and DoesNotExist"
                    }]
                }
            }
        }
    })
}

/// A selector that can't be changed and selects something.
pub(crate) fn fixed_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = label_selector(generator);
    let rules = serde_json::json!([
        {
            "rule": "self == oldSelf",
            "message": "selector cannot be changed: delete the object with --cascade=orphan and create it anew"
        },
        {
            "rule": "(has(self.matchLabels) && size(self.matchLabels) > 0) || \
                     (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            "message": "selector must not be empty: give it a label that the template has too"
        }
    ]);
    schema.insert("x-kubernetes-validations".into(), rules);
    schema
}
