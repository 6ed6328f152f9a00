//! What nodes get, by patches and by the rules of a policy.

use std::collections::BTreeMap;

use dapple_api::group::NodeGroupSpec;
use serde_json::json;

use super::*;
use crate::overriding::GroupRules;

fn variants() -> Variants {
    variants_of("revision", NEWEST_FORM, json!({}))
}

fn variants_of(hash: &str, form: u8, more: Value) -> Variants {
    let mut template = json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "c:1"}], "nodeSelector": {"os": "linux"}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        template["spec"][field] = value.clone();
    }
    let patches: Vec<DaemonSetPatch> = serde_json::from_value(json!([
        {"selector": {"matchLabels": {"disk": "large"}}, "patch": {"metadata": {"labels": {"a": "b"}}}, "priority": 5},
        {"selector": {"matchLabels": {"disk": "odd"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}},
        {"selector": {"matchLabels": {"gpu": "yes"}}, "patch": {"metadata": {"labels": {"g": "y"}}}},
        {"selector": {"matchLabels": {"disk": "other"}}, "patch": {"metadata": {"labels": {"app": "b"}}}},
    ]))
    .unwrap();
    let spec: DaemonSetSpec =
        serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}, "template": template})).unwrap();
    Variants::new("DaemonSet default/a", (template, &patches), &spec, (hash, form))
}

