//! What the API server refuses: it concerns one node, or nobody, and never the rest.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::story::{Story, look_at, rolling};
use super::watch::{Invariants, watch};
pub(super) use crate::support::is_forbidden;
use crate::support::{self, eventually};

/// Forbids what an expression does not allow, for pods of one namespace.
async fn forbid(story: &Story, name: &str, operation: &str, expression: &str) {
    forbid_on(story, name, ("", "v1", "pods"), operation, expression).await;
}

/// Forbids what an expression does not allow, for a resource (group, version, name) in one namespace.
pub(super) async fn forbid_on(
    story: &Story,
    name: &str,
    (group, version, resource): (&str, &str, &str),
    operation: &str,
    expression: &str,
) {
    let client = story.cluster.client().await.unwrap();
    support::forbid(&client, (&story.name, name), (group, version, resource), operation, expression).await;
}

pub(super) async fn allow(story: &Story, name: &str) {
    support::allow(&story.cluster.client().await.unwrap(), name).await;
}

fn set(story: &Story, image: &str, strategy: Value) -> Value {
    story.set(image, json!({"updateStrategy": rolling(strategy)}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_of_the_size_of_the_fleet_stops_no_rollout() {
    let story = Story::new("quota").await;
    let quotas: Api<ResourceQuota> = Api::namespaced(story.cluster.client().await.unwrap(), &story.name);
    let quota = json!({"metadata": {"name": "six"}, "spec": {"hard": {"pods": "6"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    story.apply(&set(&story, "agent:1", json!({}))).await;
    story.have_image(6, "agent:1").await;
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set(&story, "agent:2", json!({}))).await;
    // One by one: before each the quota must be counted anew, and one that came too early is tried again later.
    for count in 1..6 {
        let is_new = |(_, pod): &&(String, Pod)| look_at(pod).image == "agent:2";
        story.every_pod("one more is updated", |pods| pods.iter().filter(is_new).count() >= count).await;
    }
    story.have_image(6, "agent:2").await;
    story.condition("Degraded", "False", "AsExpected").await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_may_not_be_deleted_holds_up_its_own_node_only() {
    let story = Story::new("protected").await;
    story.apply(&set(&story, "agent:1", json!({"maxUnavailable": 2}))).await;
    let first = story.have_image(6, "agent:1").await;
    let expression = format!("oldObject.metadata.name != '{}'", first["small-003"].name);
    forbid(&story, "protected", "DELETE", &expression).await;
    let only_asking = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually("it is forbidden", || async {
        is_forbidden(story.pods.delete(&first["small-003"].name, &only_asking).await)
    })
    .await;
    story.apply(&set(&story, "agent:2", json!({"maxUnavailable": 2}))).await;
    let second = story.have_image(5, "agent:2").await;
    assert_eq!(second["small-003"], first["small-003"]);
    let message = story.condition("Degraded", "True", "FailedDelete").await;
    assert!(message.contains(&story.node("small-003")) && message.contains("not here"), "{message}");
    allow(&story, "protected").await;
    story.have_image(6, "agent:2").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_have_no_pod_holds_up_no_other() {
    let story = Story::new("banned").await;
    let banned = story.node("small-001");
    // The scheduler binds through another resource: what names the node in a new pod is its affinity.
    let expression = format!(
        "object.metadata.name != 'probe' && !object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]\
         .matchFields[0].values.exists(name, name == '{banned}')"
    );
    forbid(&story, "banned", "CREATE", &expression).await;
    let probe = json!({"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "c"}]}});
    let only_asking = PostParams { dry_run: true, ..PostParams::default() };
    eventually("it is forbidden", || async {
        is_forbidden(story.pods.create(&only_asking, &serde_json::from_value(probe.clone()).unwrap()).await)
    })
    .await;
    story.apply(&set(&story, "agent:1", json!({}))).await;
    story.have_image(5, "agent:1").await;
    let message = story.condition("Degraded", "True", "FailedCreate").await;
    assert!(message.contains(&banned) && message.contains("not here"), "{message}");
    story.nodes.delete(&banned, &DeleteParams::default()).await.unwrap();
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_changed_in_place_is_no_obstacle_to_a_surge() {
    let story = Story::new("renamed").await;
    let in_place = || json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 6});
    story.apply(&set(&story, "agent:1", in_place())).await;
    let first = story.have_image(6, "agent:1").await;
    story.apply(&set(&story, "agent:2", in_place())).await;
    let second = story.have_image(6, "agent:2").await;
    assert_eq!(first["small-000"].name, second["small-000"].name);
    // Its name is that of a pod of the first image, which is wanted again beside it.
    story.status("all is done", |status| status["updatedNumberScheduled"] == 6).await;
    story.apply(&set(&story, "agent:1", json!({"maxSurge": 2}))).await;
    story.have_image(6, "agent:1").await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_that_nobody_has_are_not_told() {
    let story = Story::new("deserted").await;
    story.apply(&set(&story, "agent:1", json!({}))).await;
    story.have_image(6, "agent:1").await;
    story.status("one variant", |status| status["variants"].as_array().map_or(0, Vec::len) == 1).await;
    let mut elsewhere = set(&story, "agent:1", json!({}));
    elsewhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"story": "nowhere"});
    story.apply(&elsewhere).await;
    story.status("none", |status| status["variants"].as_array().is_none_or(Vec::is_empty)).await;
    let left = || async { story.pods.list(&ListParams::default()).await.unwrap().items.len() };
    story.status("nobody is misscheduled", |status| status["numberMisscheduled"] == 0).await;
    eventually("no pod is left", || async {
        let left = left().await;
        if left == 0 { Ok(()) } else { Err(format!("{left} pods")) }
    })
    .await;
}
