//! The stories of the specs, from the files in `examples/`, rendered.

use std::path::Path;

use dapple_api::daemonset::DaemonSet;
use dapple_api::group::OverridePolicy;
use dapple_api::pool::YurtAppConfigurationReplacement;
use dapple_edit::document::Document;
use dapple_edit::render::{Rendering, render};
use dapple_edit::{daemonset, group, pool};
use serde_json::Value;

/// The first object of a kind in an example.
fn example(file: &str, kind: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    documents.into_iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("{file} has no {kind}"))
}

/// The edits of the patches that match.
fn edits_for(
    patches: &[daemonset::Patch],
    label: impl Fn(&str) -> Option<&'static str>,
) -> Vec<&dapple_edit::edit::Edit> {
    daemonset::matching(patches, label).into_iter().map(|index| &patches[index].edit).collect()
}

fn rendered(set: &DaemonSet, labels: &[(&str, &'static str)]) -> Rendering {
    let (patches, bad) = daemonset::patches("DaemonSet", &set.spec.patches);
    assert!(bad.is_empty());
    let label = |key: &str| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    render(Document::PodTemplate, &set.spec.template.0, &edits_for(&patches, label)).unwrap()
}

#[test]
fn large_disks_get_a_large_cache() {
    let set: DaemonSet = serde_json::from_value(example("daemonset/nydus.yaml", "DaemonSet")).unwrap();
    let plain = rendered(&set, &[("disk-type", "standard")]);
    assert_eq!(plain.document, set.spec.template.0);
    let large = rendered(&set, &[("node-role/nydus-storage", "large")]);
    let env = &large.document["spec"]["containers"][0]["env"];
    assert_eq!(env[0], serde_json::json!({"name": "LOCAL_CACHE_SIZE", "value": "2Ti"}));
    assert_eq!(env[1], serde_json::json!({"name": "FEATURE_GATE_LARGE_DISK", "value": "true"}));
    assert_ne!(large.hash, plain.hash);
    let told: Vec<String> =
        large.origins.iter().map(|origin| format!("{} by {}", origin.path, origin.set_by.rule)).collect();
    assert_eq!(
        told,
        [
            "spec.containers[name=nydusd].env[name=FEATURE_GATE_LARGE_DISK].name by spec.patches[0]",
            "spec.containers[name=nydusd].env[name=FEATURE_GATE_LARGE_DISK].value by spec.patches[0]",
            "spec.containers[name=nydusd].env[name=LOCAL_CACHE_SIZE].value by spec.patches[0]",
        ]
    );
}

#[test]
fn higher_priority_wins_and_a_bad_selector_spoils_nothing() {
    let mut value = example("daemonset/nydus.yaml", "DaemonSet");
    let patch = |size: &str| serde_json::json!({"spec": {"containers": [{"name": "nydusd", "env": [{"name": "LOCAL_CACHE_SIZE", "value": size}]}]}});
    value["spec"]["patches"] = serde_json::json!([
        {"selector": {}, "patch": patch("first"), "priority": 5},
        {"selector": {}, "patch": patch("second"), "priority": -1},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}, "patch": patch("bad")},
        {"selector": {}, "patch": patch("last"), "priority": 5},
    ]);
    let set: DaemonSet = serde_json::from_value(value).unwrap();
    let (patches, bad) = daemonset::patches("DaemonSet", &set.spec.patches);
    let order: Vec<&str> = patches.iter().map(|patch| patch.edit.source.rule.as_str()).collect();
    assert_eq!(order, ["spec.patches[1]", "spec.patches[0]", "spec.patches[3]"]);
    assert!(
        bad[0].to_string().starts_with("spec.patches[2].selector.matchExpressions[0].operator is \"Like\""),
        "{}",
        bad[0]
    );
    let rendering = render(Document::PodTemplate, &set.spec.template.0, &edits_for(&patches, |_| None)).unwrap();
    let origin = rendering
        .origins
        .iter()
        .find(|origin| origin.path.to_string().ends_with("[name=LOCAL_CACHE_SIZE].value"))
        .unwrap();
    assert_eq!(origin.after, Some("last".into()));
    let overruled: Vec<&str> = origin.overruled.iter().map(|(by, _)| by.rule.as_str()).collect();
    assert_eq!(overruled, ["spec.patches[1]", "spec.patches[0]"]);
}

