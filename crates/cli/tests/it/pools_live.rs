//! An application's life in pools on a real cluster, by `dapple` alone: its controller manager makes pods, kwok runs them.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use dapple_control::install::{apply, apply_yaml, install_crds};
use dapple_testbed::{Cluster, ClusterSpec, Fleet, testing};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::support::{Manager, dapple, eventually, leads, text};

const POOLS: [&str; 4] = ["a", "b", "c", "d"];
/// Pods with this annotation never turn ready.
const READINESS: &str = "testbed.dapple.dev/readiness";
const IN_ALL: &str = "yurtappset/web successfully rolled out: 4 of 4 pools done";

struct Shell<'a>(&'a Path);

impl Shell<'_> {
    /// Runs a command that must end so, and gives back what it printed.
    fn run(&self, code: i32, args: &[&str]) -> String {
        let output = dapple(&[args, &["-n", "default", "--kubeconfig", self.0.to_str().unwrap()]].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        said
    }

    /// What is planned of a file, on standard output.
    fn plan(&self, code: i32, file: &str, more: &[&str]) -> String {
        let flags = ["plan", "-f", file, "--kubeconfig", self.0.to_str().unwrap()];
        let output = dapple(&[&flags[..], more].concat());
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{more:?}: {said}{errors}");
        said
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(0, &[args, &["-o", "json"]].concat())).unwrap()
    }

    /// Waits for the end of a rollout.
    fn rolled_out(&self) {
        let said = self.run(0, &["rollout", "status", "yas/web", "--timeout", "200s"]);
        assert_eq!(said.lines().last(), Some(IN_ALL), "{said}");
    }

    /// The number of the newest revision.
    fn newest(&self) -> i64 {
        let view = self.json(&["rollout", "history", "yas/web"]);
        view["revisions"].as_array().unwrap().last().unwrap()["revision"].as_i64().unwrap()
    }
}

/// A cluster with four pools of one node each.
async fn site() -> (Cluster, Client) {
    let cluster = testing::start(ClusterSpec::temporary()).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    apply_yaml(&client, include_str!("../../../../config/rbac.yaml")).await.unwrap();
    let kinds = POOLS.map(|pool| json!({"name": pool, "count": 1, "labels": {"apps.openyurt.io/nodepool": pool}}));
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    cluster.apply_fleet(&fleet).await.unwrap();
    for pool in POOLS {
        let object = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool", "metadata": {"name": pool},
            "spec": {"type": "Edge"}});
        apply(&client, &object).await.unwrap();
    }
    (cluster, client)
}

/// An application in all pools, all of which may be changed at once.
fn application(image: &str) -> Value {
    let pools = POOLS.map(|pool| {
        let here = json!({"key": "apps.openyurt.io/nodepool", "operator": "In", "values": [pool]});
        json!({"name": pool, "replicas": 1, "nodeSelectorTerm": {"matchExpressions": [here]}})
    });
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 15,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "web", "image": image}],
            "volumes": [{"name": "settings", "configMap": {"name": "from"}}]}},
    });
    json!({
        "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet",
        "metadata": {"name": "web", "namespace": "default", "annotations": {"dapple.dev/rollout-max": "100%"}},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "topology": {"pools": pools},
            "workloadTemplate": {"deploymentTemplate": {"metadata": {"labels": {"app": "web"}}, "spec": spec}}},
    })
}

/// Replacements that give every pool a variable, and more items.
fn replacement(size: &str, more: &[Value]) -> Value {
    let mut items = vec![json!({"env": {"containerName": "web", "envClaim": {"SIZE": size}}})];
    items.extend(more.iter().cloned());
    json!({
        "apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
        "metadata": {"name": "settings", "namespace": "default"},
        "subject": {"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "name": "web"},
        "replacements": [{"pools": "*", "items": items}],
    })
}

/// Image and variable of a workload's pods.
fn gets(workload: &Value) -> (String, String) {
    let container = &workload["spec"]["template"]["spec"]["containers"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&container["image"]), text(&container["env"][0]["value"]))
}

/// What pools were ever given.
struct Given {
    all: Arc<Mutex<BTreeSet<(String, String)>>>,
    watching: AbortHandle,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Given {
    fn watch(client: &Client) -> Self {
        let all = Arc::new(Mutex::new(BTreeSet::new()));
        let (api, told) = (Api::<Deployment>::namespaced(client.clone(), "default"), all.clone());
        let watching = tokio::spawn(async move {
            let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(known) | Event::InitApply(known)) = event {
                    told.lock().unwrap().insert(gets(&serde_json::to_value(known).unwrap()));
                }
            }
        });
        Self { all, watching: watching.abort_handle() }
    }

    fn has(&self, image: &str, size: &str) -> bool {
        self.all.lock().unwrap().contains(&(image.to_owned(), size.to_owned()))
    }
}

