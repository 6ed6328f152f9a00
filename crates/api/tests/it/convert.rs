//! DaemonSets between their versions: as OpenKruise converts them, and what happens when somebody edits in between.

use dapple_api::daemonset::{ConversionError, V1ALPHA1_ANNOTATION, V1BETA1_ANNOTATION, convert};
use serde_json::{Value, json};

use crate::files::{documents, repository};

const ALPHA: &str = "apps.kruise.io/v1alpha1";
const BETA: &str = "apps.kruise.io/v1beta1";
const PROGRESSIVE: &str = "daemonset.kruise.io/progressive-create-pod";

fn to_alpha(object: &Value) -> Value {
    convert(object.clone(), ALPHA).expect("converts")
}

fn to_beta(object: &Value) -> Value {
    convert(object.clone(), BETA).expect("converts")
}

fn daemon_set(version: &str, annotations: Value, spec: Value) -> Value {
    json!({
        "apiVersion": version, "kind": "DaemonSet", "spec": spec,
        "metadata": {"name": "a", "annotations": annotations},
    })
}

/// A v1beta1 object with this `scaleStrategy` and this annotation, null for none; as v1alpha1.
fn scaled(strategy: Value, progressive: Value) -> Value {
    let mut object = daemon_set(BETA, json!({"team": "storage"}), json!({}));
    if !strategy.is_null() {
        object["spec"]["scaleStrategy"] = strategy;
    }
    if !progressive.is_null() {
        object["metadata"]["annotations"][PROGRESSIVE] = progressive;
    }
    to_alpha(&object)
}

fn updating(version: &str, rolling_update: Value) -> Value {
    daemon_set(version, json!({"team": "storage"}), json!({"updateStrategy": {"rollingUpdate": rolling_update}}))
}

fn rolling_update(object: &mut Value) -> &mut Value {
    &mut object["spec"]["updateStrategy"]["rollingUpdate"]
}

#[test]
fn openkruise_converts_the_same_way() {
    let read = |version| documents(&repository(&format!("crates/api/tests/it/openkruise-{version}.yaml")));
    let (alphas, betas) = (read("v1alpha1"), read("v1beta1"));
    assert_eq!((alphas.len(), betas.len()), (3, 3));
    for (alpha, beta) in alphas.iter().zip(&betas) {
        assert_eq!(to_alpha(beta), *alpha);
        assert_eq!(to_beta(alpha), *beta);
    }
}

/// The object `alpha` was applied as Surging. OpenKruise stores it as we do, but shows it as Standard in v1alpha1 too:
/// who applies from a repository finds a difference each time.
#[test]
fn openkruise_loses_surging_and_we_do_not() {
    let surging = updating(ALPHA, json!({"rollingUpdateType": "Surging", "maxSurge": 1}));
    let mut stored = to_beta(&surging);
    let standard = json!({"rollingUpdateType": "Standard", "maxSurge": 1, "maxUnavailable": 0});
    assert_eq!(*rolling_update(&mut stored), standard);
    assert_eq!(to_alpha(&stored), surging);

    let mut stored_by_openkruise = updating(BETA, standard.clone());
    assert_eq!(*rolling_update(&mut to_alpha(&stored_by_openkruise)), standard);
    rolling_update(&mut stored_by_openkruise)["maxSurge"] = json!("30%");
    assert_eq!(rolling_update(&mut to_alpha(&stored_by_openkruise))["maxSurge"], "30%");
}

/// OpenKruise sets the annotation where `partitionedScaling` is true, but never takes it back: the next write in
/// v1alpha1 would turn it on again.
#[test]
fn openkruise_loses_the_end_of_partitioned_scaling_and_we_do_not() {
    let read = documents(&repository("crates/api/tests/it/openkruise-v1beta1.yaml"));
    let mut beta = read.into_iter().find(|object| object["metadata"]["name"] == "alpha").expect("there");
    assert_eq!(beta["metadata"]["annotations"][PROGRESSIVE], "true");
    for strategy in [json!({"partitionedScaling": false}), json!({}), Value::Null] {
        beta["spec"]["scaleStrategy"] = strategy;
        let alpha = to_alpha(&beta);
        assert_eq!(alpha["metadata"]["annotations"].get(PROGRESSIVE), None);
        assert_eq!(to_beta(&alpha), beta);
    }
}