#[test]
fn each_group_pulls_from_its_own_registry() {
    let policy: OverridePolicy = serde_json::from_value(example("group/policies.yaml", "OverridePolicy")).unwrap();
    let template = serde_json::json!({"spec": {"containers": [{"name": "nginx", "image": "nginx:1.25"}]}});
    for (group_name, image) in [
        ("beijing", "beijing.registry.io/nginx:1.25"),
        ("Hangzhou", "hangzhou.registry.io/nginx:1.25"),
        ("shanghai", "nginx:1.25"),
    ] {
        let edits = group::edits("OverridePolicy", &policy.spec, &[group_name]);
        let rendering = render(Document::PodTemplate, &template, &edits.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(rendering.document["spec"]["containers"][0]["image"], image, "{group_name}");
    }
}

#[test]
fn a_rule_that_cannot_be_is_named() {
    let spec = serde_json::json!({"overrideRules": [{"argsOverrider": [{"containerName": "c", "operator": "replace", "value": ["x"]}]}]});
    let edits = group::edits("OverridePolicy default/p", &serde_json::from_value(spec).unwrap(), &["any"]);
    let template = serde_json::json!({"spec": {"containers": [{"name": "c"}]}});
    let error = render(Document::PodTemplate, &template, &edits.iter().collect::<Vec<_>>()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("OverridePolicy default/p spec.overrideRules[0].argsOverrider[0]: operator replace"),
        "{error}"
    );
}

#[test]
fn later_replacements_win_in_each_pool() {
    let object: YurtAppConfigurationReplacement =
        serde_json::from_value(example("pool/story-4.yaml", "YurtAppConfigurationReplacement")).unwrap();
    for (pool_name, replicas) in [("beijing", Some(5)), ("hangzhou", Some(3)), ("shanghai", None)] {
        let set = example("pool/yurtappsets.yaml", "YurtAppSet");
        let base = &set["spec"]["workloadTemplate"]["deploymentTemplate"];
        let edits = pool::edits("r", &object.replacements, pool_name);
        let rendering = render(Document::Deployment, base, &edits.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(rendering.document["spec"].get("replicas").and_then(Value::as_i64), replicas, "{pool_name}");
        assert_eq!(rendering.origins.is_empty(), replicas.is_none(), "{pool_name}");
    }
}

#[test]
fn the_pool_stands_in_every_text() {
    let object: YurtAppConfigurationReplacement =
        serde_json::from_value(example("pool/story-3.yaml", "YurtAppConfigurationReplacement")).unwrap();
    let edits = pool::edits("r", &object.replacements, "hangzhou");
    let text = format!("{edits:?}");
    assert!(text.contains("-hangzhou") && !text.contains("{{nodepool}}"), "{text}");
}

/// Template, pool patch, replacements: the last wins, and each field names its rule.
#[test]
fn a_pool_gets_its_number_its_place_its_patch_and_then_replacements() {
    let pool_spec: dapple_api::pool::Pool = serde_json::from_value(serde_json::json!({
        "name": "edge", "replicas": 2, "tolerations": [{"key": "edge", "operator": "Exists"}],
        "nodeSelectorTerm": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["edge"]}]},
        "patch": {"spec": {"minReadySeconds": 7, "template": {"spec": {"containers": [{"name": "c", "image": "patched"}]}}}},
    }))
    .unwrap();
    let replacements = serde_json::json!([{"pools": "*", "items": [
        {"image": {"containerName": "c", "imageClaim": "c-{{nodepool}}"}}, {"replicas": 5}, {"upgradeStrategy": "Recreate"}]}]);
    let mut edits = pool::own_edits("YurtAppSet default/a", &pool_spec, "spec.topology.pools[0]");
    edits.extend(pool::edits("r", &serde_json::from_value::<Vec<_>>(replacements).unwrap(), "edge"));
    let base = serde_json::json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c"}]}}}});
    let rendering = render(Document::Deployment, &base, &edits.iter().collect::<Vec<_>>()).unwrap();
    let told: Vec<String> =
        rendering.origins.iter().map(|origin| format!("{} by {}", origin.path, origin.set_by.rule)).collect();
    let affinity = "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(
        told,
        [
            "spec.minReadySeconds by spec.topology.pools[0].patch".to_owned(),
            "spec.replicas by replacements[0].items[1]".to_owned(),
            "spec.strategy.type by replacements[0].items[2]".to_owned(),
            format!("{affinity}.nodeSelectorTerms by spec.topology.pools[0].nodeSelectorTerm"),
            "spec.template.spec.containers[name=c].image by replacements[0].items[0]".to_owned(),
            "spec.template.spec.tolerations by spec.topology.pools[0].tolerations".to_owned(),
        ]
    );
    assert_eq!(rendering.document["spec"]["template"]["spec"]["containers"][0]["image"], "c-edge");
    let image = rendering.origins.iter().find(|origin| origin.path.to_string().ends_with(".image")).unwrap();
    assert_eq!(image.overruled[0].0.rule, "spec.topology.pools[0].patch");
}