async fn workloads(client: &Client) -> Vec<Value> {
    let api = Api::<Deployment>::namespaced(client.clone(), "default");
    let all = api.list(&ListParams::default()).await.unwrap();
    all.items.into_iter().map(|known| serde_json::to_value(known).unwrap()).collect()
}

fn of_kind(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps.openyurt.io", "v1alpha1", kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

async fn patch(client: &Client, patch: Value) {
    let api = of_kind(client, "YurtAppSet");
    api.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The template says this of its pods.
fn template(image: &str, readiness: Option<&str>) -> Value {
    json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": {
        "metadata": {"annotations": {READINESS: readiness}}, "spec": {"containers": [{"name": "web", "image": image}]}}}}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_in_pools_is_followed_and_steered() {
    let (cluster, client) = site().await;
    let manager = Manager::start(cluster.admin_kubeconfig(), cluster.dir().join("manager.log"));
    leads(&client, &manager).await;
    let shell = Shell(cluster.admin_kubeconfig());
    let from = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "from", "namespace": "default"}});
    apply(&client, &from).await.unwrap();
    apply(&client, &replacement("small", &[])).await.unwrap();
    apply(&client, &application("web:1")).await.unwrap();
    shell.rolled_out();
    let given = Given::watch(&client);
    it_is_shown(&shell, &client).await;

    // A change of either object is a rollout.
    let first = shell.newest();
    patch(&client, template("web:2", None)).await;
    shell.rolled_out();
    apply(&client, &replacement("large", &[])).await.unwrap();
    shell.rolled_out();
    let large = ("web:2".to_owned(), "large".to_owned());
    assert!(workloads(&client).await.iter().all(|known| gets(known) == large));
    assert_eq!(shell.newest(), first + 2);

    // Back to the first, in both objects, and no pool ever gets a half of it.
    let back = format!("--to-revision={first}");
    let said = shell.run(0, &["rollout", "undo", "yas/web", &back, "--dry-run=server"]);
    assert!(
        said.contains("writes YurtAppSet default/web and YurtAppConfigurationReplacement default/settings"),
        "{said}"
    );
    assert!(workloads(&client).await.iter().all(|known| gets(known) == large), "that was a dry run");
    shell.run(0, &["rollout", "undo", "yas/web", &back]);
    shell.rolled_out();
    let small = ("web:1".to_owned(), "small".to_owned());
    assert!(workloads(&client).await.iter().all(|known| gets(known) == small));
    assert!(given.has("web:2", "small") && !given.has("web:1", "large"), "{:?}", given.all.lock().unwrap());
    let web = of_kind(&client, "YurtAppSet").get("web").await.unwrap();
    assert!(!web.metadata.annotations.unwrap().contains_key("dapple.dev/suspend"), "it goes on");

    it_is_planned(&shell, &client).await;
    pauses_and_restarts(&shell, &client).await;
    a_stop_is_told_and_ended(&shell, &client).await;
    drop(given);
    cluster.stop().await.unwrap();
}

async fn it_is_shown(shell: &Shell<'_>, client: &Client) {
    let view = shell.json(&["get", "yas/web"]);
    assert_eq!(
        (&view["state"], &view["poolsDone"], &view["done"]),
        (&json!("Complete"), &json!(4), &json!(true)),
        "{view}"
    );
    assert!(shell.run(0, &["get", "yas"]).contains("default/web"), "{view}");
    eventually("pools are shown with their nodes", || async {
        let pool = shell.json(&["get", "nodepool", "a"]);
        if pool["ready"] == 1 && pool["state"] == "Applied" { Ok(()) } else { Err(pool.to_string()) }
    })
    .await;
    eventually("the replacement is in effect", || async {
        let view = shell.json(&["get", "yacr/settings"]);
        if view["poolsInEffect"] == 4 && view["state"] == "InEffect" { Ok(()) } else { Err(view.to_string()) }
    })
    .await;
    // Of the workload of a pool each field names what is behind it.
    let workload = workloads(client).await.remove(0);
    let (name, pool) = (&workload["metadata"]["name"], &workload["metadata"]["labels"]["apps.openyurt.io/pool-name"]);
    let (name, pool) = (name.as_str().unwrap(), pool.as_str().unwrap());
    let said = shell.run(0, &["explain", &format!("deployment/{name}")]);
    let title = format!("Deployment default/{name} of YurtAppSet default/web (pool {pool})");
    assert!(said.starts_with(&title), "{said}");
    let note = |part: &str| said.lines().find(|line| line.contains(part)).unwrap_or_default();
    let by = "# YurtAppConfigurationReplacement default/settings replacements[0].items[0]";
    assert!(said.lines().any(|line| line.contains(by)), "{said}");
    assert!(note("nodeSelectorTerms").contains("nodeSelectorTerm"), "{said}");
    assert!(!note("image: web:1").contains('#'), "it comes from the template: {said}");
    assert!(!said.contains("is different"), "{said}");
    let said = shell.run(2, &["explain", "deployment/nobody"]);
    assert!(said.contains("Deployment default/nobody is not the workload of a pool"), "{said}");
}

