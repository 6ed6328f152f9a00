//! What `dapple get` and `dapple rollout` print and write of pools and applications in them, as a controller leaves these. What they
//! do on a real cluster is in `pools_live.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fake::Fake;
use crate::support::{DAPPLE, text};

const OURS: &str = "/apis/apps.openyurt.io/v1alpha1/namespaces/edge";
const POOLS: &str = "/apis/apps.openyurt.io/v1beta1/nodepools";

fn list(kind: &str, version: &str, items: &[Value]) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "9"}, "items": items})
}

/// What an application says: this image, in these pools.
fn spec(image: &str, pools: &[&str]) -> Value {
    let pools: Vec<Value> = pools.iter().map(|name| json!({"name": name, "replicas": 2})).collect();
    json!({"selector": {"matchLabels": {"app": "web"}}, "topology": {"pools": pools}, "workloadTemplate": {
        "deploymentTemplate": {"metadata": {"labels": {"app": "web"}}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}}}}})
}

fn pool(name: &str, state: &str, updated: i64, message: &str) -> Value {
    let revision = if updated == 2 { "web-2222222222" } else { "web-1111111111" };
    json!({"name": name, "workload": format!("web-{name}-xxxxx"), "state": state, "desired": 2, "ready": 2, "updated": updated,
        "available": 2, "revision": revision, "message": message})
}

/// A YurtAppSet in the middle of a rollout.
fn application(metadata: Value, status: Value) -> Value {
    let pools = [
        pool("beijing", "Done", 2, ""),
        pool("hangzhou", "Changing", 1, "1 of 2 pods are available"),
        pool("shanghai", "Waiting", 0, "it waits for its turn"),
    ];
    let mut object = json!({
        "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet",
        "metadata": {"name": "web", "namespace": "edge", "uid": "uid-web", "resourceVersion": "7", "generation": 4,
            "creationTimestamp": "2026-11-13T11:00:00Z", "annotations": {"kubernetes.io/change-cause": "a newer web"}},
        "spec": spec("web:2", &["beijing", "hangzhou", "shanghai"]),
        "status": {"observedGeneration": 4, "overriderRef": "settings", "pools": pools,
            "updateRevision": "web-2222222222", "currentRevision": "web-1111111111"},
    });
    for (part, more) in [("metadata", metadata), ("status", status)] {
        for (field, value) in more.as_object().into_iter().flatten() {
            object[part][field] = value.clone();
        }
    }
    object
}

fn items(replicas: i32) -> Value {
    json!([{"pools": "*", "items": [{"replicas": replicas}]}])
}

fn replacement() -> Value {
    json!({
        "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
        "metadata": {"name": "settings", "namespace": "edge", "uid": "uid-settings", "resourceVersion": "8", "generation": 2,
            "creationTimestamp": "2026-11-13T11:00:00Z"},
        "subject": {"kind": "YurtAppSet", "name": "web"}, "replacements": items(2),
        "status": {"observedGeneration": 2, "matchedPools": 3, "poolsInEffect": 1, "poolsWaiting": 2, "conditions": [{
            "type": "Ready", "status": "False", "reason": "RollingOut", "message": "2 pools do not have it yet.",
            "observedGeneration": 2, "lastTransitionTime": "2026-11-15T10:00:00Z"}]},
    })
}

fn revision(number: i64, name: &str, image: &str, pools: &[&str], replicas: i32) -> Value {
    let mut spec = spec(image, pools);
    spec.as_object_mut().unwrap().remove("selector");
    spec["workloadTemplate"]["$patch"] = json!("replace");
    json!({
        "metadata": {"name": name, "namespace": "edge", "creationTimestamp": "2026-11-14T11:00:00Z",
            "ownerReferences": [{"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "name": "web",
                "uid": "uid-web", "controller": true}]},
        "revision": number,
        "data": {"spec": spec, "replacements": {"name": "settings", "replacements": items(replicas)}},
    })
}

