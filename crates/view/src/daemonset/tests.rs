use serde_json::{Value, json};

use super::history::{HistoryView, RevisionDetailView, RevisionFacts};
use super::*;
use dapple_plan::daemonset::revision::Revision;
use dapple_plan::daemonset::rollback::read;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-15T12:00:00Z")
}

fn set(name: &str, more: Value, status: Value) -> DaemonSet {
    let mut spec = json!({"selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": "agent:2"}]}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut whole = json!({"observedGeneration": 1, "desiredNumberScheduled": 6, "currentNumberScheduled": 6,
        "updatedNumberScheduled": 6, "numberReady": 6, "numberAvailable": 6,
        "currentRevision": format!("{name}-5d8f"), "updateRevision": "77c1"});
    whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "generation": 1,
        "creationTimestamp": "2026-11-13T11:00:00Z"}, "spec": spec, "status": whole}))
    .unwrap()
}

fn pod(name: &str, created: &str, waiting: Option<&str>) -> PodFacts {
    let since = waiting.is_none().then(|| at(created));
    PodFacts {
        name: name.to_owned(),
        node: format!("node-of-{name}"),
        hash: "h".to_owned(),
        created: Some(at(created)),
        ready_since: since,
        waiting: waiting.map(str::to_owned),
        ..PodFacts::default()
    }
}

fn patched() -> DaemonSet {
    let patches = json!([{"selector": {}, "patch": {}}, {"selector": {}, "patch": {}}, {"selector": {}, "patch": {}}]);
    let variants = json!([
        {"hash": "3f9c2e", "desired": 3, "updated": 1, "ready": 2, "available": 2},
        {"hash": "8821ab", "patches": [0, 2], "desired": 2, "updated": 2, "ready": 2, "available": 2},
        {"hash": "", "patches": [1], "desired": 1, "updated": 0, "ready": 1, "available": 1}]);
    set(
        "agent",
        json!({"patches": patches}),
        json!({"updatedNumberScheduled": 3, "numberReady": 5, "numberAvailable": 5, "variants": variants, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "R", "lastTransitionTime": "2026-11-15T10:00:00Z",
             "message": "1 node to become available"}]}),
    )
}

