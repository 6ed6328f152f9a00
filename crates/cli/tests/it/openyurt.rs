//! A cluster as OpenYurt 1.4 leaves it: its CRDs, webhooks and manager, and the objects in `tests/data/openyurt`. Kubernetes' own
//! controllers make ReplicaSets and pods of the workloads that it left.

use std::collections::{BTreeMap, BTreeSet};

use dapple_testbed::Cluster;
use kube::Client;
use serde_json::{Value, json};

use crate::openkruise::{CRDS, HOOKS, anew, get, items, patch, post, start};
use crate::support::eventually;

pub(crate) const POOLS: &str = "/apis/apps.openyurt.io/v1beta1/nodepools";
pub(crate) const OVERRIDERS: &str = "/apis/apps.openyurt.io/v1alpha1/namespaces/default/yurtappoverriders";
pub(crate) const MANAGER: &str = "/apis/apps/v1/namespaces/kube-system/deployments/yurt-manager";
pub(crate) const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// The kinds that are taken over, as their CRDs name them.
pub(crate) const KINDS: [&str; 3] = ["nodepools", "yurtappsets", "yurtappdaemons"];

/// Where applications of a kind are.
pub(crate) fn applications(plural: &str) -> String {
    format!("/apis/apps.openyurt.io/v1alpha1/namespaces/default/{plural}")
}

/// Where Kubernetes' own workloads of a kind are.
pub(crate) fn workloads(plural: &str) -> String {
    format!("/apis/apps/v1/namespaces/default/{plural}")
}

/// Where the CRD of a kind of OpenYurt's group is.
pub(crate) fn crd(plural: &str) -> String {
    format!("{CRDS}/{plural}.apps.openyurt.io")
}

/// One of the folder's files.
macro_rules! data {
    ($name:literal) => {
        items(include_str!(concat!("../data/openyurt/", $name)))
    };
}

/// OpenYurt's CRD of a kind, as far as it matters. The first version is the one that is stored.
fn foreign_crd(kind: &str, short_name: &str, scope: &str, versions: &[&str]) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": *name == versions[0], "schema": {"openAPIV3Schema": open},
            "subresources": {"status": {}}})
    };
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.apps.openyurt.io")},
        "spec": {
            "group": "apps.openyurt.io", "scope": scope, "conversion": {"strategy": "None"},
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular,
                "shortNames": [short_name]},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn hook(name: &str, policy: &str, group: &str, resource: &str) -> Value {
    let service = json!({"namespace": "kube-system", "name": "yurt-manager-webhook-service", "path": "/x"});
    json!({"name": name, "clientConfig": {"service": service}, "failurePolicy": policy, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "rules": [
            {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}]})
}

/// OpenYurt's webhooks, with its own copy of them. Nobody answers.
async fn add_hooks(client: &Client) {
    let ours = "apps.openyurt.io";
    let mutating = json!([
        hook("mutate.apps.v1.deployment", "Ignore", "apps", "deployments"),
        hook("m.v1beta1.nodepool.kb.io", "Fail", ours, "nodepools"),
        hook("mutate.apps.v1alpha1.yurtappset.openyurt.io", "Fail", ours, "yurtappsets"),
        hook("mutate.apps.v1alpha1.yurtappdaemon.openyurt.io", "Fail", ours, "yurtappdaemons"),
        hook("mutate.core.v1.pod.openyurt.io", "Ignore", "", "pods"),
    ]);
    let validating = json!([
        hook("v.v1beta1.nodepool.kb.io", "Fail", ours, "nodepools"),
        hook("validate.core.v1.node.openyurt.io", "Ignore", "", "nodes"),
    ]);
    for (path, kind, hooks) in [(HOOKS, "mutating", mutating), (VALIDATING, "validating", validating)] {
        let name = format!("yurt-manager-{kind}-webhook-configuration");
        let metadata = json!({"name": name, "annotations": {"yurt-manager-template": hooks.to_string()}});
        post(client, path, &json!({"metadata": metadata, "webhooks": hooks})).await;
    }
}

/// The container of OpenYurt's manager, with these arguments.
pub(crate) fn manager_with(args: &[&str]) -> Value {
    json!({"name": "yurt-manager", "image": "openyurt/yurt-manager:v1.4.4", "command": ["/usr/local/bin/yurt-manager"],
        "args": args})
}

