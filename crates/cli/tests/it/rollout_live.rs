//! A DaemonSet's life on a real cluster, by `dapple rollout` and `dapple get` alone.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dapple_control::install::{apply, apply_yaml, install_crds};
use dapple_testbed::{Cluster, ClusterSpec, Fleet, testing};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{DAPPLE, Manager, dapple, eventually, leads, text};

/// A control plane with six kwok nodes, two of them with large disks.
pub(crate) async fn fleet() -> (Cluster, Client) {
    let cluster = testing::start(ClusterSpec::temporary()).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    apply_yaml(&client, include_str!("../../../../config/rbac.yaml")).await.unwrap();
    let kinds =
        "kinds:\n- {name: small, count: 4, labels: {disk: small}}\n- {name: large, count: 2, labels: {disk: large}}\n";
    cluster.apply_fleet(&Fleet::from_yaml(kinds, "fleet").unwrap()).await.unwrap();
    // A node that has just come has a taint that keeps pods away.
    let nodes: Api<Node> = Api::all(client.clone());
    eventually("nodes take pods", || async {
        let all = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let is_free =
            |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.taints.iter().flatten().next().is_none());
        if all.items.len() == 6 && all.iter().all(is_free) { Ok(()) } else { Err("some are tainted".to_owned()) }
    })
    .await;
    (cluster, client)
}

pub(crate) fn set(image: &str, strategy: Value) -> Value {
    // A null deletes: it must survive being brought back.
    let patch = json!({"spec": {"containers": [{"name": "agent", "env": [{"name": "CACHE", "value": "2Ti"}], "workingDir": null}]}});
    let patches = if image == "agent:1" {
        json!([{"selector": {"matchLabels": {"disk": "large"}}, "patch": patch}])
    } else {
        json!([])
    };
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "patches": patches,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "agent", "image": image}]}},
        },
    })
}

pub(crate) struct Shell<'a>(pub(crate) &'a Path);

