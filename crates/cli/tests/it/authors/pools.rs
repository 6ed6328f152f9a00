//! Who may write NodePools and applications in pools, and what may be written to nodes for them.

use dapple_testbed::Cluster;
use kube::Client;
use serde_json::{Value, json};

use super::{REVISIONS, revision};
use crate::support::{MANAGER_USER, eventually};
use crate::users::{User, bind, refused, role};

/// What the manager is told that writes more to nodes than it may.
pub(super) const NO_MORE: &str = "of nodes, dapple's manager changes labels that begin with group.dapple.dev/, and what the \
                                  node remembers to be a pool's, and nothing else";

const POOLS: &str = "/apis/apps.openyurt.io/v1beta1/nodepools";
const PREVIOUS: &str = "nodepool.openyurt.io/previous-attributes";
const REPLACED: &str = "dapple.dev/pool-replaced";
const LABEL: &str = "apps.openyurt.io/nodepool";

fn object(version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object =
        json!({"apiVersion": format!("apps.openyurt.io/{version}"), "kind": kind, "metadata": {"name": name}});
    for (field, value) in rest.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

/// Kind, plural and what it says, of what decides which workloads there are in pools.
fn applications() -> [(&'static str, &'static str, Value); 3] {
    let selector = json!({"matchLabels": {"app": "web"}});
    let template = json!({"deploymentTemplate": {"metadata": {"labels": {"app": "web"}}, "spec": {"selector": selector,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}}}});
    let set = json!({"spec": {"selector": selector, "workloadTemplate": template, "topology": {"pools": []}}});
    let daemon = json!({"spec": {"selector": selector, "workloadTemplate": template, "nodepoolSelector": selector}});
    let subject = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "name": "web"});
    let replacement = json!({"subject": subject, "replacements": [{"pools": ["a"], "items": [{"replicas": 1}]}]});
    [
        ("YurtAppSet", "yurtappsets", set),
        ("YurtAppDaemon", "yurtappdaemons", daemon),
        ("YurtAppConfigurationReplacement", "yurtappconfigurationreplacements", replacement),
    ]
}

pub(super) async fn authors(cluster: &Cluster, client: &Client) {
    let may = |group: &str, resource: &str, verb: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    role(client, "write-pools", json!([may("apps.openyurt.io", "*", "*")])).await;
    role(client, "patch-nodes", json!([may("", "nodes", "patch")])).await;
    role(client, "create-deployments", json!([may("apps", "deployments", "create")])).await;
    let both = json!([may("apps", "deployments", "create"), may("apps", "statefulsets", "create")]);
    role(client, "create-workloads", both).await;
    for (user, roles, namespace) in [
        ("paul", &["write-pools"][..], None),
        ("nora", &["write-pools", "patch-nodes"], None),
        ("half", &["write-pools", "create-deployments"], Some("default")),
        ("dave", &["write-pools", "create-workloads"], Some("default")),
    ] {
        for role in roles {
            bind(client, user, role, namespace).await;
        }
    }
    let user = |name| User::new(cluster, name);
    let (writer, patches, half, deploys) =
        (user("paul").await, user("nora").await, user("half").await, user("dave").await);
    let pool = object("v1beta1", "NodePool", "beijing", &json!({"spec": {"type": "Edge", "labels": {"zone": "a"}}}));
    let lacks = ["a NodePool decides what labels, annotations and taints nodes have", "patch nodes: paul lacks it"];
    eventually("the policy on pools is in effect", || async {
        let said = writer.would_create(POOLS, &pool).await.err().unwrap_or_default();
        if said.contains(lacks[0]) { Ok(()) } else { Err(said) }
    })
    .await;
    refused(writer.create(POOLS, &pool).await, &lacks);
    patches.create(POOLS, &pool).await.unwrap();
    let path = format!("{POOLS}/beijing");
    refused(writer.patch(&path, &json!({"spec": {"labels": {"zone": "b"}}})).await, &lacks);
    writer.patch(&path, &json!({"metadata": {"labels": {"seen": "yes"}}})).await.unwrap();
    patches.patch(&path, &json!({"spec": {"labels": {"zone": "b"}}})).await.unwrap();
    writer.delete(&path).await.unwrap();

    for (kind, plural, says) in applications() {
        let all = format!("/apis/apps.openyurt.io/v1alpha1/namespaces/default/{plural}");
        let application = object("v1alpha1", kind, "web", &says);
        let lacks = [format!("a {kind} decides what workloads run in pools"), "in namespace default".to_owned()];
        let lacks: Vec<&str> = lacks.iter().map(String::as_str).collect();
        eventually(&format!("the policy on {plural} is in effect"), || async {
            let said = half.would_create(&all, &application).await.err().unwrap_or_default();
            if said.contains("create statefulsets") { Ok(()) } else { Err(said) }
        })
        .await;
        refused(writer.create(&all, &application).await, &lacks);
        refused(half.create(&all, &application).await, &lacks);
        deploys.create(&all, &application).await.unwrap();
        let path = format!("{all}/web");
        let suspended = json!({"metadata": {"annotations": {"dapple.dev/suspend": "true"}}});
        half.patch(&path, &suspended).await.unwrap();
        let change = match kind {
            "YurtAppConfigurationReplacement" => json!({"replacements": []}),
            _ => json!({"spec": {"revisionHistoryLimit": 3}}),
        };
        refused(half.patch(&path, &change).await, &lacks);
        half.delete(&path).await.unwrap();
    }
}

