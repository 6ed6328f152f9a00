//! What `dapple get` and `dapple rollout` print, word for word, for DaemonSets as a controller writes them. What they do
//! on a real cluster is in `rollout_live.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::snapshots::compare;
use crate::support::{DAPPLE, text};

const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/edge/daemonsets";

/// When objects were made: long ago for what people read, so that their age stands still, or then for programs.
#[derive(Clone, Copy)]
enum Time {
    Relative,
    Fixed,
}

impl Time {
    fn ago(self, seconds: i64) -> String {
        let now = match self {
            Self::Relative => jiff::Timestamp::now().as_second(),
            Self::Fixed => 1_800_000_000,
        };
        jiff::Timestamp::from_second(now - seconds).unwrap().to_string()
    }
}

fn set(name: &str, time: Time, strategy: Value, status: Value) -> Value {
    let patch = |disk: &str, size: &str| {
        let env = json!([{"name": "CACHE", "value": size}]);
        json!({"selector": {"matchLabels": {"disk": disk}}, "patch": {"spec": {"containers": [{"name": "agent", "env": env}]}}})
    };
    let mut whole = json!({"observedGeneration": 4, "desiredNumberScheduled": 60, "currentNumberScheduled": 60,
        "updatedNumberScheduled": 60, "numberReady": 60, "numberAvailable": 60, "numberMisscheduled": 0,
        "currentRevision": format!("{name}-1a2b3c"), "updateRevision": "4d5e6f"});
    whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "edge", "uid": format!("uid-{name}"), "resourceVersion": "7",
            "generation": 4, "creationTimestamp": time.ago(49 * 3600 + 1800),
            "annotations": {"kubernetes.io/change-cause": "more cache for large disks"}},
        "spec": {
            "selector": {"matchLabels": {"app": name}}, "updateStrategy": strategy,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "agent", "image": "agent:2"}]}},
            "patches": [patch("large", "2Ti"), patch("huge", "8Ti")],
        },
        "status": whole,
    })
}

/// One in the middle of a rollout, with all that a controller can say.
fn agent(time: Time) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 4,
            "lastTransitionTime": "2026-11-15T10:00:00Z"})
    };
    let variants = json!([
        {"hash": "4d5e6f", "desired": 40, "updated": 12, "ready": 39, "available": 38},
        {"hash": "77aa88", "patches": [0], "desired": 15, "updated": 15, "ready": 15, "available": 15},
        {"hash": "", "patches": [0, 1], "desired": 5, "updated": 0, "ready": 5, "available": 5}]);
    let conditions = json!([
        condition(
            "Progressing",
            "True",
            "RollingOut",
            "27 of 60 nodes have revision 4d5e6f; waiting for node-03, node-17"
        ),
        condition(
            "Available",
            "False",
            "TooFew",
            "2 of 60 nodes have no available pod, and 1 may be without: node-03, node-17"
        ),
        condition("Degraded", "False", "AsExpected", "nothing is wrong"),
        condition("Paused", "False", "NotPaused", "updates proceed")
    ]);
    let counts = json!({"updatedNumberScheduled": 27, "numberReady": 59, "numberAvailable": 58, "numberUnavailable": 2,
        "currentNumberScheduled": 59, "variants": variants, "conditions": conditions});
    set("agent", time, json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}), counts)
}

fn pod(name: &str, time: Time, hash: &str, reason: Option<&str>) -> Value {
    let state = reason.map_or(json!({"running": {}}), |reason| json!({"waiting": {"reason": reason}}));
    let ready = if reason.is_none() { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "edge", "creationTimestamp": time.ago(10 * 3600 + 1800),
            "labels": {"app": "agent", "controller-revision-hash": hash},
            "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": "agent",
                "uid": "uid-agent", "controller": true}]},
        "spec": {"nodeName": name.replace("agent", "node"), "containers": []},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": time.ago(10 * 3600)}],
            "containerStatuses": [{"name": "agent", "image": "agent:2", "imageID": "", "ready": reason.is_none(),
                "restartCount": 0, "state": state}]},
    })
}