/// What `plan` says of waves, of what restarts and of what does not exist.
async fn it_is_planned(shell: &Shell<'_>, client: &Client) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.json");
    let plan = |object: &Value, code: i32, more: &[&str]| {
        std::fs::write(&file, object.to_string()).unwrap();
        shell.plan(code, file.to_str().unwrap(), more)
    };
    assert_eq!(plan(&replacement("small", &[]), 0, &[]), "No workload changes.\n");
    let said = plan(&replacement("huge", &[]), 1, &[]);
    assert!(said.contains("pools: 4 restarted") && said.contains("wave 1: a, b, c, …; 4 pods made anew"), "{said}");
    assert!(said.contains("pods: 4 recreated"), "{said}");

    // One after the other, and not where a ConfigMap is missing.
    patch(client, json!({"metadata": {"annotations": {"dapple.dev/rollout-max": null}}})).await;
    let own = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "for-a", "namespace": "default"}});
    apply(client, &own).await.unwrap();
    let item = json!({"configMap": {"configMapSource": "from", "configMapTarget": "for-{{nodepool}}"}});
    let said = plan(&replacement("small", std::slice::from_ref(&item)), 1, &[]);
    for part in [
        "pools: 3 held back (target missing), 1 restarted",
        "rollout: at most 1 pool at a time, in 1 wave",
        "wave 1: a; 1 pod made anew",
        "b: there is no ConfigMap for-b: it stays as it is until there is",
        "pods: 3 held back (target missing), 1 recreated",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let told: Value =
        serde_json::from_str(&plan(&replacement("small", std::slice::from_ref(&item)), 1, &["-o", "json"])).unwrap();
    assert_eq!(told[0]["pools"]["each"][0]["wave"], 1, "{told}");
    assert_eq!(told[0]["pools"]["each"][1]["missing"], json!([{"kind": "ConfigMap", "name": "for-b"}]), "{told}");
    let said = plan(&replacement("huge", &[]), 1, &["-o", "wide"]);
    assert!(said.contains("in 4 waves") && said.contains("wave 4: d: restarted, "), "{said}");
    patch(client, json!({"metadata": {"annotations": {"dapple.dev/rollout-max": "100%"}}})).await;
}

async fn pauses_and_restarts(shell: &Shell<'_>, client: &Client) {
    shell.run(0, &["rollout", "pause", "yas/web"]);
    assert!(shell.run(2, &["rollout", "pause", "yas/web"]).contains("already paused"));
    patch(client, template("web:3", None)).await;
    eventually("it is told that nothing goes on", || async {
        let said = shell.run(0, &["rollout", "status", "yas/web", "--watch=false"]);
        if said.contains("paused at 0 of 4 pools done") { Ok(()) } else { Err(said) }
    })
    .await;
    assert!(workloads(client).await.iter().all(|known| gets(known).0 == "web:1"));
    shell.run(0, &["rollout", "resume", "yas/web"]);
    shell.rolled_out();
    assert!(workloads(client).await.iter().all(|known| gets(known).0 == "web:3"));

    // Once more and once more again: each time all pods are made anew.
    let restarts = async || -> BTreeSet<String> {
        let place = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
        let all = workloads(client).await;
        all.iter().map(|known| known.pointer(place).map(Value::to_string).unwrap_or_default()).collect()
    };
    let mut seen = vec![restarts().await];
    for _ in 0..2 {
        shell.run(0, &["rollout", "restart", "yas/web"]);
        shell.rolled_out();
        seen.push(restarts().await);
    }
    assert!(seen.iter().all(|times| times.len() == 1), "all pools alike: {seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 3, "{seen:?}");
}

/// A version that never turns ready stops the rollout: that is told, it goes on by `resume`, and `undo` ends it.
async fn a_stop_is_told_and_ended(shell: &Shell<'_>, client: &Client) {
    patch(client, json!({"metadata": {"annotations": {"dapple.dev/rollout-max": "50%"}}})).await;
    patch(client, template("web:4", Some("fail"))).await;
    let said = shell.run(1, &["rollout", "status", "yas/web", "--timeout", "200s"]);
    assert!(said.contains("error: yurtappset/web is stopped: 0 of 4 pools done"), "{said}");
    assert_eq!(shell.json(&["get", "yas/web"])["state"], "Stopped");
    shell.run(0, &["rollout", "resume", "yas/web"]);
    eventually("it is not stopped any more", || async {
        let found = of_kind(client, "YurtAppSet").get("web").await.map_err(|error| error.to_string())?;
        let status = &found.data["status"];
        if status["stopped"].is_null() { Ok(()) } else { Err(status["stopped"].to_string()) }
    })
    .await;
    shell.run(0, &["rollout", "undo", "yas/web"]);
    shell.rolled_out();
    assert!(workloads(client).await.iter().all(|known| gets(known).0 == "web:3"));
}
