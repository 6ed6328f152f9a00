//! What `dapple get`, `explain` and `plan` print of PodMarkers, by a cluster of a few objects. What markers do on a real one is in
//! `markers_live.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::support::{dapple, text};

const MARKERS: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/edge/podmarkers";

fn list(kind: &str, version: &str, items: Vec<Value>) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "9"}, "items": items})
}

/// A marker of two nginx pods on x86 nodes in which a command succeeds, as its controller left it.
fn marker() -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 3,
            "lastTransitionTime": "2026-11-15T10:00:00Z"})
    };
    let probe = json!({"containers": [{"name": "nginx"}], "probe": {"exec": {"command": ["cat", "/tmp/healthy"]}}});
    let requirements = json!({"podSelector": {"matchLabels": {"app": "nginx"}},
        "nodeSelector": {"matchLabels": {"arch": "x86"}}, "podProbes": [probe]});
    json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodMarker",
        "metadata": {"name": "canary", "namespace": "edge", "uid": "u", "generation": 3,
            "creationTimestamp": "2026-11-15T09:00:00Z"},
        "spec": {"strategy": {"replicas": 2, "conflictPolicy": "Overwrite"}, "matchRequirements": requirements,
            "markItems": {"labels": {"upgradeStrategy": "inPlace"}}},
        "status": {"observedGeneration": 3, "desired": 2, "succeeded": 1, "matched": 3, "waiting": 1, "unknown": 1,
            "conditions": [
                condition("Marked", "False", "InProgress", "Of 2 pods that should be marked, 1 are; changes that wait: 1."),
                condition("Conflict", "False", "NoConflict", "Nothing stands against marking pods that match."),
                condition("Held", "True", "Allowance", "Some changes wait: no more may be changed in a minute than 10 pods."),
                condition("ProbesKnown", "False", "PodsUnknown", "It is not known of 1 pod whether they match."),
            ]},
    })
}

/// A pod of a ReplicaSet on a node, made at this minute.
fn pod(name: &str, node: &str, minute: u32) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "nginx-1", "uid": "uid-nginx-1", "controller": true});
    let running = json!({"running": {"startedAt": "2026-11-15T10:00:00Z"}});
    json!({
        "metadata": {"name": name, "namespace": "edge", "uid": format!("uid-{name}"), "labels": {"app": "nginx"},
            "creationTimestamp": format!("2026-11-15T10:{minute:02}:00Z"), "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"name": "nginx", "image": "nginx:1"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "nginx", "image": "nginx:1", "imageID": "",
            "ready": true, "restartCount": 0, "containerID": format!("containerd://{name}"), "state": running}]},
    })
}

