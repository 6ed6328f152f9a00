use dapple_api::pool::YurtAppSet;
use serde_json::{Value, json};

use super::history::{HistoryView, RevisionDetailView, RevisionFacts};
use super::*;
use dapple_plan::pool::object::in_force;
use dapple_plan::pool::revision::{Revision, data_of};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-15T12:00:00Z")
}

fn with(mut object: Value, parts: [(&str, Value); 2]) -> Value {
    for (part, more) in parts {
        for (field, value) in more.as_object().into_iter().flatten() {
            object[part][field] = value.clone();
        }
    }
    object
}

/// A YurtAppSet that its controller has seen.
pub(super) fn application(name: &str, metadata: Value, status: Value) -> ApplicationObject {
    let object = json!({
        "metadata": {"name": name, "namespace": "edge", "uid": "u", "generation": 2,
            "creationTimestamp": "2026-11-13T11:00:00Z"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "topology": {"pools": [{"name": "a"}]},
            "workloadTemplate": {"deploymentTemplate": {"spec": {"template": {"spec": {"containers": [
                {"name": "c", "image": "c:1"}]}}}}}},
        "status": {"observedGeneration": 2, "updateRevision": format!("{name}-4d5e6f")},
    });
    let object = with(object, [("metadata", metadata), ("status", status)]);
    serde_json::from_value::<YurtAppSet>(object).unwrap().into()
}

/// Replacements for the application "web".
pub(super) fn replacement(name: &str, more: Value) -> YurtAppConfigurationReplacement {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "edge", "generation": 3, "creationTimestamp": "2026-11-13T11:00:00Z"},
        "subject": {"kind": "YurtAppSet", "name": "web"}, "replacements": [{"pools": "*", "items": [{"replicas": 3}]}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn pool(name: &str, state: &str, updated: i64, message: &str) -> Value {
    json!({"name": name, "workload": format!("web-{name}-xxxxx"), "state": state, "desired": 3, "ready": 3,
        "updated": updated, "available": 3, "revision": if updated == 3 { "web-4d5e6f" } else { "web-1a2b3c" },
        "message": message})
}

#[test]
fn a_rollout_reads_well() {
    let pools = json!([
        pool("beijing", "Done", 3, ""),
        pool("hangzhou", "Changing", 1, "2 of 3 pods are available"),
        pool("shanghai", "Waiting", 0, "it waits for its turn\u{1b}[2J"),
    ]);
    let rolling = ApplicationView::new(&application("web", json!({}), json!({"pools": pools})), now());
    let whole = json!({"pools": [pool("beijing", "Done", 3, "")], "conditions": [{"type": "Synced", "status": "False",
        "reason": "RemovalsHeld", "message": "Removals are held.", "lastTransitionTime": "2026-11-15T10:00:00Z"}]});
    let whole = ApplicationView::new(&application("proxy", json!({}), whole), now());
    assert_eq!((rolling.state, rolling.done, whole.state, whole.done), ("RollingOut", false, "Complete", true));
    let text = applications(&[rolling, whole], false, false);
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(lines[0], ["NAME", "POOLS", "DESIRED", "UPDATED", "READY", "AVAILABLE", "AGE", "REVISION", "STATE"]);
    assert_eq!(lines[1], ["edge/web", "1/3", "9", "4", "9", "9", "2d1h", "4d5e6f", "rolling out: 1 of 3 pools done"]);
    assert_eq!(lines[2], ["├─ beijing", "3", "3", "3", "3", "4d5e6f", "done"]);
    assert_eq!(lines[3], ["├─ hangzhou", "3", "1", "3", "3", "1a2b3c", "changing: 2 of 3 pods are available"]);
    assert_eq!(lines[4], ["└─ shanghai", "3", "0", "3", "3", "1a2b3c", "it waits for its turn\\u{1b}[2J"]);
    assert_eq!(lines[5][0], "edge/proxy");
    assert_eq!(lines[7], ["└─ Removals are held."]);
}

#[test]
fn of_many_pools_those_are_shown_that_are_not_done() {
    let mut pools: Vec<Value> = (0..30).map(|number| pool(&format!("p{number:02}"), "Done", 3, "")).collect();
    pools[17] = pool("p17", "Late", 1, "0 of 3 pods are available");
    let view =
        ApplicationView::new(&application("web", json!({}), json!({"pools": pools, "overriderRef": "r"})), now());
    let text = applications(std::slice::from_ref(&view), false, false);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("├─ p17") && text.contains("late: 0 of 3 pods are available"), "{text}");
    assert!(text.ends_with("└─ … and 29 more pools (-o wide shows all)\n"), "{text}");
    let wide = applications(&[view], false, true);
    assert_eq!(wide.lines().count(), 32);
    assert!(wide.lines().nth(1).unwrap().ends_with("Deployment   r"), "{wide}");
}

