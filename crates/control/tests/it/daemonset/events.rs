//! What is said of a set in Events, and counted of it in metrics.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::story::{Story, cache, changed, rolling};
use crate::support::{eventually, kubectl_ok};

/// What an Event says: type, reason, message and count.
pub(super) type Said = (String, String, String, i32);

impl Story {
    /// The Events about the set.
    async fn said(&self) -> Vec<Said> {
        let events: Api<Event> = Api::namespaced(self.cluster.client().await.unwrap(), &self.name);
        let about = ListParams::default().fields("involvedObject.kind=DaemonSet,involvedObject.name=agent");
        let all = events.list(&about).await.unwrap();
        let text = |text: Option<String>| text.unwrap_or_default();
        let said = |event: Event| {
            assert_eq!(event.involved_object.api_version.as_deref(), Some("apps.kruise.io/v1beta1"));
            assert!(event.reporting_component.is_some() && event.action.is_some(), "{event:?}");
            assert!(event.first_timestamp.is_some() && event.last_timestamp >= event.first_timestamp, "{event:?}");
            (text(event.type_), text(event.reason), text(event.message), event.count.unwrap_or(0))
        };
        all.into_iter().map(said).collect()
    }

    /// Waits until what is said of one reason is right.
    pub(super) async fn says(&self, reason: &str, is_right: impl Fn(&[Said]) -> bool) -> Vec<Said> {
        eventually(&format!("{}: events of {reason}", self.name), || async {
            let said: Vec<Said> = self.said().await.into_iter().filter(|said| said.1 == reason).collect();
            if is_right(&said) { Ok(said) } else { Err(format!("{said:?}")) }
        })
        .await
    }

    /// The lines of a metric of the set, with the value of each.
    async fn measured(&self, metric: &str) -> Vec<f64> {
        let labels = format!(r#"{metric}{{namespace="{}",name="agent"}} "#, self.name);
        let text = self.metrics().await;
        text.lines().filter_map(|line| line.strip_prefix(&labels)).filter_map(|value| value.parse().ok()).collect()
    }
}

fn said(kind: &str, reason: &str, message: String) -> Said {
    (kind.to_owned(), reason.to_owned(), message, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_made_deleted_and_fail_are_told_of() {
    let story = Story::new("events").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 3}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let made = story.says("SuccessfulCreate", |said| said.len() == 6).await;
    for pod in first.values() {
        assert!(made.contains(&said("Normal", "SuccessfulCreate", format!("Created pod: {}", pod.name))), "{made:?}");
    }

    story.apply(&set("agent:2")).await;
    let second = story.have_image(6, "agent:2").await;
    let deleted = story.says("SuccessfulDelete", |said| said.len() == 6).await;
    for pod in first.values() {
        let message = format!("Deleted pod: {}", pod.name);
        assert!(deleted.contains(&said("Normal", "SuccessfulDelete", message)), "{deleted:?}");
    }

    let pod = &second["small-000"].name;
    let failed = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
    story.pods.patch_status(pod, &PatchParams::default(), &failed).await.unwrap();
    story.pods_are("it comes back", |seen| seen.len() == 6 && changed(&second, seen) == ["small-000"]).await;
    let node = story.node("small-000");
    let message = format!("Found failed daemon pod events/{pod} on node {node}, will try to kill it");
    let told = story.says("FailedDaemonPod", |said| !said.is_empty()).await;
    // Counted again, should the pod have changed before it was deleted.
    let told: Vec<Said> = told.into_iter().map(|told| (told.0, told.1, told.2, 1)).collect();
    assert_eq!(told, [said("Warning", "FailedDaemonPod", message.clone())]);

    let described = kubectl_ok(&story.cluster, &["describe", "daemonsets.apps.kruise.io/agent", "-n", "events"], "");
    assert!(described.contains(&message) && described.contains("dapple.dev/manager"), "{described}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_in_place_are_told_of() {
    let story = Story::new("events-in-place").await;
    let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 6}));
    let set = |image: &str| story.set(image, json!({"updateStrategy": strategy}));
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    story.apply(&set("agent:2")).await;
    let pods = story.have_image(6, "agent:2").await;
    let told = story.says("SuccessfulUpdatePodInPlace", |said| said.len() == 6).await;
    for pod in pods.values() {
        let message = format!("successfully update pod {} in-place", pod.name);
        assert!(told.contains(&said("Normal", "SuccessfulUpdatePodInPlace", message)), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_are_a_few_events_and_a_count() {
    let story = Story::new("events-many").await;
    story.add_nodes("more", 54, json!({"disk": "small"})).await;
    story.apply(&story.set("agent:1", json!({}))).await;
    story.have_image(60, "agent:1").await;
    // Nine by themselves, and one for all others, whose count is written after a pause.
    let is_all = |said: &[Said]| said.iter().map(|said| said.3).sum::<i32>() == 60;
    let told = story.says("SuccessfulCreate", is_all).await;
    let (combined, own): (Vec<_>, Vec<_>) = told.iter().partition(|said| said.2.starts_with("(combined from"));
    assert_eq!((own.len(), combined.len()), (9, 1), "{told:?}");
    let listed = kubectl_ok(&story.cluster, &["get", "events", "-n", "events-many", "-o", "wide"], "");
    let line = listed.lines().find(|line| line.contains("(combined from similar events): Created pod: "));
    assert!(line.is_some_and(|line| line.split_whitespace().any(|word| word == "51")), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_are_counted_by_set_until_it_is_gone() {
    let story = Story::new("events-metrics").await;
    let set = |patch: Value| story.set("agent:1", json!({"patches": [patch]}));
    story.apply(&set(cache("large", "2Ti"))).await;
    story.have_image(6, "agent:1").await;
    assert_eq!(story.measured("daemonset_patches_applied_total").await, [2.0], "two nodes have large disks");
    assert_eq!(story.measured("daemonset_patches_duration_seconds_count").await, [1.0], "rendered once for both");
    assert_eq!(story.measured("daemonset_patches_errors_total").await, [0.0; 0]);

    let mut bad = cache("large", "4Ti");
    bad["patch"]["spec"]["containers"] = json!([{"image": "without-a-name"}]);
    story.apply(&set(bad)).await;
    story.condition("Degraded", "True", "PatchFailed").await;
    let failed = story.measured("daemonset_patches_errors_total").await;
    assert!(failed.len() == 1 && failed[0] >= 2.0 && failed[0] % 2.0 == 0.0, "both nodes, each time: {failed:?}");

    story.sets.delete("agent", &DeleteParams::default()).await.unwrap();
    eventually("its metrics are gone", || async {
        let left = story.metrics().await.lines().filter(|line| line.contains("events-metrics")).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} lines")) }
    })
    .await;
}
