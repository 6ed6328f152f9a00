//! Images pulled before an update needs them, by OpenKruise's ImagePullJob.

use dapple_testbed::Readiness;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::json;

use super::story::{Story, rolling};
use crate::support::eventually;

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The kind, as far as asking for a pull needs it.
async fn install(story: &Story) -> Api<DynamicObject> {
    let client = story.cluster.client().await.unwrap();
    let crds: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "metadata": {"name": "imagepulljobs.apps.kruise.io"},
        "spec": {
            "group": "apps.kruise.io", "scope": "Namespaced",
            "names": {"kind": "ImagePullJob", "plural": "imagepulljobs"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}],
        },
    });
    crds.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
    let jobs = Api::namespaced_with(client, &story.name, &resource("apps.kruise.io", "v1alpha1", "ImagePullJob"));
    eventually("jobs are served", || async {
        jobs.list(&ListParams::default()).await.map_err(|error| error.to_string())
    })
    .await;
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_once_enough_pods_are_ready() {
    let story = Story::new("pull").await;
    let jobs = install(&story).await;
    let set = |image: &str| {
        let mut set = story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 1}))}));
        set["metadata"]["annotations"] = json!({
            "apps.kruise.io/image-predownload-parallelism": "3",
            "apps.kruise.io/image-predownload-timeout-seconds": "60",
            "apps.kruise.io/image-predownload-min-updated-ready-pods": "1",
        });
        set
    };
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    // The first pod of the new revision does not come up: its image goes nowhere.
    let nodes: Vec<String> = ["small-000", "small-001", "small-002", "small-003", "large-000", "large-001"]
        .map(|node| story.node(node))
        .into();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    story.cluster.hold_readiness("pull-first", &nodes[3..4], Readiness::Fail).await.unwrap();
    story.apply(&set("agent:2")).await;
    story.status("one is updated", |status| status["updatedNumberScheduled"] == 1).await;
    assert_eq!(jobs.list(&ListParams::default()).await.unwrap().items.len(), 0);
    // It does: the others pull theirs while they wait.
    story.cluster.hold_readiness("pull-second", &nodes[2..3], Readiness::Fail).await.unwrap();
    story.cluster.release_readiness("pull-first").await.unwrap();
    let job = eventually("the image is asked for", || async {
        let all = jobs.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let set = story.sets.get("agent").await.map_err(|error| error.to_string())?;
        all.first().cloned().ok_or_else(|| format!("no job, and {}", set.data["status"]))
    })
    .await;
    assert_eq!((&job.data["spec"]["image"], &job.data["spec"]["parallelism"]), (&json!("agent:2"), &json!(3)));
    assert_eq!(job.data["spec"]["pullPolicy"]["timeoutSeconds"], 60);
    story.cluster.release_readiness("pull-second").await.unwrap();
    story.have_image(6, "agent:2").await;
    assert_eq!(jobs.list(&ListParams::default()).await.unwrap().items.len(), 1, "asked for once");
}
