//! Applications in pools on a real cluster: its controller manager makes their pods, kwok runs them.
//!
//! What OpenYurt's users fell into, and the test that shows that dapple's do not:
//!
//! | OpenYurt | test |
//! |---|---|
//! | a list of NodePools that fails deletes all workloads of YurtAppDaemons | `daemon.rs`, `pools_cannot_be_listed`; with the CRD: `the_crd_is_gone` |
//! | numbers of pods are set back at every event, so that autoscalers never settle | `pools_leave_and_autoscalers_keep_their_numbers` |
//! | `["*", "-x"]` is for x too | `crates/api/src/pool/replacement_pools.rs`: `empty_and_excluding_forms_are_refused` |
//! | patches that come first win over tweaks that come later | `items.rs`: a pool's patch loses against items for all pools |
//! | each tweak is tried alone on a bare Deployment: good ones are refused (#2202), bad combinations pass | `items.rs`: a container that only the pool's patch has; `crates/plan/src/pool/admission.rs`: `pools_that_do_not_render_are_named` |
//! | drift is not put right | `whoever_keeps_changing_a_workload_is_named_and_given_way_to`; of both templates: `crates/cli/tests/it/webhooks_workloads.rs` |
//! | labels and taints of a pool that change are not rendered anew | `stories.rs`, `without_one` and `with_it_again`; `daemon.rs`, `pools_of_another_product_are_read` |
//! | StatefulSets are not watched (#2777) | `stories.rs`: the status has their numbers; `the_pod_that_keeps_a_fix_out_is_named` |
//! | no status of each pool (#1543) | `stories.rs`, `the_last_wins`; `what_a_replacement_refers_to_is_waited_for` |
//! | no rollout from pool to pool (#2008, #647) | `a_bad_version_reaches_one_pool_and_a_fix_goes_there_first`; `harm.rs` |
//! | tweaks of one pool come to another (#2203) | `stories.rs`, `the_last_wins`: the third pool has nothing of it |
//! | all Deployments of the cluster are listed for each look | `crates/cli/tests/it/watches.rs`; requests are counted in `bench/src/bin/pools/cluster.rs` |
//! | names are generated, so that a create that is repeated makes two | `crates/plan/src/pool/workload_tests.rs`: `names_follow_from_what_the_workload_is_for` |
//! | a YurtAppDaemon's own nodeSelector and affinity are dropped | same file: `a_pool_of_a_daemon_gets_its_label_and_taints_beside_what_the_template_says` |

use std::time::Duration;

use dapple_api::pool::{POOL_REVISION_LABEL, RENDERED};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{eventually, manager};

mod daemon;
mod harm;
mod items;
mod refused;
mod site;
mod slips;
mod stories;

use site::{App, IMAGE, MAP, OURS, READINESS, REPLICAS, Site};

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

/// Writes as somebody else until that is given way to.
async fn fight(app: &App<'_>, pool: &str, foreign: &Value) {
    let name = app.workloads().await[pool]["metadata"]["name"].as_str().unwrap().to_owned();
    let deployments = app.site.api("apps/v1", "Deployment");
    let as_other = PatchParams { field_manager: Some("yurt-manager".to_owned()), ..PatchParams::default() };
    let told = eventually(&format!("in {pool} it is given way to"), || async {
        let written = deployments.patch(&name, &as_other, &Patch::Strategic(foreign)).await;
        written.map_err(|error| error.to_string())?;
        let status = app.status().await;
        let mut pools = status["pools"].as_array().into_iter().flatten();
        let told = pools.find(|told| told["name"] == pool).cloned().unwrap_or_default();
        let message = told["message"].as_str().unwrap_or_default();
        if message.starts_with("yurt-manager keeps changing") { Ok(told) } else { Err(told.to_string()) }
    })
    .await;
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("spec.template.spec.containers[name=web].image"), "{message}");
    let repairs = told["repairs"].as_array().map_or(0, Vec::len);
    assert!((1..=3).contains(&repairs), "{told}");
}

