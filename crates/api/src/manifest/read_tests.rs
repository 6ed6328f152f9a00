//! What files mean, and where their fields are.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, json};

use super::*;
use crate::yaml::document;

fn values(text: &str) -> Vec<Value> {
    let manifests = read("f.yaml", text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    manifests.into_iter().map(|manifest| manifest.value).collect()
}

/// Scalars, and what `sigs.k8s.io/yaml` 1.6 makes of them, as JSON.
const SCALARS: &[(&str, &str)] = &[
    ("y", "true"),
    ("Yes", "true"),
    ("yEs", "\"yEs\""),
    ("on", "true"),
    ("TRUE", "true"),
    ("n", "false"),
    ("No", "false"),
    ("OFF", "false"),
    ("tRue", "\"tRue\""),
    ("~", "null"),
    ("Null", "null"),
    ("nULL", "\"nULL\""),
    ("", "null"),
    ("+1", "1"),
    ("00", "0"),
    ("010", "8"),
    ("-010", "-8"),
    ("08", "8"),
    ("09.5", "9.5"),
    ("0o17", "15"),
    ("0O17", "15"),
    ("-0x1F", "-31"),
    ("0X1f", "31"),
    ("0b11", "3"),
    ("1_000", "1000"),
    ("1_", "1"),
    ("_1", "\"_1\""),
    ("0x_1", "1"),
    ("1.", "1"),
    ("1.0", "1"),
    ("1.50", "1.5"),
    (".5", "0.5"),
    ("-.5", "-0.5"),
    ("1e3", "1000"),
    ("1.5e-3", "0.0015"),
    ("9223372036854775807", "9223372036854775807"),
    ("9223372036854775808", "9223372036854775808"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("18446744073709551615", "18446744073709551615"),
    ("1e21", "1e21"),
    ("-0", "0"),
    ("-0.0", "0"),
    ("2001-01-01", "\"2001-01-01\""),
    ("12:30:45", "\"12:30:45\""),
    ("1.2.3", "\"1.2.3\""),
    ("+", "\"+\""),
    ("--1", "\"--1\""),
    ("0x", "\"0x\""),
    ("0b12", "\"0b12\""),
    ("0o8", "\"0o8\""),
    ("1e", "\"1e\""),
    ("1_000.5", "1000.5"),
    (".", "\".\""),
    ("1,000", "\"1,000\""),
    ("=", "\"=\""),
    ("1e-7", "1e-7"),
    ("!!str 1", "\"1\""),
    ("!!str", "\"\""),
    ("!!int \"5\"", "5"),
    ("!!float 5", "5"),
    ("!!bool yes", "true"),
    ("!!null ''", "null"),
    ("! 1", "\"1\""),
    ("'1'", "\"1\""),
    ("\"on\"", "\"on\""),
    ("\"\\ud83d\\ude00\\u0000\"", "\"😀\\u0000\""),
    ("|\n  on\n", "\"on\\n\""),
    ("!!map {}", "{}"),
    ("!!seq []", "[]"),
];

#[test]
fn scalars_mean_what_they_mean_to_kubectl() {
    for (text, expected) in SCALARS {
        let expected: Value = serde_json::from_str(expected).expect(expected);
        assert_eq!(values(&format!("a: {text}\n")), [json!({"a": expected})], "{text}");
    }
}

/// Files, and their objects as JSON.
const FILES: &[(&str, &str)] = &[
    ("", "[]"),
    ("# nothing\n---\n---\n...\n---\n~\n", "[]"),
    ("\u{FEFF}a: 1\r\nb: 2\r\n---\r\nc: 3\r\n", r#"[{"a": 1, "b": 2}, {"c": 3}]"#),
    ("{\n\t\"a\": [\n\t\t1\n\t]\n}\n", r#"[{"a": [1]}]"#),
    ("%YAML 1.2\n---\na: 1\n", r#"[{"a": 1}]"#),
    ("5: a\non: b\n0x10: c\n1.0: d\n", r#"[{"5": "a", "true": "b", "16": "c", "1": "d"}]"#),
    // Anchors, also of keys and scalars, an anchor set again, and merge keys.
    ("a: &x {b: [1]}\nc: *x\n", r#"[{"a": {"b": [1]}, "c": {"b": [1]}}]"#),
    ("&k a: &v b\n*v : *k\n", r#"[{"a": "b", "b": "a"}]"#),
    ("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", r#"[{"a": 1, "b": 1, "c": 2, "d": 2}]"#),
    ("a: &x {k: 1, l: 1}\nb: {<<: *x, k: 2}\n", r#"[{"a": {"k": 1, "l": 1}, "b": {"k": 2, "l": 1}}]"#),
    (
        "a: &x {k: 1}\nb: &z {k: 2, l: 2}\nc: {<<: [*x, *z]}\n",
        r#"[{"a": {"k": 1}, "b": {"k": 2, "l": 2}, "c": {"k": 1, "l": 2}}]"#,
    ),
    ("\"<<\": 1\n", r#"[{"<<": 1}]"#),
    // Lists.
    ("kind: List\nitems: []\n", "[]"),
    ("kind: List\nitems: [{kind: A}, {kind: List, items: [{kind: B}]}]\n", r#"[{"kind": "A"}, {"kind": "B"}]"#),
    (
        "apiVersion: v1\nkind: NodeList\nitems: [{a: 1}, {kind: Node, apiVersion: v2}]\n",
        r#"[{"apiVersion": "v1", "kind": "Node", "a": 1}, {"apiVersion": "v2", "kind": "Node"}]"#,
    ),
    ("kind: List\nitems: {}\n", r#"[{"kind": "List", "items": {}}]"#),
    ("items: [{kind: A}]\n", r#"[{"items": [{"kind": "A"}]}]"#),
];

#[test]
fn files_mean_what_they_say() {
    for (text, expected) in FILES {
        let expected: Vec<Value> = serde_json::from_str(expected).expect(expected);
        assert_eq!(values(text), expected, "{text}");
    }
}

const PLACES: &str = "\
# A comment.
apiVersion: v1
metadata:
  annotations: {example.com/a: x, \"example.com/a.b[0]\": y}
  labels: &labels
    app: agent
---
kind: List
items:
- kind: A
  spec:
    containers:
    - name: agent
      ports: [{containerPort: 80}]
    - name: agent]x
      env:
        - é: {b: 1}
    template: &t
      metadata: {x: 1}
    copy: *t
    merged:
      <<: *t
      own: 1
";

#[test]
fn paths_lead_to_lines() {
    let manifests = read("f.yaml", PLACES.as_bytes()).expect(PLACES);
    let places: &[(usize, &str, &str)] = &[
        (0, "", "2:1"),
        (0, "the document", "2:1"),
        (0, "metadata", "3:1"),
        (0, "metadata.missing.deeper", "3:1"),
        (0, "metadata.annotations.example.com/a", "4:17"),
        (0, "metadata.annotations.example.com/a.b[0]", "4:35"),
        (0, "metadata.labels.app", "6:5"),
        (0, "metadata.labels.application", "5:3"),
        (1, "", "10:3"),
        (1, "kind", "10:3"),
        (1, "spec.containers[0]", "13:7"),
        (1, "spec.containers[2]", "12:5"),
        (1, "spec.containers[name=agent].ports[containerPort=80]", "14:15"),
        (1, "spec.containers[name=agent].ports[0].containerPort", "14:16"),
        (1, "spec.containers[name=agent]x].env[0].é.b", "17:15"),
        (1, "spec.containers[name=other].env", "12:5"),
        (1, "spec.containers[", "12:5"),
        (1, "spec.copy.metadata.x", "20:5"),
        (1, "spec.merged.metadata.x", "22:7"),
        (1, "spec.merged.own", "23:7"),
    ];
    for (manifest, path, expected) in places {
        assert_eq!(manifests[*manifest].locate(path).to_string(), *expected, "{path}");
    }
    assert_eq!(manifests[1].position().to_string(), "10:3");
    assert_eq!(manifests[1].file(), "f.yaml");
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    #[expect(dead_code)]
    kind: Option<String>,
    #[expect(dead_code)]
    metadata: Option<Value>,
    #[expect(dead_code)]
    spec: Vec<Map<String, Value>>,
}

#[test]
fn what_does_not_fit_a_type_names_its_place() {
    let cases = [
        ("a.yaml:1:13: spec[0]: this must be an object, and it is a number", "{spec:    [ 1]}"),
        ("a.yaml:1:1: spec: this is required (Set b)", "kind: Set\nmetadata: {name: b}\n"),
        (
            "a.yaml:4:1: speck: there is no such field; there are kind, metadata or spec (Set a/b)",
            "kind: Set\nmetadata: {namespace: a, name: b}\nspec: []\nspeck: []\n",
        ),
        ("a.yaml:2:1: spec: this must be a list, and it is text (Set)", "kind: Set\nspec: \"\\ex\"\n"),
    ];
    for (expected, text) in cases {
        let manifests = read("a.yaml", text.as_bytes()).expect(text);
        assert_eq!(manifests[0].parse::<Typed>().expect_err(text).to_string(), expected);
    }
}

fn any_object() -> impl Strategy<Value = Value> {
    let words = proptest::sample::select(vec![
        "",
        "y",
        "~",
        "1e3",
        "<<",
        "a #b",
        "a: b",
        "*a",
        "\t\u{1}\u{85}\u{2028}\u{feff}",
    ]);
    let fraction = any::<f64>().prop_filter("1.0 is read as 1", |number| number.is_finite() && number.fract() != 0.0);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        fraction.prop_map(Value::from),
        words.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let fields = |inner| prop::collection::btree_map("[ -~]{1,8}|\\PC{0,3}", inner, 1..4);
    let inner = leaf.prop_recursive(4, 32, 4, move |inner| {
        let objects = fields(inner.clone()).prop_map(|fields| Value::Object(fields.into_iter().collect()));
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Value::from), objects]
    });
    // A list would be replaced by its items.
    prop::collection::btree_map("[a-h]{1,8}", inner, 1..4)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

/// Every place in a value: the path and the name of the field it ends in.
fn places(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                found.push((path.clone(), key.clone()));
                places(value, &path, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// As `any_object`, but the names of fields are plain words, so that a path has one meaning.
fn plain_object() -> impl Strategy<Value = Value> {
    let leaf = any::<i64>().prop_map(Value::from);
    let object = |inner| {
        prop::collection::btree_map("[a-z]{1,8}", inner, 1..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    };
    let inner = leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from), object(inner)]
    });
    object(inner.boxed())
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(value in any_object()) {
        let pretty = serde_json::to_string_pretty(&value).expect("a value");
        for text in [document(&value), value.to_string(), pretty] {
            prop_assert_eq!(&values(&text), std::slice::from_ref(&value), "{}", text);
        }
    }

    #[test]
    fn a_path_leads_to_the_line_of_its_field(value in plain_object()) {
        for text in [document(&value), serde_json::to_string_pretty(&value).expect("a value")] {
            let manifests = read("f.yaml", text.as_bytes()).expect(&text);
            let mut found = Vec::new();
            places(&value, "", &mut found);
            for (path, key) in found {
                let Position { line, column } = manifests[0].locate(&path);
                let rest = text.lines().nth(line - 1).and_then(|line| line.get(column - 1..)).unwrap_or_default();
                prop_assert!(rest.trim_start_matches('"').starts_with(&key), "{path} at {line}:{column} in {text}");
            }
        }
    }
}
