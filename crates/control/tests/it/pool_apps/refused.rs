//! What the API server refuses: it concerns one pool, or one revision, and never the rest, and the status says so.

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::site::Site;
use crate::support::{allow, eventually, forbid, is_forbidden};

const OURS: &str = "apps.openyurt.io/v1alpha1";
const KIND: &str = "YurtAppSet";
const DEPLOYMENTS: (&str, &str, &str) = ("apps", "v1", "deployments");
const REVISIONS: (&str, &str, &str) = ("apps", "v1", "controllerrevisions");

/// An application that changes all its pools at once, and keeps one revision that it does not need.
async fn application(site: &Site) {
    let mut application = site.application(KIND, "Deployment", "web:1");
    application["metadata"]["annotations"] = json!({"dapple.dev/rollout-max": "100%"});
    application["spec"]["revisionHistoryLimit"] = json!(1);
    site.create(OURS, KIND, application).await;
    site.is_done(KIND).await;
}

async fn say(site: &Site, image: &str) {
    let containers = json!([{"name": "web", "image": image}]);
    let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    site.patch(OURS, KIND, "web", json!({"spec": {"workloadTemplate": {"deploymentTemplate": template}}})).await;
}

/// Waits until the status is of what is said now, and has this state and these words for a pool, and every other pool is done.
async fn one_fails(site: &Site, pool: &str, words: &str) {
    eventually(&format!("{pool} says {words:?}, and the others are done"), || async {
        let found = site.api(OURS, KIND).get("web").await.map_err(|error| error.to_string())?;
        let status = &found.data["status"];
        let pools = status["pools"].as_array().cloned().unwrap_or_default();
        let is_right = |known: &Value| match known["name"] == pool {
            true => known["state"] == "Failed" && known["message"].as_str().unwrap_or_default().contains(words),
            false => known["state"] == "Done",
        };
        let is_fresh = status["observedGeneration"].as_i64() == found.metadata.generation;
        if is_fresh && pools.len() == site.pools.len() && pools.iter().all(is_right) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}

/// Waits until the condition Synced is so, of what is said now, with these words.
async fn synced(site: &Site, status: &str, words: &[&str]) {
    eventually(&format!("Synced is {status}, with {words:?}"), || async {
        let found = site.api(OURS, KIND).get("web").await.map_err(|error| error.to_string())?;
        let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let synced = conditions.into_iter().find(|known| known["type"] == "Synced").unwrap_or_default();
        let message = synced["message"].as_str().unwrap_or_default();
        let is_fresh = synced["observedGeneration"].as_i64() == found.metadata.generation;
        let is_so = synced["status"] == status && words.iter().all(|word| message.contains(word));
        if is_fresh && is_so { Ok(()) } else { Err(synced.to_string()) }
    })
    .await;
}

/// Whoever takes the owner of a workload away, and has a policy that lets nobody put it back, stops the pool of that workload alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_cannot_be_taken_in_holds_up_its_own_pool() {
    let (site, _manager) = Site::new("pool-orphan", 3).await;
    application(&site).await;
    let name = site.workloads("Deployment").await[&site.pools[0]]["metadata"]["name"].as_str().unwrap().to_owned();
    let gets_no_owner = "!has(object.metadata.ownerReferences) || has(oldObject.metadata.ownerReferences)";
    let expression =
        format!("object.metadata.name != '{name}' || !('probe' in object.metadata.labels) && ({gets_no_owner})");
    forbid(&site.client, (&site.name, "pool-orphan"), DEPLOYMENTS, "UPDATE", &expression).await;
    let deployments = site.api("apps/v1", "Deployment");
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually("it is forbidden", || async {
        is_forbidden(
            deployments.patch(&name, &dry, &Patch::Merge(json!({"metadata": {"labels": {"probe": "1"}}}))).await,
        )
    })
    .await;

    site.patch("apps/v1", "Deployment", &name, json!({"metadata": {"ownerReferences": null}})).await;
    say(&site, "web:2").await;
    one_fails(&site, &site.pools[0], "cannot be taken in").await;
    synced(&site, "False", &[&format!("Deployment {name} cannot be taken in"), "not here"]).await;
    assert_eq!(site.with("web:2").await, site.pools[1..], "the others go on");
    assert_eq!(deployments.list(&ListParams::default()).await.unwrap().items.len(), 3, "none is made beside it");

    allow(&site.client, "pool-orphan").await;
    site.is_done(KIND).await;
    assert_eq!(site.with("web:2").await, site.pools);
    synced(&site, "True", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_told_and_the_rest_goes_on() {
    let (site, _manager) = Site::new("pool-refused", 3).await;
    application(&site).await;
    let first = site.status(KIND).await["currentRevision"].as_str().unwrap().to_owned();
    a_write_of_one_pool(&site).await;
    a_revision_that_cannot_be_made(&site).await;
    a_revision_that_cannot_be_dropped(&site, &first).await;
}

/// Then all have `web:2`.
async fn a_write_of_one_pool(site: &Site) {
    let name = site.workloads("Deployment").await[&site.pools[0]]["metadata"]["name"].as_str().unwrap().to_owned();
    let has_first = "object.spec.template.spec.containers[0].image == 'web:1'";
    let expression = format!("object.metadata.name != '{name}' || {has_first}");
    forbid(&site.client, (&site.name, "pool-refused-write"), DEPLOYMENTS, "UPDATE", &expression).await;
    let deployments = site.api("apps/v1", "Deployment");
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let probe = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "probe"}]}}}});
    eventually("it is forbidden", || async {
        is_forbidden(deployments.patch(&name, &dry, &Patch::Merge(probe.clone())).await)
    })
    .await;
    say(site, "web:2").await;
    one_fails(site, &site.pools[0], "refused: ").await;
    assert_eq!(site.with("web:2").await, site.pools[1..]);
    allow(&site.client, "pool-refused-write").await;
    site.is_done(KIND).await;
    assert_eq!(site.with("web:2").await, site.pools);
}