fn node(name: &str, arch: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": format!("uid-{name}"),
        "resourceVersion": "7", "creationTimestamp": "2026-11-15T09:00:00Z", "labels": {"arch": arch}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// The name of the probe in the container nginx.
fn probe_name() -> String {
    let marker = serde_json::from_value(marker()).unwrap();
    let rule = dapple_plan::marker::rule::Rule::of(&marker).unwrap();
    rule.probes[0].asked[0].name.to_string()
}

/// Results of the pods of a node, each with its state.
fn probes(node: &str, pods: &[(&str, &str)]) -> Value {
    let states = |name: &str, state: &str| json!([{"name": probe_name(), "containerID": format!("containerd://{name}"), "state": state, "message": "exit code 1"}]);
    let statuses: Vec<Value> = pods
        .iter()
        .map(|(name, state)| {
            json!({"name": name, "namespace": "edge", "uid": format!("uid-{name}"), "probeStates": states(name, state)})
        })
        .collect();
    json!({"apiVersion": "dapple.dev/v1alpha1", "kind": "NodePodProbe", "metadata": {"name": node}, "spec": {},
        "status": {"podProbeStatuses": statuses}})
}

/// What the API server answers: a pod of each kind there is.
fn answers() -> BTreeMap<String, Value> {
    let mut marked = pod("nginx-a", "x1", 1);
    let marks = json!([{"marker": "canary", "label": "upgradeStrategy", "set": "inPlace", "at": 1_763_200_000}]);
    marked["metadata"]["labels"]["upgradeStrategy"] = json!("inPlace");
    marked["metadata"]["annotations"] =
        json!({"dapple.dev/marks": marks.to_string(), "kruise.io/marked-by-podmarker": "canary"});
    let mut other = pod("redis-a", "x1", 1);
    other["metadata"]["labels"]["app"] = json!("redis");
    let mut ended = pod("nginx-old", "x1", 1);
    ended["metadata"]["deletionTimestamp"] = json!("2026-11-15T11:00:00Z");
    let pods = vec![
        marked,
        pod("nginx-b", "x1", 2),
        pod("nginx-c", "x1", 3),
        pod("nginx-d", "x1", 4),
        pod("nginx-e", "x2", 5),
        pod("nginx-f", "arm1", 6),
        other,
        ended,
    ];
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "nginx-1", "namespace": "edge",
        "uid": "uid-nginx-1"}, "spec": {"selector": {"matchLabels": {"app": "nginx"}}}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x1", "namespace":
        "dapple-probers"}, "spec": {"renewTime": Timestamp::now().to_string()}});
    let known = [("nginx-a", "Succeeded"), ("nginx-b", "Succeeded"), ("nginx-c", "Succeeded"), ("nginx-d", "Failed")];
    let results = vec![probes("x1", &known), probes("x2", &[("nginx-e", "Succeeded")])];
    let nodes = vec![node("x1", "x86"), node("x2", "x86"), node("arm1", "arm64")];
    BTreeMap::from([
        (MARKERS.to_owned(), list("PodMarkerList", "apps.kruise.io/v1alpha1", vec![marker()])),
        (format!("{MARKERS}/canary"), marker()),
        ("/api/v1/namespaces/edge/pods".to_owned(), list("PodList", "v1", pods)),
        ("/api/v1/nodes".to_owned(), list("NodeList", "v1", nodes)),
        ("/apis/apps/v1/namespaces/edge/replicasets/nginx-1".to_owned(), owner),
        (
            "/apis/dapple.dev/v1alpha1/nodepodprobes".to_owned(),
            list("NodePodProbeList", "dapple.dev/v1alpha1", results),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/dapple-probers/leases".to_owned(),
            list("LeaseList", "coordination.k8s.io/v1", vec![lease]),
        ),
    ])
}

