//! Editions are named by their rules, carried over to pods, and corrected where Kubernetes allows it.

use serde_json::{Value, json};

use super::*;

fn spec(rules: Value) -> OverridePolicySpec {
    serde_json::from_value(json!({"overrideRules": rules})).expect("a policy")
}

fn registry(group: &str, value: &str) -> Value {
    json!({"targetNodeGroup": [group], "overriders": {
        "imageOverrider": [{"component": "Registry", "operator": "replace", "value": value}]}})
}

fn argument(group: &str, word: &str) -> Value {
    json!({"targetNodeGroup": [group], "overriders": {
        "argsOverrider": [{"containerName": "web", "operator": "add", "value": [word]}]}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "old.io/nginx:1"}]}})
}

/// The pod as it comes, with a sidecar of somebody else's before the template's container.
fn pod() -> Value {
    let mut pod = template();
    pod["spec"]["containers"] = json!([{"name": "mesh", "image": "old.io/mesh:1"}, pod["spec"]["containers"][0]]);
    pod["spec"]["tolerations"] = json!([{"key": "a"}]);
    pod
}

#[test]
fn groups_with_the_same_rules_share_an_edition() {
    let policy = spec(json!([registry("Beijing", "b.io"), registry("hangzhou", "b.io"), registry("jinan", "j.io")]));
    let name = |group: &str| Edition::of("p", &policy, group).name;
    assert_eq!(name("beijing"), name("hangzhou"));
    assert_ne!(name("beijing"), name("jinan"));
    assert_eq!(name("elsewhere"), None, "no rule is for it");
    // The order counts, and what is for other groups does not.
    let more = spec(json!([registry("jinan", "j.io"), registry("beijing", "b.io")]));
    assert_eq!(Edition::of("p", &more, "beijing").name, name("beijing"));
    let twice = spec(json!([argument("a", "x"), argument("a", "y")]));
    let turned = spec(json!([argument("a", "y"), argument("a", "x")]));
    assert_ne!(Edition::of("p", &twice, "a").name, Edition::of("p", &turned, "a").name);
    let empty = spec(json!([{"targetNodeGroup": ["a"], "overriders": {}}]));
    assert_eq!(Edition::of("p", &empty, "a").name, None, "a rule that changes nothing");
}

#[test]
fn pods_in_several_groups_get_each_rule_once() {
    let both = json!({"targetNodeGroup": ["a", "b"], "overriders": {
        "argsOverrider": [{"containerName": "web", "operator": "add", "value": ["--both"]}]}});
    let policy = spec(json!([both, argument("b", "--b")]));
    let render = |groups: &str| Edition::of("p", &policy, groups).render(&template()).expect("it renders");
    assert_eq!(render("a,b")["spec"]["containers"][0]["args"], json!(["--both", "--b"]));
    assert_eq!(Edition::of("p", &policy, "a,b").name, Edition::of("p", &policy, "b").name);
    assert_eq!(Edition::of("p", &policy, "").name, None, "in no group");
}

#[test]
fn what_a_policy_says_of_images_can_be_had_alone() {
    let policy = spec(json!([registry("a", "b.io"), argument("a", "--edge")]));
    let alone = spec(json!([registry("a", "b.io")]));
    assert_eq!(Edition::of("p", &images_only(&policy), "a").name, Edition::of("p", &alone, "a").name);
}

#[test]
fn a_pod_gets_what_rules_make_of_its_template() {
    let policy = spec(json!([registry("beijing", "b.io"), argument("beijing", "--edge")]));
    let to = Edition::of("p", &policy, "beijing");
    let base = Edition::default();
    let template = template();
    let change = Change { template: &template, from: &base, to: &to };
    let carried = change.carried(&pod()).expect("it is carried over");
    assert_eq!(carried["spec"]["containers"][0], json!({"name": "mesh", "image": "old.io/mesh:1"}), "somebody else's");
    let own = json!({"name": "web", "image": "b.io/nginx:1", "args": ["--edge"]});
    assert_eq!(carried["spec"]["containers"][1], own);
    assert_eq!(carried["metadata"]["annotations"][EDITION], json!(to.name));
    // And back again.
    let back = Change { template: &template, from: &to, to: &base }.carried(&carried).expect("it is carried back");
    assert_eq!(back["spec"], pod()["spec"]);
    assert!(back["metadata"]["annotations"].get(EDITION).is_none());
    assert_eq!(change.correction(&pod()), Ok(Correction::NewPod), "arguments cannot change");
    assert!(!change.is_correction());
}

#[test]
fn images_of_a_pod_that_waits_are_corrected() {
    let policy = spec(json!([registry("beijing", "b.io"), registry("hangzhou", "h.io")]));
    let [from, to] = ["beijing", "hangzhou"].map(|group| Edition::of("p", &policy, group));
    let template = template();
    let base = Edition::default();
    let made = Change { template: &template, from: &base, to: &from }.carried(&pod()).expect("it is carried over");
    let change = Change { template: &template, from: &from, to: &to };
    assert!(change.is_correction());
    let Ok(Correction::Patch(patch)) = change.correction(&made) else { panic!("it can be corrected") };
    let expected = json!({"metadata": {"annotations": {EDITION: to.name}},
        "spec": {"containers": [{"name": "web", "image": "h.io/nginx:1"}]}});
    assert_eq!(Value::Object(patch), expected);
    // Nothing but the name.
    let same = Change { template: &template, from: &from, to: &from };
    assert_eq!(same.correction(&made), Ok(Correction::Patch(Map::new())));
}

#[test]
fn only_what_is_added_to_tolerations_and_selectors_can_be_corrected() {
    let plain = |path: &str, operator: &str, value: Value| {
        let rule = json!({"overriders": {"plaintext": [{"path": path, "operator": operator, "value": value}]}});
        Edition::of("p", &spec(json!([rule])), "a")
    };
    let mut template = template();
    template["spec"]["tolerations"] = json!([{"key": "a"}]);
    template["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    template["metadata"]["annotations"] = json!({"note": "x"});
    let base = Edition::default();
    let can = |to: Edition| Change { template: &template, from: &base, to: &to }.is_correction();
    assert!(can(plain("/spec/tolerations/-", "add", json!({"key": "b"}))));
    assert!(!can(plain("/spec/tolerations/0", "remove", Value::Null)));
    assert!(can(plain("/spec/nodeSelector/zone", "add", json!("z"))));
    assert!(!can(plain("/spec/nodeSelector/disk", "replace", json!("hdd"))));
    assert!(can(plain("/metadata/annotations/note", "remove", Value::Null)));
    assert!(!can(plain("/spec/priorityClassName", "add", json!("high"))));
    assert!(!can(plain("/spec/nothing/here", "replace", json!(1))), "it does not render");
}
