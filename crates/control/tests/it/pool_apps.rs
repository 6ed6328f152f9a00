//! Applications in pools on a real cluster: its controller manager makes their pods, kwok runs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_testbed::{Cluster, Fleet};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::support::{Manager, cluster, eventually, manager};

mod refused;

const POOL: &str = "apps.openyurt.io/pool-name";
/// Pods with this annotation never turn ready.
const READINESS: &str = "testbed.dapple.dev/readiness";

/// A namespace with pools of its own, one node in each.
struct Site {
    cluster: Arc<Cluster>,
    client: Client,
    name: String,
    pools: Vec<String>,
}

impl Site {
    async fn new(name: &str, pools: usize) -> (Self, Manager) {
        let (cluster, client) = cluster().await;
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
            let labels = json!({"site": name});
            let object = json!({"metadata": {"name": pool, "labels": labels}, "spec": {"type": "Edge"}});
            site.create("apps.openyurt.io/v1beta1", "NodePool", object).await;
        }
        let manager = manager(&site.cluster, name).await;
        (site, manager)
    }

    fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "Namespace" | "NodePool" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), &self.name, &resource),
        }
    }

    async fn create(&self, version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(version, kind).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn patch(&self, version: &str, kind: &str, name: &str, patch: Value) {
        self.api(version, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// What an application says: this image in all pools, one pod in each.
    fn application(&self, kind: &str, workload: &str, image: &str) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "web", "image": image}],
                "volumes": [{"name": "settings", "configMap": {"name": "from", "optional": true}}]}},
        });
        let field = match workload {
            "StatefulSet" => "statefulSetTemplate",
            _ => "deploymentTemplate",
        };
        if workload == "StatefulSet" {
            spec["serviceName"] = json!("web");
        } else {
            spec["progressDeadlineSeconds"] = json!(15);
        }
        let template = json!({field: {"metadata": {"labels": {"app": "web"}}, "spec": spec}});
        let mut said = json!({"selector": {"matchLabels": {"app": "web"}}, "workloadTemplate": template});
        if kind == "YurtAppSet" {
            said["topology"] = json!({"pools": self.pools.iter().map(|pool| self.pool(pool)).collect::<Vec<_>>()});
        } else {
            said["nodepoolSelector"] = json!({"matchLabels": {"site": self.name}});
        }
        json!({"metadata": {"name": "web"}, "spec": said})
    }

    fn pool(&self, pool: &str) -> Value {
        let here = json!({"key": "apps.openyurt.io/nodepool", "operator": "In", "values": [pool]});
        json!({"name": pool, "nodeSelectorTerm": {"matchExpressions": [here]}, "replicas": 1})
    }

    /// The workloads of a kind, by pool.
    async fn workloads(&self, kind: &str) -> BTreeMap<String, Value> {
        let all = self.api("apps/v1", kind).list(&ListParams::default()).await.unwrap();
        let pool =
            |object: &DynamicObject| object.metadata.labels.as_ref().and_then(|labels| labels.get(POOL)).cloned();
        all.items.iter().filter_map(|object| Some((pool(object)?, serde_json::to_value(object).unwrap()))).collect()
    }

    /// Waits until the workloads of all pools have this at a place.
    async fn have(&self, kind: &str, pointer: &str, wanted: &[(&str, Value)]) {
        eventually(&format!("{kind} have {wanted:?} at {pointer}"), || async {
            let known = self.workloads(kind).await;
            let found = |pool: &str| known.get(pool).and_then(|workload| workload.pointer(pointer)).cloned();
            let is_so = wanted.iter().all(|(pool, value)| found(pool).unwrap_or_default() == *value);
            let all: Vec<_> = known.keys().map(|pool| (pool.clone(), found(pool))).collect();
            if is_so { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
    }

    async fn status(&self, kind: &str) -> Value {
        let found = self.api("apps.openyurt.io/v1alpha1", kind).get("web").await.unwrap();
        found.data["status"].clone()
    }

    /// Waits until every pool is done with what is said now.
    async fn is_done(&self, kind: &str) {
        eventually("all pools are done", || async {
            let found =
                self.api("apps.openyurt.io/v1alpha1", kind).get("web").await.map_err(|error| error.to_string())?;
            let status = &found.data["status"];
            let pools = status["pools"].as_array().into_iter().flatten();
            let are_done = pools.clone().count() > 0 && pools.clone().all(|pool| pool["state"] == "Done");
            let is_fresh = status["observedGeneration"].as_i64() == found.metadata.generation;
            if are_done && is_fresh { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// The pools whose pods have this image.
    async fn with(&self, image: &str) -> Vec<String> {
        let known = self.workloads("Deployment").await;
        let has = |workload: &Value| workload.pointer(IMAGE) == Some(&json!(image));
        known.into_iter().filter(|(_, workload)| has(workload)).map(|(pool, _)| pool).collect()
    }
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const MAP: &str = "/spec/template/spec/volumes/0/configMap/name";

/// The stories of the specification, for both kinds and both templates: an object for each pool's differences, made before the
/// application or after it, changed, and deleted.
async fn story(kind: &str, workload: &str) {
    let name = format!("story-{}-{}", kind.to_lowercase(), workload.to_lowercase());
    let (site, _manager) = Site::new(&name, 3).await;
    let [beijing, hangzhou, shanghai] = [&*site.pools[0], &*site.pools[1], &*site.pools[2]];
    let alike = json!({"pools": format!("{beijing} {hangzhou}"), "items": [
        {"image": {"containerName": "web", "imageClaim": "web:2"}},
        {"configMap": {"configMapSource": "from", "configMapTarget": "to"}}, {"replicas": 2}]});
    let replacements = json!([
        {"pools": "*", "items": [{"configMap": {"configMapSource": "from", "configMapTarget": "for-{{nodepool}}"}}]},
        alike, {"pools": [beijing], "items": [{"replicas": 3}]}]);
    let subject =
        json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": kind, "nameSpace": site.name, "name": "web"});
    let replacement = json!({"metadata": {"name": "web"}, "subject": subject, "replacements": replacements});
    let (ours, replacing) = ("apps.openyurt.io/v1alpha1", "YurtAppConfigurationReplacement");
    let mut application = site.application(kind, workload, "web:1");
    application["metadata"]["annotations"] = json!({"dapple.dev/rollout-max": "100%"});
    let is_first = kind == "YurtAppSet";
    if is_first {
        site.create(ours, replacing, replacement.clone()).await;
    }
    site.create(ours, kind, application).await;
    if !is_first {
        site.is_done(kind).await;
        site.create(ours, replacing, replacement).await;
    }
    let own = json!(format!("for-{shanghai}"));
    site.have(workload, IMAGE, &[(beijing, json!("web:2")), (hangzhou, json!("web:2")), (shanghai, json!("web:1"))])
        .await;
    site.have(workload, MAP, &[(beijing, json!("to")), (hangzhou, json!("to")), (shanghai, own.clone())]).await;
    site.have(workload, "/spec/replicas", &[(beijing, json!(3)), (hangzhou, json!(2)), (shanghai, json!(1))]).await;
    site.is_done(kind).await;
    eventually("the replacement says so", || async {
        let found = site.api(ours, replacing).get("web").await.map_err(|error| error.to_string())?;
        let status = &found.data["status"];
        let is_so = status["matchedPools"] == 3 && status["poolsInEffect"] == 3;
        if is_so { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    // One pool is taken out of it, and then it goes: back to what the application says.
    let fewer = json!({"replacements": [{"pools": [hangzhou], "items": [{"image": {"containerName": "web", "imageClaim": "web:3"}}]}]});
    site.patch(ours, replacing, "web", fewer).await;
    site.have(workload, IMAGE, &[(beijing, json!("web:1")), (hangzhou, json!("web:3")), (shanghai, json!("web:1"))])
        .await;
    site.api(ours, replacing).delete("web", &DeleteParams::default()).await.unwrap();
    site.have(workload, IMAGE, &[(beijing, json!("web:1")), (hangzhou, json!("web:1")), (shanghai, json!("web:1"))])
        .await;
    site.have(workload, MAP, &[(beijing, json!("from")), (shanghai, json!("from"))]).await;
    site.is_done(kind).await;
    let before = site.workloads(workload).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let versions = |known: &BTreeMap<String, Value>| -> Vec<Value> {
        known.values().map(|workload| workload["metadata"]["resourceVersion"].clone()).collect()
    };
    assert_eq!(versions(&before), versions(&site.workloads(workload).await), "then nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_a_set_differ_as_the_replacement_says() {
    story("YurtAppSet", "Deployment").await;
    story("YurtAppSet", "StatefulSet").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_a_daemon_differ_as_the_replacement_says() {
    story("YurtAppDaemon", "Deployment").await;
    story("YurtAppDaemon", "StatefulSet").await;
}

/// A pool that runs stays as it is until what a replacement would have it refer to exists; the others go on, and both objects say so.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_replacement_refers_to_is_waited_for() {
    let (site, _manager) = Site::new("pool-missing", 2).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    let [with, without] = [&*site.pools[0], &*site.pools[1]];
    let mut application = site.application(kind, "Deployment", "web:1");
    application["metadata"]["annotations"] = json!({"dapple.dev/rollout-max": "100%"});
    let volumes =
        &mut application["spec"]["workloadTemplate"]["deploymentTemplate"]["spec"]["template"]["spec"]["volumes"];
    *volumes = json!([{"name": "settings", "configMap": {"name": "from"}}]);
    site.create(ours, kind, application).await;
    site.is_done(kind).await;
    let map = |pool: &str| json!({"metadata": {"name": format!("for-{pool}")}});
    site.create("v1", "ConfigMap", map(with)).await;
    let item = json!({"configMap": {"configMapSource": "from", "configMapTarget": "for-{{nodepool}}"}});
    let subject = json!({"kind": kind, "name": "web"});
    let replacements = json!([{"pools": "*", "items": [item]}]);
    let replacement = json!({"metadata": {"name": "web"}, "subject": subject, "replacements": replacements});
    site.create(ours, "YurtAppConfigurationReplacement", replacement).await;
    let own = |pool: &str| json!(format!("for-{pool}"));
    site.have("Deployment", MAP, &[(with, own(with)), (without, json!("from"))]).await;
    let says = async |kind: &str| {
        eventually(&format!("the {kind} says what it waits for"), || async {
            let found = site.api(ours, kind).get("web").await.map_err(|error| error.to_string())?;
            let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let told = conditions.iter().find(|condition| condition["reason"] == "TargetsMissing");
            let message = told.map(|told| told["message"].to_string()).unwrap_or_default();
            let is_named = message.contains(&format!("ConfigMap for-{without}"));
            if is_named { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await;
    };
    says(kind).await;
    says("YurtAppConfigurationReplacement").await;
    site.create("v1", "ConfigMap", map(without)).await;
    site.have("Deployment", MAP, &[(with, own(with)), (without, own(without))]).await;
    site.is_done(kind).await;
}

/// A replacement may come before its application, and outlive it. It says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_without_an_application_says_so() {
    let (site, _manager) = Site::new("pool-alone", 1).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    let items = json!([{"image": {"containerName": "web", "imageClaim": "web:2"}}]);
    let replacement = json!({"metadata": {"name": "web"}, "subject": {"kind": kind, "name": "web"},
        "replacements": [{"pools": "*", "items": items}]});
    let replacements = site.api(ours, "YurtAppConfigurationReplacement");
    site.create(ours, "YurtAppConfigurationReplacement", replacement).await;
    let says = async |reason: &str| {
        eventually(&format!("it says {reason}"), || async {
            let found = replacements.get("web").await.map_err(|error| error.to_string())?;
            let status = &found.data["status"];
            let is_now = status["observedGeneration"].as_i64() == found.metadata.generation;
            if is_now && status["conditions"][0]["reason"] == reason { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    };
    says("NoSubject").await;
    site.create(ours, kind, site.application(kind, "Deployment", "web:1")).await;
    says("InEffect").await;
    site.api(ours, kind).delete("web", &DeleteParams::default()).await.unwrap();
    says("NoSubject").await;
}

/// Kubernetes does not replace a broken pod of a StatefulSet, so a fix does not reach it: the pod is named, and nothing is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn the_pod_that_keeps_a_fix_out_is_named() {
    let (site, _manager) = Site::new("pool-stuck", 1).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    site.create(ours, kind, site.application(kind, "StatefulSet", "web:1")).await;
    site.is_done(kind).await;
    let say = |image: &str, readiness: Option<&str>| {
        json!({"spec": {"workloadTemplate": {"statefulSetTemplate": {"spec": {"template": {
            "metadata": {"annotations": {READINESS: readiness}},
            "spec": {"containers": [{"name": "web", "image": image}]}}}}}}})
    };
    let pods = site.api("v1", "Pod");
    let name =
        format!("{}-0", site.workloads("StatefulSet").await[&site.pools[0]]["metadata"]["name"].as_str().unwrap());
    site.patch(ours, kind, "web", say("web:2", Some("fail"))).await;
    eventually("the broken pod is there", || async {
        let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
        if pod.data["spec"]["containers"][0]["image"] == "web:2" { Ok(()) } else { Err(pod.data["spec"].to_string()) }
    })
    .await;
    site.patch(ours, kind, "web", say("web:3", None)).await;
    eventually("it is named", || async {
        let status = site.status(kind).await;
        let message = status["pools"][0]["message"].as_str().unwrap_or_default().to_owned();
        if message.starts_with(&format!("delete the pod {name}:")) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(pods.get(&name).await.unwrap().data["spec"]["containers"][0]["image"], "web:2", "nobody deletes it");
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    site.is_done(kind).await;
}

/// Somebody who writes as often as dapple does, such as another product's controller, is named, and given way to.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_keeps_changing_a_workload_is_named_and_given_way_to() {
    let (site, _manager) = Site::new("pool-fight", 1).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    site.create(ours, kind, site.application(kind, "Deployment", "web:1")).await;
    site.is_done(kind).await;
    let workload = site.workloads("Deployment").await[&site.pools[0]].clone();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let deployments = site.api("apps/v1", "Deployment");
    let containers = json!([{"name": "web", "image": "foreign:1"}]);
    let foreign = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let as_other = PatchParams { field_manager: Some("yurt-manager".to_owned()), ..PatchParams::default() };
    let message = eventually("it is given way to", || async {
        let written = deployments.patch(name, &as_other, &Patch::Strategic(&foreign)).await;
        written.map_err(|error| error.to_string())?;
        let pool = site.status(kind).await["pools"][0].clone();
        let message = pool["message"].as_str().unwrap_or_default().to_owned();
        if message.starts_with("yurt-manager keeps changing") { Ok(message) } else { Err(pool.to_string()) }
    })
    .await;
    assert!(message.contains("spec.template.spec.containers[name=web].image"), "{message}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(site.with("foreign:1").await.len(), 1, "nothing is put right any more");
}

/// A version whose pods never turn ready reaches one of twenty pools, whoever leads; a fix goes there first.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_version_reaches_one_pool_and_a_fix_goes_there_first() {
    let (site, first) = Site::new("pool-bad", 20).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    site.create(ours, kind, site.application(kind, "Deployment", "web:1")).await;
    site.is_done(kind).await;
    let say = |image: &str, readiness: Option<&str>| {
        json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": {
            "metadata": {"annotations": {READINESS: readiness}},
            "spec": {"containers": [{"name": "web", "image": image}]}}}}}}})
    };
    site.patch(ours, kind, "web", say("web:2", Some("fail"))).await;
    eventually("one pool has it", || async {
        let with = site.with("web:2").await;
        if with.len() == 1 { Ok(()) } else { Err(format!("{with:?}")) }
    })
    .await;
    // Half way another leads.
    first.end().await;
    let _second = manager(&site.cluster, "pool-bad").await;
    eventually("the rollout is stopped", || async {
        let status = site.status(kind).await;
        if status["stopped"].is_null() { Err(status["conditions"].to_string()) } else { Ok(()) }
    })
    .await;
    let broken = site.with("web:2").await;
    assert_eq!(broken.len(), 1);
    site.patch(ours, kind, "web", say("web:3", None)).await;
    let fixed = eventually("the fix comes to a pool", || async {
        let with = site.with("web:3").await;
        if with.is_empty() { Err("to none yet".to_owned()) } else { Ok(with) }
    })
    .await;
    assert_eq!(fixed, broken, "the broken one comes first");
    site.patch(ours, kind, "web", json!({"metadata": {"annotations": {"dapple.dev/rollout-max": "100%"}}})).await;
    eventually("the fix comes to all", || async {
        let with = site.with("web:3").await;
        if with.len() == 20 { Ok(()) } else { Err(format!("{with:?}")) }
    })
    .await;
}

/// A version that turns ready and then takes its pools down is begun with nowhere else once the budget is used up.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_takes_its_pools_down_stays_where_it_is() {
    let (site, _manager) = Site::new("pool-down", 10).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    site.create(ours, kind, site.application(kind, "Deployment", "web:1")).await;
    site.is_done(kind).await;
    let say = json!({"spec": {"workloadTemplate": {"deploymentTemplate": {"spec": {"template": {
        "spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}}}});
    site.patch(ours, kind, "web", say).await;
    eventually("a second pool is begun with: the first was done", || async {
        let with = site.with("web:2").await;
        if with.len() >= 2 { Ok(()) } else { Err(format!("{with:?}")) }
    })
    .await;
    // From now on every pod of that version falls ill, as soon as it is there.
    let pods = site.api("v1", "Pod");
    let fall_ill = async || {
        for pod in pods.list(&ListParams::default()).await.unwrap().items {
            let is_new = pod.data["spec"]["containers"][0]["image"] == "web:2";
            let name = pod.metadata.name.unwrap_or_default();
            if is_new {
                let ill = json!({"metadata": {"annotations": {READINESS: "fail"}}});
                // It may be gone by now.
                let _ = pods.patch(&name, &PatchParams::default(), &Patch::Merge(ill)).await;
            }
        }
    };
    let mut most = 0;
    for _ in 0..40 {
        fall_ill().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        most = most.max(site.with("web:2").await.len());
    }
    assert!(most <= 3, "it came to {most} pools");
}

/// A pool that is dropped goes; of many that are, those go that somebody names; and an autoscaler keeps its number.
#[tokio::test(flavor = "multi_thread")]
async fn pools_leave_and_autoscalers_keep_their_numbers() {
    let (site, _manager) = Site::new("pool-leave", 4).await;
    let (ours, kind) = ("apps.openyurt.io/v1alpha1", "YurtAppSet");
    let mut application = site.application(kind, "Deployment", "web:1");
    application["metadata"]["annotations"] = json!({"dapple.dev/rollout-max": "100%"});
    site.create(ours, kind, application).await;
    site.is_done(kind).await;
    let workload = site.workloads("Deployment").await[&site.pools[0]].clone();
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let scaler = json!({"metadata": {"name": "web"}, "spec": {"minReplicas": 1, "maxReplicas": 9,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}});
    site.create("autoscaling/v2", "HorizontalPodAutoscaler", scaler).await;
    site.patch("apps/v1", "Deployment", &name, json!({"spec": {"replicas": 5}})).await;
    let topology = |pools: &[usize], replicas: i32| {
        let mut pools: Vec<Value> = pools.iter().map(|number| site.pool(&site.pools[*number])).collect();
        pools.iter_mut().for_each(|pool| pool["replicas"] = json!(replicas));
        json!({"spec": {"topology": {"pools": pools}}})
    };
    site.patch(ours, kind, "web", topology(&[0, 1, 2], 2)).await;
    site.have("Deployment", "/spec/replicas", &[(&site.pools[1], json!(2)), (&site.pools[2], json!(2))]).await;
    let are = async |count: usize| {
        eventually(&format!("{count} workloads are there"), || async {
            let known = site.workloads("Deployment").await;
            if known.len() == count { Ok(()) } else { Err(format!("{:?}", known.keys())) }
        })
        .await;
    };
    are(3).await;
    site.patch(ours, kind, "web", topology(&[0], 2)).await;
    eventually("the removals are held", || async {
        let status = site.status(kind).await;
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut held = conditions.filter(|condition| condition["reason"] == "RemovalsHeld");
        held.next().map(|_| ()).ok_or_else(|| status.to_string())
    })
    .await;
    are(3).await;
    let confirmed = json!({"metadata": {"annotations": {"dapple.dev/confirm-removal": site.pools[2]}}});
    site.patch(ours, kind, "web", confirmed).await;
    are(2).await;
    site.have("Deployment", "/spec/replicas", &[(&site.pools[0], json!(5))]).await;
}
