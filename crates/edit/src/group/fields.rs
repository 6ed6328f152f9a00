//! Fields that an OverridePolicy has not got. The API server keeps them in rules, so that they can be refused here: left out
//! in silence, a misspelt `targetNodeGroup` would make a rule for all groups, and a misspelt `predicate` one for all
//! containers.

use dapple_api::verdict::{Reason, Verdict};
use serde_json::Value;

use crate::check::nearest;

/// An object with known fields.
struct Known {
    fields: &'static [&'static str],
    /// Fields that have such objects in them: one, or a list.
    inner: &'static [(&'static str, &'static Known)],
}

const SPEC: Known = Known { fields: &["overrideRules"], inner: &[("overrideRules", &RULE)] };

const RULE: Known = Known {
    fields: &["targetNodeGroup", "overriders", "imageOverrider", "commandOverrider", "argsOverrider", "plaintext"],
    inner: &[
        ("overriders", &OVERRIDERS),
        ("imageOverrider", &IMAGE),
        ("commandOverrider", &WORDS),
        ("argsOverrider", &WORDS),
        ("plaintext", &PLAIN),
    ],
};

const OVERRIDERS: Known = Known {
    fields: &["imageOverrider", "commandOverrider", "argsOverrider", "plaintext"],
    inner: &[
        ("imageOverrider", &IMAGE),
        ("commandOverrider", &WORDS),
        ("argsOverrider", &WORDS),
        ("plaintext", &PLAIN),
    ],
};

const IMAGE: Known =
    Known { fields: &["predicate", "component", "operator", "value"], inner: &[("predicate", &PREDICATE)] };
const PREDICATE: Known = Known { fields: &["path"], inner: &[] };
const WORDS: Known = Known { fields: &["containerName", "operator", "value"], inner: &[] };
const PLAIN: Known = Known { fields: &["path", "operator", "value"], inner: &[] };

/// Refuses every field of an OverridePolicy's rules that there is not.
pub fn refuse_unknown_fields(policy: &Value, verdict: &mut Verdict) {
    if let Some(spec) = policy.get("spec") {
        walk(spec, &SPEC, "spec", verdict);
    }
}

fn walk(value: &Value, known: &Known, field: &str, verdict: &mut Verdict) {
    if let Value::Array(items) = value {
        for (index, item) in items.iter().enumerate() {
            walk(item, known, &format!("{field}[{index}]"), verdict);
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let field = format!("{field}.{name}");
        if !known.fields.contains(&name.as_str()) {
            verdict.refuse(field, Reason::NotSupported, told(name, known));
        } else if let Some((_, inner)) = known.inner.iter().find(|(inner, _)| inner == name) {
            walk(value, inner, &field, verdict);
        }
    }
}

fn told(name: &str, known: &Known) -> String {
    match nearest(name, known.fields.iter().copied()) {
        Some(meant @ "targetNodeGroup") => format!(
            "there is no such field; did you mean {meant:?}? A rule without it is for all groups, so nothing is guessed"
        ),
        Some(meant) => format!("there is no such field; did you mean {meant:?}?"),
        None => format!("there is no such field; there are {}", known.fields.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use dapple_api::crd::crds;
    use serde_json::json;

    use super::*;

    /// The fields known here are those that the schema has, and it keeps all others wherever they are refused.
    fn compare(schema: &Value, known: &Known, field: &str) {
        let schema = schema.get("items").unwrap_or(schema);
        let mut expected: Vec<&str> = known.fields.to_vec();
        expected.sort_unstable();
        let mut found: Vec<&str> = schema["properties"].as_object().expect(field).keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{field}");
        assert_eq!(schema["x-kubernetes-preserve-unknown-fields"] == true, field != "spec", "{field}");
        for (name, inner) in known.inner {
            compare(&schema["properties"][name], inner, &format!("{field}.{name}"));
        }
    }

    #[test]
    fn the_schema_has_these_fields_and_keeps_others() {
        let crd = crds().into_iter().find(|crd| crd["spec"]["names"]["kind"] == "OverridePolicy").expect("a CRD");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        compare(&schema["properties"]["spec"], &SPEC, "spec");
    }

    #[test]
    fn every_misspelt_field_is_refused() {
        let image = json!({"component": "Tag", "operator": "remove", "predicat": {}, "predicate": {"pth": "x"}});
        let rule = json!({
            "targetNodegroup": ["a"], "imageOverrider": [image], "groups": [],
            "overriders": {"plaintxt": [], "plaintext": [{"op": "add", "value": {"any": "thing"}}]},
        });
        let mut verdict = Verdict::default();
        refuse_unknown_fields(&json!({"spec": {"overrideRules": [{}, rule], "overrideRule": []}}), &mut verdict);
        let mut told: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        told.sort_unstable();
        assert_eq!(
            told,
            [
                "spec.overrideRule: there is no such field; did you mean \"overrideRules\"?",
                "spec.overrideRules[1].groups: there is no such field; there are targetNodeGroup, overriders, \
                 imageOverrider, commandOverrider, argsOverrider, plaintext",
                "spec.overrideRules[1].imageOverrider[0].predicat: there is no such field; did you mean \"predicate\"?",
                "spec.overrideRules[1].imageOverrider[0].predicate.pth: there is no such field; did you mean \"path\"?",
                "spec.overrideRules[1].overriders.plaintext[0].op: there is no such field; there are path, operator, value",
                "spec.overrideRules[1].overriders.plaintxt: there is no such field; did you mean \"plaintext\"?",
                "spec.overrideRules[1].targetNodegroup: there is no such field; did you mean \"targetNodeGroup\"? A rule \
                 without it is for all groups, so nothing is guessed",
            ]
        );
        for odd in [json!(null), json!({"spec": 1}), json!({"spec": {"overrideRules": {"a": 1}}})] {
            refuse_unknown_fields(&odd, &mut Verdict::default());
        }
    }
}
