//! `dapple adopt pool` on what OpenYurt left: nothing restarts, nothing is lost, and what is in the way is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::adopt::{ended, start_manager};
use crate::openkruise::{HOOKS, PODS, get, patch, post, try_patch};
use crate::openyurt::{
    KINDS, MANAGER, OVERRIDERS, POOLS, VALIDATING, applications, crd, is_rolled_out, manager_with, replica_sets, whole,
    workloads,
};
use crate::support::{Manager, dapple, eventually, text};

const OFF: &str = "--controllers=*,-nodepool-controller,-yurt-app-set-controller,-yurt-app-overrider-controller,\
                   -yurt-app-daemon-controller";

fn adopt(kubeconfig: &Path, flags: &[&str]) -> Output {
    let kubeconfig = kubeconfig.to_str().unwrap();
    dapple(&[&["adopt", "pool", "--kubeconfig", kubeconfig], flags].concat())
}

/// By name: UID, and the pool and application.
type Pods = BTreeMap<String, (Value, String)>;

/// The pods that are not on their way out.
async fn pods(client: &Client) -> Pods {
    let all = get(client, PODS).await.unwrap();
    let stays = all["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let seen = |pod: &Value| {
        let (metadata, labels) = (&pod["metadata"], &pod["metadata"]["labels"]);
        let label = |key: &str| labels[key].as_str().unwrap_or_default().to_owned();
        let place = format!("{} {}", label("app"), label("apps.openyurt.io/pool-name"));
        (metadata["name"].as_str().unwrap().to_owned(), (metadata["uid"].clone(), place))
    };
    stays.map(seen).collect()
}

/// By name: UID, and a part of the object.
type Objects = BTreeMap<String, (Value, Value)>;

async fn all(client: &Client, path: &str, part: fn(&Value) -> Value) -> Objects {
    let found = get(client, path).await.unwrap();
    let seen = |object: &Value| {
        let metadata = &object["metadata"];
        (metadata["name"].as_str().unwrap().to_owned(), (metadata["uid"].clone(), part(object)))
    };
    found["items"].as_array().unwrap().iter().map(seen).collect()
}

/// All that must stay as it is: ReplicaSets, pod templates, and what objects say.
async fn standing(client: &Client) -> Vec<Objects> {
    let template = |object: &Value| object["spec"]["template"].clone();
    let spec = |object: &Value| object["spec"].clone();
    vec![
        all(client, &workloads("replicasets"), template).await,
        all(client, &workloads("deployments"), template).await,
        all(client, &workloads("statefulsets"), template).await,
        all(client, POOLS, spec).await,
        all(client, &applications("yurtappsets"), spec).await,
        all(client, &applications("yurtappdaemons"), spec).await,
    ]
}

