//! Steps that fail: each stops only itself, shows in the status, and recovers without help.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::refused::{allow, forbid_on, is_forbidden};
use super::story::{Story, changed, look_at, rolling};
use crate::support::eventually;

const REVISIONS: (&str, &str, &str) = ("apps", "v1", "controllerrevisions");

fn set(story: &Story, image: &str, limit: u32) -> Value {
    let strategy = rolling(json!({"maxUnavailable": "100%"}));
    story.set(image, json!({"updateStrategy": strategy, "revisionHistoryLimit": limit}))
}

async fn started(name: &str) -> Story {
    let story = Story::without_nodes(name).await;
    story.add_nodes("n", 3, json!({})).await;
    story.apply(&set(&story, "agent:1", 10)).await;
    story.have_image(3, "agent:1").await;
    story.condition("Progressing", "False", "Complete").await;
    story
}

fn a_revision() -> ControllerRevision {
    serde_json::from_value(json!({"metadata": {"name": "probe"}, "revision": 1, "data": {}})).unwrap()
}

/// Deletes a pod, and waits until there is another in its place.
async fn a_pod_is_made_anew(story: &Story, image: &str) {
    let before = story.have_image(3, image).await;
    let (_, pod) = story.all_pods().await.remove(0);
    story.pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    story.pods_are("it is made anew", |seen| seen.len() == 3 && changed(&before, seen).len() == 1).await;
    story.have_image(3, image).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_cannot_be_written_holds_up_the_update_and_nothing_else() {
    let story = started("no-revision").await;
    forbid_on(&story, "no-revision", REVISIONS, "CREATE", "false").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("it is forbidden", || async { is_forbidden(story.revisions.create(&dry, &a_revision()).await) }).await;
    story.apply(&set(&story, "agent:2", 10)).await;
    // With the generation that it is about: no tool takes the set for rolled out.
    let status = story.status("the generation is told", |status| status["updatedNumberScheduled"] == 0).await;
    assert_eq!((&status["numberAvailable"], &status["desiredNumberScheduled"]), (&json!(3), &json!(3)));
    story.condition("Progressing", "False", "Blocked").await;
    let message = story.condition("Degraded", "True", "FailedRevision").await;
    assert!(message.contains("ControllerRevision") && message.contains("not here"), "{message}");
    story.event(&["ControllerRevision", "not here"]).await;
    a_pod_is_made_anew(&story, "agent:1").await;
    let metrics = story.metrics().await;
    let line = r#"dapple_failing_objects{controller="daemonset",reason="FailedRevision"} "#;
    let count = metrics.lines().find_map(|found| found.strip_prefix(line)).map(|count| count.trim().parse::<u32>());
    assert!(count.is_some_and(|count| count.is_ok_and(|count| count > 0)), "{metrics}");
    // A new set has nothing to be made of, and says why.
    let mut second = set(&story, "agent:1", 10);
    second["metadata"]["name"] = json!("second");
    second["spec"]["selector"] = json!({"matchLabels": {"app": "second"}});
    second["spec"]["template"]["metadata"]["labels"] = json!({"app": "second"});
    story.apply(&second).await;
    eventually("it says why", || async {
        let found = story.sets.get("second").await.map_err(|error| error.to_string())?;
        let status = found.data["status"].to_string();
        let is_told = status.contains("FailedRevision") && status.contains("not here");
        if is_told && found.data["status"]["observedGeneration"] == 1 { Ok(()) } else { Err(status) }
    })
    .await;
    story.sets.delete("second", &DeleteParams::default()).await.unwrap();
    allow(&story, "no-revision").await;
    story.have_image(3, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

/// A webhook that the API server cannot call looks like trouble of its own, which mostly passes: only once it lasts, pods
/// are made of the revision before.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_be_called_holds_up_the_update_and_after_a_while_nothing_else() {
    let story = started("dead-webhook").await;
    let client = story.cluster.client().await.unwrap();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let webhook = json!({
        "metadata": {"name": "dead-webhook"},
        "webhooks": [{
            "name": "dead.example.com", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": story.name}},
            "rules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["controllerrevisions"],
                "operations": ["CREATE"]}],
        }],
    });
    webhooks.create(&PostParams::default(), &serde_json::from_value(webhook).unwrap()).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("it is not called", || async {
        match story.revisions.create(&dry, &a_revision()).await {
            Err(kube::Error::Api(error)) if error.code == 500 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    story.apply(&set(&story, "agent:2", 10)).await;
    let message = story.condition("Degraded", "True", "FailedRevision").await;
    assert!(message.contains("dead.example.com"), "{message}");
    a_pod_is_made_anew(&story, "agent:1").await;
    webhooks.delete("dead-webhook", &DeleteParams::default()).await.unwrap();
    story.have_image(3, "agent:2").await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_that_cannot_be_dropped_holds_up_nothing() {
    let story = started("no-history").await;
    forbid_on(&story, "no-history", REVISIONS, "DELETE", "false").await;
    let (_, name) = (0, story.revisions.list(&ListParams::default()).await.unwrap().items[0].name_any());
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually("it is forbidden", || async { is_forbidden(story.revisions.delete(&name, &dry).await) }).await;
    for image in ["agent:2", "agent:3"] {
        story.apply(&set(&story, image, 0)).await;
        story.have_image(3, image).await;
        story.condition("Progressing", "False", "Complete").await;
    }
    let message = story.condition("Degraded", "True", "FailedHistory").await;
    assert!(message.contains("ControllerRevision") && message.contains("not here"), "{message}");
    a_pod_is_made_anew(&story, "agent:3").await;
    allow(&story, "no-history").await;
    story.condition("Degraded", "False", "AsExpected").await;
    assert_eq!(story.revisions.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_taken_in_holds_up_nothing() {
    let story = started("no-owner").await;
    let is_free = "!has(oldObject.metadata.labels) || !('stays' in oldObject.metadata.labels)";
    forbid_on(&story, "no-owner", ("", "v1", "pods"), "UPDATE", is_free).await;
    // Nobody's, to see that it works: the API server takes in policies in its own time.
    let probe = json!({
        "metadata": {"name": "probe", "labels": {"stays": "yes"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "other:1"}]},
    });
    story.pods.create(&PostParams::default(), &serde_json::from_value(probe).unwrap()).await.unwrap();
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    eventually("it is forbidden", || async { is_forbidden(story.pods.patch("probe", &dry, &patch).await) }).await;
    story.pods.delete("probe", &DeleteParams::default().grace_period(0)).await.unwrap();
    // One that the set selects and nobody owns, and that nobody may change.
    let (node, _) = story.all_pods().await.remove(0);
    let orphan = json!({
        "metadata": {"name": "orphan", "labels": {"app": "agent", "stays": "yes"}},
        "spec": {"nodeName": story.node(&node), "containers": [{"name": "c", "image": "other:1"}]},
    });
    story.pods.create(&PostParams::default(), &serde_json::from_value(orphan).unwrap()).await.unwrap();
    let message = story.condition("Degraded", "True", "FailedAdoption").await;
    assert!(message.contains("Pod orphan") && message.contains("not here"), "{message}");
    story.apply(&set(&story, "agent:2", 10)).await;
    story
        .every_pod("the others are updated", |pods| {
            pods.iter().filter(|(_, pod)| look_at(pod).image == "agent:2").count() == 3
        })
        .await;
    allow(&story, "no-owner").await;
    story.every_pod("what is one too many goes", |pods| pods.len() == 3).await;
    story.condition("Degraded", "False", "AsExpected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_cannot_be_written_holds_up_nothing_and_is_an_event_after_a_minute() {
    let story = started("no-status").await;
    let status = ("apps.kruise.io", "v1beta1", "daemonsets/status");
    forbid_on(&story, "no-status", status, "UPDATE", "false").await;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"status": {"numberReady": 7}}));
    eventually("it is forbidden", || async { is_forbidden(story.sets.patch_status("agent", &dry, &patch).await) })
        .await;
    story.apply(&set(&story, "agent:2", 10)).await;
    story.have_image(3, "agent:2").await;
    a_pod_is_made_anew(&story, "agent:2").await;
    story.event(&["the last look at it failed", "not here"]).await;
    allow(&story, "no-status").await;
    story.condition("Progressing", "False", "Complete").await;
    story.condition("Degraded", "False", "AsExpected").await;
}