/// Whoever may write revisions and statuses, and no application, would decide what runs in pools; and so would whoever may update
/// the application, but make no workloads.
pub(super) async fn memory_of_applications(cluster: &Cluster, client: &Client) {
    let may = |resource: &str, verb: &str| json!({"apiGroups": ["apps.openyurt.io"], "resources": [resource], "verbs": [verb]});
    let statuses = json!([may("yurtappsets/status", "patch"), may("yurtappdaemons/status", "patch")]);
    role(client, "forge-statuses", statuses).await;
    role(client, "update-applications", json!([may("yurtappsets", "update"), may("yurtappdaemons", "patch")])).await;
    // Mallory may write revisions already.
    for (user, roles) in [
        ("mallory", &["forge-statuses"][..]),
        ("erin", &["forge", "forge-statuses", "update-applications"]),
        ("sam", &["forge", "forge-statuses", "create-workloads"]),
        ("dave", &["forge"]),
    ] {
        for role in roles {
            bind(client, user, role, Some("default")).await;
        }
    }
    let user = |name| User::new(cluster, name);
    let (forger, updates, creates) = (user("mallory").await, user("erin").await, user("sam").await);
    let (deploys, manager) = (user("dave").await, user(MANAGER_USER).await);
    let [set, daemon, _] = applications();
    for (kind, plural, says) in [set, daemon] {
        let all = format!("/apis/apps.openyurt.io/v1alpha1/namespaces/default/{plural}");
        let made = deploys.create(&all, &object("v1alpha1", kind, "kept", &says)).await.unwrap();
        let said = format!("a ControllerRevision of a {kind} says what workloads run in pools");
        let forged = revision(&format!("{plural}-a"), Some(&made));
        eventually(&format!("the policy on revisions of {plural} is in effect"), || async {
            let answer = forger.would_create(REVISIONS, &forged).await.err().unwrap_or_default();
            if answer.contains(&said) { Ok(()) } else { Err(answer) }
        })
        .await;
        for (user, name) in [(&forger, "mallory"), (&updates, "erin"), (&creates, "sam")] {
            let lacks = format!("{name} lacks it");
            refused(user.create(REVISIONS, &forged).await, &[&said, &lacks]);
        }
        deploys.create(REVISIONS, &forged).await.unwrap();
        let path = format!("{REVISIONS}/{plural}-a");
        // Neither a number that nothing comes after, nor another content, nor another owner, nor another one of its name.
        for change in [
            json!({"revision": 1_i64 << 53}),
            json!({"metadata": {"labels": {"seen": "yes"}}}),
            json!({"metadata": {"ownerReferences": null}}),
        ] {
            refused(forger.patch(&path, &change).await, &["mallory lacks it"]);
        }
        forger.delete(&path).await.unwrap();
        refused(forger.create(REVISIONS, &forged).await, &[&said, "mallory lacks it"]);
        manager.create(REVISIONS, &forged).await.unwrap();

        let status = format!("{all}/kept/status");
        let said = format!("the status of a {kind} says what workloads run in pools");
        let change = json!({"status": {"currentRevision": format!("{plural}-a")}});
        for (user, name) in [(&forger, "mallory"), (&updates, "erin"), (&creates, "sam")] {
            let lacks = format!("{name} lacks it");
            refused(user.patch(&status, &change).await, &[&said, &lacks]);
        }
        deploys.patch(&status, &change).await.unwrap();
        manager.patch(&status, &json!({"status": {"currentRevision": null}})).await.unwrap();
        deploys.delete(&format!("{all}/kept")).await.unwrap();
    }
}

