//! A cluster as OpenKruise leaves it: its CRD, webhooks and Deployment, and the objects in `tests/data/openkruise`.

use std::collections::BTreeMap;

use dapple_testbed::{Cluster, ClusterSpec, testing};
use http::Request;
use http::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use serde_json::{Value, json};

use crate::support::eventually;

/// The node that no kwok plays: the test is its kubelet. The pod that was caught half way runs there.
pub(crate) const OWN_NODE: &str = "node-00005";
/// The pod whose in-place update had begun: its image is the new one, and what runs is the old one.
pub(crate) const HALF_WAY: &str = "inplace-v979x";

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daemonsets.apps.kruise.io";
pub(crate) const SETS: &str = "/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets";
pub(crate) const OLD_SETS: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/default/daemonsets";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
pub(crate) const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(crate) const MANAGER: &str = "/apis/apps/v1/namespaces/kruise-system/deployments";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kruise-system/leases";

pub(crate) fn items(text: &str) -> Vec<Value> {
    let list: Value = serde_saphyr::from_str(text).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// One of the folder's files.
macro_rules! data {
    ($name:literal) => {
        $crate::openkruise::items(include_str!(concat!("../data/openkruise/", $name)))
    };
}
pub(crate) use data;

pub(crate) async fn get(client: &Client, path: &str) -> Result<Value, String> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await.map_err(|error| error.to_string())
}

pub(crate) async fn try_post(client: &Client, path: &str, object: &Value) -> Result<Value, String> {
    let request = Request::post(format!("{path}?fieldManager=helm")).header(CONTENT_TYPE, "application/json");
    let request = request.body(serde_json::to_vec(object).unwrap()).unwrap();
    client.request(request).await.map_err(|error| error.to_string())
}

pub(crate) async fn post(client: &Client, path: &str, object: &Value) -> Value {
    try_post(client, path, object).await.expect("the object is taken")
}

pub(crate) async fn try_patch(client: &Client, path: &str, patch: &Value) -> Result<Value, String> {
    let request = Request::patch(path).header(CONTENT_TYPE, "application/merge-patch+json");
    let request = request.body(serde_json::to_vec(patch).unwrap()).unwrap();
    client.request(request).await.map_err(|error| error.to_string())
}

pub(crate) async fn patch(client: &Client, path: &str, patch: &Value) -> Value {
    try_patch(client, path, patch).await.expect("the patch is taken")
}

/// An object of the data without what the API server gives it, and with the UIDs that its owners have here.
pub(crate) fn anew(object: &Value, owners: &BTreeMap<String, String>) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    for owner in metadata.get_mut("ownerReferences").into_iter().flat_map(|owners| owners.as_array_mut().unwrap()) {
        owner["uid"] = owners[owner["name"].as_str().unwrap()].clone().into();
    }
    object
}

/// OpenKruise's CRD, as far as it matters: `stored` is the version that is stored.
pub(crate) fn foreign_crd(stored: &str, conversion: Value) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == stored,
        "schema": {"openAPIV3Schema": open}, "subresources": {"status": {}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "daemonsets.apps.kruise.io", "annotations": {"controller-gen.kubebuilder.io/version": "v0.16.5"}},
        "spec": {
            "group": "apps.kruise.io", "scope": "Namespaced", "conversion": conversion,
            "names": {"kind": "DaemonSet", "listKind": "DaemonSetList", "plural": "daemonsets", "singular": "daemonset",
                "shortNames": ["daemon", "ads"]},
            "versions": [version("v1alpha1"), version("v1beta1")],
        },
    })
}

/// A conversion webhook that nobody answers.
pub(crate) fn dead_conversion() -> Value {
    let client = json!({"url": "https://127.0.0.1:1/convert"});
    json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1", "v1beta1"]}})
}

