//! What the stories of applications in pools share: pools with one node each, applications in them, and what is asked of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_control::install::install_crds;
use dapple_testbed::testing::start;
use dapple_testbed::{Cluster, ClusterSpec, Fleet};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::support::{Manager, cluster, eventually, manager};

pub(super) const OURS: &str = "apps.openyurt.io/v1alpha1";
pub(super) const REPLACEMENT: &str = "YurtAppConfigurationReplacement";
const POOL: &str = "apps.openyurt.io/pool-name";
pub(super) const MAX: &str = "dapple.dev/rollout-max";
pub(super) const GRACE: &str = "dapple.dev/pool-grace";
/// Pods with this annotation never turn ready.
pub(super) const READINESS: &str = "testbed.dapple.dev/readiness";

pub(super) const IMAGE: &str = "/spec/template/spec/containers/0/image";
pub(super) const MAP: &str = "/spec/template/spec/volumes/0/configMap/name";
pub(super) const REPLICAS: &str = "/spec/replicas";

/// A namespace with pools of its own, one node in each.
pub(super) struct Site {
    pub(super) cluster: Arc<Cluster>,
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) pools: Vec<String>,
}

impl Site {
    /// On the shared cluster, with a manager.
    pub(super) async fn new(name: &str, pools: usize) -> (Self, Manager) {
        let (cluster, client) = cluster().await;
        let site = Self::on(cluster, client, name, pools).await;
        let manager = manager(&site.cluster, name).await;
        (site, manager)
    }

    /// On a cluster of its own, for stories that take CRDs or rights away; without a manager.
    pub(super) async fn alone(name: &str, pools: usize) -> Self {
        let cluster = start(ClusterSpec::temporary()).await.expect("the cluster starts");
        let client = cluster.client().await.unwrap();
        install_crds(&client).await.unwrap();
        Self::on(Arc::new(cluster), client, name, pools).await
    }

    async fn on(cluster: Arc<Cluster>, client: Client, name: &str, pools: usize) -> Self {
        let pools: Vec<String> = (0..pools).map(|number| format!("{name}-{number:02}")).collect();
        let kinds = pools.iter().map(|pool| {
            json!({"name": pool, "count": 1, "labels": {"apps.openyurt.io/nodepool": pool},
                "capacity": {"cpu": 8, "memory": "32Gi", "pods": 110}})
        });
        let fleet = json!({"kinds": kinds.collect::<Vec<_>>()});
        cluster.apply_fleet(&Fleet::from_yaml(&fleet.to_string(), "fleet").unwrap()).await.unwrap();
        let site = Self { cluster, client, name: name.to_owned(), pools };
        site.create("v1", "Namespace", json!({"metadata": {"name": name}})).await;
        for pool in &site.pools {
            site.create_pool(pool).await;
        }
        site
    }

    /// Ends a cluster of its own.
    pub(super) async fn stop(self) {
        let cluster = Arc::into_inner(self.cluster).expect("nobody else has the cluster");
        cluster.stop().await.unwrap();
    }

    pub(super) async fn create_pool(&self, pool: &str) {
        let labels = json!({"site": self.name});
        let object = json!({"metadata": {"name": pool, "labels": labels}, "spec": {"type": "Edge"}});
        self.create("apps.openyurt.io/v1beta1", "NodePool", object).await;
    }

    /// Has the site's YurtAppDaemons select a pool, or not.
    pub(super) async fn select(&self, pool: &str, is_selected: bool) {
        let site = is_selected.then_some(&self.name);
        let labels = json!({"metadata": {"labels": {"site": site}}});
        self.patch("apps.openyurt.io/v1beta1", "NodePool", pool, labels).await;
    }

    /// The node of a pool.
    pub(super) fn node(pool: &str) -> String {
        format!("{pool}-000")
    }

