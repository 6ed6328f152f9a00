//! `dapple adopt daemonset` on what OpenKruise left: nothing restarts, nothing is lost, and what is in the way is told.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};

use crate::openkruise::{
    CRD, CRDS, HALF_WAY, HOOKS, OLD_SETS, PODS, REVISIONS, SETS, add_hooks, data, dead_conversion, foreign_crd, get,
    patch, post, start, stop_manager, try_patch, try_post, whole,
};
use crate::support::{MANAGER_USER, Manager, dapple, eventually, leads, text};

fn adopt(kubeconfig: &Path, flags: &[&str]) -> Output {
    let kubeconfig = kubeconfig.to_str().unwrap();
    dapple(&[&["adopt", "daemonset", "--kubeconfig", kubeconfig], flags].concat())
}

/// What it printed, after it ended as it should.
pub(crate) fn ended(output: &Output, code: i32, parts: &[&str]) -> String {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    said
}

/// By name: UID, images, and whether it goes.
type Pods = BTreeMap<String, (String, Vec<String>, bool)>;

async fn pods(client: &Client, app: Option<&str>) -> Pods {
    let all = get(client, PODS).await.unwrap();
    let seen = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let images = containers.iter().map(|container| container["image"].as_str().unwrap().to_owned()).collect();
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        (
            pod["metadata"]["name"].as_str().unwrap().to_owned(),
            (uid, images, !pod["metadata"]["deletionTimestamp"].is_null()),
        )
    };
    let is_it = |pod: &&Value| app.is_none_or(|app| pod["metadata"]["labels"]["app"] == app);
    all["items"].as_array().unwrap().iter().filter(is_it).map(seen).collect()
}

/// By name: UID and number.
async fn revisions(client: &Client) -> BTreeMap<String, (Value, Value)> {
    let all = get(client, REVISIONS).await.unwrap();
    let seen = |found: &Value| {
        (
            found["metadata"]["name"].as_str().unwrap().to_owned(),
            (found["metadata"]["uid"].clone(), found["revision"].clone()),
        )
    };
    all["items"].as_array().unwrap().iter().map(seen).collect()
}

