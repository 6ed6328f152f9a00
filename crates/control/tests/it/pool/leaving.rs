//! Nodes that leave in numbers, pools that are gone, and leaders that change meanwhile.

use dapple_control::install::install_crds;
use dapple_testbed::ClusterSpec;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::story::{CONFIRM, LABEL, PREVIOUS, QUIET, Story};
use crate::support::{eventually, kubectl_ok, manager};

const CRD: &str = "nodepools.apps.openyurt.io";
const NODES: usize = 20;

fn name(number: usize) -> String {
    format!("n{number:02}")
}

fn has_it(node: &Value) -> bool {
    node["metadata"]["labels"]["zone"] == "a"
}

/// How many nodes have what the pool gives.
async fn count(story: &Story) -> usize {
    let mut count = 0;
    for number in 0..NODES {
        count += usize::from(has_it(&story.read(&name(number)).await));
    }
    count
}

async fn all_have_it(story: &Story) {
    eventually("all nodes have what the pool gives", || async {
        let found = count(story).await;
        if found == NODES { Ok(()) } else { Err(format!("{found} have")) }
    })
    .await;
    story.says("beijing", "Applied", "Applied").await;
}

async fn put_all(story: &Story, pool: Option<&str>) {
    for number in 0..NODES {
        story.put(&name(number), pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_many_nodes_leave_at_once_nothing_is_undone_until_that_was_meant() {
    let story = Story::new(ClusterSpec::api_server()).await;
    let first = manager(&story.cluster, "pool-leaving").await;
    story.pool("beijing", json!({"labels": {"zone": "a"}})).await;
    for number in 0..NODES {
        story.node(&name(number), json!({LABEL: "beijing"}), json!([])).await;
    }
    all_have_it(&story).await;

    // One leaves as it should; the pool remembers it for ten minutes.
    story.put(&name(0), None).await;
    story.until(&name(0), "is as before", |node| node["metadata"]["annotations"][PREVIOUS].is_null()).await;
    let found = story.pools().get("beijing").await.unwrap();
    assert_eq!(found.data["status"]["leftNodes"][0]["name"], name(0));
    story.put(&name(0), Some("beijing")).await;
    all_have_it(&story).await;

    put_all(&story, None).await;
    let message = story.says("beijing", "Held", "ManyLeft").await;
    assert!(message.contains(CONFIRM), "{message}");
    tokio::time::sleep(QUIET).await;
    let held = count(&story).await;
    assert!(held >= NODES - 2, "{held} are held");
    // Whoever leads next decides the same.
    first.end().await;
    let _second = manager(&story.cluster, "pool-leaving").await;
    tokio::time::sleep(QUIET * 2).await;
    assert_eq!(count(&story).await, held);

    // Back: as if nothing had happened. Then some are meant, and then all.
    put_all(&story, Some("beijing")).await;
    all_have_it(&story).await;
    story.says("beijing", "Held", "NothingHeld").await;
    put_all(&story, None).await;
    story.says("beijing", "Held", "ManyLeft").await;
    let meant = name(NODES - 1);
    story.annotate_pool("beijing", CONFIRM, Some(&meant)).await;
    story.until(&meant, "is as before", |node| !has_it(node)).await;
    tokio::time::sleep(QUIET).await;
    assert!(count(&story).await >= NODES - 3);
    story.annotate_pool("beijing", CONFIRM, Some("*")).await;
    eventually("nothing is left of the pool", || async {
        let found = count(&story).await;
        if found == 0 { Ok(()) } else { Err(format!("{found} nodes have it")) }
    })
    .await;
    story.says("beijing", "Held", "NothingHeld").await;
    for number in 0..NODES {
        assert!(story.read(&name(number)).await["metadata"]["annotations"].is_null());
    }
    story.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_gone_changes_nothing_on_its_nodes() {
    let story = Story::new(ClusterSpec::api_server()).await;
    let _manager = manager(&story.cluster, "pool-gone").await;
    let pool = || json!({"labels": {"zone": "a"}, "taints": [{"key": "edge", "effect": "NoSchedule"}]});
    story.pool("beijing", pool()).await;
    for number in 0..NODES {
        story.node(&name(number), json!({LABEL: "beijing"}), json!([])).await;
    }
    all_have_it(&story).await;
    let before = story.read(&name(3)).await;

    story.delete_pool("beijing").await;
    eventually("the loss is told", || async {
        let said = story.events("NodePoolGone").await;
        if said.iter().any(|said| said.contains("\"beijing\"")) { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(count(&story).await, NODES);
    story.pool("beijing", pool()).await;
    all_have_it(&story).await;

    // The CRD itself, with all pools.
    let crds =
        kube::Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
            story.client.clone(),
        );
    crds.delete(CRD, &DeleteParams::default()).await.unwrap();
    eventually("the CRD is gone", || async {
        let found = crds.get_opt(CRD).await.map_err(|error| error.to_string())?;
        if found.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(count(&story).await, NODES);
    install_crds(&story.client).await.unwrap();
    eventually("the kind is listed", || async {
        let listed = kubectl_ok(&story.cluster, &["api-resources", "-o", "name"], "");
        if listed.lines().any(|line| line == CRD) { Ok(()) } else { Err(listed) }
    })
    .await;
    story.pool("beijing", pool()).await;
    all_have_it(&story).await;
    assert_eq!(story.read(&name(3)).await, before, "as it was");
    story.cluster.stop().await.unwrap();
}