    pub(super) fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "Namespace" | "Node" | "NodePool" | "PersistentVolume" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), &self.name, &resource),
        }
    }

    pub(super) async fn create(&self, version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let answer = self.api(version, kind).create(&PostParams::default(), &made).await;
        answer.unwrap_or_else(|error| panic!("{object} is not made: {error}"));
    }

    pub(super) async fn patch(&self, version: &str, kind: &str, name: &str, patch: Value) {
        self.api(version, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// What an application says: this image in all pools, one pod in each.
    pub(super) fn application(&self, kind: &str, workload: &str, image: &str) -> Value {
        self.application_named("web", (kind, workload), image)
    }

    fn application_named(&self, name: &str, (kind, workload): (&str, &str), image: &str) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "web", "image": image}],
                "volumes": [{"name": "settings", "configMap": {"name": "from", "optional": true}}]}},
        });
        if workload == "StatefulSet" {
            spec["serviceName"] = json!(name);
        } else {
            spec["progressDeadlineSeconds"] = json!(15);
        }
        let field = template_of(workload);
        let template = json!({field: {"metadata": {"labels": {"app": name}}, "spec": spec}});
        let mut said = json!({"selector": {"matchLabels": {"app": name}}, "workloadTemplate": template});
        if kind == "YurtAppSet" {
            said["topology"] = json!({"pools": self.pools.iter().map(|pool| self.pool(pool)).collect::<Vec<_>>()});
        } else {
            said["nodepoolSelector"] = json!({"matchLabels": {"site": self.name}});
        }
        json!({"metadata": {"name": name}, "spec": said})
    }

    pub(super) fn pool(&self, pool: &str) -> Value {
        let here = json!({"key": "apps.openyurt.io/nodepool", "operator": "In", "values": [pool]});
        json!({"name": pool, "nodeSelectorTerm": {"matchExpressions": [here]}, "replicas": 1})
    }

    /// The application `web`.
    fn web(&self, kind: &'static str, workload: &'static str) -> App<'_> {
        App { site: self, name: "web".to_owned(), kind, workload }
    }

    /// The workloads of `web`, by pool.
    pub(super) async fn workloads(&self, workload: &'static str) -> BTreeMap<String, Value> {
        self.web("YurtAppSet", workload).workloads().await
    }

    /// Waits until workloads of `web` have this at a place.
    pub(super) async fn have(&self, workload: &'static str, pointer: &str, wanted: &[(&str, Value)]) {
        self.web("YurtAppSet", workload).have(pointer, wanted).await;
    }

    pub(super) async fn status(&self, kind: &'static str) -> Value {
        self.web(kind, "Deployment").status().await
    }

    /// Waits until every pool is done with what `web` says now.
    pub(super) async fn is_done(&self, kind: &'static str) {
        self.web(kind, "Deployment").is_done().await;
    }

    /// The pools whose pods have this image.
    pub(super) async fn with(&self, image: &str) -> Vec<String> {
        self.web("YurtAppSet", "Deployment").with(image).await
    }
}

/// The field of `workloadTemplate` that has such a template.
pub(super) fn template_of(workload: &str) -> &'static str {
    if workload == "StatefulSet" { "statefulSetTemplate" } else { "deploymentTemplate" }
}

/// One application of a site. Its replacement has the same name.
pub(super) struct App<'s> {
    pub(super) site: &'s Site,
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) workload: &'static str,
}

/// What must not change where nothing is done: UID and spec of each pool's workload, and the UIDs of all pods.
/// Generations move when Deployments get another annotation.
pub(super) type Standing = (BTreeMap<String, Value>, BTreeSet<String>);

