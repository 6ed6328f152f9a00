//! Kinds that users list in ConfigMap `groupmanagement-config` ask for policies as those of Kubernetes do, without a restart.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_testbed::testing::Observer;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::binding::REQUIRED;
use super::placing::Site;
use super::steady::LONG_ENOUGH;
use crate::support::eventually;

const GROUP: &str = "games.example.com";

fn listed(kind: &str) -> String {
    format!(
        "- group: {GROUP}\n  version: v1\n  kind: {kind}\n  podTemplatePath: spec.template\n  replicasPath: spec.replicas\n"
    )
}

impl Site {
    async fn list_kinds(&self, text: &str) {
        let configs: Api<ConfigMap> = Api::namespaced(self.client.clone(), "dapple-system");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "groupmanagement-config"},
            "data": {"applications": text}});
        let params = PatchParams::apply("test").force();
        configs.patch("groupmanagement-config", &params, &Patch::Apply(config)).await.unwrap();
    }

    async fn config_says(&self, reason: &str) {
        eventually(&format!("the ConfigMap says {reason}"), || async {
            let events: Api<Event> = Api::namespaced(self.client.clone(), "dapple-system");
            let events = events.list(&ListParams::default()).await.unwrap();
            let of_config =
                events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("ConfigMap"));
            let reasons: BTreeSet<String> = of_config.filter_map(|event| event.reason).collect();
            if reasons.contains(reason) { Ok(()) } else { Err(format!("{reasons:?}")) }
        })
        .await;
    }

    /// Pods that a custom resource controls: nobody else makes them here.
    async fn add_pods_of(&self, owner: &Value, names: &[&str]) {
        let pods = self.place.api("v1", "Pod");
        for name in names {
            let mut pod = self.template("Always");
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"] = json!({"name": name, "ownerReferences": [owner]});
            self.place.create(&pods, pod).await;
        }
    }
}

/// Of an object that has no template where the list says it: its pods are placed all the same.
async fn a_missing_template_is_told(site: &Site) {
    let games = site.place.api(&format!("{GROUP}/v1"), "GameServer");
    let game = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer",
        "metadata": {"name": "draughts", "labels": {REQUIRED[0]: "spread"}},
        "spec": {"replicas": 1, "podTemplate": site.template("Always")}});
    site.place.create(&games, game).await;
    let owner = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer", "name": "draughts",
        "uid": games.get("draughts").await.unwrap().uid(), "controller": true});
    site.add_pods_of(&owner, &["left"]).await;
    site.are_divided([2, 4]).await;
    site.has_event("TemplateMissing").await;
    site.place.api("v1", "Pod").delete("left", &DeleteParams::default()).await.unwrap();
    games.delete("draughts", &DeleteParams::default()).await.unwrap();
    site.are_divided([2, 3]).await;
}

/// By a policy of its own: nobody makes others for the pods that are there.
async fn pods_of_a_set_below_a_listed_kind_are_moved(site: &Site) {
    site.place.add_propagation_of("teams", site.weights([2, 3])).await;
    let games = site.place.api(&format!("{GROUP}/v1"), "GameServer");
    let mut template = site.template("Always");
    template["metadata"]["labels"] = json!({"app": "team"});
    let game = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer",
        "metadata": {"name": "team", "labels": {REQUIRED[0]: "teams"}}, "spec": {"replicas": 5, "template": template}});
    site.place.create(&games, game).await;
    let owner = json!([{"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer", "name": "team",
        "uid": games.get("team").await.unwrap().uid(), "controller": true}]);
    let sets = site.place.api("apps/v1", "ReplicaSet");
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "team", "ownerReferences": owner},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "team"}}, "template": template}});
    site.place.create(&sets, set).await;
    // Beside five others, two and three of them.
    site.are_divided([4, 6]).await;
    let observer = Observer::start(&site.client, &site.name);
    site.patch_policy("PropagationPolicy", "teams", json!({"spec": site.weights([3, 2])})).await;
    site.are_divided([5, 5]).await;
    assert_eq!(observer.evicted(), 1);
    sets.delete("team", &DeleteParams::foreground()).await.unwrap();
    games.delete("team", &DeleteParams::default()).await.unwrap();
    site.are_divided([2, 3]).await;
}