fn revision(number: i64, hash: &str, time: Time, image: &str, more: Value) -> Value {
    let mut spec = json!({"template": {"$patch": "replace", "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "agent", "image": image}]}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let cause = (number == 1).then(|| json!({"kubernetes.io/change-cause": "first"}));
    json!({
        "metadata": {"name": format!("agent-{hash}"), "namespace": "edge", "creationTimestamp": time.ago(20 * 3600 + 1800),
            "labels": {"controller-revision-hash": hash}, "annotations": cause,
            "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "name": "agent",
                "uid": "uid-agent", "controller": true}]},
        "revision": number, "data": {"spec": spec},
    })
}

fn list(kind: &str, version: &str, items: Vec<Value>) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "9"}, "items": items})
}

fn answers(time: Time) -> BTreeMap<String, Value> {
    let agent = agent(time);
    let rolling = |more: Value| json!({"type": "RollingUpdate", "rollingUpdate": more});
    let behind = json!({"updatedNumberScheduled": 40});
    let sets = vec![
        agent.clone(),
        set("held", time, rolling(json!({"partition": "33%"})), json!({"updatedNumberScheduled": 41})),
        set("manual", time, json!({"type": "OnDelete"}), behind.clone()),
        set("still", time, rolling(json!({"paused": true})), behind),
        set("whole", time, json!({}), json!({})),
        set("young", time, json!({}), json!({"observedGeneration": 3})),
    ];
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    for one in &sets {
        answers.insert(format!("{SETS}/{}", one["metadata"]["name"].as_str().unwrap()), one.clone());
    }
    answers.insert(SETS.to_owned(), list("DaemonSetList", "apps.kruise.io/v1beta1", sets));
    answers.insert(SETS.replace("edge", "empty"), list("DaemonSetList", "apps.kruise.io/v1beta1", Vec::new()));
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "daemonsets.apps.kruise.io is forbidden: User \"eve\" cannot list it\u{1b}[2J"});
    answers.insert(SETS.replace("edge", "secret"), status);
    let pods = vec![
        pod("agent-03", time, "4d5e6f", Some("ImagePullBackOff")),
        pod("agent-17", time, "1a2b3c", Some("CrashLoopBackOff")),
        pod("agent-18", time, "1a2b3c", None),
    ];
    answers.insert("/api/v1/namespaces/edge/pods".to_owned(), list("PodList", "v1", pods));
    let patches = agent["spec"]["patches"].clone();
    let mut foreign = revision(9, "ffffff", time, "other:1", json!({}));
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    let revisions = vec![
        revision(1, "0f0f0f", time, "agent:1", json!({"fieldOfNextYear": {}})),
        revision(2, "1a2b3c", time, "agent:1", json!({"patches": [patches[0]]})),
        revision(3, "4d5e6f", time, "agent:2", json!({"patches": patches})),
        foreign,
    ];
    let path = "/apis/apps/v1/namespaces/edge/controllerrevisions".to_owned();
    answers.insert(path, list("ControllerRevisionList", "apps/v1", revisions));
    answers
}

fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    Command::new(DAPPLE).args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, kubeconfig) = Fake::start(answers(Time::Relative), 0, folder.path()).await;
    for (name, args) in [
        ("get", vec!["get", "daemonset"]),
        ("get-wide", vec!["get", "ds", "-o", "wide"]),
        ("get-name", vec!["get", "ds", "-o", "name"]),
        ("get-one", vec!["get", "ds/agent"]),
        ("get-missing", vec!["get", "ds", "nobody"]),
        ("get-none", vec!["get", "ds", "-n", "empty"]),
        ("get-forbidden", vec!["get", "ds", "-n", "secret"]),
        ("get-unserved", vec!["get", "ds", "-n", "elsewhere"]),
        ("rollout-history", vec!["rollout", "history", "ds/agent"]),
        ("rollout-history-one", vec!["rollout", "history", "ds", "agent", "--revision", "2"]),
        ("rollout-history-unknown", vec!["rollout", "history", "ds/agent", "--revision=7"]),
        ("rollout-history-newer", vec!["rollout", "history", "ds/agent", "--revision=1"]),
        ("rollout-status", vec!["rollout", "status", "ds/agent", "--watch=false"]),
        ("rollout-status-held", vec!["rollout", "status", "ds/held"]),
        ("rollout-status-manual", vec!["rollout", "status", "ds/manual"]),
        ("rollout-status-still", vec!["rollout", "status", "ds/still", "--watch=false"]),
        ("rollout-status-whole", vec!["rollout", "status", "ds/whole"]),
        ("rollout-status-young", vec!["rollout", "status", "ds/young", "--watch=false"]),
        ("rollout-status-missing", vec!["rollout", "status", "ds/nobody"]),
        ("rollout-undo-dry", vec!["rollout", "undo", "ds/agent", "--dry-run=client"]),
        ("rollout-undo-newer", vec!["rollout", "undo", "ds/agent", "--to-revision=1"]),
        ("rollout-undo-skipped", vec!["rollout", "undo", "ds/agent", "--to-revision=3"]),
        ("rollout-undo-none", vec!["rollout", "undo", "ds/whole"]),
        ("rollout-pause-again", vec!["rollout", "pause", "ds/still"]),
        ("rollout-pause-manual", vec!["rollout", "pause", "ds/manual"]),
        ("rollout-resume-running", vec!["rollout", "resume", "ds/agent"]),
        ("rollout-restart-still", vec!["rollout", "restart", "ds/still"]),
    ] {
        compare(name, &args, &run(&kubeconfig, &args));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_programs_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, kubeconfig) = Fake::start(answers(Time::Fixed), 0, folder.path()).await;
    for (name, args) in [
        ("get-json", vec!["get", "ds/agent", "-o", "json"]),
        ("get-yaml", vec!["get", "ds/agent", "-o", "yaml"]),
        ("rollout-history-json", vec!["rollout", "history", "ds/agent", "-o", "json"]),
        ("rollout-history-one-yaml", vec!["rollout", "history", "ds/agent", "--revision=2", "-o", "yaml"]),
    ] {
        compare(name, &args, &run(&kubeconfig, &args));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_between_is_no_failure_unless_it_never_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, kubeconfig) = Fake::start(answers(Time::Fixed), 2, folder.path()).await;
    let output = run(&kubeconfig, &["rollout", "pause", "ds/agent"]);
    assert_eq!(text(&output.stdout), "daemonset.apps.kruise.io/agent paused\n", "{}", text(&output.stderr));
    let writes = fake.writes();
    assert_eq!(writes.len(), 3);
    assert_eq!(writes[2]["metadata"], json!({"uid": "uid-agent", "resourceVersion": "7"}));

    // Going back writes the whole object, at the version that was looked at, without the later change's reason.
    let output = run(&kubeconfig, &["rollout", "undo", "ds/agent"]);
    assert!(text(&output.stdout).contains("rolled back to revision 2"), "{}", text(&output.stderr));
    let written = fake.writes().pop().unwrap();
    assert_eq!(written["metadata"]["resourceVersion"], "7");
    assert_eq!(written["spec"]["patches"].as_array().unwrap().len(), 1);
    assert!(written["spec"]["template"].get("$patch").is_none(), "{written}");
    assert!(written["metadata"].get("annotations").is_none(), "{written}");

    let (_fake, kubeconfig) = Fake::start(answers(Time::Fixed), 100, folder.path()).await;
    let output = run(&kubeconfig, &["rollout", "restart", "ds/agent"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is being written all the time"), "{}", text(&output.stderr));
}
