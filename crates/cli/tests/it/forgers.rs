//! Somebody may write revisions and statuses and delete pods, and change no DaemonSet: what such a user can do to pods while a manager
//! runs, with the policies on authors, and without.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_control::install::apply;
use dapple_testbed::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::rollout_live::{Shell, fleet, set};
use crate::support::{MANAGER_USER, Manager, dapple, eventually, leads};
use crate::users::{User, bind, refused, role};
use crate::webhooks::ok;

const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const SET: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets/agent";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
/// How long to look on where nothing may happen.
const QUIET: Duration = Duration::from_secs(4);

/// By node: the pod's UID and image.
type Pods = BTreeMap<String, (String, String)>;

/// The pods that run. None is privileged.
async fn pods(client: &Client) -> Result<Pods, String> {
    let all = Api::<Pod>::namespaced(client.clone(), "default").list(&ListParams::default()).await;
    let mut found = Pods::new();
    for pod in all.map_err(|error| error.to_string())? {
        let spec = pod.spec.as_ref().ok_or("it has no spec")?;
        let container = &spec.containers[0];
        assert_eq!(container.security_context, None, "{} is privileged", pod.name_any());
        if pod.metadata.deletion_timestamp.is_none() {
            let node = spec.node_name.clone().unwrap_or_default();
            found.insert(node, (pod.uid().unwrap_or_default(), container.image.clone().unwrap_or_default()));
        }
    }
    Ok(found)
}

fn nodes_of<'a>(pods: &'a Pods, image: &str) -> Vec<&'a str> {
    pods.iter().filter(|(_, (_, known))| known == image).map(|(node, _)| node.as_str()).collect()
}

/// Waits until so many nodes have each image.
async fn have(client: &Client, first: usize, second: usize) -> Pods {
    eventually(&format!("{first} nodes have agent:1, and {second} agent:2"), || async {
        let found = pods(client).await?;
        let counts = (nodes_of(&found, "agent:1").len(), nodes_of(&found, "agent:2").len());
        if counts == (first, second) { Ok(found) } else { Err(format!("{found:?}")) }
    })
    .await
}

/// A revision like the set's own of this number, under another name, number and hash.
async fn copy_of(admin: &User, number: i64, (name, next, hash): (&str, i64, &str)) -> Value {
    let all = admin.get(REVISIONS).await.unwrap();
    let found = all["items"].as_array().unwrap().iter().find(|known| known["revision"] == number).unwrap().clone();
    let mut labels = found["metadata"]["labels"].clone();
    labels["controller-revision-hash"] = json!(hash);
    let metadata = json!({"name": name, "labels": labels, "ownerReferences": found["metadata"]["ownerReferences"]});
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": next, "data": found["data"]})
}

