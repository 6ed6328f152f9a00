//! The webhook for workloads over TLS, as the API server asks it: stray writes to the workloads of an application, beside writes of the
//! same size to workloads of nobody, which it answers at once.

use std::sync::Arc;

use anyhow::{Context, ensure};
use dapple_bench::fleet::until;
use dapple_bench::goals::check;
use dapple_bench::hooked::{Hooked, trusted};
use dapple_bench::load::{Pace, Times, load};
use dapple_testbed::trusting;
use http::Request;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};

use crate::application::spec;
use crate::decisions::POOLS;

const PACE: Pace = Pace { per_second: 200, seconds: 10 };
/// Of either kind, in turn.
const ROUNDS: usize = 3;
const GOAL: f64 = 1.5;
const PATH: &str = "/put-back-workload";

pub(crate) async fn run(missed: &mut Vec<String>) -> anyhow::Result<()> {
    let hooked = Hooked::start(1).await?;
    let manager = hooked.replica(0, &["--kube-api-qps", "2000", "--kube-api-burst", "2000"])?;
    hooked.asked().await?;
    let workloads = workloads(&hooked.client).await?;
    let reviews: Vec<[Vec<u8>; 2]> =
        workloads.iter().map(|known| [review(known, true), review(known, false)]).collect();
    let reviews = Arc::new(reviews);
    let authority = serde_json::from_value(trusted(&hooked.client).await?)?;
    let webhook = trusting(hooked.backends[0].address, &authority).await?;
    println!("\nwebhook: stray writes to workloads in {POOLS} pools, over TLS, {} a second", PACE.per_second);
    let mut medians = [Vec::new(), Vec::new()];
    // What is rendered once is rendered then.
    for round in 0..=ROUNDS {
        for (kind, what) in ["of an application", "of nobody"].into_iter().enumerate() {
            let (all, webhook) = (reviews.clone(), webhook.clone());
            let answers = load(PACE, move |number| {
                let (all, webhook) = (all.clone(), webhook.clone());
                async move { ask(&webhook, &all[number as usize % all.len()][kind]).await }
            })
            .await?;
            let mut times = Vec::new();
            for (took, is_put_back) in answers {
                let is_put_back = is_put_back?;
                ensure!(is_put_back == (kind == 0), "a write to a workload {what} became something else");
                times.push(took);
            }
            let times = Times::of(times);
            if round > 0 {
                println!("  {what}: {times}");
                medians[kind].push(times.p50.as_secs_f64());
            }
        }
    }
    let [ours, nobodys] = medians.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[ROUNDS / 2]
    });
    let ratio = ours / nobodys;
    check(missed, format!("of an application / of nobody: {ratio:.3} (goal at most {GOAL})"), ratio <= GOAL);
    drop(manager);
    hooked.stop().await
}

/// The workloads of an application in all pools.
async fn workloads(client: &Client) -> anyhow::Result<Vec<DynamicObject>> {
    let api = |group: &str, version: &str, kind: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource)
    };
    let (sets, deployments) = (api("apps.openyurt.io", "v1alpha1", "YurtAppSet"), api("apps", "v1", "Deployment"));
    let object = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet",
        "metadata": {"name": "web", "annotations": {"dapple.dev/rollout-max": "100%"}}, "spec": spec(POOLS)});
    sets.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    until("all pools are done", || async {
        let found = sets.get("web").await?;
        Ok(found.data["status"]["updatedPools"] == POOLS)
    })
    .await?;
    Ok(deployments.list(&ListParams::default()).await?.items)
}

/// What the API server would send about somebody's change of an image.
fn review(known: &DynamicObject, is_controlled: bool) -> Vec<u8> {
    let mut old = json!(known);
    (old["apiVersion"], old["kind"]) = (json!("apps/v1"), json!("Deployment"));
    if !is_controlled && let Some(owner) = old.pointer_mut("/metadata/ownerReferences/0") {
        owner["controller"] = json!(false);
    }
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("stray:1");
    let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let resource = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": known.metadata.uid, "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
        "name": known.metadata.name, "namespace": "default", "operation": "UPDATE", "dryRun": false,
        "object": new, "oldObject": old,
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"}}});
    review.to_string().into_bytes()
}

/// Whether something of a write is put back.
async fn ask(webhook: &Client, body: &[u8]) -> anyhow::Result<bool> {
    let request = Request::post(PATH).header("content-type", "application/json").body(body.to_vec())?;
    let answer: Value = serde_json::from_str(&webhook.request_text(request).await?)?;
    let response = &answer["response"];
    ensure!(response["allowed"].as_bool().context("no answer")?, "it is refused: {response}");
    Ok(!response["patch"].is_null())
}