/// Somebody who writes as often as dapple does, such as another product's controller, is named, and given way to. One pool is
/// changed by somebody who leaves the rest as it is, another by one who writes all of it anew, without what dapple noted.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_keeps_changing_a_workload_is_named_and_given_way_to() {
    let (site, _manager) = Site::new("pool-fight", 2).await;
    let app = App { site: &site, name: "web".to_owned(), kind: "YurtAppSet", workload: "Deployment" };
    app.create(app.said("web:1")).await;
    app.is_done().await;
    let containers = json!([{"name": "web", "image": "foreign:1"}]);
    let foreign = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let mut anew = foreign.clone();
    anew["metadata"] = json!({"annotations": {RENDERED: null}, "labels": {POOL_REVISION_LABEL: null}});
    tokio::join!(fight(&app, &site.pools[0], &foreign), fight(&app, &site.pools[1], &anew));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(app.with("foreign:1").await.len(), 2, "nothing is put right any more");
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

/// A pool that is dropped goes; of many that are, those go that somebody names; and an autoscaler keeps its number, whatever is
/// declared, changed or taken back.
#[tokio::test(flavor = "multi_thread")]
async fn pools_leave_and_autoscalers_keep_their_numbers() {
    let (site, _manager) = Site::new("pool-leave", 4).await;
    let app = App { site: &site, name: "web".to_owned(), kind: "YurtAppSet", workload: "Deployment" };
    app.create(app.said("web:1")).await;
    app.is_done().await;
    let workload = app.workloads().await[&site.pools[0]].clone();
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let scaler = json!({"metadata": {"name": "web"}, "spec": {"minReplicas": 1, "maxReplicas": 9,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}});
    site.create("autoscaling/v2", "HorizontalPodAutoscaler", scaler).await;
    site.patch("apps/v1", "Deployment", &name, json!({"spec": {"replicas": 5}})).await;
    let have = async |number: i32| {
        let pools = site.pools[1..3].iter().map(|pool| (pool.as_str(), json!(number)));
        let wanted: Vec<_> = pools.chain([(site.pools[0].as_str(), json!(5))]).collect();
        app.have(REPLICAS, &wanted).await;
    };
    app.replace("web", json!([{"pools": "*", "items": [{"replicas": 3}]}])).await;
    have(3).await;
    app.set_image("web:2").await;
    app.have(IMAGE, &[(&site.pools[0], json!("web:2")), (&site.pools[1], json!("web:2"))]).await;
    have(3).await;
    app.end_replacement("web").await;
    have(1).await;

    let topology = |pools: &[usize], replicas: i32| {
        let mut pools: Vec<Value> = pools.iter().map(|number| site.pool(&site.pools[*number])).collect();
        pools.iter_mut().for_each(|pool| pool["replicas"] = json!(replicas));
        json!({"spec": {"topology": {"pools": pools}}})
    };
    app.patch(topology(&[0, 1, 2], 2)).await;
    have(2).await;
    app.is_in(3).await;
    app.is_done().await;
    app.patch(topology(&[0], 2)).await;
    app.says("Synced", "RemovalsHeld").await;
    app.is_in(3).await;
    app.annotate("dapple.dev/confirm-removal", Some(&site.pools[2])).await;
    app.is_in(2).await;
    // The other was not named: it stays, though it is the only one that leaves by now.
    app.patch(topology(&[0], 4)).await;
    is_observed(&app).await;
    let known = app.workloads().await;
    assert!(known.contains_key(&site.pools[1]), "only {:?} are left", known.keys());
    app.have(REPLICAS, &[(&site.pools[0], json!(5))]).await;
}

/// Waits until what an application says was looked at.
async fn is_observed(app: &App<'_>) {
    eventually(&format!("{} is looked at", app.name), || async {
        let found = app.site.api(OURS, app.kind).get(&app.name).await.map_err(|error| error.to_string())?;
        let status = &found.data["status"];
        let is_now = status["observedGeneration"].as_i64() == found.metadata.generation;
        if is_now { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
