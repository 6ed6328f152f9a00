//! Policies are confirmed on what asks for them, whatever its kind and whichever came first.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::support::{cluster, eventually, manager};

pub(super) const REQUIRED: [&str; 2] =
    ["groupmanagement.kubeedge.io/required-propagationpolicy", "groupmanagement.kubeedge.io/required-overridepolicy"];
const BINDING: [&str; 2] =
    ["groupmanagement.kubeedge.io/binding-propagationpolicy", "groupmanagement.kubeedge.io/binding-overridepolicy"];

/// Every kind that may ask for policies, with what its objects need.
fn workloads() -> [(&'static str, &'static str, Value); 9] {
    let labels = json!({"app": "web"});
    let pod = |policy: &str| {
        json!({"restartPolicy": policy, "nodeSelector": {"nowhere": "yes"},
        "containers": [{"name": "c", "image": "registry.example/web:1"}]})
    };
    let template = |policy: &str| json!({"metadata": {"labels": labels}, "spec": pod(policy)});
    let selected = || json!({"selector": {"matchLabels": labels}, "template": template("Always")});
    let set = json!({"serviceName": "web", "selector": {"matchLabels": labels}, "template": template("Always")});
    [
        ("apps/v1", "Deployment", selected()),
        ("apps/v1", "StatefulSet", set),
        ("apps/v1", "DaemonSet", selected()),
        ("apps.kruise.io/v1beta1", "DaemonSet", selected()),
        ("apps/v1", "ReplicaSet", selected()),
        ("v1", "ReplicationController", json!({"selector": labels, "template": template("Always")})),
        ("batch/v1", "Job", json!({"template": template("Never")})),
        (
            "batch/v1",
            "CronJob",
            json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template("Never")}}}),
        ),
        ("v1", "Pod", pod("Always")),
    ]
}

pub(super) struct Place {
    client: Client,
    namespace: String,
}

impl Place {
    pub(super) async fn new(client: &Client, namespace: &str) -> Self {
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        Self { client: client.clone(), namespace: namespace.to_owned() }
    }

    pub(super) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    fn policies(&self, kind: &str) -> Api<DynamicObject> {
        self.api("groupmanagement.kubeedge.io/v1alpha1", kind)
    }

    pub(super) async fn create(&self, api: &Api<DynamicObject>, object: Value) {
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.expect("it is created");
    }

    /// One workload of a kind, which asks for both policies.
    async fn add_asking(&self, api_version: &str, kind: &str, spec: &Value) {
        let labels = json!({REQUIRED[0]: "spread", REQUIRED[1]: "registries"});
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": kind.to_lowercase(), "labels": labels}, "spec": spec});
        self.create(&self.api(api_version, kind), object).await;
    }

    async fn add_propagation(&self, name: &str) {
        let spec = json!({"staticWeightList": [{"nodeGroupNames": ["beijing"], "weight": 2}]});
        self.add_propagation_of(name, spec).await;
    }