fn hook(name: &str, policy: &str, group: &str, resources: &[&str]) -> Value {
    let service = json!({"namespace": "kruise-system", "name": "kruise-webhook-service", "path": "/x"});
    json!({"name": name, "clientConfig": {"service": service}, "failurePolicy": policy, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "rules": [
            {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": resources}]})
}

/// OpenKruise's webhooks: one for DaemonSets alone, one for more, and that of pods.
pub(crate) async fn add_hooks(client: &Client) {
    let hooks = json!([
        hook("mdaemonset.kb.io", "Fail", "apps.kruise.io", &["daemonsets"]),
        hook("mworkloads.kb.io", "Fail", "apps.kruise.io", &["clonesets", "daemonsets"]),
        hook("mpod.kb.io", "Ignore", "", &["pods"]),
    ]);
    let metadata =
        json!({"name": "kruise-mutating-webhook-configuration", "annotations": {"template": hooks.to_string()}});
    post(client, HOOKS, &json!({"metadata": metadata, "webhooks": hooks})).await;
}

/// The Deployment of OpenKruise's controllers, with one replica, and their lease, which ends only when it is given back.
pub(crate) async fn add_manager(client: &Client) {
    post(client, "/api/v1/namespaces", &json!({"metadata": {"name": "kruise-system"}})).await;
    let labels = json!({"control-plane": "controller-manager"});
    let container = json!({"name": "manager", "image": "openkruise/kruise-manager:v1.9.0"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": "node-00000"}}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    post(client, MANAGER, &json!({"metadata": {"name": "kruise-controller-manager", "labels": labels}, "spec": spec}))
        .await;
    let now = MicroTime(dapple_control::env::Env::system().now());
    let held = json!({"holderIdentity": "kruise-0", "leaseDurationSeconds": 3600, "renewTime": now});
    post(client, LEASES, &json!({"metadata": {"name": "kruise-manager"}, "spec": held})).await;
}

/// Stops OpenKruise's controllers, as whoever runs them would.
pub(crate) async fn stop_manager(client: &Client) {
    let path = format!("{MANAGER}/kruise-controller-manager");
    patch(client, &path, &json!({"spec": {"replicas": 0}})).await;
    patch(client, &format!("{LEASES}/kruise-manager"), &json!({"spec": {"holderIdentity": ""}})).await;
    eventually("the controllers are gone", || async {
        let found = get(client, &path).await?;
        let is_seen = found["status"]["observedGeneration"] == found["metadata"]["generation"];
        let replicas = found["status"]["replicas"].as_i64().unwrap_or(0);
        if is_seen && replicas == 0 { Ok(()) } else { Err(found["status"].to_string()) }
    })
    .await;
}

/// A control plane whose nodes stay ready without a kubelet.
pub(crate) async fn start(kwok: bool) -> (Cluster, Client) {
    let mut spec = ClusterSpec::temporary();
    spec.kwok = kwok;
    spec.node_lease_seconds = 400;
    let cluster = testing::start(spec).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    (cluster, client)
}

/// Everything in the data, with webhooks and controllers that run. `paused` holds the rollout that is under way.
pub(crate) async fn whole(paused: bool) -> (Cluster, Client) {
    let (cluster, client) = start(true).await;
    post(&client, CRDS, &foreign_crd("v1beta1", json!({"strategy": "None"}))).await;
    eventually("the kind is served", || get(&client, SETS)).await;
    eventually("pods can be made", || get(&client, "/api/v1/namespaces/default/serviceaccounts/default")).await;
    for node in data!("nodes.yaml") {
        add_node(&client, &node).await;
    }
    let mut uids = BTreeMap::new();
    for mut set in data!("daemonsets.v1beta1.yaml") {
        if set["metadata"]["name"] == "inplace" {
            set["spec"]["updateStrategy"]["rollingUpdate"]["paused"] = paused.into();
        }
        let made = post(&client, SETS, &anew(&set, &uids)).await;
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        // What this controller observed, dapple's has not.
        let mut status = set["status"].clone();
        status["observedGeneration"] = json!(0);
        patch(&client, &format!("{SETS}/{name}/status"), &json!({"status": status})).await;
        uids.insert(name, made["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    for revision in data!("controllerrevisions.yaml") {
        post(&client, REVISIONS, &anew(&revision, &uids)).await;
    }
    add_pods(&client, &uids).await;
    add_manager(&client).await;
    add_hooks(&client).await;
    (cluster, client)
}

async fn add_node(client: &Client, node: &Value) {
    let (mut made, is_own) = (anew(node, &BTreeMap::new()), node["metadata"]["name"] == OWN_NODE);
    if is_own {
        made["metadata"]["annotations"] = Value::Null;
    }
    made["status"] = Value::Null;
    post(client, "/api/v1/nodes", &made).await;
    if is_own {
        patch(client, &format!("/api/v1/nodes/{OWN_NODE}/status"), &json!({"status": node["status"]})).await;
    }
}

/// The pods, bound to their nodes, with the status that they had.
async fn add_pods(client: &Client, uids: &BTreeMap<String, String>) {
    let pods = data!("pods.yaml");
    for pod in &pods {
        post(client, PODS, &anew(pod, uids)).await;
    }
    for pod in &pods {
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        if pod["spec"]["nodeName"] != OWN_NODE {
            eventually("kwok starts the pod", || async {
                let phase = get(client, &path).await?["status"]["phase"].clone();
                if phase == "Running" { Ok(()) } else { Err(phase.to_string()) }
            })
            .await;
        }
        patch(client, &format!("{path}/status"), &json!({"status": pod["status"]})).await;
    }
    eventually("all pods but one are ready", || async {
        let all = get(client, PODS).await?;
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|is| is["type"] == "Ready" && is["status"] == "True")
        };
        let ready = all["items"].as_array().unwrap().iter().filter(is_ready).count();
        if ready + 1 == pods.len() { Ok(()) } else { Err(format!("{ready} of {}", pods.len())) }
    })
    .await;
}
