//! Who may say what is probed, what came of it, and that a prober is there: by real tokens of pods on nodes.

use dapple_control::install::{apply, documents};
use dapple_testbed::Cluster;
use kube::Client;
use serde_json::{Value, json};

use crate::support::{MANAGER_USER, eventually};
use crate::users::{User, bind, prober, refused};

const PROBES: &str = "/apis/dapple.dev/v1alpha1/nodepodprobes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/dapple-probers/leases";

fn probes(node: &str) -> Value {
    json!({"apiVersion": "dapple.dev/v1alpha1", "kind": "NodePodProbe", "metadata": {"name": node}, "spec": {"podProbes": []}})
}

fn lease(node: &str) -> Value {
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 180});
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": spec})
}

fn results(said: &str) -> Value {
    json!({"status": {"message": said}})
}

pub(super) async fn own_node_alone(cluster: &Cluster, client: &Client) {
    for object in documents(include_str!("../../../../../config/prober.yaml")).unwrap() {
        if object["kind"] != "DaemonSet" {
            apply(client, &object).await.unwrap();
        }
    }
    for node in ["node-a", "node-b"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        apply(client, &node).await.unwrap();
    }
    let admin = User::new(cluster, "prober-admin").await;
    bind(client, "prober-admin", "cluster-admin", None).await;
    let manager = User::new(cluster, MANAGER_USER).await;
    eventually("the administrator is one", || admin.get(PROBES)).await;

    let only_manager = ["only dapple's manager writes its spec"];
    eventually("the policy on what is probed is in effect", || async {
        match admin.would_create(PROBES, &probes("node-a")).await {
            Err(said) if said.contains(only_manager[0]) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for node in ["node-a", "node-b"] {
        manager.create(PROBES, &probes(node)).await.unwrap();
    }
    let of_a = format!("{PROBES}/node-a");
    let command = json!({"name": "x", "containerName": "c", "containerID": "containerd://c", "probe": {"exec": {"command": ["id"]}}});
    let pod = json!({"name": "p", "namespace": "default", "uid": "u", "probes": [command]});
    let asked = json!({"spec": {"podProbes": [pod]}});
    refused(admin.patch(&of_a, &asked).await, &only_manager);
    manager.patch(&of_a, &asked).await.unwrap();
    admin.patch(&of_a, &json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();

    let a = User::by(prober(cluster, &admin, Some("node-a")).await).await;
    let nobody = User::by(prober(cluster, &admin, None).await).await;
    let by_own = ["is written by the prober of its node alone"];
    let status = |node: &str| format!("{PROBES}/{node}/status");
    let (path, written) = (status("node-a"), results("mine"));
    eventually("the prober may write", || a.patch(&path, &written)).await;
    a.create(LEASES, &lease("node-a")).await.unwrap();
    a.patch(&format!("{LEASES}/node-a"), &json!({"spec": {"leaseDurationSeconds": 90}})).await.unwrap();

    refused(a.patch(&status("node-b"), &results("another's")).await, &by_own);
    refused(a.create(LEASES, &lease("node-b")).await, &by_own);
    for other in [&nobody, &admin] {
        refused(other.patch(&status("node-a"), &results("nobody's")).await, &by_own);
        refused(other.create(LEASES, &lease("node-b")).await, &by_own);
        refused(other.patch(&format!("{LEASES}/node-a"), &json!({"spec": {"holderIdentity": "x"}})).await, &by_own);
    }
    refused(manager.patch(&status("node-a"), &results("the manager's")).await, &["forbidden"]);
    refused(a.patch(&of_a, &asked).await, &["forbidden"]);
    refused(a.get("/api/v1/pods").await, &["forbidden"]);
    refused(a.get("/apis/coordination.k8s.io/v1/namespaces/dapple-system/leases/dapple-manager").await, &["forbidden"]);
    let said = admin.get(&of_a).await.unwrap();
    assert_eq!(said["status"]["message"], "mine");
}
