//! Nodes that come into pools and leave them, while others write to them too.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn pool(labels: &[(&str, &str)], taints: &[(&str, &str, TaintEffect)]) -> NodePoolSpec {
    let taint = |(key, value, effect): &(&str, &str, TaintEffect)| Taint {
        key: (*key).to_owned(),
        value: Some((*value).to_owned()),
        effect: *effect,
        time_added: None,
    };
    NodePoolSpec {
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: taints.iter().map(taint).collect(),
        ..NodePoolSpec::default()
    }
}

fn node() -> Value {
    json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"own": "1", "disk": "old"}},
        "spec": {"taints": [{"key": "disk", "value": "old", "effect": "NoSchedule"}]}})
}

/// What becomes of a node in a pool of some name.
fn settle(node: &Value, pool: Option<&NodePoolSpec>, may_execute: bool) -> Result<Settled, Unreadable> {
    super::settle(node, pool.map(|spec| PoolOf { name: "p", spec }), may_execute)
}

/// The node after what becomes of it.
fn after(node: &Value, pool: Option<&NodePoolSpec>, may_execute: bool) -> Value {
    let mut after = node.clone();
    if let Some(patch) = settle(node, pool, may_execute).unwrap().patch {
        json_patch::merge(&mut after, &patch);
    }
    for field in ["labels", "annotations"] {
        if after["metadata"][field].as_object().is_none_or(Map::is_empty) {
            after["metadata"].as_object_mut().unwrap().remove(field);
        }
    }
    if after["spec"]["taints"].as_array().is_none_or(Vec::is_empty) {
        after["spec"].as_object_mut().unwrap().remove("taints");
    }
    after
}

#[test]
fn what_a_pool_replaces_is_put_back_and_what_it_adds_is_taken_away() {
    use TaintEffect::NoSchedule;
    let first = pool(&[("disk", "ssd"), ("zone", "a")], &[("disk", "ssd", NoSchedule), ("edge", "", NoSchedule)]);
    let inside = after(&node(), Some(&first), false);
    assert_eq!(inside["metadata"]["labels"], json!({"own": "1", "disk": "ssd", "zone": "a"}));
    let taints =
        json!([{"key": "disk", "value": "ssd", "effect": "NoSchedule"}, {"key": "edge", "effect": "NoSchedule"}]);
    assert_eq!(inside["spec"]["taints"], taints);
    // In one write to another pool, of which a value is the node's own.
    let second = pool(&[("disk", "old"), ("own", "2")], &[]);
    let moved = settle(&inside, Some(&second), false).unwrap().patch.unwrap();
    assert_eq!(moved["metadata"]["labels"], json!({"disk": "old", "own": "2", "zone": null}));
    assert_eq!((&moved["metadata"]["uid"], &moved["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
    assert_eq!(after(&after(&inside, Some(&second), false), None, false), node());
}

#[test]
fn what_others_have_changed_is_put_right_while_it_is_wanted_and_theirs_afterwards() {
    let wanted = pool(&[("zone", "a")], &[("edge", "x", TaintEffect::NoSchedule)]);
    let mut changed = after(&node(), Some(&wanted), false);
    changed["metadata"]["labels"]["zone"] = json!("b");
    changed["spec"]["taints"][1]["value"] = json!("y");
    let said = settle(&changed, Some(&wanted), false).unwrap().repaired;
    assert_eq!(said.iter().map(ToString::to_string).collect::<Vec<_>>(), ["label zone", "taint edge"]);
    let repaired = after(&changed, Some(&wanted), false);
    assert_eq!(repaired["metadata"]["labels"]["zone"], "a");
    assert_eq!(repaired["spec"]["taints"][1]["value"], "x");
    let left = after(&changed, None, false);
    assert_eq!(left["metadata"]["labels"]["zone"], "b");
    assert_eq!(left["spec"]["taints"][1]["value"], "y");
    assert!(left["metadata"].get("annotations").is_none(), "nothing is left to remember");
}

#[test]
fn what_makes_kubernetes_delete_pods_is_put_there_only_when_allowed_and_once() {
    let wanted = pool(&[], &[("drain", "now", TaintEffect::NoExecute)]);
    let held = settle(&node(), Some(&wanted), false).unwrap();
    assert_eq!(held, Settled { held: vec!["drain".to_owned()], ..Settled::default() });
    let mut inside = after(&node(), Some(&wanted), true);
    assert_eq!(inside["spec"]["taints"][1]["key"], "drain");
    assert_eq!(settle(&inside, Some(&wanted), false).unwrap(), Settled::default(), "it stays");
    // Somebody takes it off: that is no reason to delete pods again.
    inside["spec"]["taints"].as_array_mut().unwrap().pop();
    let settled = settle(&inside, Some(&wanted), true).unwrap();
    assert_eq!((settled.patch, settled.held, settled.lost), (None, Vec::new(), vec!["drain".to_owned()]));
    assert_eq!(after(&inside, None, true), node());
}

#[test]
fn which_pool_a_node_was_in_is_remembered_as_long_as_there_is_something_to_take_back() {
    let remembered = |node: &Value| {
        let text = |annotation: &str| node["metadata"]["annotations"][annotation].as_str();
        remembered_pool(text(PREVIOUS_ATTRIBUTES), text(REPLACED_ATTRIBUTES))
    };
    let inside = after(&node(), Some(&pool(&[("zone", "a")], &[])), false);
    assert_eq!(remembered(&inside).as_deref(), Some("p"));
    assert_eq!(remembered(&after(&inside, None, false)), None);
    assert_eq!(remembered(&after(&node(), Some(&pool(&[], &[])), false)), None, "it got nothing");
    // What OpenYurt has put there is some pool's; once the node's own pool looks at it, it is that one's.
    let mut theirs = inside.clone();
    theirs["metadata"]["annotations"].as_object_mut().unwrap().remove(REPLACED_ATTRIBUTES);
    assert_eq!(remembered(&theirs).as_deref(), Some(""));
    assert_eq!(after(&theirs, Some(&pool(&[("zone", "a")], &[])), false), inside);
}

#[test]
fn keys_that_are_kept_by_others_are_never_written() {
    let keys = ["kubernetes.io/hostname", "node.kubernetes.io/x", "group.dapple.dev/a", "apps.openyurt.io/nodepool"];
    for key in keys {
        let wanted = pool(&[(key, "x")], &[(key, "x", TaintEffect::NoSchedule)]);
        assert_eq!(settle(&node(), Some(&wanted), true).unwrap(), Settled::default(), "{key}");
    }
}

#[test]
fn keys_that_are_kept_by_others_stay_whatever_the_node_remembers() {
    for key in ["kubernetes.io/os", "node.kubernetes.io/not-ready", "group.dapple.dev/a", "dapple.dev/x"] {
        let taint = |value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
        let mut kept = node();
        kept["metadata"]["labels"][key] = json!("x");
        kept["metadata"]["annotations"] = json!({key: "x"});
        kept["spec"]["taints"].as_array_mut().unwrap().push(taint("x"));
        let mut edited = kept.clone();
        for (annotation, value) in [(PREVIOUS_ATTRIBUTES, "x"), (REPLACED_ATTRIBUTES, "y")] {
            let remembered = json!({"labels": {key: value}, "annotations": {key: value}, "taints": [taint(value)]});
            edited["metadata"]["annotations"][annotation] = json!(remembered.to_string());
        }
        assert_eq!(after(&edited, None, true), kept, "{key}: it is forgotten, and nothing else changes");
        let wanted = pool(&[(key, "z"), ("zone", "a")], &[(key, "z", TaintEffect::NoSchedule)]);
        let inside = after(&edited, Some(&wanted), true);
        assert_eq!(inside, after(&kept, Some(&wanted), true), "{key}");
        assert_eq!(after(&inside, None, true), kept, "{key}");
    }
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    for (annotation, text) in [(PREVIOUS_ATTRIBUTES, "{"), (REPLACED_ATTRIBUTES, "[]"), (PREVIOUS_ATTRIBUTES, "7")] {
        let mut node = node();
        node["metadata"]["annotations"] = json!({annotation: text});
        let error = settle(&node, Some(&pool(&[("zone", "a")], &[])), true).unwrap_err();
        assert_eq!(error.annotation, annotation);
        assert!(error.to_string().contains("nothing is changed on this node"), "{error}");
    }
}

/// Few keys and values, so that they meet.
fn maps() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-d]", "[x-z]", 0..4)
}

fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let effects = prop_oneof![Just(TaintEffect::NoSchedule), Just(TaintEffect::NoExecute)];
    vec(("[a-c]", "[x-z]", effects), 0..4).prop_map(|all| {
        let mut keys = BTreeSet::new();
        let all = all.into_iter().filter(|(key, _, effect)| keys.insert((key.clone(), *effect)));
        all.map(|(key, value, effect)| Taint { key, value: Some(value), effect, time_added: None }).collect()
    })
}

