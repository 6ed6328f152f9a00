//! Rules that the API server or RULINGS.md have for every schema, checked on every node of every schema.

use dapple_api::crd::crds;
use dapple_api::kinds::{Serving, find};
use serde_json::Value;

/// The largest JSON text of a CRD in bytes. kubectl keeps what was applied in an annotation of at most 256 KiB.
const MOST_BYTES: usize = 200_000;

/// Calls `check` for every schema below this one.
fn walk(path: &str, schema: &Value, check: &mut impl FnMut(&str, &Value)) {
    check(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, check);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(keyword) {
            walk(&format!("{path}[]"), schema, check);
        }
    }
}

/// Calls `check` for every schema of every version of every CRD.
fn walk_all(mut check: impl FnMut(&str, &Value)) {
    for crd in crds() {
        let name = crd["metadata"]["name"].as_str().expect("name").to_owned();
        for version in crd["spec"]["versions"].as_array().expect("versions") {
            let path = format!("{name}/{}", version["name"].as_str().expect("name"));
            walk(&path, &version["schema"]["openAPIV3Schema"], &mut check);
        }
    }
}

fn is_in_template(path: &str) -> bool {
    path.contains("emplate.") || path.ends_with("emplate")
}

fn preserves(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

#[test]
fn every_node_has_a_type() {
    walk_all(|path, schema| {
        let typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true || preserves(schema);
        assert!(typed, "{path} has no type: {schema}");
    });
}

#[test]
fn no_keyword_is_left_that_crds_lack() {
    const KNOWN: [&str; 23] = [
        "type",
        "description",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "enum",
        "format",
        "default",
        "nullable",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "x-kubernetes-validations",
        "x-kubernetes-int-or-string",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
    ];
    walk_all(|path, schema| {
        for keyword in schema.as_object().expect("an object").keys() {
            let known = KNOWN.contains(&keyword.as_str()) || keyword.starts_with("x-kubernetes-list-");
            assert!(known, "{path} has {keyword}");
        }
        assert!(schema.get("properties").is_none() || schema.get("additionalProperties").is_none(), "{path}");
    });
}

#[test]
fn templates_prune_nothing_and_have_no_descriptions_of_others() {
    let mut seen = 0;
    walk_all(|path, schema| {
        let own = path.ends_with("Template") || path.ends_with(".metadata") || path.ends_with(".spec");
        if !is_in_template(path) || schema["type"] != "object" || path.ends_with("workloadTemplate") {
            return;
        }
        seen += 1;
        // The two wrappers of a workload template are ours: metadata and spec, nothing else.
        let wrapper = path.ends_with("deploymentTemplate") || path.ends_with("statefulSetTemplate");
        let keeps = preserves(schema) || schema.get("additionalProperties").is_some();
        assert!(keeps || wrapper, "{path} prunes");
        assert!(own || path.ends_with("template") || schema.get("description").is_none(), "{path} has a description");
    });
    assert!(seen > 500, "{seen} objects in templates");
}

#[test]
fn keys_of_list_maps_are_there() {
    let mut seen = 0;
    walk_all(|path, schema| {
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            seen += 1;
            let key = key.as_str().expect("a name");
            let items = &schema["items"];
            let required = items["required"].as_array().is_some_and(|names| names.iter().any(|name| name == key));
            let property = &items["properties"][key];
            assert!(required || property["default"].is_string(), "{path}: key {key} is neither required nor defaulted");
            assert!(property["nullable"] != true, "{path}: key {key} may be null");
        }
    });
    assert!(seen > 20, "{seen} keys");
}

#[test]
fn containers_and_their_lists_merge_by_key() {
    let mut merged = Vec::new();
    walk_all(|path, schema| {
        let field = path.strip_prefix("daemonsets.apps.kruise.io/v1beta1.spec.template.spec.");
        if let Some(field) = field.filter(|_| schema["x-kubernetes-list-type"] == "map") {
            merged.push((field.to_owned(), schema["x-kubernetes-list-map-keys"].to_string()));
        }
    });
    for (field, keys) in [
        ("containers", r#"["name"]"#),
        ("initContainers", r#"["name"]"#),
        ("volumes", r#"["name"]"#),
        ("containers[].env", r#"["name"]"#),
        ("containers[].ports", r#"["containerPort","protocol"]"#),
        ("containers[].volumeMounts", r#"["mountPath"]"#),
    ] {
        assert!(merged.contains(&(field.to_owned(), keys.to_owned())), "{field} does not merge by {keys}: {merged:?}");
    }
}

#[test]
fn every_field_of_ours_is_described() {
    walk_all(|path, schema| {
        let (_, field) = path.split_once('.').expect("a path");
        let standard = ["metadata", "apiVersion", "kind"].iter().any(|name| path.ends_with(&format!("1.{name}")));
        let inside = ["robe.", "Term.", "olerations[]", "emplate.", "emplate"].iter().any(|part| field.contains(part));
        let described = schema["description"].as_str().is_some_and(|text| text.len() > 8);
        assert!(described || standard || inside || path.ends_with(']') || !path.contains("1."), "{path}");
    });
}

#[test]
fn what_is_stored_is_served_and_what_else_is_served_needs_no_conversion() {
    for crd in crds() {
        let (name, names) = (&crd["metadata"]["name"], &crd["spec"]["names"]);
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let own = find(&text(&crd["spec"]["group"]), &text(&names["kind"])).expect("a kind of ours");
        let versions = crd["spec"]["versions"].as_array().expect("versions");
        let stored: Vec<&Value> = versions.iter().filter(|version| version["storage"] == true).collect();
        assert!(matches!(stored.as_slice(), [one] if one["served"] == true), "{name}");
        for other in versions.iter().filter(|version| version["served"] == true && version["storage"] != true) {
            assert_eq!(own.serving(&text(&other["name"])), Some(Serving::AsStored), "{name} {}", other["name"]);
        }
    }
}

#[test]
fn crds_stay_small() {
    for crd in crds() {
        let bytes = crd.to_string().len();
        assert!(bytes < MOST_BYTES, "{} has {bytes} bytes", crd["metadata"]["name"]);
    }
}

#[test]
fn columns_show_all_they_name() {
    for crd in crds() {
        for version in crd["spec"]["versions"].as_array().expect("versions") {
            for column in version["additionalPrinterColumns"].as_array().into_iter().flatten() {
                let path = column["jsonPath"].as_str().expect("a path");
                assert!(!path.contains("[*]"), "{}: the API server prints the first value only", column["name"]);
            }
        }
    }
}