/// A kubelet, with the rights that Kubernetes gives it, chooses neither its pool nor what is undone on its node; nor does whoever may
/// write statuses of nodes alone.
async fn memory_of_nodes(cluster: &Cluster, client: &Client) {
    let admin = User::new(cluster, "root").await;
    let kubelet = User::of(cluster, "system:node:two", &["system:nodes"]).await;
    let taints = json!([{"key": "quarantine", "effect": "NoSchedule"}]);
    let forged = json!({"labels": {"node-restriction.kubernetes.io/x": "a"}, "taints": taints});
    let node = |annotations: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "spec": {"taints": taints},
            "metadata": {"name": "two", "annotations": annotations, "labels": {LABEL: "a"}}})
    };
    let (no_move, no_memory) = (
        ["a node may not change which pool it is in"],
        ["a node may not say what pools have put on it or replaced there"],
    );
    for memory in [PREVIOUS, REPLACED] {
        refused(kubelet.create("/api/v1/nodes", &node(json!({memory: forged.to_string()}))).await, &no_memory);
    }
    // It may register in a pool.
    kubelet.create("/api/v1/nodes", &node(json!({}))).await.unwrap();
    let (path, status) = ("/api/v1/nodes/two", "/api/v1/nodes/two/status");
    for way in [path, status] {
        for pool in [json!("b"), Value::Null] {
            refused(kubelet.patch(way, &json!({"metadata": {"labels": {LABEL: pool}}})).await, &no_move);
        }
        for memory in [PREVIOUS, REPLACED] {
            let said = json!({"metadata": {"annotations": {memory: forged.to_string()}}});
            refused(kubelet.patch(way, &said).await, &no_memory);
        }
    }
    // What else a kubelet may write is left to Kubernetes: by the status, labels and annotations too.
    for (way, value) in [(path, "whole"), (status, "status")] {
        let says = json!({"example.com/seen": value});
        let seen = json!({"metadata": {"labels": says, "annotations": says}});
        let found = kubelet.patch(way, &seen).await.unwrap();
        assert_eq!(found["metadata"]["labels"]["example.com/seen"], value);
        assert_eq!(found["metadata"]["annotations"]["example.com/seen"], value);
    }
    let noted = json!({"metadata": {"annotations": {PREVIOUS: "{}"}}});
    admin.patch(path, &noted).await.unwrap();
    refused(kubelet.patch(status, &json!({"metadata": {"annotations": {PREVIOUS: null}}})).await, &no_memory);

    let statuses = json!([{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]);
    role(client, "patch-node-statuses", statuses).await;
    bind(client, "nelly", "patch-node-statuses", None).await;
    let nelly = User::new(cluster, "nelly").await;
    nelly.patch(status, &json!({"metadata": {"labels": {"example.com/seen": "again"}}})).await.unwrap();
    let lacks = ["of a node through its status needs permission to patch nodes: nelly lacks it"];
    let changes = [
        json!({"metadata": {"labels": {LABEL: "b"}}}),
        json!({"metadata": {"annotations": {PREVIOUS: forged.to_string()}}}),
        json!({"metadata": {"annotations": {REPLACED: forged.to_string()}}}),
    ];
    for change in &changes {
        refused(nelly.patch(status, change).await, &lacks);
    }
    bind(client, "nelly", "patch-nodes", None).await;
    for change in &changes {
        nelly.patch(&format!("{status}?dryRun=All"), change).await.unwrap();
    }
    admin.delete(path).await.unwrap();
}

/// What is written to nodes for pools: a kubelet does not choose its pool, and the manager changes nothing that is not noted.
pub(super) async fn nodes(cluster: &Cluster, client: &Client) {
    memory_of_nodes(cluster, client).await;
    let admin = User::new(cluster, "root").await;
    let taints = json!([{"key": "own", "effect": "NoSchedule"}]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "two", "labels": {"disk": "old", LABEL: "a"}},
        "spec": {"taints": taints}});
    admin.create("/api/v1/nodes", &node).await.unwrap();
    let path = "/api/v1/nodes/two";
    let manager = User::new(cluster, MANAGER_USER).await;
    let noted = |keys: Value| keys.to_string();
    let edge = json!({"key": "edge", "effect": "NoSchedule"});
    let says = noted(json!({"labels": {"disk": "ssd"}, "annotations": {"note": "x"}, "taints": [edge]}));
    // The API server and its controllers have taints of their own there.
    let with = async |more: &[&Value]| {
        let mut list = admin.get(path).await.unwrap()["spec"]["taints"].as_array().cloned().unwrap_or_default();
        list.retain(|taint| taint["key"] != "edge");
        list.extend(more.iter().map(|taint| (*taint).clone()));
        list
    };
    let given = json!({"metadata": {"labels": {"disk": "ssd"}, "annotations": {"note": "x", PREVIOUS: says}},
        "spec": {"taints": with(&[&edge]).await}});
    manager.patch(path, &given).await.unwrap();
    for change in [
        json!({"metadata": {"labels": {"zone": "b"}}}),
        json!({"metadata": {"labels": {LABEL: "b"}}}),
        json!({"metadata": {"annotations": {"other": "b"}}}),
        json!({"spec": {"taints": [edge]}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"metadata": {"labels": {"kubernetes.io/os": "x"}, "annotations": {PREVIOUS: noted(json!({"labels": {"kubernetes.io/os": "x"}}))}}}),
    ] {
        refused(manager.patch(path, &change).await, &[NO_MORE]);
    }
    let undone = json!({"metadata": {"labels": {"disk": "old"}, "annotations": {"note": null, PREVIOUS: null}},
        "spec": {"taints": with(&[]).await}});
    manager.patch(path, &undone).await.unwrap();
    admin.delete(path).await.unwrap();
}
