//! Conversion of DaemonSets loses nothing, whatever they say: objects are generated from the CRD's own schemas, so that
//! a field which is added to a type is tried too, and pruned by them as the API server does.

use std::sync::LazyLock;

use dapple_api::crd::crds;
use dapple_api::daemonset::{V1ALPHA1_ANNOTATION, V1BETA1_ANNOTATION, convert};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

const ALPHA: &str = "apps.kruise.io/v1alpha1";
const BETA: &str = "apps.kruise.io/v1beta1";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The schemas of v1beta1 and v1alpha1.
static SCHEMAS: LazyLock<[Value; 2]> = LazyLock::new(|| {
    let crd = crds().into_iter().find(|crd| crd["metadata"]["name"] == "daemonsets.apps.kruise.io").expect("ours");
    ["v1beta1", "v1alpha1"].map(|name| {
        let versions = crd["spec"]["versions"].as_array().expect("a list");
        let version = versions.iter().find(|version| version["name"] == name).expect("declared");
        version["schema"]["openAPIV3Schema"].clone()
    })
});

/// Any JSON, as templates and patches may hold.
fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from);
        let object = prop::collection::btree_map("[a-z$]{1,4}", inner, 0..3);
        prop_oneof![list, object.prop_map(|fields| Value::Object(fields.into_iter().collect()))]
    })
    .boxed()
}

fn any_object() -> BoxedStrategy<Value> {
    prop::collection::btree_map("[a-z$]{1,4}", anything(), 0..3)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        .boxed()
}

/// Objects with each of these fields present or absent.
fn fields(named: Vec<(String, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = named.into_iter().unzip();
    let optional: Vec<_> = values.into_iter().map(proptest::option::of).collect();
    optional
        .prop_map(move |values| {
            let present = names.iter().cloned().zip(values).filter_map(|(name, value)| Some((name, value?)));
            Value::Object(present.collect::<Map<String, Value>>())
        })
        .boxed()
}

/// What a schema describes. Templates are as good as anything.
fn described(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    if schema["x-kubernetes-int-or-string"] == true {
        return select(vec![json!(0), json!(1), json!(2), json!("0%"), json!("30%")]).boxed();
    }
    if let Some(choices) = schema["enum"].as_array() {
        return select(choices.clone()).boxed();
    }
    if name == "template" || schema[PRESERVE] == true {
        return any_object();
    }
    match schema["type"].as_str().expect("typed") {
        "object" => {
            if let Some(values) = schema.get("additionalProperties") {
                return fields(["a", "b"].map(|key| (key.to_owned(), described(key, values))).to_vec());
            }
            let properties = schema["properties"].as_object().expect("known properties");
            let required = |field: &str| schema["required"].as_array().into_iter().flatten().any(|name| name == field);
            let all: Vec<_> = properties.iter().map(|(name, schema)| (name.clone(), described(name, schema))).collect();
            let (needed, optional): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| required(name));
            let (names, values): (Vec<_>, Vec<_>) = needed.into_iter().unzip();
            (values, fields(optional))
                .prop_map(move |(values, mut object)| {
                    names.iter().zip(values).for_each(|(name, value)| object[name] = value);
                    object
                })
                .boxed()
        }
        "array" => prop::collection::vec(described("", &schema["items"]), 0..3).prop_map(Value::from).boxed(),
        "integer" => any::<i32>().prop_map(Value::from).boxed(),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "string" if schema["format"] == "date-time" => Just(json!("2026-11-15T04:06:02Z")).boxed(),
        "string" => "[a-z]{0,4}".prop_map(Value::from).boxed(),
        other => panic!("no strategy for {other}"),
    }
}