fn node_pool() -> Value {
    json!({
        "apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool",
        "metadata": {"name": "beijing", "generation": 1, "creationTimestamp": "2026-11-13T11:00:00Z"},
        "spec": {"type": "Edge"},
        "status": {"nodes": ["n1", "n2"], "readyNodeNum": 1, "unreadyNodeNum": 1, "conditions": [{
            "type": "Applied", "status": "False", "reason": "Contested", "message": "somebody keeps changing n1\u{1b}[2J",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-15T10:00:00Z"}]},
    })
}

/// A server with one of each.
fn answers(application: &Value) -> BTreeMap<String, Value> {
    let version = "apps.openyurt.io/v1alpha1";
    let mut foreign = revision(9, "other-9999999999", "other:1", &[], 1);
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    let revisions = [
        revision(1, "web-1111111111", "web:1", &["beijing", "nanjing"], 1),
        revision(2, "web-2222222222", "web:2", &["beijing", "hangzhou", "shanghai"], 2),
        foreign,
    ];
    let known = [
        (format!("{OURS}/yurtappsets/web"), application.clone()),
        (format!("{OURS}/yurtappsets"), list("YurtAppSetList", version, std::slice::from_ref(application))),
        (format!("{OURS}/yurtappdaemons"), list("YurtAppDaemonList", version, &[])),
        (format!("{OURS}/yurtappconfigurationreplacements/settings"), replacement()),
        (
            format!("{OURS}/yurtappconfigurationreplacements"),
            list("YurtAppConfigurationReplacementList", version, &[replacement()]),
        ),
        (POOLS.to_owned(), list("NodePoolList", "apps.openyurt.io/v1beta1", &[node_pool()])),
        (format!("{POOLS}/beijing"), node_pool()),
        (
            "/apis/apps/v1/namespaces/edge/controllerrevisions".to_owned(),
            list("ControllerRevisionList", "apps/v1", &revisions),
        ),
    ];
    known.into_iter().collect()
}

fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    Command::new(DAPPLE).args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must end so, and gives back what it printed.
fn said(kubeconfig: &Path, code: i32, args: &[&str]) -> String {
    let output = run(kubeconfig, args);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    said
}

/// The words of the line that begins so.
fn row<'t>(shown: &'t str, start: &str) -> Vec<&'t str> {
    let line = shown.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_and_applications_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, kubeconfig) = Fake::start(answers(&application(json!({}), json!({}))), 0, folder.path()).await;
    let shown = said(&kubeconfig, 0, &["get", "yas"]);
    let web = row(&shown, "edge/web");
    assert_eq!(web[..6], ["edge/web", "1/3", "6", "3", "6", "6"], "{shown}");
    assert_eq!(web[7..], ["2222222222", "rolling out: 1 of 3 pools done"], "{shown}");
    assert_eq!(row(&shown, "├─ hangzhou")[5..], ["1111111111", "changing: 1 of 2 pods are available"], "{shown}");
    assert_eq!(row(&shown, "└─ shanghai").last(), Some(&"it waits for its turn"), "{shown}");

    let view: Value = serde_json::from_str(&said(&kubeconfig, 0, &["get", "yas/web", "-o", "json"])).unwrap();
    assert_eq!((&view["state"], &view["done"]), (&json!("RollingOut"), &json!(false)), "{view}");
    assert_eq!(view["pools"][1]["counts"], json!({"desired": 2, "updated": 1, "ready": 2, "available": 2}), "{view}");
    let names = said(&kubeconfig, 0, &["get", "yurtappset", "-o", "name"]);
    assert_eq!(names, "yurtappset.apps.openyurt.io/web\n");

    let shown = said(&kubeconfig, 0, &["get", "np", "beijing"]);
    let beijing = row(&shown, "beijing");
    assert_eq!(
        (&beijing[..5], beijing.last()),
        (&["beijing", "Edge", "2", "1", "1"][..], Some(&"Contested")),
        "{shown}"
    );
    assert!(shown.contains("└─ somebody keeps changing n1\\u{1b}[2J"), "{shown}");
    let shown = said(&kubeconfig, 0, &["get", "yacr"]);
    assert_eq!(row(&shown, "edge/settings")[..6], ["edge/settings", "YurtAppSet web", "3", "1", "2", "0"], "{shown}");
    assert!(shown.contains("└─ 2 pools do not have it yet."), "{shown}");

    for (args, code, part) in [
        (&["get", "yad"][..], 0, "No yurtappdaemons.apps.openyurt.io in the namespace edge"),
        (&["get", "yas/nobody"], 2, "there is no YurtAppSet edge/nobody: `dapple get yurtappset -n edge` shows"),
        (&["get", "np/nobody"], 2, "there is no NodePool nobody: `dapple get nodepool` shows"),
        (&["get", "yas", "-n", "elsewhere"], 2, "does not serve yurtappsets of apps.openyurt.io/v1alpha1"),
    ] {
        let shown = said(&kubeconfig, code, args);
        assert!(shown.contains(part), "{args:?}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rollout_of_an_application_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_fake, kubeconfig) = Fake::start(answers(&application(json!({}), json!({}))), 0, folder.path()).await;
    let shown = said(&kubeconfig, 0, &["rollout", "status", "yas/web", "--watch=false"]);
    assert_eq!(shown, "yurtappset/web: 1 of 3 pools done; hangzhou: 1 of 2 pods are available\n");
    let shown = said(&kubeconfig, 1, &["rollout", "status", "yas/nobody"]);
    assert_eq!(shown, "error: yurtappset/nobody not found\n");

    let shown = said(&kubeconfig, 0, &["rollout", "history", "yas/web"]);
    let (first, second) = (row(&shown, "1"), row(&shown, "2"));
    assert_eq!((first[1], &first[3..]), ("<none>", &["2", "last rolled out whole"][..]), "{shown}");
    assert_eq!((second[1], &second[3..]), ("a newer web", &["1", "newest"][..]), "{shown}");
    assert!(!shown.lines().any(|line| line.starts_with('9')), "that is of another application: {shown}");
    let shown = said(&kubeconfig, 0, &["rollout", "history", "yas/web", "--revision=1"]);
    for part in ["with revision #1", "image: web:1", "name: nanjing", "replicas: 1", "name: settings"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let shown = said(&kubeconfig, 2, &["rollout", "history", "yas/web", "--revision=7"]);
    assert!(shown.contains("YurtAppSet edge/web has no revision 7; it has 1, 2"), "{shown}");

    // What is stopped does not go on by itself, and a change of the replacement is a change.
    let stopped = json!({"stopped": {"revision": 2, "since": "2026-11-15T10:00:00Z"}});
    let (_fake, kubeconfig) = Fake::start(answers(&application(json!({}), stopped)), 0, folder.path()).await;
    let shown = said(&kubeconfig, 1, &["rollout", "status", "yas/web"]);
    assert!(shown.starts_with("error: yurtappset/web is stopped: 1 of 3 pools done"), "{shown}");
    let (_fake, kubeconfig) =
        Fake::start(answers(&application(json!({}), json!({"overriderRef": null}))), 0, folder.path()).await;
    let shown = said(&kubeconfig, 0, &["rollout", "status", "yas/web", "--watch=false"]);
    assert!(shown.contains("until the manager has seen what YurtAppConfigurationReplacement settings says"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_paused_resumed_and_restarted_by_annotations() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, kubeconfig) = Fake::start(answers(&application(json!({}), json!({}))), 1, folder.path()).await;
    assert_eq!(said(&kubeconfig, 0, &["rollout", "pause", "yas/web"]), "yurtappset.apps.openyurt.io/web paused\n");
    let writes = fake.writes();
    assert_eq!(writes.len(), 2, "the first was refused, since something was written in between");
    let expected = json!({"uid": "uid-web", "resourceVersion": "7", "annotations": {"dapple.dev/suspend": "true"}});
    assert_eq!(writes[1], json!({"metadata": expected}));
    let shown = said(&kubeconfig, 2, &["rollout", "resume", "yas/web"]);
    assert!(shown.contains("YurtAppSet edge/web is neither paused nor stopped"), "{shown}");
    said(&kubeconfig, 0, &["rollout", "restart", "yas/web"]);
    let written = fake.writes().pop().unwrap();
    let place = "/spec/workloadTemplate/deploymentTemplate/spec/template/metadata/annotations";
    assert!(
        written.pointer(place).is_some_and(|known| known["kubectl.kubernetes.io/restartedAt"].is_string()),
        "{written}"
    );

    let paused = json!({"annotations": {"dapple.dev/suspend": "true"}});
    let stopped = json!({"stopped": {"revision": 2, "since": "2026-11-15T10:00:00Z"}});
    let (fake, kubeconfig) = Fake::start(answers(&application(paused, stopped)), 0, folder.path()).await;
    assert!(said(&kubeconfig, 2, &["rollout", "pause", "yas/web"]).contains("already paused"));
    assert!(said(&kubeconfig, 2, &["rollout", "restart", "yas/web"]).contains("`dapple rollout resume` it first"));
    said(&kubeconfig, 0, &["rollout", "resume", "yas/web"]);
    let annotations = fake.writes().pop().unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations.get("dapple.dev/suspend"), Some(&Value::Null), "{annotations}");
    assert!(annotations["dapple.dev/rollout-resumed"].is_string(), "{annotations}");
}

#[tokio::test(flavor = "multi_thread")]
async fn going_back_writes_both_objects_and_says_so_first() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, kubeconfig) = Fake::start(answers(&application(json!({}), json!({}))), 0, folder.path()).await;
    let shown = said(&kubeconfig, 0, &["rollout", "undo", "yas/web", "--dry-run=client"]);
    for (sign, part) in [
        ("-", "image: web:2"),
        ("+", "image: web:1"),
        ("-", "- replicas: 2"),
        ("+", "- replicas: 1"),
        ("yurtappset.apps.openyurt.io/web", "rolled back to revision 1 (dry run)"),
        ("yurtappconfigurationreplacement.apps.openyurt.io/settings", "rolled back to revision 1 (dry run)"),
    ] {
        assert!(shown.lines().any(|line| line.starts_with(sign) && line.contains(part)), "{sign} {part} in {shown}");
    }
    assert!(fake.writes().is_empty());

    let shown = said(&kubeconfig, 0, &["rollout", "undo", "yas/web"]);
    for part in [
        "writes YurtAppSet edge/web and YurtAppConfigurationReplacement edge/settings",
        "pools that the application leaves, with their workloads: hangzhou, shanghai",
        "pools that it comes back to: nanjing",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // Whether the replacements are taken, then the application, held, then the replacements, and then it goes on.
    let writes = fake.writes();
    assert_eq!(writes.len(), 4, "{writes:?}");
    assert_eq!(writes[0]["replacements"], items(1));
    assert_eq!(writes[1]["metadata"]["resourceVersion"], "7");
    assert_eq!(writes[1]["metadata"]["annotations"], json!({"dapple.dev/suspend": "true"}), "the later cause is gone");
    assert_eq!(writes[1]["spec"]["topology"]["pools"].as_array().map(Vec::len), Some(2));
    assert!(writes[1]["spec"]["workloadTemplate"].get("$patch").is_none());
    assert_eq!((&writes[2]["replacements"], &writes[2]["metadata"]["resourceVersion"]), (&items(1), &json!("8")));
    assert_eq!(writes[3]["metadata"]["annotations"], json!({"dapple.dev/suspend": null}));

    let shown = said(&kubeconfig, 0, &["rollout", "undo", "yas/web", "--to-revision=2"]);
    assert!(shown.contains("skipped rollback (it and its replacement already match revision 2)"), "{shown}");
    let shown = said(&kubeconfig, 2, &["rollout", "undo", "yas/web", "--to-revision=5"]);
    assert!(shown.contains("YurtAppSet edge/web has no revision 5; it has 1, 2"), "{shown}");
    assert_eq!(fake.writes().len(), 4);
}

/// The manager may see the two objects in either order: it is not let go on before it has seen both as they are.
#[tokio::test(flavor = "multi_thread")]
async fn going_back_goes_on_once_the_manager_has_seen_each_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = answers(&application(json!({}), json!({})));
    let settings = known.get_mut(&format!("{OURS}/yurtappconfigurationreplacements/settings")).unwrap();
    settings["status"]["observedGeneration"] = json!(1);
    let (fake, kubeconfig) = Fake::start(known, 0, folder.path()).await;
    let shown = said(&kubeconfig, 2, &["rollout", "undo", "yas/web"]);
    for part in [
        "YurtAppSet edge/web is back at revision 1, and still paused: go on with `dapple rollout resume`",
        "no manager has seen the change of YurtAppConfigurationReplacement edge/settings",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let writes = fake.writes();
    assert_eq!(writes.len(), 3, "it is not let go on: {writes:?}");
    assert_eq!(writes[2]["replacements"], items(1));

    let unseen = application(json!({}), json!({"observedGeneration": 3}));
    let (fake, kubeconfig) = Fake::start(answers(&unseen), 0, folder.path()).await;
    let shown = said(&kubeconfig, 2, &["rollout", "undo", "yas/web", "--to-revision=1"]);
    assert!(shown.contains("its replacements are not, and it is paused"), "{shown}");
    let writes = fake.writes();
    assert_eq!(writes.len(), 2, "the replacements are tried, and not written yet: {writes:?}");
    assert_eq!(writes[1]["metadata"]["annotations"]["dapple.dev/suspend"], "true");
}
