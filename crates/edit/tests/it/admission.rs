//! The tables of objects and what is to be said of them, and the examples.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dapple_api::verdict::Verdict;
use dapple_edit::admission::judge;
use serde_json::{Value, json};

const EXPECT: &str = "dapple.dev/expect";

#[test]
fn every_case_is_judged_as_it_says() {
    let mut failures = Vec::new();
    let mut count = 0;
    for family in ["daemonset", "marker", "group", "pool"] {
        let mut stored: BTreeMap<String, Value> = BTreeMap::new();
        for object in documents(&repository(&format!("crates/edit/tests/admission/{family}.yaml"))) {
            let name = format!("{family}: {} {}", object["kind"], object["metadata"]["name"]);
            let expect = object["metadata"]["annotations"][EXPECT].as_str().unwrap_or_default().to_owned();
            let verdict = judge(&object, stored.get(&name)).unwrap_or_else(|| panic!("{name} is none of our kinds"));
            if !holds(&expect, &verdict) {
                failures.push(format!(
                    "{name}\n  expected {expect}\n  found {:#?}\n  {:#?}",
                    told(&verdict),
                    verdict.warnings
                ));
            }
            if verdict.is_ok() {
                stored.insert(name, object);
            }
            count += 1;
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 150, "{count} cases");
}

/// Whether a verdict is exactly what a case expects: these errors at these fields, or these warnings, and no others.
fn holds(expect: &str, verdict: &Verdict) -> bool {
    if let Some(parts) = expect.strip_prefix("refused: ") {
        let parts: Vec<(&str, &str)> = parts.split(" | ").filter_map(|part| part.split_once(": ")).collect();
        are(&verdict.errors, &parts, |error, (field, text)| error.field == *field && error.text.contains(text))
    } else if let Some(parts) = expect.strip_prefix("warned: ") {
        let parts: Vec<&str> = parts.split(" | ").collect();
        verdict.is_ok() && are(&verdict.warnings, &parts, |warning, part| warning.contains(part))
    } else {
        expect == "accepted" && *verdict == Verdict::default()
    }
}

/// Whether these are the ones that are expected, each of them, and no others.
fn are<T, E>(found: &[T], expected: &[E], fits: impl Fn(&T, &E) -> bool) -> bool {
    found.len() == expected.len()
        && found.iter().all(|found| expected.iter().any(|expected| fits(found, expected)))
        && expected.iter().all(|expected| found.iter().any(|found| fits(found, expected)))
}

fn told(verdict: &Verdict) -> Vec<String> {
    verdict.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn what_the_api_server_refuses_is_refused_here_too() {
    let mut count = 0;
    for family in ["daemonset", "marker", "group", "pool"] {
        let mut stored: BTreeMap<String, Value> = BTreeMap::new();
        for object in documents(&repository(&format!("crates/api/tests/cases/{family}.yaml"))) {
            let name = format!("{family}: {} {}", object["kind"], object["metadata"]["name"]);
            let expect = object["metadata"]["annotations"][EXPECT].as_str().unwrap_or_default().to_owned();
            let Some(verdict) = judge(&object, stored.get(&name)) else { continue };
            // Two containers of one name are for the API server to find, which looks at the pods themselves.
            let is_of_pods = family == "daemonset" && expect.contains("duplicate entries for key");
            assert!(expect == "accepted" || is_of_pods || !verdict.is_ok(), "{name}: {expect}");
            if expect == "accepted" {
                stored.insert(name, object);
            }
            count += 1;
        }
    }
    assert!(count > 80, "{count} cases");
}

#[test]
fn nothing_is_wrong_with_the_examples() {
    let mut count = 0;
    for family in ["daemonset", "marker", "group", "pool"] {
        for path in yaml_files(&repository("examples").join(family)) {
            for verdict in documents(&path).iter().filter_map(|object| judge(object, None)) {
                // Patches go by labels of everyday life, which nodes can set themselves: that is told, and no more than that.
                let is_known = |warning: &String| warning.contains("node-restriction.kubernetes.io/");
                let Verdict { errors, warnings } = verdict;
                let rest: Vec<String> = warnings.into_iter().filter(|warning| !is_known(warning)).collect();
                assert!(errors.is_empty() && rest.is_empty(), "{}: {errors:?} {rest:?}", path.display());
                count += 1;
            }
        }
    }
    assert!(count >= 20, "{count} examples");
}

const GROUP: &str = "groupmanagement.kubeedge.io/v1alpha1";
const MARKER: &str = "apps.kruise.io/v1alpha1";
const POOL: &str = "apps.openyurt.io/v1alpha1";

fn many(count: usize, item: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(item).collect()
}

/// Asserts that this field is wrong, and no other.
fn refused_at(api_version: &str, kind: &str, rest: Value, field: &str) {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    let verdict = judge(&object, None).expect("a kind of ours");
    assert_eq!(verdict.errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field], "{kind}");
}

#[test]
fn an_object_has_a_name() {
    for metadata in [json!({}), json!({"name": ""})] {
        refused_at(GROUP, "NodeGroup", json!({"metadata": metadata, "spec": {"nodes": ["a"]}}), "metadata.name");
    }
    let generated = json!({"metadata": {"generateName": "A-"}, "spec": {"nodes": ["a"]}});
    refused_at(GROUP, "NodeGroup", generated, "metadata.generateName");
    let elsewhere =
        json!({"metadata": {"name": "a", "namespace": "a.b"}, "spec": {"markItems": {"labels": {"a": "b"}}}});
    refused_at(MARKER, "PodMarker", elsewhere, "metadata.namespace");
}

#[test]
fn groups_and_markers_have_their_limits() {
    let map =
        |count: usize| (0..count).map(|index| (format!("k{index}"), json!("v"))).collect::<serde_json::Map<_, _>>();
    let plain = |index| json!({"path": format!("/metadata/labels/l{index}"), "operator": "remove"});
    let weight = |index| json!({"nodeGroupNames": [format!("g{index}")], "weight": 1});
    let names = |index| json!(format!("n{index}"));
    let rule = |rule: Value| json!({"overrideRules": [rule]});
    let image = json!({"component": "Tag", "operator": "replace", "value": "v".repeat(1025)});
    let words = json!({"containerName": "c", "operator": "add", "value": many(257, names)});
    let far = json!({"path": format!("/metadata/annotations/{}", "a".repeat(1024)), "operator": "remove"});
    let rules = many(65, |_| json!({"plaintext": [plain(1)]}));
    let targets = json!({"targetNodeGroup": many(257, names), "plaintext": [plain(1)]});
    let selector = json!({"podSelector": {"matchLabels": map(65)}});
    let containers = many(33, |index| json!({"name": format!("c{index}")}));
    let probes = json!({"podProbes": [{"containers": containers, "probe": {"tcpSocket": {"port": 1}}}]});
    let marked = json!({"labels": {"a": "b"}});
    let rule_0 = "spec.overrideRules[0]";
    for (api_version, kind, field, spec) in [
        (GROUP, "NodeGroup", "spec.nodes", json!({"nodes": many(5001, names)})),
        (GROUP, "PropagationPolicy", "spec.staticWeightList", json!({"staticWeightList": many(257, weight)})),
        (
            GROUP,
            "PropagationPolicy",
            "spec.numRange[0].nodeGroupNames",
            json!({"numRange": [{"nodeGroupNames": many(257, names)}]}),
        ),
        (GROUP, "OverridePolicy", "spec.overrideRules", json!({"overrideRules": rules})),
        (GROUP, "OverridePolicy", &format!("{rule_0}.targetNodeGroup"), rule(targets)),
        (GROUP, "OverridePolicy", &format!("{rule_0}.plaintext"), rule(json!({"plaintext": many(65, plain)}))),
        (GROUP, "OverridePolicy", &format!("{rule_0}.plaintext[0].path"), rule(json!({"plaintext": [far]}))),
        (
            GROUP,
            "OverridePolicy",
            &format!("{rule_0}.imageOverrider[0].value"),
            rule(json!({"imageOverrider": [image]})),
        ),
        (GROUP, "OverridePolicy", &format!("{rule_0}.argsOverrider[0].value"), rule(json!({"argsOverrider": [words]}))),
        (MARKER, "PodMarker", "spec.markItems.labels", json!({"markItems": {"labels": map(65)}})),
        (MARKER, "PodMarker", "spec.markItems.annotations", json!({"markItems": {"annotations": map(65)}})),
        (
            MARKER,
            "PodMarker",
            "spec.markItems.annotations",
            json!({"markItems": {"annotations": {"a": "x".repeat(256 * 1024)}}}),
        ),
        (
            MARKER,
            "PodMarker",
            "spec.matchRequirements.podSelector.matchLabels",
            json!({"markItems": marked, "matchRequirements": selector}),
        ),
        (
            MARKER,
            "PodMarker",
            "spec.matchRequirements.podProbes[0].containers",
            json!({"markItems": marked, "matchRequirements": probes}),
        ),
    ] {
        refused_at(api_version, kind, json!({"spec": spec}), field);
    }
}

#[test]
fn pools_have_their_limits() {
    let labels = json!({"a": "b"});
    let template = json!({"metadata": {"labels": labels}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}});
    let set = |pools: Vec<Value>| {
        json!({"spec": {"selector": {"matchLabels": labels},
               "workloadTemplate": {"deploymentTemplate": template}, "topology": {"pools": pools}}})
    };
    refused_at(POOL, "YurtAppSet", set(many(513, |index| json!({"name": format!("p{index}")}))), "spec.topology.pools");
    let tolerant = json!({"name": "a", "tolerations": many(65, |_| json!({"operator": "Exists"}))});
    refused_at(POOL, "YurtAppSet", set(vec![tolerant]), "spec.topology.pools[0].tolerations");

    let object = |replacements: Vec<Value>| json!({"subject": {"kind": "YurtAppSet", "name": "a"}, "replacements": replacements});
    let kind = "YurtAppConfigurationReplacement";
    let scale = json!({"replicas": 1});
    let one = |pools: Value| json!({"pools": pools, "items": [scale]});
    let image = |_| json!({"image": {"containerName": "c", "imageClaim": "c:1"}});
    refused_at(POOL, kind, object(many(257, |_| one(json!("a")))), "replacements");
    refused_at(POOL, kind, object(vec![json!({"pools": "a", "items": many(129, image)})]), "replacements[0].items");
    let listed = one(json!(many(513, |index| json!(format!("p{index}")))));
    refused_at(POOL, kind, object(vec![listed]), "replacements[0].pools");
    refused_at(POOL, kind, object(vec![one(json!("a ".repeat(32769)))]), "replacements[0].pools");
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