async fn delete(client: &Client, path: &str) {
    let request = Request::delete(path).body(Vec::new()).unwrap();
    client.request::<Value>(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_restarts_when_pools_and_their_applications_are_adopted() {
    let (cluster, client) = whole().await;
    let kubeconfig = cluster.admin_kubeconfig();
    let installed = dapple(&["up", "--cluster", "--yes", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    ended(&installed, 0, &["left alone: nodepools.apps.openyurt.io", "`dapple adopt pool` takes it over"]);
    let (before, stood) = (pods(&client).await, standing(&client).await);
    assert_eq!(before.len(), 7);
    assert_eq!(stood[0].keys().cloned().collect::<BTreeSet<_>>(), replica_sets(), "as OpenYurt left them");

    controllers_have_to_be_off(&client, kubeconfig).await;
    what_is_in_the_way_is_told(&client, kubeconfig).await;
    let crds = crds(&client).await;
    let parts = [
        "2 NodePools",
        "2 YurtAppSets",
        "1 YurtAppDaemon",
        "5 workloads, 7 pods",
        "controllers that are on: none of these kinds",
        "remove mutate.apps.v1.deployment",
        "validate.core.v1.node.openyurt.io concerns nodes and stays",
        "Nothing was changed",
    ];
    let said = ended(&adopt(kubeconfig, &["--dry-run"]), 0, &parts);
    assert!(!said.contains("Stands in the way"), "{said}");
    ended(&adopt(kubeconfig, &[]), 2, &["add --yes"]);
    assert_eq!(self::crds(&client).await, crds, "not one byte of them changed");

    // Kinds are taken over one by one, or together.
    let said = ended(&adopt(kubeconfig, &["--kinds", "nodepools", "--yes"]), 0, &["Adopted 2 objects"]);
    assert!(!said.contains("mutate.apps.v1.deployment"), "it is not of NodePools: {said}");
    let parts = ["CRD nodepools.apps.openyurt.io is dapple's already", "Adopted 3 objects", "their 5 workloads"];
    ended(&adopt(kubeconfig, &["--yes"]), 0, &parts);
    ended(&adopt(kubeconfig, &["--yes"]), 0, &["is dapple's already: nothing to do"]);
    for (plural, before) in KINDS.iter().zip(&crds) {
        let now = get(&client, &crd(plural)).await.unwrap();
        assert_eq!(now["metadata"]["uid"], before["metadata"]["uid"], "it is the same CRD");
        assert_eq!(now["metadata"]["labels"]["app.kubernetes.io/managed-by"], "dapple");
    }
    check_hooks(&client).await;
    assert_eq!((pods(&client).await, standing(&client).await), (before.clone(), stood.clone()));

    // Nobody is behind the hooks, so this would be refused if they were still there.
    let (path, label) = (format!("{POOLS}/beijing"), json!({"metadata": {"labels": {"adopted": "true"}}}));
    eventually("no hook refuses", || try_patch(&client, &path, &label)).await;
    let manager = start_manager(&cluster, &client).await;
    status_fills_and_nothing_changes(&client, &before, &stood, &manager).await;
    one_pool_gets_another_template(&client, &before, &manager).await;
    drop(manager);
    cluster.stop().await.unwrap();
}

async fn crds(client: &Client) -> Vec<Value> {
    let mut found = Vec::new();
    for plural in KINDS {
        found.push(get(client, &crd(plural)).await.unwrap());
    }
    found
}

/// While OpenYurt's manager acts on the kinds, nothing is changed, whatever the flags.
async fn controllers_have_to_be_off(client: &Client, kubeconfig: &Path) {
    let parts = [
        "Deployment kube-system/yurt-manager: spec.template.spec.containers[0].args leaves nodepool-controller",
        "`kubectl -n kube-system patch deploy yurt-manager --type=json -p '",
        OFF,
    ];
    for flags in [&["--yes"][..], &["--dry-run"], &[]] {
        ended(&adopt(kubeconfig, flags), 2, &parts);
    }
    let containers = json!([manager_with(&["--v=2", OFF])]);
    patch(client, MANAGER, &json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    is_rolled_out(client, MANAGER).await;
    eventually("no pod with other arguments is left", || async {
        let output = adopt(kubeconfig, &["--dry-run"]);
        if output.status.success() { Ok(()) } else { Err(text(&output.stdout)) }
    })
    .await;
}

async fn what_is_in_the_way_is_told(client: &Client, kubeconfig: &Path) {
    let status = format!("{}/status", crd("yurtappsets"));
    let store = |versions: Value| json!({"status": {"storedVersions": versions}});
    patch(client, &status, &store(json!(["v1alpha1", "v1beta1"]))).await;
    let parts = [
        "CRD yurtappsets.apps.openyurt.io: status.storedVersions has v1beta1",
        "default/sts-demo, default/yurtappset-demo may be stored so",
    ];
    ended(&adopt(kubeconfig, &["--yes"]), 2, &parts);
    ended(&adopt(kubeconfig, &["--dry-run", "--kinds", "yurtappdaemons"]), 0, &["1 YurtAppDaemon"]);
    patch(client, &status, &store(json!(["v1alpha1"]))).await;

    let subject = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "name": "yurtappset-demo"});
    let image = json!({"image": {"containerName": "nginx", "imageClaim": "nginx:9"}});
    let patches = json!([{"path": "/spec/paused", "operation": "add", "value": true}]);
    let entries = json!([{"pools": ["hangzhou"], "items": [image], "patches": patches}]);
    let overrider = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppOverrider",
        "metadata": {"name": "demo"}, "subject": subject, "entries": entries});
    post(client, OVERRIDERS, &overrider).await;
    let parts = [
        "YurtAppOverrider default/demo: subject is YurtAppSet default/yurtappset-demo",
        "entries[0].patches is more than a replacement can say",
        "Replacements to apply",
        "kind: YurtAppConfigurationReplacement",
        "nginx:9",
    ];
    ended(&adopt(kubeconfig, &["--yes"]), 2, &parts);
    delete(client, &format!("{OVERRIDERS}/demo")).await;

    // What its pods do not have, since OpenYurt's controller is off: dapple would roll it out.
    let nodes = json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": {"spec": {
        "nodeSelector": {"disk-type": "large"}}}}}}}});
    let without = json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": {"spec": {
        "nodeSelector": null}}}}}}});
    // Its webhooks would refuse it, and nobody answers them: for a moment there are none.
    let path = format!("{HOOKS}/yurt-manager-mutating-webhook-configuration");
    let hooks = get(client, &path).await.unwrap()["webhooks"].clone();
    patch(client, &path, &json!({"webhooks": []})).await;
    let daemon = format!("{}/daemon-demo", applications("yurtappdaemons"));
    eventually("no hook refuses", || try_patch(client, &daemon, &nodes)).await;
    let parts = [
        "YurtAppDaemon default/daemon-demo: spec.workloadTemplate.deploymentTemplate.spec.template.spec.nodeSelector",
        "would restart the pods in 2 pools (beijing, hangzhou)",
        "or add --allow-restarts",
    ];
    ended(&adopt(kubeconfig, &["--yes"]), 2, &parts);
    ended(&adopt(kubeconfig, &["--dry-run", "--allow-restarts"]), 0, &["as allowed"]);
    patch(client, &daemon, &without).await;
    patch(client, &path, &json!({"webhooks": hooks})).await;
}