pub(crate) async fn start_manager(cluster: &dapple_testbed::Cluster, client: &Client) -> Manager {
    let kubeconfig = cluster.kubeconfig_for(MANAGER_USER, &[]).await.unwrap();
    let manager = Manager::start(&kubeconfig, cluster.dir().join("manager.log"));
    leads(client, &manager).await;
    manager
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_restarts_when_daemonsets_are_adopted() {
    let (cluster, client) = whole(true).await;
    let kubeconfig = cluster.admin_kubeconfig();
    let installed = dapple(&["up", "--cluster", "--yes", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    ended(&installed, 0, &["left alone: daemonsets.apps.kruise.io", "`dapple adopt daemonset` takes it over"]);
    let before = (get(&client, CRD).await.unwrap(), pods(&client, None).await, revisions(&client).await);
    assert_eq!((before.1.len(), before.2.len()), (18, 5));

    // While the other controllers run, nothing is changed, whatever the flags.
    let scale = "`kubectl -n kruise-system scale deploy kruise-controller-manager --replicas=0`";
    for flags in [&["--yes"][..], &["--dry-run"], &[]] {
        ended(&adopt(kubeconfig, flags), 2, &["spec.replicas is 1", scale, "Lease kruise-system/kruise-manager"]);
    }
    stop_manager(&client).await;
    let said = ended(
        &adopt(kubeconfig, &["--dry-run"]),
        0,
        &[
            "written by helm",
            "stored as   v1beta1",
            "3 DaemonSets, 18 pods, 5 ControllerRevisions",
            "remove mdaemonset.kb.io",
            "take daemonsets out of mworkloads.kb.io",
            "mpod.kb.io concerns pods and is left alone",
            "DaemonSet default/inplace: 5 of 6 pods are of an older revision",
            "Nothing was changed",
        ],
    );
    assert!(!said.contains("Stands in the way"), "{said}");
    what_would_be_refused_is_told(&client, kubeconfig).await;
    ended(&adopt(kubeconfig, &[]), 2, &["add --yes"]);
    assert_eq!(get(&client, CRD).await.unwrap(), before.0, "not one byte of it changed");

    ended(&adopt(kubeconfig, &["--yes"]), 0, &["Adopted 3 DaemonSets", "none of their 18 pods was touched"]);
    let crd = get(&client, CRD).await.unwrap();
    assert_eq!(crd["metadata"]["uid"], before.0["metadata"]["uid"], "it is the same CRD");
    assert_eq!(crd["metadata"]["labels"]["app.kubernetes.io/managed-by"], "dapple");
    assert_eq!(
        (&crd["spec"]["conversion"], &crd["status"]["storedVersions"]),
        (&json!({"strategy": "None"}), &json!(["v1beta1"]))
    );
    check_hooks(&client).await;
    assert_eq!(pods(&client, None).await, before.1);
    ended(&adopt(kubeconfig, &["--yes"]), 0, &["is dapple's already"]);

    // Nobody is behind the hooks, so this would be refused if they were still there. The API server learns in its own
    // time that they are not.
    let (plain, label) = (format!("{SETS}/plain"), json!({"metadata": {"labels": {"adopted": "true"}}}));
    eventually("no hook refuses", || try_patch(&client, &plain, &label)).await;
    let manager = start_manager(&cluster, &client).await;
    nothing_changes(&client, &before.1, &manager).await;
    assert_eq!(revisions(&client).await, before.2, "revisions are kept, and none is made");
    drop(manager);
    cluster.stop().await.unwrap();
}

/// A policy that came after the pods: it would refuse the next ones. That is told, and stops nothing.
async fn what_would_be_refused_is_told(client: &Client, kubeconfig: &Path) {
    let enforce = |level: Value| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    patch(client, "/api/v1/namespaces/default", &enforce(json!("restricted"))).await;
    let told = |names: &'static [&'static str]| async move {
        let said = ended(&adopt(kubeconfig, &["--dry-run"]), 0, &["Nothing was changed"]);
        let line = |name: &&str| format!("DaemonSet default/{name}: spec.template would be refused, for ");
        let is_told = |name: &&str| said.contains(&line(name));
        let all = ["plain", "alpha", "inplace"];
        let is_right = all.iter().all(|name| is_told(name) == names.contains(name));
        if is_right { Ok(()) } else { Err(said) }
    };
    eventually("what would be refused is told", || told(&["plain", "alpha", "inplace"])).await;
    patch(client, "/api/v1/namespaces/default", &enforce(Value::Null)).await;
    eventually("nothing would be refused", || told(&[])).await;
}

async fn check_hooks(client: &Client) {
    let hooks = get(client, &format!("{HOOKS}/kruise-mutating-webhook-configuration")).await.unwrap();
    let template = hooks["metadata"]["annotations"]["template"].as_str().unwrap();
    for list in [hooks["webhooks"].clone(), serde_json::from_str(template).unwrap()] {
        let left: Vec<(&Value, &Value)> =
            list.as_array().unwrap().iter().map(|hook| (&hook["name"], &hook["rules"][0]["resources"])).collect();
        assert_eq!(
            left,
            [(&json!("mworkloads.kb.io"), &json!(["clonesets"])), (&json!("mpod.kb.io"), &json!(["pods"]))]
        );
    }
}

/// Watches until dapple has looked at every set, and five seconds more: every pod stays as it is.
async fn nothing_changes(client: &Client, before: &Pods, manager: &Manager) {
    let (begun, mut looked_at) = (Instant::now(), None);
    while looked_at.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(5)) {
        assert_eq!(pods(client, None).await, *before, "{}", manager.log_text());
        let sets = get(client, SETS).await.unwrap();
        let is_observed = |set: &Value| set["status"]["observedGeneration"] == set["metadata"]["generation"];
        if sets["items"].as_array().unwrap().iter().all(is_observed) {
            looked_at.get_or_insert_with(Instant::now);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "not every set is looked at: {sets}\n{}",
            manager.log_text()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// OpenKruise had written the new image and its state when it was stopped; dapple sees the update through. The pod is on
/// a node that the test plays.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_caught_half_way_through_an_in_place_update_is_completed() {
    let (cluster, client) = whole(false).await;
    let kubeconfig = cluster.admin_kubeconfig();
    stop_manager(&client).await;
    let installed = dapple(&["up", "--cluster", "--yes", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    ended(&installed, 0, &[]);
    let before = pods(&client, Some("inplace")).await;
    ended(&adopt(kubeconfig, &["--yes"]), 0, &["Adopted 3 DaemonSets"]);
    let manager = start_manager(&cluster, &client).await;

    let path = format!("{PODS}/{HALF_WAY}");
    let status = get(&client, &path).await.unwrap()["status"].clone();
    kubelet_restarts_agent(&client, &path, &status).await;
    eventually("the update is complete", || async {
        same_pods(&client, &before).await.map_err(|error| format!("{error}\n{}", manager.log_text()))?;
        let pod = get(&client, &path).await?;
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let gate = conditions.iter().find(|is| is["type"] == "InPlaceUpdateReady").unwrap();
        if gate["status"] == "True" { Ok(()) } else { Err(format!("{gate}\n{}", manager.log_text())) }
    })
    .await;
    set_ready(&client, &path).await;

    // The rollout goes on in place, and the partition holds three nodes back.
    eventually("three of six are updated", || async {
        same_pods(&client, &before).await?;
        let updated =
            pods(&client, Some("inplace")).await.into_values().filter(|(_, images, _)| images[0] == "agent:2.0");
        let updated = updated.count();
        if updated == 3 { Ok(()) } else { Err(format!("{updated}\n{}", manager.log_text())) }
    })
    .await;
    drop(manager);
    cluster.stop().await.unwrap();
}

/// Fails the test at once if a pod went or goes; images may change.
async fn same_pods(client: &Client, before: &Pods) -> Result<(), String> {
    let now = pods(client, Some("inplace")).await;
    let uids = |pods: &Pods| pods.values().map(|(uid, _, goes)| (uid.clone(), *goes)).collect::<Vec<_>>();
    assert_eq!(uids(&now), uids(before), "no pod may be recreated");
    Ok(())
}

async fn kubelet_restarts_agent(client: &Client, path: &str, status: &Value) {
    let mut containers = status["containerStatuses"].clone();
    let agent = containers.as_array_mut().unwrap().iter_mut().find(|container| container["name"] == "agent").unwrap();
    agent["image"] = "agent:2.0".into();
    agent["imageID"] = "agent@sha256:2222222222222222222222222222222222222222222222222222222222222222".into();
    agent["restartCount"] = json!(1);
    patch(client, &format!("{path}/status"), &json!({"status": {"containerStatuses": containers}})).await;
}

async fn set_ready(client: &Client, path: &str) {
    let mut conditions = get(client, path).await.unwrap()["status"]["conditions"].clone();
    let ready = conditions.as_array_mut().unwrap().iter_mut().find(|is| is["type"] == "Ready").unwrap();
    *ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-15T03:54:00Z"});
    patch(client, &format!("{path}/status"), &json!({"status": {"conditions": conditions}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_as_v1alpha1_is_converted_when_nobody_else_does() {
    let (cluster, client) = start(false).await;
    let kubeconfig = cluster.admin_kubeconfig();
    ended(&adopt(kubeconfig, &["--yes"]), 2, &["there is no CRD daemonsets.apps.kruise.io"]);
    post(&client, CRDS, &foreign_crd("v1alpha1", dead_conversion())).await;
    eventually("the kind is served", || get(&client, OLD_SETS)).await;
    let mut uids = BTreeMap::new();
    for mut set in data!("daemonsets.v1alpha1.yaml") {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            set["metadata"].as_object_mut().unwrap().remove(field);
        }
        if set["metadata"]["name"] == "alpha" {
            set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"rollingUpdateType": "Surging"});
        }
        let made = post(&client, OLD_SETS, &set).await;
        uids.insert(made["metadata"]["name"].to_string(), made["metadata"]["uid"].clone());
    }
    let mixed = foreign_crd("v1beta1", dead_conversion());
    patch(&client, CRD, &json!({"spec": mixed["spec"]})).await;
    add_hooks_after(&client).await;

    // One stored in the new version beside them: without its webhook nobody can list them all.
    ended(
        &adopt(kubeconfig, &["--yes"]),
        2,
        &["CRD daemonsets.apps.kruise.io: spec.conversion", "kubectl replace -f -"],
    );
    let request = http::Request::delete(format!("{SETS}/new")).body(Vec::new()).unwrap();
    client.request::<Value>(request).await.unwrap();

    let said = ended(&adopt(kubeconfig, &["--yes"]), 0, &["stored as   v1alpha1, v1beta1", "Adopted 3 DaemonSets"]);
    assert!(said.contains("write 3 DaemonSets once"), "{said}");
    let crd = get(&client, CRD).await.unwrap();
    assert_eq!(crd["status"]["storedVersions"], json!(["v1beta1"]));
    let sets = get(&client, SETS).await.unwrap();
    let sets = sets["items"].as_array().unwrap();
    let now: BTreeMap<String, Value> =
        sets.iter().map(|set| (set["metadata"]["name"].to_string(), set["metadata"]["uid"].clone())).collect();
    assert_eq!(now, uids, "they are the same objects");
    let alpha = sets.iter().find(|set| set["metadata"]["name"] == "alpha").unwrap();
    let update = &alpha["spec"]["updateStrategy"]["rollingUpdate"];
    assert_eq!(*update, json!({"rollingUpdateType": "Standard", "maxSurge": 1, "maxUnavailable": 0}));
    assert_eq!(alpha["spec"]["scaleStrategy"], json!({"partitionedScaling": true}));

    // With nobody to convert, the API server can list v1beta1 only if it is what is stored.
    patch(&client, CRD, &json!({"spec": {"conversion": dead_conversion()}})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let listed = eventually("they can be listed", || get(&client, SETS)).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
    cluster.stop().await.unwrap();
}

/// A set that is stored as v1beta1, and the webhooks, which would refuse it.
async fn add_hooks_after(client: &Client) {
    let template =
        json!({"metadata": {"labels": {"app": "new"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "new"}}, "template": template});
    let new =
        json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "new"}, "spec": spec});
    // The API server needs a moment to learn that it stores the new version: until then nobody converts this one.
    eventually("a set is stored as v1beta1", || try_post(client, SETS, &new)).await;
    add_hooks(client).await;
}
