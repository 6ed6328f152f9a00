//! NodePools that a YurtAppDaemon loses sight of, one or all: not selected any more, deleted, without nodes, not to be listed, with
//! their CRD gone, or another product's. A cluster of its own, since CRDs and rights go.

use dapple_api::group::NodeGroupSpec;
use dapple_control::install::install_crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::is_observed;
use super::site::{App, GRACE, Site, Standing};
use crate::support::{MANAGER_USER, Manager, eventually, group, group_has, kubectl_ok, manager, manager_at, node};

const POOLS: usize = 20;
const NODE_POOL: (&str, &str) = ("apps.openyurt.io/v1beta1", "NodePool");
const CRD: &str = "nodepools.apps.openyurt.io";
const LEAVING_SINCE: &str = "dapple.dev/leaving-since";

/// The state of a pool, and what is said of it.
async fn pool_says(app: &App<'_>, pool: &str, state: &str) -> String {
    eventually(&format!("{pool} is {state}"), || async {
        let status = app.status().await;
        let mut pools = status["pools"].as_array().into_iter().flatten();
        let told = pools.find(|told| told["name"] == pool).cloned().unwrap_or_default();
        if told["state"] == state { Ok(told["message"].to_string()) } else { Err(status.to_string()) }
    })
    .await
}

/// Waits until the application is looked at once more.
async fn is_seen(app: &App<'_>, limit: i32) {
    app.patch(json!({"spec": {"revisionHistoryLimit": limit}})).await;
    is_observed(app).await;
}

/// Waits until nothing is noted of a leave any more; then all must be as it was.
async fn is_as_before(app: &App<'_>, before: &Standing) {
    eventually("no workload is noted as leaving", || async {
        let known = app.workloads().await;
        let mut noted =
            known.iter().filter(|(_, workload)| !workload["metadata"]["annotations"][LEAVING_SINCE].is_null());
        noted.next().map_or(Ok(()), |(pool, _)| Err(pool.clone()))
    })
    .await;
    app.is_done().await;
    app.says("Synced", "Synced").await;
    assert_eq!(app.standing().await, *before, "as before");
}