#[test]
fn a_rollout_reads_well() {
    let pods = [
        pod("agent-b", "2026-11-15T11:59:48Z", Some("ImagePullBackOff\u{1b}[2J")),
        pod("agent-a", "2026-11-15T11:00:00Z", None),
    ];
    let rolling = DaemonSetView::new(&patched(), &pods, now());
    let whole = DaemonSetView::new(&set("proxy", json!({}), json!({})), &pods[1..], now());
    let text = table(&[rolling, whole], false, false);
    let expected = "\
NAME                        DESIRED   UPDATED   READY   AVAILABLE   AGE    REVISION   STATE
default/agent               6         3         5       5           2d1h   77c1       rolling out
├─ template                 3         1         2       2                  3f9c2e     ███░░░░░░░  33%
├─ patches[0], patches[2]   2         2         2       2                  8821ab     ██████████ 100%
├─ patches[1]               1         0         1       1                             does not apply
├─ waiting for: 1 node to become available
└─ waiting for: agent-b on node-of-agent-b, 12s: ImagePullBackOff\\u{1b}[2J
default/proxy               6         6         6       6           2d1h   77c1       complete
";
    assert_eq!(text, expected, "{text}");
}

#[test]
fn colours_are_put_around_what_is_harmless() {
    let mut evil = set("proxy", json!({}), json!({"updateRevision": "\u{1b}]0;x\u{7}"}));
    evil.metadata.name = Some("a\u{1b}[31m".to_owned());
    let text = table(&[DaemonSetView::new(&evil, &[], now())], true, true);
    assert!(
        !text.contains("\u{1b}]0") && !text.contains("a\u{1b}[31m") && text.contains("\u{1b}[32mcomplete"),
        "{text:?}"
    );
}

#[test]
fn states_follow_from_counts_alone() {
    let rolling = |more: Value| json!({"updateStrategy": {"rollingUpdate": more}});
    for (spec, status, state, text) in [
        (json!({}), json!({"updatedNumberScheduled": 1}), "RollingOut", "rolling out"),
        (json!({}), json!({"numberAvailable": 5}), "Unavailable", "unavailable: 1 of 6"),
        (json!({}), json!({"observedGeneration": 0}), "NotBegun", "not begun"),
        (
            json!({}),
            json!({"updatedNumberScheduled": 5, "conditions": [{"type": "Progressing", "status": "False",
                "reason": "OutOfReach", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            "OutOfReach",
            "out of reach: 1 of 6",
        ),
        (rolling(json!({"paused": true})), json!({"updatedNumberScheduled": 1}), "Paused", "paused"),
        (rolling(json!({"partition": 2})), json!({"updatedNumberScheduled": 4}), "HeldBack", "held back: 2 of 6"),
        (
            json!({"updateStrategy": {"type": "OnDelete"}}),
            json!({"updatedNumberScheduled": 4}),
            "OnDelete",
            "on delete: 2 of 6 wait",
        ),
    ] {
        let view = DaemonSetView::new(&set("agent", spec, status.clone()), &[], now());
        assert_eq!((view.state, view.state_text.as_str()), (state, text), "{status}");
    }
}

#[test]
fn a_few_pods_are_shown_and_the_others_counted() {
    let waits = |index: i32| pod(&format!("agent-{index}"), &format!("2026-11-15T11:5{index}:00Z"), Some("Pending"));
    let mut pods: Vec<PodFacts> = (0..8).rev().map(waits).collect();
    pods.push(PodFacts { is_terminating: true, ..pod("gone", "2026-11-15T10:00:00Z", None) });
    pods.push(pod("young", "2026-11-15T11:59:50Z", None));
    let slow = set("agent", json!({"minReadySeconds": 30}), json!({"numberAvailable": 1, "currentNumberScheduled": 4}));
    let view = DaemonSetView::new(&slow, &pods, now());
    let names: Vec<&str> = view.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["gone", "agent-0", "agent-1", "agent-2", "agent-3"], "the oldest first");
    assert_eq!(view.more_pods, 5);
    assert_eq!(view.waiting_for, ["pods on 2 nodes"]);
    assert_eq!(view.pods[0].reason, "Terminating");
    assert!(table(&[view], false, false).contains("waiting for: 5 pods more"));
    let young = DaemonSetView::new(&slow, &pods[9..], now());
    assert_eq!(young.pods[0].reason, "ready for 10 of 30 seconds");
}

#[test]
fn json_has_everything_and_no_ages() {
    let view = DaemonSetView::new(&patched(), &[pod("agent-b", "2026-11-15T11:59:48Z", Some("Pending"))], now());
    let later = DaemonSetView::new(
        &patched(),
        &[pod("agent-b", "2026-11-15T11:59:48Z", Some("Pending"))],
        at("2027-01-01T00:00:00Z"),
    );
    let value = serde_json::to_value(&view).unwrap();
    assert_eq!(value, serde_json::to_value(&later).unwrap());
    assert_eq!(value["counts"], json!({"desired": 6, "updated": 3, "ready": 5, "available": 5}));
    assert_eq!(value["variants"][1]["patches"], json!([0, 2]));
    assert_eq!((&value["state"], &value["done"]), (&json!("RollingOut"), &json!(false)));
    assert_eq!(value["pods"][0]["node"], "node-of-agent-b");
    assert_eq!(value["created"], "2026-11-13T11:00:00Z");
}

#[test]
fn without_counts_per_variant_there_is_one_only_where_no_patch_is() {
    let plain = DaemonSetView::new(&set("agent", json!({}), json!({})), &[], now());
    assert_eq!(plain.variants.len(), 1);
    assert_eq!((plain.variants[0].name.as_str(), plain.variants[0].counts.desired), ("template", 6));
    let unknown = set("agent", json!({"patches": [{"selector": {}, "patch": {}}]}), json!({}));
    assert_eq!(DaemonSetView::new(&unknown, &[], now()).variants, []);
}

#[test]
fn of_revisions_with_one_hash_the_newest_is_rolled_out() {
    let revisions = [
        revision(1, "77c1", None, json!({})),
        revision(2, "77c1", None, json!({})),
        revision(3, "other", None, json!({})),
    ];
    let newest = |told: Value| -> Vec<i64> {
        let view = HistoryView::new(&set("agent", json!({}), json!({"updateRevision": told})), &revisions, &[], now());
        view.revisions.iter().filter(|row| row.is_update).map(|row| row.revision).collect()
    };
    assert_eq!(newest(json!("77c1")), [2], "it has other patches");
    assert_eq!(newest(json!("agent-0a")), [1], "as the last version of dapple named it");
    assert_eq!(newest(Value::Null), [3], "before a controller says so");
    assert_eq!(newest(json!("unknown")), Vec::<i64>::new());
}

fn revision(number: i64, hash: &str, cause: Option<&str>, data: Value) -> RevisionFacts {
    let name = ["agent-0a", "agent-5d8f", "agent-77c1"][usize::try_from(number - 1).unwrap()].to_owned();
    let revision = Revision { name, replaces: None, number, hash: hash.to_owned(), form: 2, began: 0, data };
    RevisionFacts { revision, created: Some(at("2026-11-15T10:00:00Z")), change_cause: cause.map(str::to_owned) }
}

#[test]
fn history_says_who_has_what_and_why() {
    let caused =
        json!({"spec": {"template": {"metadata": {"annotations": {"kubernetes.io/change-cause": "of template"}}}}});
    let revisions = [
        revision(3, "77c1", None, json!({})),
        revision(1, "h1", Some("first"), json!({})),
        revision(2, "h2", None, caused),
    ];
    let of = |name: &str, hash: &str, revision: Option<&str>| PodFacts {
        name: name.to_owned(),
        hash: hash.to_owned(),
        revision: revision.map(str::to_owned),
        ..PodFacts::default()
    };
    let pods = [
        of("a", "h2", None),
        of("b", "patched-2", Some("agent-5d8f")),
        // Made from the second, and what the third says too.
        of("c", "77c1", Some("agent-5d8f")),
        of("d", "v3", Some("agent-5d8f")),
        of("e", "unknown", Some("agent-collected")),
        PodFacts { is_terminating: true, ..of("f", "h1", None) },
    ];
    let variants = json!({"variants": [{"hash": "v3", "patches": [0]}]});
    let mut set = set("agent", json!({}), variants);
    set.metadata.annotations = Some([("kubernetes.io/change-cause".to_owned(), "of set".to_owned())].into());
    let view = HistoryView::new(&set, &revisions, &pods, now());
    let rows: Vec<(i64, Option<&str>, usize, bool, bool)> = view
        .revisions
        .iter()
        .map(|row| (row.revision, row.change_cause.as_deref(), row.pods, row.is_current, row.is_update))
        .collect();
    assert_eq!(
        rows,
        [
            (1, Some("first"), 0, false, false),
            (2, Some("of template"), 2, true, false),
            (3, Some("of set"), 2, false, true)
        ]
    );
    let expected = "daemonset.apps.kruise.io/agent
REVISION   CHANGE-CAUSE   AGE    PODS   ROLE
1          first          120m   0
2          of template    120m   2      held back
3          of set         120m   2      newest
";
    assert_eq!(view.text(false), expected);
}

#[test]
fn one_revision_is_shown_in_full() {
    let data = json!({"spec": {"template": {"$patch": "replace", "spec": {"x": "\u{202e}"}},
        "patches": [{"selector": {}, "patch": {"spec": null}}]}});
    let facts = revision(2, "h", None, data);
    let detail = RevisionDetailView::new(&set("agent", json!({}), json!({})), read(&facts.revision).unwrap());
    let text = detail.text(false);
    assert!(text.starts_with("daemonset.apps.kruise.io/agent with revision #2\n"), "{text}");
    assert!(text.contains("patches:") && text.contains("spec: null") && !text.contains('\u{202e}'), "{text}");
    assert_eq!(serde_json::to_value(&detail).unwrap()["revision"], 2);
}
