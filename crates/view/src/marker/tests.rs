use dapple_edit::marker::OwnerKeys;
use dapple_plan::marker::seen::{Account, Seen};
use dapple_plan::marker::whole::{WholeNode, WholePod};
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

/// A marker that its controller has seen.
fn marker(name: &str, spec: Value, status: Value) -> PodMarker {
    let metadata =
        json!({"name": name, "namespace": "web", "generation": 2, "creationTimestamp": "2026-11-13T11:00:00Z"});
    let mut marker = json!({"metadata": metadata, "spec": {"markItems": {"labels": {"k": "1"}}},
        "status": {"observedGeneration": 2}});
    for (part, more) in [("spec", spec), ("status", status)] {
        for (field, value) in more.as_object().into_iter().flatten() {
            marker[part][field] = value.clone();
        }
    }
    serde_json::from_value(marker).unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 2,
        "lastTransitionTime": "2026-11-15T10:00:00Z"})
}

fn cells(line: &str) -> Vec<&str> {
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn markers_read_well() {
    let conditions = json!([
        condition(MARKED, "False", "InProgress", "Of 10 pods 7 are."),
        condition(CONFLICT, "True", "OlderMarker", "Older markers win.\u{1b}[2J"),
        condition(HELD, "True", "Allowance", "Some changes wait."),
        condition(PROBES_KNOWN, "False", "PodsUnknown", "Of 1 pod it is not known."),
    ]);
    let counts = json!({"desired": 10, "succeeded": 7, "matched": 20, "waiting": 3, "failed": 1, "conflicting": 2,
        "unknown": 1, "conditions": conditions});
    let busy = MarkerView::new(&marker("busy", json!({"strategy": {"replicas": "50%"}}), counts), now());
    let whole = json!({"desired": 4, "succeeded": 4, "matched": 4, "conditions": [
        condition(MARKED, "True", "AllMarked", "All."), condition(HELD, "False", "NotHeld", "Nothing.")]});
    let whole = MarkerView::new(&marker("whole", json!({}), whole), now());
    let new = MarkerView::new(&marker("new", json!({}), json!({})), now());
    assert_eq!((busy.done, whole.done, new.done, new.state.as_str()), (false, true, false, "NotBegun"));
    let text = table(&[busy, whole, new], false, true);
    let lines: Vec<Vec<&str>> = text.lines().map(cells).collect();
    let head = ["NAME", "DESIRED", "SUCCEEDED", "MATCHED", "WAITING", "FAILED", "AGE", "STATE"];
    assert_eq!(lines[0], [&head[..], &["REPLICAS", "CONFLICTING", "UNKNOWN"]].concat());
    assert_eq!(lines[1], ["web/busy", "10", "7", "20", "3", "1", "2d1h", "InProgress", "50%", "2", "1"]);
    assert_eq!(lines[2], ["├─ Older markers win.\\u{1b}[2J"]);
    assert_eq!(lines[3..5], [["├─ Some changes wait."], ["└─ Of 1 pod it is not known."]]);
    assert_eq!(lines[5], ["web/whole", "4", "4", "4", "0", "0", "2d1h", "AllMarked", "all", "0", "0"]);
    assert_eq!((lines[6][0], lines[6][7], lines.len()), ("web/new", "NotBegun", 7));
}

#[test]
fn what_is_wrong_is_told_below() {
    let conditions = json!([condition(MARKED, "False", "CannotBeUsed", "spec.markItems: wrong.")]);
    let view = MarkerView::new(&marker("m", json!({}), json!({"conditions": conditions})), now());
    assert_eq!((view.state.as_str(), view.notes), ("CannotBeUsed", vec!["spec.markItems: wrong.".to_owned()]));
}

/// Pods of the application "a", the first `marked` of them marked by the marker "m", and one of another.
fn account(spec: Value, status: Value, count: usize, marked: usize) -> Account {
    let mut seen = Seen::default();
    seen.add_marker(marker("m", spec, status));
    seen.add_node("n", WholeNode::of(&json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})));
    for number in 0..=count {
        let app = if number == count { "b" } else { "a" };
        let mut pod = json!({"metadata": {"name": format!("p{number}"), "uid": format!("u{number}"),
            "labels": {"app": app}, "creationTimestamp": "2026-11-15T10:00:00Z"}, "spec": {"nodeName": "n"}});
        if number < marked {
            let marks = json!([{"marker": "m", "label": "k", "set": "1", "at": 1}]).to_string();
            pod["metadata"]["labels"]["k"] = json!("1");
            pod["metadata"]["annotations"] = json!({"dapple.dev/marks": marks, "kruise.io/marked-by-podmarker": "m"});
        }
        seen.add_pod(WholePod::of(&pod, OwnerKeys::None));
    }
    seen.account("m").unwrap()
}