async fn delete_pool(site: &Site, pool: &str) {
    site.api(NODE_POOL.0, NODE_POOL.1).delete(pool, &DeleteParams::default()).await.unwrap();
    eventually("the NodePool is gone", || async {
        let found = site.api(NODE_POOL.0, NODE_POOL.1).get_opt(pool).await.map_err(|error| error.to_string())?;
        if found.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
}

/// Puts a node into a pool, or takes it out.
async fn put(site: &Site, node: &str, pool: Option<&str>) {
    let labels = json!({"metadata": {"labels": {"apps.openyurt.io/nodepool": pool}}});
    site.patch("v1", "Node", node, labels).await;
}

/// One that is not selected stays for a time of grace.
async fn one_is_not_selected(app: &App<'_>, before: &Standing) {
    let pool = &app.site.pools[0];
    app.site.select(pool, false).await;
    let message = pool_says(app, pool, "Leaving").await;
    assert!(message.contains("stays"), "{message}");
    eventually("it is noted since when", || async {
        let noted = app.workloads().await[pool]["metadata"]["annotations"][LEAVING_SINCE].clone();
        if noted.is_string() { Ok(()) } else { Err(noted.to_string()) }
    })
    .await;
    assert_eq!(app.standing().await, *before, "its workload stays");
    app.site.select(pool, true).await;
    is_as_before(app, before).await;
}

/// One that is deleted while its node carries its label, as can happen while webhooks are down, is told of.
async fn one_is_deleted(app: &App<'_>, before: &Standing) {
    let pool = &app.site.pools[1];
    delete_pool(app.site, pool).await;
    let message = app.says("Synced", "PoolsFailed").await;
    assert!(message.contains(pool.as_str()) && message.contains("nodes carry its label"), "{message}");
    is_seen(app, 9).await;
    assert_eq!(app.standing().await, *before, "nothing is changed in it");
    app.site.create_pool(pool).await;
    is_as_before(app, before).await;
}

/// A pool without nodes keeps its workload, and nodes that leave keep their pods.
async fn one_is_emptied(app: &App<'_>, before: &Standing) {
    let pool = &app.site.pools[2];
    put(app.site, &Site::node(pool), None).await;
    eventually("the pool is told to be empty", || async {
        let found = app.site.api(NODE_POOL.0, NODE_POOL.1).get(pool).await.map_err(|error| error.to_string())?;
        let nodes = found.data["status"]["nodes"].as_array().map_or(0, Vec::len);
        if nodes == 0 { Ok(()) } else { Err(found.data["status"].to_string()) }
    })
    .await;
    is_seen(app, 8).await;
    assert_eq!(app.standing().await, *before, "nobody is evicted");
    put(app.site, &Site::node(pool), Some(pool)).await;
    is_as_before(app, before).await;
}

/// All at once, as by a typo: once their time of grace is over none is deleted either.
async fn all_are_not_selected(app: &App<'_>, before: &Standing) {
    for pool in &app.site.pools {
        app.site.select(pool, false).await;
    }
    for pool in &app.site.pools {
        pool_says(app, pool, "Leaving").await;
    }
    app.annotate(GRACE, Some("0s")).await;
    for pool in &app.site.pools {
        eventually(&format!("the removal of {pool} is held"), || async {
            let message = pool_says(app, pool, "Leaving").await;
            if message.contains("dapple.dev/confirm-removal") { Ok(()) } else { Err(message) }
        })
        .await;
    }
    app.says("Synced", "RemovalsHeld").await;
    is_seen(app, 7).await;
    assert_eq!(app.standing().await, *before, "none is deleted");
    // They come back one after another, and what was held stays held, however few are still away.
    for pool in &app.site.pools {
        app.site.select(pool, true).await;
    }
    is_as_before(app, before).await;
}

/// With the CRD all NodePools go.
async fn the_crd_is_gone(app: &App<'_>, before: &Standing) {
    let crds = Api::<CustomResourceDefinition>::all(app.site.client.clone());
    crds.delete(CRD, &DeleteParams::default()).await.unwrap();
    eventually("the CRD is gone", || async {
        let found = crds.get_opt(CRD).await.map_err(|error| error.to_string())?;
        if found.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
    let mut number = 0;
    eventually("it is told that pools are not known", || {
        number += 1;
        let grace = format!("{number}s");
        async move {
            // Whoever looks now knows of no NodePool.
            app.annotate(GRACE, Some(&grace)).await;
            let status = app.status().await;
            let is_told = status.to_string().contains("it is not known which NodePools there are");
            if is_told { Ok(()) } else { Err(status["conditions"].to_string()) }
        }
    })
    .await;
    assert_eq!(app.standing().await, *before, "it never means that there are no pools");
    app.annotate(GRACE, Some("0s")).await;
    install_crds(&app.site.client).await.unwrap();
    for pool in &app.site.pools {
        app.site.create_pool(pool).await;
    }
    is_as_before(app, before).await;
}

/// A manager that may not list NodePools, and does all else.
async fn without_the_right_to_list(site: &Site) -> Manager {
    let read = || -> Value {
        let role = kubectl_ok(&site.cluster, &["get", "clusterrole", "dapple-manager", "-o", "json"], "");
        serde_json::from_str(&role).unwrap()
    };
    let mut rules = read()["rules"].clone();
    for rule in rules.as_array_mut().unwrap() {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|resource| resource != "nodepools");
        }
    }
    let patch = json!({"rules": rules}).to_string();
    kubectl_ok(&site.cluster, &["patch", "clusterrole", "dapple-manager", "--type=merge", "-p", &patch], "");
    let kubeconfig = site.cluster.kubeconfig_for(MANAGER_USER, &["pool-unlisted"]).await.unwrap();
    let file = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let as_manager = kube::Client::try_from(config.clone()).unwrap();
    let pools = Api::<dapple_api::pool::NodePool>::all(as_manager);
    eventually("NodePools cannot be listed", || async {
        match pools.list(&Default::default()).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            other => Err(format!("{:?}", other.map(|found| found.items.len()))),
        }
    })
    .await;
    manager_at(config, "pool-daemon")
}

/// A list that fails never means that there are no pools.
async fn pools_cannot_be_listed(app: &App<'_>, before: &Standing) {
    let site = app.site;
    let manager = without_the_right_to_list(site).await;
    // It leads, and works: so it would have made of "no pools" what it makes of that.
    node(&site.client, "elsewhere", json!({"place": "elsewhere"})).await;
    let match_labels = [("place".to_owned(), "elsewhere".to_owned())].into();
    group(&site.client, "elsewhere", NodeGroupSpec { match_labels, ..NodeGroupSpec::default() }).await;
    group_has(&site.client, "elsewhere", &["elsewhere"]).await;
    let said = app.says("Synced", "Failing").await;
    assert!(said.contains("which NodePools"), "{said}");
    assert_eq!(app.standing().await, *before, "a list that fails deletes nothing");
    manager.end().await;
}

/// Where another product serves NodePools they are read, and neither they nor nodes are written.
async fn pools_of_another_product_are_read(app: &App<'_>, before: &Standing) {
    let site = app.site;
    let label = "app.kubernetes.io/managed-by=another-product";
    kubectl_ok(&site.cluster, &["label", "crd", CRD, label, "--overwrite"], "");
    let manager = manager(&site.cluster, "pool-daemon").await;
    is_as_before(app, before).await;
    // A pool that comes has its workload, one whose taints change has it rendered anew.
    let pool = json!({"apiVersion": NODE_POOL.0, "kind": NODE_POOL.1, "metadata": {"name": "theirs",
        "labels": {"site": site.name}}, "spec": {"type": "Edge", "labels": {"from": "theirs"}}});
    let api = site.api(NODE_POOL.0, NODE_POOL.1);
    api.create(&PostParams::default(), &serde_json::from_value(pool).unwrap()).await.unwrap();
    app.is_in(POOLS + 1).await;
    let tainted = &site.pools[3];
    let taint = json!({"spec": {"labels": {"from": "theirs"}, "taints": [{"key": "edge", "effect": "NoSchedule"}]}});
    site.patch(NODE_POOL.0, NODE_POOL.1, tainted, taint).await;
    let tolerated = json!({"key": "edge", "operator": "Exists", "effect": "NoSchedule"});
    app.have("/spec/template/spec/tolerations/0", &[(tainted, tolerated)]).await;
    let found = api.get("theirs").await.unwrap();
    assert!(found.data["status"].is_null(), "its status is theirs: {}", found.data["status"]);
    let node = site.api("v1", "Node").get(&Site::node(tainted)).await.unwrap();
    let is_ours = |taint: &Value| taint["key"] == "edge";
    let taints = node.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
    assert!(!taints.iter().any(is_ours), "nodes are theirs: {taints:?}");
    assert!(!node.metadata.labels.unwrap_or_default().contains_key("from"), "nodes are theirs");

    // And one that is meant to go does.
    site.select(&site.pools[0], false).await;
    app.is_in(POOLS).await;
    assert!(!app.workloads().await.contains_key(&site.pools[0]));
    // One whose NodePool is gone goes once no node carries its label any more. That is looked for every half minute.
    let gone = &site.pools[4];
    delete_pool(site, gone).await;
    let message = app.says("Synced", "PoolsFailed").await;
    assert!(message.contains(gone.as_str()), "{message}");
    assert!(app.workloads().await.contains_key(gone), "its node carries its label");
    put(site, &Site::node(gone), None).await;
    app.is_in(POOLS - 1).await;
    assert!(!app.workloads().await.contains_key(gone));
    manager.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_workload_goes_with_pools_that_are_lost_sight_of() {
    let site = Site::alone("sight", POOLS).await;
    let first = manager(&site.cluster, "pool-daemon").await;
    let app = App { site: &site, name: "web".to_owned(), kind: "YurtAppDaemon", workload: "Deployment" };
    app.create(app.said("web:1")).await;
    app.is_done().await;
    let before = app.standing().await;
    assert_eq!((before.0.len(), before.1.len()), (POOLS, POOLS), "{before:?}");
    one_is_not_selected(&app, &before).await;
    one_is_deleted(&app, &before).await;
    one_is_emptied(&app, &before).await;
    all_are_not_selected(&app, &before).await;
    the_crd_is_gone(&app, &before).await;
    first.end().await;
    pools_cannot_be_listed(&app, &before).await;
    pools_of_another_product_are_read(&app, &before).await;
    site.stop().await;
}
