//! The first story of the PodMarker design on a real control plane, by `dapple` alone: what is planned and explained without a
//! manager is what the manager then does.

use std::collections::BTreeSet;
use std::path::Path;

use dapple_control::install::{apply, apply_yaml, install_crds};
use dapple_testbed::{Cluster, ClusterSpec, Fleet, testing};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::support::{Manager, dapple, eventually, leads, text};

/// Ten pods on x86 nodes: those that are working online first, ready ones first among these.
const STORY: &str = include_str!("../../../../examples/marker/by-label.yaml");

/// The classes of pods that the story tells apart: state, readiness, node, and how many there are.
const CLASSES: [(&str, &str, bool, &str, usize); 5] = [
    ("both", "working_online", true, "x86-000", 4),
    ("online", "working_online", false, "x86-001", 3),
    ("ready", "offline", true, "x86-000", 4),
    ("neither", "offline", false, "x86-001", 3),
    ("elsewhere", "working_online", true, "arm-000", 3),
];

/// Runs a command that must end so, and gives back what it printed.
fn run(kubeconfig: &Path, code: i32, args: &[&str]) -> String {
    let output = dapple(&[args, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}{said}");
    shown
}

/// A cluster with pods of each class, as ready as they should be.
async fn site() -> (Cluster, Client) {
    let cluster = testing::start(ClusterSpec::temporary()).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    apply_yaml(&client, include_str!("../../../../config/rbac.yaml")).await.unwrap();
    let kinds = json!([{"name": "x86", "count": 2, "labels": {"arch": "x86"}}, {"name": "arm", "count": 1, "labels": {"arch": "arm64"}}]);
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
    for (class, state, is_ready, node, count) in CLASSES {
        for number in 0..count {
            let readiness = if is_ready { json!({}) } else { json!({"testbed.dapple.dev/readiness": "fail"}) };
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{class}-{number}"), "namespace": "default", "annotations": readiness,
                    "labels": {"app": "nginx", "pod.state": state}},
                "spec": {"nodeName": node, "containers": [{"name": "nginx", "image": "nginx:1"}],
                    "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}]},
            });
            let made = || async { apply(&client, &pod).await.map_err(|error| error.to_string()) };
            eventually("the pod is made", made).await;
        }
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually("pods are as ready as they should be", || async {
        let all = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let ready = all.iter().filter(|pod| is_ready(pod)).count();
        let running = all.iter().filter(|pod| runs(pod)).count();
        let expected: usize = CLASSES.iter().filter(|(_, _, is_ready, ..)| *is_ready).map(|class| class.4).sum();
        if (ready, running) == (expected, all.items.len()) {
            Ok(())
        } else {
            Err(format!("{ready} of {running} ready"))
        }
    })
    .await;
    (cluster, client)
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|known| known.type_ == "Ready" && known.status == "True")
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// The pods with the mark.
async fn marked(client: &Client) -> BTreeSet<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let found = pods.list(&ListParams::default().labels("upgradeStrategy=inPlace")).await.unwrap();
    found.iter().map(ResourceExt::name_any).collect()
}

fn names(pods: &Value) -> BTreeSet<String> {
    pods.as_array().unwrap().iter().map(|pod| pod["pod"].as_str().unwrap().to_owned()).collect()
}

/// Pods of each class that are marked when so many are.
fn classes_of(names: &BTreeSet<String>) -> Vec<(&'static str, usize)> {
    let count = |class: &str| names.iter().filter(|name| name.starts_with(&format!("{class}-"))).count();
    CLASSES.iter().map(|(class, ..)| (*class, count(class))).collect()
}

/// Waits until the marker says that all is as it should be, with so many pods.
async fn settled(kubeconfig: &Path, succeeded: i64) {
    eventually("the marker is done", || async {
        let view: Value =
            serde_json::from_str(&run(kubeconfig, 0, &["get", "podmarker/marker", "-n", "default", "-o", "json"]))
                .unwrap();
        let is_done = view["done"] == true && view["succeeded"] == succeeded;
        if is_done { Ok(()) } else { Err(view.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_planned_and_explained_is_what_is_marked() {
    let (cluster, client) = site().await;
    let kubeconfig = cluster.admin_kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("marker.json");
    let mut marker: Value = serde_saphyr::from_str(STORY).unwrap();
    marker["metadata"]["namespace"] = json!("default");
    let plan = |marker: &Value, code: i32| -> Value {
        std::fs::write(&file, marker.to_string()).unwrap();
        let shown = run(kubeconfig, code, &["plan", "-f", file.to_str().unwrap(), "-o", "json"]);
        serde_json::from_str::<Value>(&shown).unwrap()[0].clone()
    };
    let explain = || -> Value {
        let shown = run(kubeconfig, 0, &["explain", "podmarker", "marker", "-o", "json"]);
        serde_json::from_str(&shown).unwrap()
    };

    // Before there is a marker, and before anybody looks at it.
    let planned = plan(&marker, 1);
    let foretold = names(&planned["mark"]);
    let expected = [("both", 4), ("online", 3), ("ready", 3), ("neither", 0), ("elsewhere", 0)];
    assert_eq!(classes_of(&foretold), expected, "{planned}");
    assert_eq!((&planned["matched"], &planned["unmark"]), (&json!(14), &json!([])));
    apply(&client, &marker).await.unwrap();
    let explained = explain();
    assert_eq!(explained["waitsFor"]["reason"], "NotBegun", "{explained}");
    let pods = explained["pods"].as_array().unwrap();
    let waiting: Vec<Value> = pods.iter().filter(|pod| pod["change"] == "Mark").cloned().collect();
    assert_eq!(names(&json!(waiting)), foretold);
    assert!(pods.iter().filter(|pod| pod["node"] == "arm-000").all(|pod| pod["reason"] == "NodeLabels"), "{explained}");
    assert!(marked(&client).await.is_empty(), "commands only read");

    // The manager does as foretold.
    let manager = Manager::start(kubeconfig, cluster.dir().join("manager.log"));
    leads(&client, &manager).await;
    settled(kubeconfig, 10).await;
    assert_eq!(marked(&client).await, foretold, "{}", manager.log_text());
    let explained = explain();
    assert!(explained["waitsFor"].is_null() && explained["succeeded"] == 10, "{explained}");
    let same = plan(&marker, 0);
    assert_eq!((&same["changed"], &same["mark"]), (&json!(false), &json!([])), "what is so already is no difference");

    // Fewer: the least preferred go first.
    marker["spec"]["strategy"]["replicas"] = json!(5);
    let gone = names(&plan(&marker, 1)["unmark"]);
    assert_eq!(classes_of(&gone), [("both", 0), ("online", 2), ("ready", 3), ("neither", 0), ("elsewhere", 0)]);
    apply(&client, &marker).await.unwrap();
    settled(kubeconfig, 5).await;
    assert_eq!(marked(&client).await, foretold.difference(&gone).cloned().collect::<BTreeSet<_>>());
    drop(manager);
    cluster.stop().await.unwrap();
}
