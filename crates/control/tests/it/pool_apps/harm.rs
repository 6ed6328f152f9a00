//! A version that turns ready and then takes pools down, those that have it and those that do not: it goes no further.

use std::collections::BTreeMap;

use dapple_testbed::Readiness;
use kube::api::DeleteParams;
use serde_json::Value;

use super::site::{App, MAX, Site};
use crate::support::{eventually, manager};

const POOLS: usize = 20;
/// So often a manager looks, while it might begin with another pool.
const LOOKS: usize = 3;

/// How many pods are available in each pool, as the application tells.
fn available(status: &Value) -> BTreeMap<String, i64> {
    let pools = status["pools"].as_array().into_iter().flatten();
    let of = |pool: &Value| (pool["name"].as_str().unwrap_or_default().to_owned(), pool["available"].as_i64());
    pools.map(of).map(|(name, count)| (name, count.unwrap_or_default())).collect()
}

/// Waits until it is told that no pool has an available pod.
async fn all_are_down(app: &App<'_>) {
    eventually("all pools are told to be down", || async {
        let told = available(&app.status().await);
        let is_so = told.len() == POOLS && told.values().all(|count| *count == 0);
        if is_so { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_takes_every_pool_down_goes_no_further_whoever_leads() {
    let (site, first) = Site::new("pool-down", POOLS).await;
    let app = App { site: &site, name: "web".to_owned(), kind: "YurtAppSet", workload: "Deployment" };
    app.create(app.said("web:1")).await;
    app.is_done().await;
    // By default: one, and then two of twenty.
    app.annotate(MAX, None).await;
    app.set_image("web:2").await;
    eventually("a second pool is begun with: the first was done", || async {
        let with = app.with("web:2").await;
        if with.len() >= 2 { Ok(()) } else { Err(format!("{with:?}")) }
    })
    .await;

    // Now all go down, whatever they have.
    let nodes: Vec<String> = site.pools.iter().map(|pool| Site::node(pool)).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    site.cluster.hold_readiness(&site.name, &nodes, Readiness::Fail).await.unwrap();
    all_are_down(&app).await;
    let with = app.with("web:2").await;
    assert!(with.len() < POOLS / 2, "it goes on by the tenth part: {with:?}");
    app.is_looked_at(LOOKS).await;
    assert_eq!(app.with("web:2").await, with, "none is begun with while as many as the budget are down");

    // Half way another leads.
    first.end().await;
    let _second = manager(&site.cluster, "pool-down").await;
    app.is_looked_at(LOOKS).await;
    assert_eq!(app.with("web:2").await, with, "nor does the next leader");

    // What is down for it counts, though somebody deletes its workload: that comes back and makes no room for another.
    let before = app.workloads().await;
    for pool in &with {
        let name = before[pool]["metadata"]["name"].as_str().unwrap();
        site.api("apps/v1", "Deployment").delete(name, &DeleteParams::default()).await.unwrap();
    }
    eventually("they are made anew", || async {
        let known = app.workloads().await;
        let uid = |known: &BTreeMap<String, Value>, pool: &str| known.get(pool).map(|of| of["metadata"]["uid"].clone());
        let old: Vec<_> = with.iter().filter(|pool| uid(&known, pool) == uid(&before, pool)).collect();
        if known.len() == POOLS && old.is_empty() { Ok(()) } else { Err(format!("{} are there, {old:?}", known.len())) }
    })
    .await;
    app.is_looked_at(LOOKS).await;
    assert_eq!(app.with("web:2").await, with, "nor is there room where workloads were deleted");
    site.cluster.release_readiness(&site.name).await.unwrap();
}