/// Whatever asks above: a pod that is taken from a Job counts as failed.
async fn jobs_below_a_listed_kind_lose_no_pod(site: &Site) {
    site.place.add_propagation_of("jobs", site.weights([2, 3])).await;
    let games = site.place.api(&format!("{GROUP}/v1"), "GameServer");
    let game = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer",
        "metadata": {"name": "go", "labels": {REQUIRED[0]: "jobs"}},
        "spec": {"replicas": 5, "template": site.template("Never")}});
    site.place.create(&games, game).await;
    let uid = games.get("go").await.unwrap().uid();
    // Nobody binds its pods, so they neither end nor become ready: what is down is moved first.
    let mut template = site.template("Never");
    template["metadata"]["labels"]["game"] = json!("go");
    template["spec"]["schedulerName"] = json!("nobody");
    let jobs = site.place.api("batch/v1", "Job");
    let owner = json!([{"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer", "name": "go", "uid": uid,
        "controller": true}]);
    let job = |name: &str, pods: usize| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "ownerReferences": owner},
            "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}})
    };
    let placed = async || {
        let mut pods = site.pods().await;
        pods.retain(|pod| pod.labels().contains_key("game") && pod.labels().contains_key("dapple.dev/group"));
        pods.iter().filter_map(ResourceExt::uid).collect::<BTreeSet<String>>()
    };
    let are_placed = async |wanted: usize| {
        eventually(&format!("{wanted} pods of Jobs are placed"), || async {
            let found = placed().await.len();
            if found == wanted { Ok(()) } else { Err(format!("{found}")) }
        })
        .await;
    };
    site.place.create(&jobs, job("go-1", 5)).await;
    are_placed(5).await;
    let before = placed().await;
    site.patch_policy("PropagationPolicy", "jobs", json!({"spec": site.weights([19, 1])})).await;
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(placed().await, before, "none is evicted");

    // Of two workloads below it nobody knows what they are for, and that is said.
    site.place.create(&jobs, job("go-2", 1)).await;
    site.has_event("SeveralWorkloads").await;
    for name in ["go-1", "go-2"] {
        jobs.delete(name, &DeleteParams::foreground()).await.unwrap();
    }
    site.are_divided([2, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_listed_kind_ask_for_policies() {
    let site = Site::new("listed").await;
    site.add_policy().await;
    let crd = json!({"metadata": {"name": format!("gameservers.{GROUP}")}, "spec": {"group": GROUP, "scope": "Namespaced",
        "names": {"kind": "GameServer", "plural": "gameservers", "singular": "gameserver"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let crds: Api<CustomResourceDefinition> = Api::all(site.client.clone());
    crds.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();

    // One that is not served, and one that dapple may not read: both are told, and nothing waits for them.
    site.list_kinds(&format!("{}{}", listed("GameServer"), listed("Ghost"))).await;
    site.config_says("KindNotServed").await;
    site.config_says("KindNotAllowed").await;
    let role = json!({"metadata": {"name": "games", "labels": {"dapple.dev/aggregate-to-manager": "true"}},
        "rules": [{"apiGroups": [GROUP], "resources": ["gameservers"], "verbs": ["get", "list", "watch", "patch"]}]});
    let roles: Api<ClusterRole> = Api::all(site.client.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();

    let games = site.place.api(&format!("{GROUP}/v1"), "GameServer");
    let game = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer",
        "metadata": {"name": "chess", "labels": {REQUIRED[0]: "spread"}},
        "spec": {"replicas": 5, "template": site.template("Always")}});
    site.place.create(&games, game).await;
    eventually("the policy is confirmed", || async {
        let found = games.get("chess").await.unwrap();
        let bound = found.labels().get("groupmanagement.kubeedge.io/binding-propagationpolicy").cloned();
        if bound.as_deref() == Some("spread") { Ok(()) } else { Err(format!("{bound:?}")) }
    })
    .await;
    let owner = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GameServer", "name": "chess",
        "uid": games.get("chess").await.unwrap().uid(), "controller": true});
    site.add_pods_of(&owner, &["one", "two", "three", "four", "five"]).await;
    site.are_divided([2, 3]).await;

    jobs_below_a_listed_kind_lose_no_pod(&site).await;
    a_missing_template_is_told(&site).await;
    pods_of_a_set_below_a_listed_kind_are_moved(&site).await;

    // What cannot be read changes nothing.
    site.list_kinds("- group: [").await;
    site.config_says("ApplicationsUnreadable").await;
    site.add_pods_of(&owner, &["six"]).await;
    site.are_divided([2, 4]).await;

    // Off the list, its objects ask for nothing: pods go anywhere that come once the list is read.
    site.list_kinds("").await;
    let last = AtomicUsize::new(7);
    eventually("a new one is released", || async {
        let name = format!("number-{}", last.load(Ordering::Relaxed));
        let pods = site.pods().await;
        let Some(pod) = pods.iter().find(|pod| pod.name_any() == name) else {
            site.add_pods_of(&owner, &[&name]).await;
            return Err(format!("{name} is made"));
        };
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.clone()).unwrap_or_default();
        if gates.is_empty() && pod.labels().get("dapple.dev/group").is_none() {
            return Ok(());
        }
        if gates.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            last.fetch_add(1, Ordering::Relaxed);
        }
        Err(format!("{pod:?}"))
    })
    .await;
}