#[test]
fn pools_of_nodes_say_what_keeps_their_nodes() {
    let of = |name: &str, conditions: Value| {
        let pool = json!({"metadata": {"name": name, "generation": 1, "creationTimestamp": "2026-11-15T11:00:00Z"},
            "spec": {"type": "Cloud"}, "status": {"nodes": ["n1", "n2"], "readyNodeNum": 1, "unreadyNodeNum": 1,
                "conditions": conditions}});
        NodePoolView::new(&serde_json::from_value(pool).unwrap(), now())
    };
    let condition = |kind: &str, status: &str, reason: &str, seen: i64| {
        json!({"type": kind, "status": status, "reason": reason,
        "message": format!("about {reason}"), "observedGeneration": seen, "lastTransitionTime": "2026-11-15T10:00:00Z"})
    };
    let well = of(
        "beijing",
        json!([condition("Applied", "True", "Applied", 1), condition("Held", "False", "NothingHeld", 1)]),
    );
    assert_eq!((well.state.as_str(), well.notes.len()), ("Applied", 0));
    let held = of(
        "hangzhou",
        json!([condition("Applied", "False", "Contested", 1), condition("Held", "True", "ManyLeft", 1)]),
    );
    assert_eq!(held.notes, ["about Contested", "about ManyLeft"]);
    let still = of(
        "shanghai",
        json!([condition("Applied", "True", "Applied", 1), condition("Suspended", "True", "Suspended", 1)]),
    );
    assert_eq!(still.state, "Suspended");
    assert_eq!(of("new", json!([condition("Applied", "True", "Applied", 0)])).state, "NotBegun");
    let text = node_pools(&[well, held], false, true);
    let row = text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["beijing", "Cloud", "2", "1", "1", "60m", "Applied", "n1,n2"]);
    assert!(text.ends_with("├─ about Contested\n└─ about ManyLeft\n"), "{text}");
}

#[test]
fn replacements_say_in_how_many_pools_they_are_in_effect() {
    let status = json!({"matchedPools": 3, "poolsInEffect": 1, "poolsWaiting": 2, "conditions": [{"type": "Ready",
        "status": "False", "reason": "RollingOut", "message": "2 pools do not have it yet.", "observedGeneration": 3,
        "lastTransitionTime": "2026-11-15T10:00:00Z"}]});
    let view = ReplacementView::new(&replacement("r", json!({"status": status})), now());
    let text = replacements(&[view], false);
    let row =
        text.lines().nth(1).unwrap().split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    assert_eq!(row, ["edge/r", "YurtAppSet web", "3", "1", "2", "0", "2d1h", "RollingOut"]);
    assert!(text.ends_with("└─ 2 pools do not have it yet.\n"), "{text}");
    assert_eq!(ReplacementView::new(&replacement("r", json!({})), now()).state, "NotBegun");
}

fn revision(number: i64, name: &str, object: &ApplicationObject) -> RevisionFacts {
    let data = data_of(&object.version(Some(in_force(&replacement("r", json!({}))))));
    let revision = Revision { name: name.to_owned(), number, data };
    RevisionFacts { revision, created: Some(at("2026-11-15T10:00:00Z")), change_cause: None }
}

#[test]
fn revisions_say_which_pools_have_them() {
    let pools = json!([pool("a", "Done", 3, ""), pool("b", "Waiting", 0, ""), pool("c", "Waiting", 0, "")]);
    let annotations = json!({"annotations": {"kubernetes.io/change-cause": "more cache\u{7}"}});
    let object = application("web", annotations, json!({"pools": pools, "currentRevision": "web-1a2b3c"}));
    let mut all = [revision(2, "web-4d5e6f", &object), revision(1, "web-1a2b3c", &object)];
    all[1].change_cause = Some("first".to_owned());
    let view = HistoryView::new(&object, &all, now());
    let expected = "yurtappset.apps.openyurt.io/web
REVISION   CHANGE-CAUSE       AGE    POOLS   ROLE
1          first              120m   2       last rolled out whole
2          more cache\\u{7}    120m   1       newest
";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&view.text(false)), words(expected));
    assert_eq!(view.revisions[0].pools, ["b", "c"]);
}

#[test]
fn one_revision_is_shown_in_full() {
    let object = application("web", json!({}), json!({}));
    let version = object.version(Some(in_force(&replacement("r", json!({})))));
    let view = RevisionDetailView::new(&object, 2, &version);
    let text = view.text(false);
    assert!(text.starts_with("yurtappset.apps.openyurt.io/web with revision #2\n"), "{text}");
    for part in ["replacement:", "name: r", "replicas: 3", "workloadTemplate:", "topology:", "image: c:1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("$patch"), "{text}");
}