async fn add_manager(client: &Client) {
    let labels = json!({"app.kubernetes.io/name": "yurt-manager"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 0,
        "containers": [manager_with(&["--v=2"])]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let path = MANAGER.trim_end_matches("/yurt-manager");
    post(client, path, &json!({"metadata": {"name": "yurt-manager", "labels": labels}, "spec": spec})).await;
    is_rolled_out(client, MANAGER).await;
}

/// Waits until a workload has all its pods, and none of an older template.
pub(crate) async fn is_rolled_out(client: &Client, path: &str) {
    eventually(&format!("{path} is rolled out"), || async {
        let found = get(client, path).await?;
        let (wanted, status) = (&found["spec"]["replicas"], &found["status"]);
        let is_seen = status["observedGeneration"] == found["metadata"]["generation"];
        let are_all = ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[field] == *wanted);
        if is_seen && are_all { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Everything in the data, with webhooks and a manager that runs.
pub(crate) async fn whole() -> (Cluster, Client) {
    let (cluster, client) = start(true).await;
    for crd in [
        foreign_crd("NodePool", "np", "Cluster", &["v1beta1", "v1alpha1"]),
        foreign_crd("YurtAppSet", "yas", "Namespaced", &["v1alpha1", "v1beta1"]),
        foreign_crd("YurtAppDaemon", "yad", "Namespaced", &["v1alpha1"]),
        foreign_crd("YurtAppOverrider", "yao", "Namespaced", &["v1alpha1"]),
    ] {
        post(&client, CRDS, &crd).await;
    }
    let (sets, daemons) = (applications("yurtappsets"), applications("yurtappdaemons"));
    for path in [POOLS, sets.as_str(), daemons.as_str(), OVERRIDERS] {
        eventually("the kind is served", || get(&client, path)).await;
    }
    for namespace in ["default", "kube-system"] {
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        eventually("pods can be made", || get(&client, &account)).await;
    }
    let nobody = BTreeMap::new();
    for node in data!("nodes.yaml") {
        let mut node = anew(&node, &nobody);
        node["status"] = Value::Null;
        post(&client, "/api/v1/nodes", &node).await;
    }
    for pool in data!("nodepools.yaml") {
        post(&client, POOLS, &anew(&pool, &nobody)).await;
    }
    let mut uids = BTreeMap::new();
    for (plural, objects) in
        [("yurtappsets", data!("yurtappsets.yaml")), ("yurtappdaemons", data!("yurtappdaemons.yaml"))]
    {
        for object in objects {
            let made = post(&client, &applications(plural), &anew(&object, &nobody)).await;
            let name = made["metadata"]["name"].as_str().unwrap().to_owned();
            // What OpenYurt observed, dapple has not.
            let mut status = object["status"].clone();
            status["observedGeneration"] = json!(0);
            let path = format!("{}/{name}/status", applications(plural));
            patch(&client, &path, &json!({"status": status})).await;
            uids.insert(name, made["metadata"]["uid"].as_str().unwrap().to_owned());
        }
    }
    add_workloads(&client, &uids).await;
    add_manager(&client).await;
    add_hooks(&client).await;
    (cluster, client)
}

/// The names of the ReplicaSets that Kubernetes had made of OpenYurt's Deployments: they end in a hash of the pod template.
pub(crate) fn replica_sets() -> BTreeSet<String> {
    let all = data!("replicasets.yaml");
    all.iter().map(|known| known["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The workloads, with OpenYurt's revisions of what they were made from.
async fn add_workloads(client: &Client, uids: &BTreeMap<String, String>) {
    // The StatefulSet's own revision is its controller's to make.
    let is_openyurts = |known: &&Value| known["metadata"]["ownerReferences"][0]["kind"] != "StatefulSet";
    for revision in data!("controllerrevisions.yaml").iter().filter(is_openyurts) {
        post(client, &workloads("controllerrevisions"), &anew(revision, uids)).await;
    }
    let all = data!("workloads.yaml");
    let path =
        |workload: &Value| workloads(if workload["kind"] == "StatefulSet" { "statefulsets" } else { "deployments" });
    for workload in &all {
        post(client, &path(workload), &anew(workload, uids)).await;
    }
    for workload in &all {
        let name = workload["metadata"]["name"].as_str().unwrap();
        is_rolled_out(client, &format!("{}/{name}", path(workload))).await;
    }
}