fn pools() -> impl Strategy<Value = NodePoolSpec> {
    (maps(), maps(), taints()).prop_map(|(labels, annotations, taints)| NodePoolSpec {
        labels,
        annotations,
        taints,
        ..NodePoolSpec::default()
    })
}

fn nodes() -> impl Strategy<Value = Value> {
    (maps(), maps(), taints()).prop_map(|(labels, annotations, taints)| {
        let taints: Vec<Value> = taints.iter().map(as_json).collect();
        json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": labels, "annotations": annotations},
            "spec": {"taints": taints}})
    })
}

proptest! {
    /// Through whatever pools a node goes: it ends as it was, and nothing is written twice.
    #[test]
    fn a_node_leaves_its_pools_as_it_came(node in nodes(), through in vec((pools(), any::<bool>()), 1..4)) {
        let before = after(&node, None, false);
        let mut now = before.clone();
        for (pool, may_execute) in &through {
            now = after(&now, Some(pool), *may_execute);
            prop_assert_eq!(&after(&now, Some(pool), *may_execute), &now);
            for (key, value) in &pool.labels {
                prop_assert_eq!(&now["metadata"]["labels"][key], value);
            }
        }
        prop_assert_eq!(after(&now, None, false), before);
    }

    /// What others add meanwhile survives: it was never a pool's.
    #[test]
    fn what_others_add_survives(node in nodes(), wanted in pools()) {
        let mut now = after(&node, Some(&wanted), true);
        now["metadata"]["labels"]["foreign"] = json!("1");
        let mut list = now["spec"]["taints"].as_array().cloned().unwrap_or_default();
        list.insert(0, json!({"key": "foreign", "effect": "NoSchedule", "timeAdded": "2026-11-18T00:00:00Z"}));
        now["spec"]["taints"] = Value::Array(list);
        for pool in [Some(&wanted), None] {
            let left = after(&now, pool, true);
            prop_assert_eq!(&left["metadata"]["labels"]["foreign"], "1");
            prop_assert_eq!(&left["spec"]["taints"][0]["key"], "foreign");
        }
    }
}