#[test]
fn surging_becomes_a_standard_update_that_surges() {
    for (surge, expected) in [
        (json!({}), json!(1)),
        (json!({"maxSurge": null}), json!(1)),
        (json!({"maxSurge": 0}), json!(1)),
        (json!({"maxSurge": "0%"}), json!(1)),
        (json!({"maxSurge": 3}), json!(3)),
        (json!({"maxSurge": "30%", "maxUnavailable": 2, "partition": 5, "paused": true}), json!("30%")),
    ] {
        let mut alpha = updating(ALPHA, surge);
        rolling_update(&mut alpha)["rollingUpdateType"] = "Surging".into();
        let mut beta = to_beta(&alpha);
        let update = rolling_update(&mut beta);
        assert_eq!(update["rollingUpdateType"], "Standard");
        assert_eq!((&update["maxSurge"], &update["maxUnavailable"]), (&expected, &json!(0)));
        assert_eq!(to_alpha(&beta), alpha);
    }
}

#[test]
fn what_becomes_of_surging_when_v1beta1_is_edited() {
    let surging = updating(ALPHA, json!({"rollingUpdateType": "Surging", "partition": 1}));
    let stored = to_beta(&surging);

    // A field that surging does not concern.
    let mut beta = stored.clone();
    rolling_update(&mut beta)["partition"] = json!(7);
    let expected = json!({"rollingUpdateType": "Surging", "partition": 7});
    assert_eq!(*rolling_update(&mut to_alpha(&beta)), expected);

    // One that it does: the edit is shown, and outlives a write in v1alpha1.
    for (field, value) in
        [("maxSurge", json!(2)), ("maxUnavailable", json!(1)), ("rollingUpdateType", json!("InPlaceIfPossible"))]
    {
        let mut beta = stored.clone();
        rolling_update(&mut beta)[field] = value;
        let mut alpha = to_alpha(&beta);
        assert_eq!(rolling_update(&mut alpha), rolling_update(&mut beta), "{field}");
        assert_eq!(to_beta(&alpha), beta, "{field}");
    }

    // All of it removed.
    let mut beta = stored.clone();
    beta["spec"] = json!({});
    assert_eq!(to_alpha(&beta)["spec"], json!({}));

    // Surging that v1alpha1 itself sets anew replaces what is left over.
    let mut beta = stored.clone();
    rolling_update(&mut beta)["maxSurge"] = json!(2);
    let mut alpha = to_alpha(&beta);
    *rolling_update(&mut alpha) = json!({"rollingUpdateType": "Surging", "maxSurge": 4});
    let mut beta = to_beta(&alpha);
    assert_eq!(rolling_update(&mut beta)["maxSurge"], 4);
    assert_eq!(rolling_update(&mut to_alpha(&beta)), rolling_update(&mut alpha));
}

#[test]
fn patches_outlive_edits_of_v1alpha1() {
    let patches = json!([
        {"selector": {"matchLabels": {"disk": "large"}}, "priority": 5,
         "patch": {"spec": {"nodeSelector": null, "$patch": "replace", "fraction": 0.1, "ofNextYear": [{}]}}},
        {"selector": {}, "patch": {}, "unknown": 1},
    ]);
    let template = json!({"spec": {"containers": [{"name": "c", "ofNextYear": {"deep": [1, null, 0.5]}}]}});
    let beta = daemon_set(BETA, json!({"team": "storage"}), json!({"patches": patches, "template": template}));
    let mut alpha = to_alpha(&beta);
    assert_eq!(alpha["spec"], json!({"template": template}));
    assert_eq!(to_beta(&alpha), beta);

    alpha["spec"]["template"] = json!({"spec": {}});
    alpha["metadata"]["annotations"]["team"] = "network".into();
    let mut edited = to_beta(&alpha);
    assert_eq!(edited["spec"], json!({"patches": patches, "template": {"spec": {}}}));
    assert_eq!(edited["metadata"]["annotations"].take(), json!({"team": "network"}));

    // Whoever replaces the whole object by one without patches means it.
    alpha["metadata"]["annotations"] = json!({});
    assert_eq!(to_beta(&alpha)["spec"].get("patches"), None);
}