/// Runs a command that must end so, and gives back what it printed.
fn run(kubeconfig: &Path, code: i32, args: &[&str]) -> String {
    let output = dapple(&[args, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}{said}");
    if code == 2 { shown + &said } else { shown }
}

fn cells(line: &str) -> Vec<&str> {
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marker_is_shown_with_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, kubeconfig) = Fake::start(answers(), 0, folder.path()).await;
    let run = |code, args: &[&str]| run(&kubeconfig, code, args);
    let shown = run(0, &["get", "podmarker"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(cells(lines[0]), ["NAME", "DESIRED", "SUCCEEDED", "MATCHED", "WAITING", "FAILED", "AGE", "STATE"]);
    let row = cells(lines[1]);
    assert_eq!((&row[..6], row[7]), (&["edge/canary", "2", "1", "3", "1", "0"][..], "InProgress"));
    assert_eq!(lines[2], "├─ Some changes wait: no more may be changed in a minute than 10 pods.");
    assert_eq!(lines[3], "└─ It is not known of 1 pod whether they match.");
    assert_eq!(run(0, &["get", "pmark", "-o", "name"]), "podmarker.apps.kruise.io/canary\n");
    let view: Value = serde_json::from_str(&run(0, &["get", "podmarker/canary", "-o", "json"])).unwrap();
    assert_eq!((&view["state"], &view["replicas"], &view["done"]), (&json!("InProgress"), &json!("2"), &json!(false)));
    let missing = run(2, &["get", "podmarker", "none"]);
    assert!(
        missing.contains("there is no PodMarker edge/none: `dapple get podmarker -n edge` shows those"),
        "{missing}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, kubeconfig) = Fake::start(answers(), 0, folder.path()).await;
    let shown = run(&kubeconfig, 0, &["explain", "podmarker", "canary", "-n", "edge"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "PodMarker edge/canary: 2 pods of 4 that match should be marked; marked by now: 1");
    assert_eq!(lines[1], "1 change waiting: Some changes wait: no more may be changed in a minute than 10 pods.");
    let field = "spec.matchRequirements.podProbes[0]: the probe in container nginx";
    for (index, (pod, node, state, why)) in [
        ("nginx-a", "x1", "marked", "it has all that spec.matchRequirements asks for".to_owned()),
        ("nginx-b", "x1", "waits to be marked", "it has all that spec.matchRequirements asks for".to_owned()),
        ("nginx-c", "x1", "not marked", "it matches, and others come first: 2 pods are to be marked".to_owned()),
        ("nginx-d", "x1", "not marked", format!("{field} failed, and must succeed (exit code 1)")),
        (
            "nginx-e",
            "x2",
            "not marked",
            format!("{field} may have another result by now: the prober of its node is not heard"),
        ),
        (
            "nginx-f",
            "arm1",
            "not marked",
            "spec.matchRequirements.nodeSelector asks for arch=x86, and its node has arch=arm64".to_owned(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(cells(lines[4 + index]), [pod, node, state, &why], "{shown}");
    }
    assert_eq!(lines[11], "Not marked for their labels: 1 pod (redis-a)", "{shown}");
    let json = run(&kubeconfig, 0, &["explain", "pmark/canary", "-n", "edge", "-o", "json"]);
    let view: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&view["waitsFor"]["reason"], &view["matched"]),
        (&json!("Allowance"), &json!(4)),
        "one counts as it did when it was known"
    );
    let reasons: Vec<&str> = view["pods"].as_array().unwrap().iter().filter_map(|pod| pod["reason"].as_str()).collect();
    assert_eq!(
        reasons,
        ["Matches", "Matches", "OthersFirst", "ProbeFailed", "ProberSilent", "NodeLabels", "PodLabels"]
    );
    let missing = run(&kubeconfig, 2, &["explain", "podmarker/none", "-n", "edge"]);
    assert!(missing.contains("there is no PodMarker edge/none: `dapple get podmarker -n edge`"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_names_the_pods() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, kubeconfig) = Fake::start(answers(), 0, folder.path()).await;
    let file = folder.path().join("marker.json");
    let plan = |code, change: &dyn Fn(&mut Value), more: &[&str]| {
        let mut marker = marker();
        marker.as_object_mut().unwrap().remove("status");
        marker["metadata"] = json!({"name": "canary", "namespace": "edge"});
        change(&mut marker);
        std::fs::write(&file, marker.to_string()).unwrap();
        run(&kubeconfig, code, &[&["plan", "-f", file.to_str().unwrap()][..], more].concat())
    };
    // As it is: what waits is marked.
    let shown = plan(1, &|_: &mut Value| {}, &[]);
    assert!(
        shown.starts_with("PodMarker edge/canary: 4 pods match, 2 should be marked\n  marks 1 pod (nginx-b)\n"),
        "{shown}"
    );
    assert!(shown.contains("1 pod left as they are: it is not known whether they match"), "{shown}");
    let shown = plan(1, &|marker: &mut Value| marker["spec"]["strategy"]["replicas"] = json!("100%"), &["-o", "wide"]);
    let expected =
        "  marks 2 pods\n    nginx-b on x1: it has all that spec.matchRequirements asks for\n    nginx-c on x1: ";
    assert!(shown.contains(expected), "{shown}");
    let shown = plan(1, &|marker: &mut Value| marker["spec"]["strategy"]["replicas"] = json!(0), &[]);
    assert!(shown.contains("  unmarks 1 pod (nginx-a)\n") && !shown.contains("  marks"), "{shown}");
    let shown =
        plan(1, &|marker: &mut Value| marker["spec"]["markItems"]["labels"]["upgradeStrategy"] = json!("x"), &[]);
    assert!(shown.contains("  gives other marks to 1 pod (nginx-a)\n"), "{shown}");
    // As many as there are by now, and a new one beside it.
    let same = |marker: &mut Value| marker["spec"]["strategy"]["replicas"] = json!(1);
    let json = plan(1, &same, &["-o", "json"]);
    let views: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&views[0]["changed"], &views[0]["mark"], &views[0]["unmark"]), (&json!(true), &json!([]), &json!([])));
    let new = |marker: &mut Value| marker["metadata"]["name"] = json!("another");
    assert_eq!(plan(1, &new, &["-o", "name"]), "podmarker/another\n");
    let unusable = plan(2, &|marker: &mut Value| marker["spec"]["strategy"]["replicas"] = json!("many"), &[]);
    assert!(unusable.contains("PodMarker edge/canary: spec.strategy.replicas: "), "{unusable}");
    assert!(fake.writes().is_empty(), "a plan only reads");
}