async fn check_hooks(client: &Client) {
    for (path, kind, left) in [
        (HOOKS, "mutating", "mutate.core.v1.pod.openyurt.io"),
        (VALIDATING, "validating", "validate.core.v1.node.openyurt.io"),
    ] {
        let found = get(client, &format!("{path}/yurt-manager-{kind}-webhook-configuration")).await.unwrap();
        let template = found["metadata"]["annotations"]["yurt-manager-template"].as_str().unwrap();
        for list in [found["webhooks"].clone(), serde_json::from_str(template).unwrap()] {
            let names: Vec<&Value> = list.as_array().unwrap().iter().map(|hook| &hook["name"]).collect();
            assert_eq!(names, [left]);
        }
    }
}

/// Whether dapple has told of all pools of an application that they are done.
fn is_told(application: &Value) -> bool {
    let (metadata, status) = (&application["metadata"], &application["status"]);
    let pools = status["pools"].as_array().map(Vec::as_slice).unwrap_or_default();
    status["observedGeneration"] == metadata["generation"]
        && !pools.is_empty()
        && pools.iter().all(|pool| pool["state"] == "Done")
}

async fn untold(client: &Client) -> Vec<Value> {
    let mut untold = Vec::new();
    for plural in ["yurtappsets", "yurtappdaemons"] {
        let found = get(client, &applications(plural)).await.unwrap();
        let such = found["items"].as_array().unwrap().iter().filter(|application| !is_told(application));
        untold.extend(such.map(|application| application["status"].clone()));
    }
    untold
}

/// Watches until dapple has told of every pool and application, and five seconds more: everything stays as it is.
async fn status_fills_and_nothing_changes(client: &Client, before: &Pods, stood: &[Objects], manager: &Manager) {
    let (begun, mut told) = (Instant::now(), None);
    while told.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(5)) {
        assert_eq!(pods(client).await, *before, "{}", manager.log_text());
        assert_eq!(standing(client).await, *stood, "{}", manager.log_text());
        let (untold, pools) = (untold(client).await, get(client, POOLS).await.unwrap());
        let is_applied = |pool: &Value| {
            let mut conditions = pool["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|is| is["type"] == "Applied" && is["status"] == "True")
                && pool["status"]["readyNodeNum"] == 3
        };
        if untold.is_empty() && pools["items"].as_array().unwrap().iter().all(is_applied) {
            told.get_or_insert_with(Instant::now);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "not all is told: {untold:?} {pools}\n{}",
            manager.log_text()
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The pool beijing has an image of its own: a change of the template's restarts the pods in hangzhou, and no others.
async fn one_pool_gets_another_template(client: &Client, before: &Pods, manager: &Manager) {
    let container =
        json!({"name": "nginx", "image": "nginx:1.25", "volumeMounts": [{"name": "cfg", "mountPath": "/etc/cfg"}]});
    let change = json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": {"spec": {
        "containers": [container]}}}}}}});
    patch(client, &format!("{}/yurtappset-demo", applications("yurtappsets")), &change).await;
    let hangzhou = workloads("deployments") + "/yurtappset-demo-hangzhou-xfp6l";
    eventually("the pool hangzhou has the image", || async {
        let image = get(client, &hangzhou).await?["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        if image == "nginx:1.25" { Ok(()) } else { Err(format!("{image}\n{}", manager.log_text())) }
    })
    .await;
    is_rolled_out(client, &hangzhou).await;
    eventually("all pools are done", || async {
        let untold = untold(client).await;
        if untold.is_empty() { Ok(()) } else { Err(format!("{untold:?}\n{}", manager.log_text())) }
    })
    .await;
    let of_others = |pods: &Pods| -> Pods {
        pods.iter()
            .filter(|(_, (_, place))| place != "yurtappset-demo hangzhou")
            .map(|(name, pod)| (name.clone(), pod.clone()))
            .collect()
    };
    let after = pods(client).await;
    assert_eq!(of_others(&after), of_others(before), "{}", manager.log_text());
    assert_eq!((of_others(&after).len(), after.len()), (6, 7));
    assert_eq!(after.keys().filter(|name| before.contains_key(*name)).count(), 6, "{after:?}");
}