#[test]
fn an_edit_of_the_annotation_wins_over_the_scale_strategy_that_is_remembered() {
    let on = json!({"partitionedScaling": true});
    let off = json!({"partitionedScaling": false});
    let odd = json!({"partitionedScaling": true, "ofNextYear": 1});
    let odd_off = json!({"partitionedScaling": false, "ofNextYear": 1});
    let null = Value::Null;
    // As it was in v1beta1: strategy, annotation. The annotation in v1alpha1, as converted and as edited. As it is then.
    for (strategy, annotation, shown, edit, expected) in [
        (&on, &null, Some("true"), Some("false"), &null),
        (&on, &null, Some("true"), None, &null),
        (&on, &json!("no"), Some("true"), Some("maybe"), &null),
        (&on, &json!("true"), Some("true"), None, &null),
        (&off, &null, None, Some("true"), &on),
        (&off, &null, None, Some("yes"), &off),
        (&off, &json!("true"), None, Some("true"), &on),
        (&off, &json!("true"), None, Some("false"), &off),
        (&null, &json!("true"), None, Some("true"), &on),
        (&json!({}), &null, None, Some("true"), &on),
        (&odd, &null, Some("true"), None, &odd_off),
        (&odd_off, &json!("false"), Some("false"), Some("true"), &odd),
    ] {
        let case = format!("{strategy} {annotation} {edit:?}");
        let mut alpha = scaled(strategy.clone(), annotation.clone());
        let annotations = alpha["metadata"]["annotations"].as_object_mut().expect("there");
        assert_eq!(annotations.get(PROGRESSIVE).and_then(Value::as_str), shown, "{case}");
        match edit {
            Some(text) => annotations.insert(PROGRESSIVE.into(), text.into()),
            None => annotations.remove(PROGRESSIVE),
        };
        let beta = to_beta(&alpha);
        assert_eq!(beta["spec"].get("scaleStrategy").unwrap_or(&null), expected, "{case}");
        assert_eq!(beta["metadata"]["annotations"].get(PROGRESSIVE).and_then(Value::as_str), edit, "{case}");
        assert_eq!(beta["metadata"]["annotations"].get(V1BETA1_ANNOTATION), None, "{case}");
    }
}

#[test]
fn conversion_to_its_own_version_changes_nothing() {
    for version in [ALPHA, BETA] {
        let object = daemon_set(version, json!({V1BETA1_ANNOTATION: "x", PROGRESSIVE: "true"}), json!("whatever"));
        assert_eq!(convert(object.clone(), version), Ok(object));
    }
}

#[test]
fn nulls_and_empty_maps_stay_where_nothing_is_remembered() {
    for annotations in [json!({}), Value::Null] {
        let spec = json!({"patches": null, "scaleStrategy": null, "updateStrategy": {"rollingUpdate": null}});
        let mut object = daemon_set(BETA, annotations, spec);
        object["status"] = Value::Null;
        let alpha = to_alpha(&object);
        assert_eq!(to_beta(&alpha), object);
        object["apiVersion"] = ALPHA.into();
        assert_eq!(alpha, object);
    }
}