fn labels(os: &str, disk: &str, gpu: &str) -> BTreeMap<String, String> {
    [("os", os), ("disk", disk), ("gpu", gpu)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn node(labels: &BTreeMap<String, String>) -> Node<'_> {
    Node { name: "n", labels, taints: &[] }
}

#[test]
fn nodes_share_renderings_and_only_patched_ones_have_their_own_hash() {
    let mut variants = variants();
    let mut hash_on = |labels: BTreeMap<String, String>| {
        let number = variants.of(node(&labels));
        let rendering = variants.all()[number].rendering.as_ref();
        (number, rendering.map(|rendered| rendered.hash.to_string()).map_err(ToString::to_string))
    };
    assert_eq!(hash_on(labels("linux", "small", "no")), (0, Ok("revision".to_owned())));
    let (large, hash) = hash_on(labels("linux", "large", "no"));
    assert_eq!((large, hash.unwrap().len()), (1, 16));
    assert_eq!(hash_on(labels("windows", "large", "no")).0, large);
    let (_, odd) = hash_on(labels("linux", "odd", "no"));
    assert!(odd.unwrap_err().contains("spec.patches[1]"));
    let (_, other) = hash_on(labels("linux", "other", "no"));
    assert!(other.unwrap_err().contains("spec.selector"), "its pods would not be known");
    let (both, _) = hash_on(labels("linux", "large", "yes"));
    assert_eq!(variants.all()[both].patches, [2, 0], "the one of higher priority applies last");
    let windows = labels("windows", "large", "no");
    assert_eq!(variants.misfit(large, node(&windows)), Some(Misfit::NodeSelector { key: "os".to_owned() }));
    assert_eq!(variants.misfit(large, node(&labels("linux", "large", "no"))), None);
}

#[test]
fn a_rendering_is_found_by_its_hash_though_no_node_has_it_now() {
    let mut asked = variants();
    let both = labels("linux", "large", "yes");
    let number = asked.of(node(&both));
    let rendered = asked.all()[number].rendering.as_ref().unwrap().clone();
    assert_eq!(variants().find(&rendered.hash), Some(rendered));
    assert_eq!(variants().find("revision").unwrap().template.pointer("/metadata/labels"), Some(&json!({"app": "a"})));
    assert_eq!(variants().find("another"), None);
}

/// Rules for groups `east`, whose nodes have a label, and `named`, which names the node `n`.
fn overridden(rules: Value) -> Variants {
    let east = NodeGroupSpec { match_labels: [("zone".into(), "e".into())].into(), ..NodeGroupSpec::default() };
    let named = NodeGroupSpec { nodes: vec!["n".into()], ..NodeGroupSpec::default() };
    let spec = Arc::new(serde_json::from_value(json!({"overrideRules": rules})).unwrap());
    let groups = [("east", &east), ("named", &named)].into_iter();
    let rules = GroupRules::new("OverridePolicy default/p".to_owned(), spec, groups);
    variants().overridden(Overriding::By(Arc::new(rules)))
}

fn annotates(groups: Value, value: &str) -> Value {
    let add = json!([{"path": "/metadata/labels/a", "operator": "add", "value": value}]);
    json!({"targetNodeGroup": groups, "plaintext": add})
}

#[test]
fn rules_of_a_policy_apply_after_patches_and_share_renderings() {
    let mut variants = overridden(json!([annotates(json!(["east"]), "policy"), annotates(json!(["named"]), "named")]));
    let mut plain = labels("linux", "large", "no");
    let mut told = |name: &str, labels: &BTreeMap<String, String>| {
        let number = variants.of(Node { name, labels, taints: &[] });
        let rendered = variants.all()[number].rendering.as_ref().unwrap();
        let label = rendered.template["metadata"]["labels"]["a"].as_str().map(str::to_owned);
        (number, label.unwrap_or_default(), variants.made_by(number))
    };
    assert_eq!(told("a", &plain), (0, "b".to_owned(), "spec.patches[0]".to_owned()));
    plain.insert("zone".into(), "e".into());
    let by_both = "spec.patches[0], OverridePolicy default/p spec.overrideRules[0]".to_owned();
    assert_eq!(told("a", &plain), (1, "policy".to_owned(), by_both.clone()));
    assert_eq!(told("b", &plain), (1, "policy".to_owned(), by_both), "one rendering for all of its kind");
    let (both, label, _) = told("n", &plain);
    assert_eq!((both, label.as_str()), (2, "named"), "each rule once, the later one wins");
    plain.insert("disk".into(), "small".into());
    assert_eq!(told("a", &plain).2, "OverridePolicy default/p spec.overrideRules[0]");
    let hash = |number: usize| variants.all()[number].rendering.as_ref().unwrap().hash.clone();
    assert_eq!((0..3).map(hash).collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(hash(1), hash(3), "what the patch has set, the rule has set anew");
    // Of a node that was in another group when its pod was made.
    let anew = overridden(json!([annotates(json!(["east"]), "policy"), annotates(json!(["named"]), "named")]));
    assert_eq!(anew.find(&hash(1)).unwrap().template["metadata"]["labels"]["a"], "policy");
    let unruled = overridden(json!([]));
    assert_eq!(unruled.find(&hash(0)).unwrap().hash, hash(0));
    assert_eq!(unruled.find(&hash(1)), None);
}

#[test]
fn a_rule_that_changes_nothing_restarts_nobody() {
    let mut variants = overridden(json!([annotates(json!(["named"]), "b")]));
    let labels = labels("linux", "large", "no");
    let mut meaning = |name: &str| {
        let number = variants.of(Node { name, labels: &labels, taints: &[] });
        (number, variants.all()[number].rendering.as_ref().unwrap().meaning.clone())
    };
    let (ruled, plain) = (meaning("n"), meaning("a"));
    assert_ne!(ruled.0, plain.0);
    assert_eq!(ruled.1, plain.1);
}

#[test]
fn a_rule_that_does_not_apply_holds_up_the_nodes_that_it_is_for() {
    let taken = json!({"targetNodeGroup": ["named"], "plaintext": [
        {"path": "/metadata/labels/app", "operator": "replace", "value": "b"}]});
    let broken = json!({"targetNodeGroup": ["named"], "plaintext": [
        {"path": "/spec/nothing", "operator": "remove"}]});
    let labels = labels("linux", "small", "no");
    for (rule, said) in [(taken, "spec.selector"), (broken, "OverridePolicy default/p spec.overrideRules[0]")] {
        let mut variants = overridden(json!([rule]));
        let [held, free] = ["n", "a"].map(|name| variants.of(Node { name, labels: &labels, taints: &[] }));
        let error = variants.all()[held].rendering.as_ref().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(*variants.all()[free].rendering.as_ref().unwrap().hash, *"revision");
    }
}

#[test]
fn while_a_policy_is_waited_for_nobody_gets_anything_and_pods_are_known() {
    let mut waiting = variants().overridden(Overriding::Waits("not confirmed".to_owned()));
    let large = labels("linux", "large", "no");
    let number = waiting.of(node(&large));
    let expected = Unrendered::Waits("not confirmed".to_owned());
    assert_eq!(waiting.all()[number].rendering, Err(expected));
    let mut plain = variants();
    let number = plain.of(node(&large));
    let hash = plain.all()[number].rendering.as_ref().unwrap().hash.clone();
    assert!(waiting.find(&hash).is_some());
}

#[test]
fn renderings_that_mean_the_same_are_the_same_whatever_pods_carry() {
    let written = json!({"dnsPolicy": "ClusterFirst", "hostNetwork": false});
    let mut of_last_version = variants_of("old", 1, written);
    let mut of_this_one = variants_of("new", NEWEST_FORM, json!({}));
    let mut of_a_newer = variants_of("newer", u8::MAX, json!({}));
    for labels in [labels("linux", "small", "no"), labels("linux", "large", "no")] {
        let rendered = |variants: &mut Variants| {
            let number = variants.of(node(&labels));
            variants.all()[number].rendering.as_ref().unwrap().clone()
        };
        let (old, new) = (rendered(&mut of_last_version), rendered(&mut of_this_one));
        assert_eq!(old.meaning, new.meaning);
        assert_ne!(old.hash, new.hash);
        assert_eq!(rendered(&mut of_a_newer).meaning, new.meaning);
        assert_eq!(rendered(&mut variants_of("other", NEWEST_FORM, json!({}))).meaning, new.meaning);
        let other = json!({"dnsPolicy": "Default"});
        assert_ne!(rendered(&mut variants_of("new", NEWEST_FORM, other)).meaning, new.meaning);
    }
    // As the last version named what it made for patched nodes.
    let of_patched = of_last_version.all()[1].rendering.as_ref().unwrap();
    assert_eq!(*of_patched.hash, *dapple_edit::render::hash(&of_patched.template));
    assert_eq!(of_last_version.all()[0].rendering.as_ref().unwrap().hash, "old".into());
}