#[test]
fn a_pools_nodes_are_selected_and_its_taints_tolerated_beside_what_the_template_says() {
    let pool: dapple_api::pool::NodePool = serde_json::from_value(serde_json::json!({"spec": {"taints": [
        {"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}]}}))
    .unwrap();
    let edits = pool::placing_edits("YurtAppDaemon default/a", "edge", &pool.spec.taints);
    let own = serde_json::json!({"key": "own", "operator": "Exists"});
    let base =
        serde_json::json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [own]}}}});
    let rendering = render(Document::Deployment, &base, &edits.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(
        rendering.document["spec"]["template"]["spec"],
        serde_json::json!({"nodeSelector": {"disk": "ssd", "apps.openyurt.io/nodepool": "edge"}, "tolerations": [
            own,
            {"key": "a", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "c", "operator": "Exists", "effect": "NoExecute"},
        ]})
    );
}

/// For each kind of item: one for all pools, then one for a single pool; the item that counts is named, and which it overrules.
#[test]
fn the_last_item_wins_whatever_it_is_about() {
    let base = serde_json::json!({"spec": {"template": {"spec": {
        "containers": [{"name": "c", "image": "c", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
        "volumes": [{"name": "m", "configMap": {"name": "from"}}, {"name": "s", "secret": {"secretName": "from"}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "from"}}]}}}});
    let spec = "/spec/template/spec";
    for (item, pointer) in [
        (serde_json::json!({"image": {"containerName": "c", "imageClaim": "TO"}}), "/containers/0/image"),
        (serde_json::json!({"env": {"containerName": "c", "envClaim": {"A": "TO"}}}), "/containers/0/env/0/value"),
        (
            serde_json::json!({"configMap": {"configMapSource": "from", "configMapTarget": "TO"}}),
            "/volumes/0/configMap/name",
        ),
        (serde_json::json!({"secret": {"secretSource": "from", "secretTarget": "TO"}}), "/volumes/1/secret/secretName"),
        (
            serde_json::json!({"persistentVolumeClaim": {"pvcSource": "from", "pvcTarget": "TO"}}),
            "/volumes/2/persistentVolumeClaim/claimName",
        ),
    ] {
        let with = |name: &str| serde_json::from_str::<Value>(&item.to_string().replace("TO", name)).unwrap();
        let replacements = serde_json::json!([
            {"pools": "*", "items": [with("of-{{nodepool}}")]}, {"pools": ["edge"], "items": [with("last")]}]);
        let replacements: Vec<_> = serde_json::from_value(replacements).unwrap();
        for (pool, name) in [("edge", "last"), ("other", "of-other")] {
            let edits = pool::edits("r", &replacements, pool);
            let rendering = render(Document::Deployment, &base, &edits.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(rendering.document.pointer(&format!("{spec}{pointer}")), Some(&name.into()), "{item} in {pool}");
            let mut overruled = rendering.origins.iter().flat_map(|origin| &origin.overruled);
            assert_eq!(
                overruled.any(|(by, _)| by.rule == "replacements[0].items[0]"),
                pool == "edge",
                "{item} in {pool}"
            );
        }
    }
}