/// Nothing is rolled out before it is there. Then all have `web:3`.
async fn a_revision_that_cannot_be_made(site: &Site) {
    forbid(&site.client, (&site.name, "pool-refused-make"), REVISIONS, "CREATE", "object.metadata.name == 'none'")
        .await;
    let revisions = site.api("apps/v1", "ControllerRevision");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "probe"},
        "revision": 1, "data": {}});
    let probe: DynamicObject = serde_json::from_value(probe).unwrap();
    eventually("it is forbidden", || async { is_forbidden(revisions.create(&dry, &probe).await) }).await;
    say(site, "web:3").await;
    synced(site, "False", &["ControllerRevision web-", "cannot be made", "not here"]).await;
    assert_eq!(site.with("web:2").await, site.pools);
    allow(&site.client, "pool-refused-make").await;
    site.is_done(KIND).await;
    assert_eq!(site.with("web:3").await, site.pools);
}

/// One is kept that nobody needs: the next that nobody needs any more has the first one go.
async fn a_revision_that_cannot_be_dropped(site: &Site, first: &str) {
    let revisions = site.api("apps/v1", "ControllerRevision");
    // It is gone by now, since two others were made.
    let second = eventually("one is kept that nobody needs", || async {
        let known = revisions.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let mut numbers: Vec<(i64, String)> = known
            .into_iter()
            .map(|known| (known.data["revision"].as_i64().unwrap_or_default(), known.metadata.name.unwrap_or_default()))
            .collect();
        numbers.sort_unstable();
        let is_so = numbers.len() == 2 && numbers.iter().all(|(_, name)| name != first);
        if is_so { Ok(numbers.remove(0).1) } else { Err(format!("{numbers:?}")) }
    })
    .await;
    let expression = format!("oldObject.metadata.name != '{second}'");
    forbid(&site.client, (&site.name, "pool-refused-drop"), REVISIONS, "DELETE", &expression).await;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually("it is forbidden", || async { is_forbidden(revisions.delete(&second, &dry).await) }).await;
    say(site, "web:4").await;
    site.is_done(KIND).await;
    assert_eq!(site.with("web:4").await, site.pools);
    synced(site, "False", &[&format!("ControllerRevision {second} cannot be dropped"), "not here"]).await;
    allow(&site.client, "pool-refused-drop").await;
    synced(site, "True", &[]).await;
    assert!(revisions.get_opt(&second).await.unwrap().is_none(), "nobody needs it");
}