/// One that would give whoever reads it a node.
async fn privileged(admin: &User, name: &str, number: i64) -> Value {
    let mut forged = copy_of(admin, 1, (name, number, name)).await;
    forged["data"]["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    forged
}

/// Has a user delete all pods of an image.
async fn delete(user: &User, client: &Client, image: &str) {
    let api = Api::<Pod>::namespaced(client.clone(), "default");
    for pod in api.list(&ListParams::default()).await.unwrap() {
        if pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some(image)) {
            let path = format!("/api/v1/namespaces/default/pods/{}?gracePeriodSeconds=0", pod.name_any());
            user.delete(&path).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_revisions_does_not_change_what_pods_run() {
    let (cluster, client) = fleet().await;
    ok(&dapple(&["up", "--cluster", "--yes", "--kubeconfig", cluster.admin_kubeconfig().to_str().unwrap()]));
    let rights = cluster.kubeconfig_for(MANAGER_USER, &[]).await.unwrap();
    let manager = Manager::start(&rights, cluster.dir().join("manager.log"));
    leads(&client, &manager).await;
    let may = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let rules = json!([
        may("apps", "controllerrevisions", &["create"]),
        may("apps.kruise.io", "daemonsets/status", &["patch"]),
        may("", "pods", &["delete"])
    ]);
    role(&client, "forge", rules).await;
    bind(&client, "mallory", "forge", Some("default")).await;
    bind(&client, "root", "cluster-admin", None).await;
    let (forger, admin) = (User::new(&cluster, "mallory").await, User::new(&cluster, "root").await);

    let shell = Shell(cluster.admin_kubeconfig());
    apply(&client, &set("agent:1", json!({"maxUnavailable": "100%"}))).await.unwrap();
    shell.rolled_out();
    apply(&client, &set("agent:2", json!({"partition": 4, "maxUnavailable": "100%"}))).await.unwrap();
    have(&client, 4, 2).await;
    with_policies(&cluster, &client, &forger, &admin).await;
    without_policies(&cluster, &client, &forger, &admin).await;
    drop(manager);
    cluster.stop().await.unwrap();
}

async fn with_policies(cluster: &Cluster, client: &Client, forger: &User, admin: &User) {
    let lacks = ["a ControllerRevision says what pods of a DaemonSet run", "mallory lacks it"];
    let mut forged = privileged(admin, "agent-forged", 77).await;
    eventually("the policy is in effect", || async {
        let said = forger.would_create(REVISIONS, &forged).await.err().unwrap_or_default();
        if said.contains(lacks[0]) { Ok(()) } else { Err(said) }
    })
    .await;
    refused(forger.create(REVISIONS, &forged).await, &lacks);
    refused(forger.create(REVISIONS, &copy_of(admin, 2, ("agent-twin", 78, "twin")).await).await, &lacks);
    let status = format!("{SET}/status");
    let named = json!({"status": {"currentRevision": "agent-forged"}});
    refused(forger.patch(&status, &named).await, &["mallory lacks it"]);
    // What names the set by its UID, and another kind, is not for the policy; nor is it for dapple.
    forged["metadata"]["ownerReferences"][0]["kind"] = json!("Other");
    forger.create(REVISIONS, &forged).await.unwrap();
    // Pods that are deleted come back as they were.
    delete(forger, client, "agent:1").await;
    have(client, 4, 2).await;
    assert_eq!(shown(cluster), [1, 2], "what is not the set's own cannot be gone back to");
    admin.delete(&format!("{REVISIONS}/agent-forged")).await.unwrap();
}

async fn without_policies(cluster: &Cluster, client: &Client, forger: &User, admin: &User) {
    for policy in ["dapple-revision-authors", "dapple-daemonset-status-authors"] {
        admin.delete(&format!("{BINDINGS}/{policy}")).await.unwrap();
    }
    let mut orphan = privileged(admin, "agent-orphan", 77).await;
    orphan["metadata"]["ownerReferences"] = json!([]);
    eventually("the policies are gone", || forger.would_create(REVISIONS, &orphan)).await;
    let before = have(client, 4, 2).await;
    forger.create(REVISIONS, &orphan).await.unwrap();
    // A twin of the newest that goes by another hash.
    forger.create(REVISIONS, &copy_of(admin, 2, ("agent-twin", 78, "twin")).await).await.unwrap();
    tokio::time::sleep(QUIET).await;
    assert_eq!(pods(client).await.as_ref(), Ok(&before), "nothing restarts");
    assert!(!shown(cluster).contains(&77), "it is nobody's");
    // What the status names counts only if it is the set's own: until then, nobody knows what nodes are held back at.
    let status = format!("{SET}/status");
    let right = admin.get(SET).await.unwrap()["status"]["currentRevision"].clone();
    forger.patch(&status, &json!({"status": {"currentRevision": "agent-orphan"}})).await.unwrap();
    delete(forger, client, "agent:1").await;
    tokio::time::sleep(QUIET).await;
    have(client, 0, 2).await;
    admin.patch(&status, &json!({"status": {"currentRevision": right}})).await.unwrap();
    have(client, 4, 2).await;
}

/// The numbers of the revisions that one can go back to.
fn shown(cluster: &Cluster) -> Vec<i64> {
    Shell(cluster.admin_kubeconfig()).history().into_iter().map(|(number, _)| number).collect()
}