    pub(super) async fn add_propagation_of(&self, name: &str, spec: Value) {
        let object = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name}, "spec": spec});
        self.create(&self.policies("PropagationPolicy"), object).await;
    }

    pub(super) async fn add_override(&self, name: &str, rule: Value) {
        let object = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": name}, "spec": {"overrideRules": [rule]}});
        self.create(&self.policies("OverridePolicy"), object).await;
    }

    async fn label(&self, api_version: &str, kind: &str, labels: Value) {
        let patch = json!({"metadata": {"labels": labels}});
        let api = self.api(api_version, kind);
        api.patch(&kind.to_lowercase(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the `binding-` labels of a workload are these.
    async fn is_bound(&self, api_version: &str, kind: &str, wanted: [Option<&str>; 2]) {
        let api = self.api(api_version, kind);
        eventually(&format!("{}: {kind} is bound to {wanted:?}", self.namespace), || async {
            let found = api.get(&kind.to_lowercase()).await.map_err(|error| error.to_string())?;
            let labels: &BTreeMap<String, String> = found.labels();
            let bound = BINDING.map(|label| labels.get(label).map(String::as_str));
            if bound == wanted { Ok(()) } else { Err(format!("{bound:?}")) }
        })
        .await;
    }

    /// Waits for an Event about a workload.
    async fn is_told(&self, kind: &str, reason: &str, part: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("{}: {reason} of {kind}", self.namespace), || async {
            let found = events.list(&Default::default()).await.map_err(|error| error.to_string())?;
            let told = found.iter().filter(|event| event.involved_object.kind.as_deref() == Some(kind));
            let told: Vec<(Option<String>, Option<String>)> =
                told.map(|event| (event.reason.clone(), event.message.clone())).collect();
            let is_it = |(why, text): &&(Option<String>, Option<String>)| {
                why.as_deref() == Some(reason) && text.as_ref().is_some_and(|text| text.contains(part))
            };
            told.iter().find(is_it).map(|_| ()).ok_or_else(|| format!("{told:?}"))
        })
        .await;
    }
}

fn registry(of: &str) -> Value {
    json!({"targetNodeGroup": ["beijing"],
        "imageOverrider": [{"component": "Registry", "operator": "replace", "value": of}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_bound_whether_labels_or_policies_come_first() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "binding-kinds").await;
    let (labels_first, policies_first) =
        (Place::new(&client, "binding-labels-first").await, Place::new(&client, "binding-policies-first").await);
    for (api_version, kind, spec) in workloads() {
        labels_first.add_asking(api_version, kind, &spec).await;
    }
    labels_first.is_told("Deployment", "PolicyMissing", "asks for the PropagationPolicy \"spread\"").await;
    for place in [&labels_first, &policies_first] {
        place.add_propagation("spread").await;
        place.add_override("registries", registry("beijing.example")).await;
    }
    for (api_version, kind, spec) in workloads() {
        policies_first.add_asking(api_version, kind, &spec).await;
    }
    for (api_version, kind, _) in workloads() {
        for place in [&labels_first, &policies_first] {
            place.is_bound(api_version, kind, [Some("spread"), Some("registries")]).await;
        }
    }

    // What asks for another, or for none, or for one that is gone, is bound to none of them.
    for (api_version, kind, _) in workloads() {
        policies_first.label(api_version, kind, json!({REQUIRED[0]: "elsewhere"})).await;
        policies_first.is_bound(api_version, kind, [None, Some("registries")]).await;
        policies_first.label(api_version, kind, json!({REQUIRED[0]: null, REQUIRED[1]: null})).await;
        policies_first.is_bound(api_version, kind, [None, None]).await;
    }
    labels_first.policies("PropagationPolicy").delete("spread", &DeleteParams::default()).await.unwrap();
    for (api_version, kind, _) in workloads() {
        labels_first.is_bound(api_version, kind, [None, Some("registries")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_does_not_apply_is_not_bound_and_one_that_is_edited_stays_bound() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "binding-checks").await;
    let place = Place::new(&client, "binding-checks").await;
    let [(api_version, kind, spec), ..] = workloads();
    place.add_propagation("spread").await;
    let bad = json!({"commandOverrider": [{"containerName": "nobody", "operator": "add", "value": ["x"]}]});
    place.add_override("registries", bad.clone()).await;
    place.add_asking(api_version, kind, &spec).await;
    place.is_bound(api_version, kind, [Some("spread"), None]).await;
    place.is_told(kind, "PolicyNotApplicable", "nobody").await;

    let policies = place.policies("OverridePolicy");
    let edit = async |rule: Value| {
        let patch = json!({"spec": {"overrideRules": [rule]}});
        policies.patch("registries", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    edit(registry("beijing.example")).await;
    place.is_bound(api_version, kind, [Some("spread"), Some("registries")]).await;
    edit(bad).await;
    // Something that is done after it, by the same controller.
    place.label(api_version, kind, json!({REQUIRED[0]: null})).await;
    place.is_bound(api_version, kind, [None, Some("registries")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_below_an_application_is_none_and_the_clusters_own_is_left_alone() {
    let (cluster, client) = cluster().await;
    let _manager = manager(&cluster, "binding-below").await;
    let place = Place::new(&client, "binding-below").await;
    place.add_propagation("spread").await;
    let system = Place { client: client.clone(), namespace: "kube-system".to_owned() };
    system.add_propagation("spread").await;
    let [(api_version, kind, mut spec), ..] = workloads();
    // Its template has the labels too, and so have its ReplicaSet and its pods.
    spec["template"]["metadata"]["labels"][REQUIRED[0]] = json!("spread");
    system.add_asking(api_version, kind, &spec).await;
    place.add_asking(api_version, kind, &spec).await;
    place.is_bound(api_version, kind, [Some("spread"), None]).await;
    let sets = place.api("apps/v1", "ReplicaSet");
    let below = async || -> (Value, Value) {
        let found = sets.list(&Default::default()).await.unwrap();
        let labels = found.items.first().map(|set| json!(set.labels())).unwrap_or_default();
        (labels[REQUIRED[0]].clone(), labels[BINDING[0]].clone())
    };
    eventually("there is a ReplicaSet below it", || async {
        let (required, binding) = below().await;
        if required == "spread" && binding.is_null() { Ok(()) } else { Err(format!("{required} {binding}")) }
    })
    .await;
    // Once nothing above asks, it is the application.
    place.label(api_version, kind, json!({REQUIRED[0]: null, REQUIRED[1]: null})).await;
    eventually("the ReplicaSet is bound", || async {
        let (_, binding) = below().await;
        if binding == "spread" { Ok(()) } else { Err(format!("{binding}")) }
    })
    .await;
    system.is_bound(api_version, kind, [None, None]).await;
    system.api(api_version, kind).delete("deployment", &DeleteParams::default()).await.unwrap();
}