impl Shell<'_> {
    /// Runs a command that must end so, and gives back what it printed.
    fn run(&self, code: i32, args: &[&str]) -> String {
        let output = dapple(&[args, &["--kubeconfig", self.0.to_str().unwrap()]].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        said
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(0, &[args, &["-o", "json"]].concat())).unwrap()
    }

    /// Waits for the end of a rollout.
    pub(crate) fn rolled_out(&self) {
        let said = self.run(0, &["rollout", "status", "ds/agent", "--timeout", "100s"]);
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(last, "daemonset/agent successfully rolled out: 6 of 6 nodes updated and available", "{said}");
    }

    /// Numbers of revisions, and how many pods have each.
    pub(crate) fn history(&self) -> Vec<(i64, u64)> {
        let view = self.json(&["rollout", "history", "ds/agent"]);
        let rows = view["revisions"].as_array().unwrap();
        rows.iter().map(|row| (row["revision"].as_i64().unwrap(), row["pods"].as_u64().unwrap())).collect()
    }

    /// A command that goes on until it is told to end.
    fn start(&self, args: &[&str]) -> Child {
        let mut command = Command::new(DAPPLE);
        command.args(args).arg("--kubeconfig").arg(self.0).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_followed_and_steered() {
    let (cluster, client) = fleet().await;
    let manager = Manager::start(cluster.admin_kubeconfig(), cluster.dir().join("manager.log"));
    leads(&client, &manager).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps.kruise.io", "v1beta1", "DaemonSet"));
    let sets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let spec = async || sets.get("agent").await.unwrap().data["spec"].clone();
    let shell = Shell(cluster.admin_kubeconfig());

    // One is made, and changed. A change is waited for even if the manager has not seen it yet.
    let first = set("agent:1", json!({"maxUnavailable": 2}));
    apply(&client, &first).await.unwrap();
    shell.rolled_out();
    apply(&client, &set("agent:2", json!({"maxUnavailable": 2}))).await.unwrap();
    shell.rolled_out();
    assert_eq!(shell.history(), [(1, 0), (2, 6)]);

    // Back to the first: dry, which changes nothing, and then really, patches and their nulls included.
    let said = shell.run(0, &["rollout", "undo", "ds/agent", "--dry-run=server"]);
    assert_eq!(said, "daemonset.apps.kruise.io/agent rolled back to revision 1 (server dry run)\n");
    let said = shell.run(0, &["rollout", "undo", "ds/agent", "--dry-run"]);
    assert!(said.contains("+      - image: agent:1") && said.contains("(dry run)"), "{said}");
    assert_eq!(spec().await["template"]["spec"]["containers"][0]["image"], "agent:2");
    shell.run(0, &["rollout", "undo", "ds/agent"]);
    shell.rolled_out();
    assert_eq!(spec().await["template"]["spec"]["containers"][0]["image"], "agent:1");
    assert_eq!(spec().await["patches"], first["spec"]["patches"]);
    assert_eq!(shell.history(), [(2, 0), (3, 6)], "the first has become the newest");
    let said = shell.run(0, &["rollout", "undo", "ds/agent", "--to-revision=3"]);
    assert!(said.contains("skipped rollback (current template already matches revision 3)"), "{said}");

    // While it is paused nothing happens, and that is said.
    assert_eq!(shell.run(0, &["rollout", "pause", "ds/agent"]), "daemonset.apps.kruise.io/agent paused\n");
    assert!(shell.run(2, &["rollout", "pause", "ds/agent"]).contains("already paused"));
    assert!(shell.run(2, &["rollout", "restart", "ds/agent"]).contains("is paused"));
    let said = shell.run(0, &["rollout", "undo", "ds/agent"]);
    assert!(said.contains("rolled back to revision 2") && said.contains("no pod changes before"), "{said}");
    eventually("the manager has seen it", || async {
        let view = shell.json(&["get", "ds/agent"]);
        if view["state"] == "Paused" { Ok(()) } else { Err(view.to_string()) }
    })
    .await;
    let said = shell.run(1, &["rollout", "status", "ds/agent", "--timeout", "3s"]);
    assert!(said.contains("paused at 0 of 6 nodes updated") && said.contains("not over after 3s"), "{said}");
    shell.run(0, &["rollout", "resume", "ds/agent"]);
    shell.rolled_out();

    // A restart replaces every pod, while somebody watches.
    let mut watch = shell.start(&["get", "ds", "-w", "-o", "name"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "daemonset.apps.kruise.io/agent");
    shell.run(0, &["rollout", "restart", "ds/agent"]);
    shell.rolled_out();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let all = pods.list(&ListParams::default()).await.unwrap();
    let restarted = |pod: &Pod| {
        pod.metadata.annotations.as_ref().is_some_and(|known| known.contains_key("kubectl.kubernetes.io/restartedAt"))
    };
    assert!(all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).all(restarted), "{all:?}");
    assert_eq!(lines.next().unwrap().unwrap(), "daemonset.apps.kruise.io/agent", "it changed");
    kill_process(Pid::from_child(&watch), Signal::INT).unwrap();
    assert!(watch.wait().unwrap().success());

    let view = shell.json(&["get", "daemonset", "agent", "-n", "default"]);
    assert_eq!((&view["state"], &view["done"]), (&json!("Complete"), &json!(true)), "{view}");
    assert_eq!(view["counts"], json!({"desired": 6, "updated": 6, "ready": 6, "available": 6}));
    let all = shell.json(&["get", "ds", "-A"]);
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    held_back_and_gone(&client, &sets, &shell).await;
    cluster.stop().await.unwrap();
}

/// What will not end by itself: a partition, pods that wait for deletion, and a DaemonSet that is deleted meanwhile.
async fn held_back_and_gone(client: &Client, sets: &Api<DynamicObject>, shell: &Shell<'_>) {
    apply(client, &set("agent:4", json!({"maxUnavailable": 6, "partition": 2}))).await.unwrap();
    let said = shell.run(0, &["rollout", "status", "ds/agent", "--timeout", "100s"]);
    assert!(said.contains("complete: 4 of 6 nodes updated, 2 held back"), "{said}");
    assert_eq!(shell.json(&["get", "ds/agent"])["stateText"], "held back: 2 of 6");

    let mut manual = set("agent:5", json!({}));
    manual["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    apply(client, &manual).await.unwrap();
    let said = shell.run(0, &["rollout", "status", "ds/agent", "--timeout", "100s"]);
    assert!(said.contains("6 pods of 6 keep an older revision until somebody deletes them"), "{said}");

    apply(client, &set("agent:6", json!({"paused": true}))).await.unwrap();
    let mut status = shell.start(&["rollout", "status", "ds/agent"]);
    let mut lines = BufReader::new(status.stdout.take().unwrap()).lines();
    eventually("it waits", || {
        let line = lines.next().and_then(Result::ok).unwrap_or_default();
        async move { if line.contains("paused at") { Ok(()) } else { Err(line) } }
    })
    .await;
    sets.delete("agent", &DeleteParams::default()).await.unwrap();
    let ended = status.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("daemonset/agent was deleted"), "{}", text(&ended.stderr));
}