#[test]
fn bad_input_is_an_error_that_names_the_field() {
    let beta = |spec| daemon_set(BETA, json!({}), spec);
    let with = |field: &str, value: Value| {
        let mut object = beta(json!({}));
        object[field] = value;
        object
    };
    for (object, expected) in [
        (json!(null), "object is null: make it an object"),
        (json!([1]), "object is a list: make it an object"),
        (json!({}), "kind is missing: only a DaemonSet can be converted"),
        (with("kind", json!("Pod")), "kind is \"Pod\": only a DaemonSet can be converted"),
        (with("apiVersion", json!("apps/v1")), "apiVersion is \"apps/v1\": use apps.kruise.io/v1beta1 or"),
        (with("apiVersion", json!(1)), "apiVersion is a number: use apps.kruise.io/v1beta1 or"),
        (with("metadata", json!("x")), "metadata is a string: make it an object"),
        (with("metadata", Value::Null), "metadata is missing: make it an object"),
        (with("metadata", json!({"annotations": []})), "metadata.annotations is a list: make it an object"),
        (with("status", json!(true)), "status is a boolean: make it an object"),
        (beta(json!(1)), "spec is a number: make it an object"),
        (beta(json!({"scaleStrategy": "x"})), "spec.scaleStrategy is a string: make it an object"),
        (beta(json!({"updateStrategy": 1})), "spec.updateStrategy is a number: make it an object"),
        (
            beta(json!({"updateStrategy": {"rollingUpdate": []}})),
            "spec.updateStrategy.rollingUpdate is a list: make it an object",
        ),
    ] {
        let error = convert(object.clone(), ALPHA).expect_err("bad").to_string();
        assert!(error.starts_with(expected), "{object}: {error}");
    }
    let error = convert(beta(json!({})), "apps.kruise.io/v2").expect_err("no such version").to_string();
    assert!(error.starts_with("desiredAPIVersion is \"apps.kruise.io/v2\": use"), "{error}");
    let long = convert(with("kind", "x".repeat(1 << 20).into()), ALPHA).expect_err("bad").to_string();
    assert!(long.len() < 300, "{} bytes", long.len());
}

#[test]
fn fields_of_v1beta1_in_v1alpha1_are_refused() {
    for (spec, field) in [
        (json!({"patches": []}), "spec.patches"),
        (json!({"scaleStrategy": {"partitionedScaling": true}}), "spec.scaleStrategy"),
    ] {
        let error = convert(daemon_set(ALPHA, json!({}), spec), BETA).expect_err("only in v1beta1");
        assert!(matches!(error, ConversionError::OnlyInV1beta1 { field: found, .. } if found == field), "{error}");
    }
}

#[test]
fn a_memory_that_somebody_broke_is_refused_where_patches_are_at_stake() {
    for (text, expected) in [
        (json!("{"), "EOF while parsing"),
        (json!("[]"), "invalid"),
        (json!(7), "it is a number, not a string"),
        (json!({}), "it is an object, not a string"),
        (json!(r#"{"patchs": []}"#), "unknown field `patchs`"),
        (json!(r#"{"patches": {}}"#), "patches: invalid type"),
        (json!(r#"{"patches": [[{}, {}]]}"#), "patches: [0]: invalid type"),
        (json!(r#"{"patches": [{"patch": {}}]}"#), "patches: [0]: missing field `selector`"),
        (
            json!(format!(r#"{{"patches": [{}]}}"#, [r#"{"selector": {}, "patch": {}}"#; 11].join(","))),
            "at most 10 may be",
        ),
        (json!(r#"{"scaleStrategy": true}"#), "invalid type"),
        (json!(r#"{"annotations": {"team": "x"}}"#), "the annotation \"team\" does not belong there"),
    ] {
        let object = daemon_set(ALPHA, json!({V1BETA1_ANNOTATION: text}), json!({}));
        let error = convert(object, BETA).expect_err("broken").to_string();
        assert!(error.starts_with("metadata.annotations[\"dapple.dev/v1beta1\"] cannot be used: "), "{error}");
        assert!(error.contains(expected) && error.contains("remove the annotation"), "{text}: {error}");
    }
}

/// One bad object would fail every list in v1alpha1, so a read must not mind.
#[test]
fn a_memory_that_somebody_broke_never_hinders_reading_v1alpha1() {
    for text in [
        "{",
        "[]",
        "{}",
        r#"{"rollingUpdate": {}}"#,
        r#"{"rollingUpdate":{"rollingUpdateType":"Standard"}}"#,
        r#"{"rollingUpdate":{"partition":9,"rollingUpdateType":"Surging"}}"#,
    ] {
        let mut beta = updating(BETA, json!({"rollingUpdateType": "Standard", "maxSurge": 1, "maxUnavailable": 0}));
        beta["metadata"]["annotations"] = json!({V1ALPHA1_ANNOTATION: text, V1BETA1_ANNOTATION: text});
        let alpha = to_alpha(&beta);
        assert_eq!(alpha["spec"], beta["spec"], "{text}");
        assert_eq!(to_beta(&alpha), beta, "{text}");
    }
}