/// Metadata, with annotations that mean something to conversion, or might seem to.
fn metadata(beta: bool) -> BoxedStrategy<Value> {
    let texts = |texts: &[&str]| select(texts.iter().map(|text| json!(text)).collect::<Vec<_>>()).boxed();
    let surging = r#"{"rollingUpdate":{"maxSurge":1,"rollingUpdateType":"Surging"}}"#;
    let unset = r#"{"rollingUpdate":{"rollingUpdateType":"Surging"},"annotation":"{}"}"#;
    let strays = texts(&["", "{", "{}", surging, unset, r#"{"annotation":"{}"}"#, r#"{"patches":[]}"#]);
    let mut named = vec![
        ("team".to_owned(), texts(&["storage"])),
        ("daemonset.kruise.io/progressive-create-pod".to_owned(), texts(&["true", "true", "false", ""])),
        (V1ALPHA1_ANNOTATION.to_owned(), strays.clone()),
    ];
    if beta {
        named.push((V1BETA1_ANNOTATION.to_owned(), strays));
    }
    (fields(named), any::<bool>())
        .prop_map(|(annotations, labelled)| {
            let mut metadata = json!({"name": "a", "uid": "u"});
            if annotations != json!({}) {
                metadata["annotations"] = annotations;
            }
            if labelled {
                metadata["labels"] = json!({"app": "a"});
            }
            metadata
        })
        .boxed()
}

fn daemon_set(beta: bool) -> BoxedStrategy<Value> {
    let schema = &SCHEMAS[usize::from(!beta)]["properties"];
    let (spec, status) = (described("spec", &schema["spec"]), described("status", &schema["status"]));
    (metadata(beta), spec, proptest::option::of(status))
        .prop_map(move |(metadata, spec, status)| {
            let version = if beta { BETA } else { ALPHA };
            let mut object = json!({"apiVersion": version, "kind": "DaemonSet", "metadata": metadata, "spec": spec});
            if let Some(status) = status {
                object["status"] = status;
            }
            object
        })
        .boxed()
}

/// Drops what a schema does not know, as the API server does with the answer of a conversion webhook.
fn prune(value: &mut Value, schema: &Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, &schema["items"])),
        Value::Object(fields) => {
            let keeps_all = schema[PRESERVE] == true || schema.get("additionalProperties").is_some();
            fields.retain(|name, _| keeps_all || schema["properties"].get(name).is_some());
            for (name, value) in
                fields.iter_mut().filter(|(name, _)| !["metadata", "template"].contains(&name.as_str()))
            {
                if let Some(schema) = schema["properties"].get(name) {
                    prune(value, schema);
                }
            }
        }
        _ => {}
    }
}

fn converted(object: &Value, version: &str) -> Value {
    let mut converted = convert(object.clone(), version).expect("converts");
    let unpruned = converted.clone();
    prune(&mut converted, &SCHEMAS[usize::from(version == ALPHA)]);
    assert_eq!(converted, unpruned, "the schema of {version} has no place for it");
    for place in ["labels", "name", "uid"] {
        assert_eq!(converted["metadata"].get(place), object["metadata"].get(place));
    }
    converted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn v1beta1_comes_back_from_v1alpha1(beta in daemon_set(true)) {
        let alpha = converted(&beta, ALPHA);
        prop_assert_eq!(&converted(&alpha, BETA), &beta);
        // And the other way round, with all that v1alpha1 remembers.
        prop_assert_eq!(&converted(&converted(&alpha, BETA), ALPHA), &alpha);
        serde_json::from_value::<dapple_api::daemonset::v1alpha1::DaemonSet>(alpha).expect("readable as v1alpha1");
    }

    #[test]
    fn v1alpha1_comes_back_from_v1beta1(alpha in daemon_set(false)) {
        let beta = converted(&alpha, BETA);
        prop_assert_eq!(&converted(&beta, ALPHA), &alpha);
        serde_json::from_value::<dapple_api::daemonset::DaemonSet>(beta).expect("readable as v1beta1");
    }

    /// An edit of a field in one version is the same edit in the other, and nothing else changes.
    #[test]
    fn an_edit_in_v1alpha1_is_that_edit_in_v1beta1(beta in daemon_set(true), edited in daemon_set(false)) {
        let mut alpha = converted(&beta, ALPHA);
        for field in ["template", "selector", "minReadySeconds", "burstReplicas", "revisionHistoryLimit", "lifecycle"] {
            let mut expected = beta.clone();
            match edited["spec"].get(field) {
                Some(value) => {
                    alpha["spec"][field] = value.clone();
                    expected["spec"][field] = value.clone();
                }
                None => continue,
            }
            prop_assert_eq!(&converted(&alpha, BETA), &expected);
            alpha = converted(&beta, ALPHA);
        }
    }

    #[test]
    fn nothing_panics(
        metadata in anything(), spec in anything(), status in anything(), text in anything(), beta: bool,
    ) {
        let [from, to] = if beta { [BETA, ALPHA] } else { [ALPHA, BETA] };
        let annotations = json!({V1BETA1_ANNOTATION: text.to_string(), V1ALPHA1_ANNOTATION: text});
        for metadata in [metadata, json!({"annotations": annotations})] {
            let object =
                json!({"apiVersion": from, "kind": "DaemonSet", "metadata": metadata, "spec": spec, "status": status});
            let _ = convert(object, to);
        }
    }
}