fn replicas(number: i64) -> Value {
    json!({"strategy": {"replicas": number}, "matchRequirements": {"podSelector": {"matchLabels": {"app": "a"}}}})
}

#[test]
fn each_pod_is_told_with_its_reason() {
    let held = json!({"conditions": [condition(HELD, "True", "Allowance", "Some changes wait.")]});
    let view = AccountView::new("web", "m", account(replicas(2), held, 3, 1));
    let text = view.text(false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "PodMarker web/m: 2 pods of 3 that match should be marked; marked by now: 1");
    assert_eq!(lines[1], "1 change waiting: Some changes wait.");
    assert_eq!(cells(lines[3]), ["POD", "NODE", "STATE", "WHY"]);
    let told: Vec<Vec<&str>> = lines[4..7].iter().map(|line| cells(line)).collect();
    assert_eq!(told[0][..3], ["p0", "n", "marked"]);
    assert_eq!(told[1][..3], ["p1", "n", "waits to be marked"]);
    assert_eq!(told[2][..3], ["p2", "n", "not marked"]);
    assert_eq!(told[2][3], "it matches, and others come first: 2 pods are to be marked");
    assert_eq!(lines[8], "Not marked for their labels: 1 pod (p3)");
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!((&json["desired"], &json["waitsFor"]["reason"]), (&json!(2), &json!("Allowance")));
    let pod = json!({"pod": "p1", "node": "n", "state": "Waits", "change": "Mark", "reason": "Matches",
        "text": "it has all that spec.matchRequirements asks for"});
    assert_eq!(json["pods"][1], pod);
    assert_eq!(json["pods"].as_array().unwrap().len(), 4, "none is left out for programs");
}

#[test]
fn where_nothing_waits_nothing_is_waited_for() {
    let view = AccountView::new("web", "m", account(replicas(1), json!({}), 3, 1));
    assert_eq!(view.waits_for, None);
    assert!(!view.text(false).contains("waiting"), "{}", view.text(false));
    let unusable = AccountView::new("web", "m", account(replicas(-1), json!({}), 3, 1));
    let text = unusable.text(false);
    assert!(
        text.starts_with("PodMarker web/m cannot be used, and changes nothing until it is corrected: spec.strategy"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_plan_says_what_is_marked_and_unmarked() {
    let plan = |number: i64, marked: usize, changed: bool| {
        MarkerPlanView::new("web", "m", account(replicas(number), json!({}), 5, marked), changed)
    };
    let more = plan(5, 1, true);
    assert!(more.differs() && !more.fails());
    let text = more.text(false, false);
    assert_eq!(text, "PodMarker web/m: 5 pods match, 5 should be marked\n  marks 4 pods (p1, p2, p3, …)\n");
    let less = plan(1, 3, true);
    let text = less.text(false, true);
    let expected = "  unmarks 2 pods\n    p1 on n: it matches, and others come first: 1 pod is to be marked\n";
    assert!(text.contains(expected) && !text.contains("  marks "), "{text}");
    let same = plan(2, 2, false);
    assert!(!same.differs());
    assert!(same.text(false, false).ends_with("\n  no pod's marks change\n"));
    let broken = plan(-1, 2, true);
    assert!(broken.fails() && broken.text(false, false).lines().count() == 1);
}