impl App<'_> {
    /// What it says with this image, all of its pools being changed at once.
    pub(super) fn said(&self, image: &str) -> Value {
        let mut said = self.site.application_named(&self.name, (self.kind, self.workload), image);
        said["metadata"]["annotations"] = json!({MAX: "100%"});
        said
    }

    pub(super) async fn create(&self, said: Value) {
        self.site.create(OURS, self.kind, said).await;
    }

    pub(super) async fn patch(&self, patch: Value) {
        self.site.patch(OURS, self.kind, &self.name, patch).await;
    }

    pub(super) async fn annotate(&self, key: &str, value: Option<&str>) {
        self.patch(json!({"metadata": {"annotations": {key: value}}})).await;
    }

    /// Gives its pods this image.
    pub(super) async fn set_image(&self, image: &str) {
        let template = json!({"spec": {"containers": [{"name": "web", "image": image}]}});
        let field = template_of(self.workload);
        self.patch(json!({"spec": {"workloadTemplate": {field: {"spec": {"template": template}}}}})).await;
    }

    /// Makes a replacement for it.
    pub(super) async fn replace(&self, name: &str, replacements: Value) {
        let subject = json!({"apiVersion": OURS, "kind": self.kind, "nameSpace": self.site.name, "name": self.name});
        let object = json!({"metadata": {"name": name}, "subject": subject, "replacements": replacements});
        self.site.create(OURS, REPLACEMENT, object).await;
    }

    /// Has its replacement say something else.
    pub(super) async fn rewrite(&self, replacements: Value) {
        self.site.patch(OURS, REPLACEMENT, &self.name, json!({"replacements": replacements})).await;
    }

    pub(super) async fn end_replacement(&self, name: &str) {
        self.site.api(OURS, REPLACEMENT).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Its workloads, by pool.
    pub(super) async fn workloads(&self) -> BTreeMap<String, Value> {
        let own = ListParams::default().labels(&format!("app={}", self.name));
        let all = self.site.api("apps/v1", self.workload).list(&own).await.unwrap();
        let pool =
            |object: &DynamicObject| object.metadata.labels.as_ref().and_then(|labels| labels.get(POOL)).cloned();
        all.items.iter().filter_map(|object| Some((pool(object)?, serde_json::to_value(object).unwrap()))).collect()
    }

    /// Waits until the workloads of these pools have this at a place.
    pub(super) async fn have(&self, pointer: &str, wanted: &[(&str, Value)]) {
        eventually(&format!("{}: {} have {wanted:?} at {pointer}", self.name, self.workload), || async {
            let known = self.workloads().await;
            let found = |pool: &str| known.get(pool).and_then(|workload| workload.pointer(pointer)).cloned();
            let is_so = wanted.iter().all(|(pool, value)| found(pool).unwrap_or_default() == *value);
            let all: Vec<_> = known.keys().map(|pool| (pool.clone(), found(pool))).collect();
            if is_so { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
    }

    /// Waits until it has workloads in so many pools.
    pub(super) async fn is_in(&self, pools: usize) {
        eventually(&format!("{} has workloads in {pools} pools", self.name), || async {
            let known = self.workloads().await;
            if known.len() == pools { Ok(()) } else { Err(format!("{:?}", known.keys())) }
        })
        .await;
    }

    /// The pools whose pods have this image.
    pub(super) async fn with(&self, image: &str) -> Vec<String> {
        let has = |workload: &Value| workload.pointer(IMAGE) == Some(&json!(image));
        let known = self.workloads().await;
        known.into_iter().filter(|(_, workload)| has(workload)).map(|(pool, _)| pool).collect()
    }

    pub(super) async fn status(&self) -> Value {
        let found = self.site.api(OURS, self.kind).get(&self.name).await.unwrap();
        found.data["status"].clone()
    }

    /// Waits until every pool is done with what is said now.
    pub(super) async fn is_done(&self) {
        eventually(&format!("all pools of {} are done", self.name), || async {
            let found = self.site.api(OURS, self.kind).get(&self.name).await.map_err(|error| error.to_string())?;
            let status = &found.data["status"];
            let pools = status["pools"].as_array().into_iter().flatten();
            let are_done = pools.clone().count() > 0 && pools.clone().all(|pool| pool["state"] == "Done");
            let is_fresh = status["observedGeneration"].as_i64() == found.metadata.generation;
            if are_done && is_fresh { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Waits until a condition has this reason, and returns its message.
    pub(super) async fn says(&self, kind: &str, reason: &str) -> String {
        eventually(&format!("{} says {kind} {reason}", self.name), || async {
            let status = self.status().await;
            let all = status["conditions"].as_array().cloned().unwrap_or_default();
            let told = all.iter().find(|told| told["type"] == kind && told["reason"] == reason);
            told.map(|told| told["message"].to_string()).ok_or_else(|| status.to_string())
        })
        .await
    }

    /// Waits until its replacement says this of itself, and returns the status.
    pub(super) async fn replacement_says(&self, name: &str, reason: &str) -> Value {
        eventually(&format!("{name} says {reason}"), || async {
            let found = self.site.api(OURS, REPLACEMENT).get(name).await.map_err(|error| error.to_string())?;
            let status = &found.data["status"];
            let is_now = status["observedGeneration"].as_i64() == found.metadata.generation;
            let is_so = status["conditions"][0]["reason"] == reason;
            if is_now && is_so { Ok(status.clone()) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Waits until a manager has looked at it so many times more. It is shown by what a look says: that an annotation cannot be
    /// understood, and that it can again.
    pub(super) async fn is_looked_at(&self, times: usize) {
        let found = self.site.api(OURS, self.kind).get(&self.name).await.unwrap();
        let before = found.metadata.annotations.unwrap_or_default().remove(GRACE);
        for _ in 0..times {
            self.annotate(GRACE, Some("soon")).await;
            self.says("Synced", "BadAnnotation").await;
            self.annotate(GRACE, before.as_deref()).await;
            self.says("Synced", "Synced").await;
        }
    }

    /// The versions of its workloads, which change with every write.
    pub(super) async fn versions(&self) -> Vec<Value> {
        self.workloads().await.values().map(|workload| workload["metadata"]["resourceVersion"].clone()).collect()
    }

    /// What stands there now.
    pub(super) async fn standing(&self) -> Standing {
        let known = self.workloads().await.into_iter();
        let known = known.map(|(pool, workload)| {
            let metadata = &workload["metadata"];
            (pool, json!([metadata["uid"], workload["spec"]]))
        });
        let own = ListParams::default().labels(&format!("app={}", self.name));
        let pods = self.site.api("v1", "Pod").list(&own).await.unwrap();
        let stays = pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        (known.collect(), stays.filter_map(|pod| pod.metadata.uid).collect())
    }
}
