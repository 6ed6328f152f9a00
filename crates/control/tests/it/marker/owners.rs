//! Markers over pods of a Deployment and a StatefulSet, with what these select on and know their pods by: no pod is released,
//! replaced or restarted. No webhook is there.

use std::collections::BTreeMap;

use dapple_testbed::{ClusterSpec, Fleet};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::story::{QUIET, Story};
use crate::support::{eventually, manager};

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app, "tier": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "web:1"}]}})
}

/// Three pods of each, ready.
async fn workloads(story: &Story) {
    let kinds = json!([{"name": "n", "count": 2, "capacity": {"cpu": 8, "memory": "32Gi", "pods": 110}}]);
    let fleet = Fleet::from_yaml(&json!({"kinds": kinds}).to_string(), "fleet").unwrap();
    story.cluster.apply_fleet(&fleet).await.unwrap();
    for (kind, app) in [("Deployment", "deployed"), ("StatefulSet", "numbered")] {
        let mut spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": app}}, "template": template(app)});
        if kind == "StatefulSet" {
            spec["serviceName"] = json!(app);
            spec["podManagementPolicy"] = json!("Parallel");
        }
        eventually(&format!("the {kind} is made"), || async {
            let object = json!({"metadata": {"name": app}, "spec": spec});
            story.try_create("apps/v1", kind, object).await
        })
        .await;
    }
    eventually("six pods are ready", || async {
        let ready = story.pods().list(&ListParams::default()).await.unwrap().items;
        let is_ready = |pod: &Value| {
            let mut conditions = pod["conditions"].as_array().into_iter().flatten();
            conditions.any(|known| known["type"] == "Ready" && known["status"] == "True")
        };
        let ready = ready.iter().filter(|pod| is_ready(&pod.data["status"])).count();
        if ready == 6 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await;
}

/// Labels of pods by which their owners know them.
async fn identities(story: &Story) -> BTreeMap<String, BTreeMap<String, String>> {
    let pods = story.pods().list(&ListParams::default()).await.unwrap().items;
    let keys = [
        "app",
        "pod-template-hash",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
    ];
    let of = |pod: &kube::api::DynamicObject| {
        let labels = pod.labels().iter().filter(|(key, _)| keys.contains(&key.as_str()));
        (pod.name_any(), labels.map(|(key, value)| (key.clone(), value.clone())).collect())
    };
    pods.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_released_replaced_or_restarted() {
    let story = Story::new(ClusterSpec::temporary()).await;
    let _manager = manager(&story.cluster, "marker-owners").await;
    workloads(&story).await;
    let (uids, identities_before) = (story.uids().await, identities(&story).await);
    let spec = |labels: Value| {
        json!({"strategy": {"conflictPolicy": "Overwrite"}, "markItems": {"labels": labels},
            "matchRequirements": {"podSelector": {"matchLabels": {"tier": "web"}}}})
    };
    // With the label that both select on, beside one that may be set.
    story.marker("selector", spec(json!({"app": "other", "fine": "1"}))).await;
    let message = story.reason("selector", "Conflict", "OwnersLabels").await;
    assert!(message.contains("6 pods with an owner that selects on a label of markItems"), "{message}");
    for key in ["pod-template-hash", "controller-revision-hash", "apps.kubernetes.io/pod-index"] {
        let marker = json!({"metadata": {"name": "identity"}, "spec": spec(json!({key: "other"}))});
        story.try_create("apps.kruise.io/v1alpha1", "PodMarker", marker).await.unwrap_err();
    }
    // One that is in the template, and that nobody selects on, may be replaced.
    story.marker("template", spec(json!({"tier": "marked"}))).await;
    story.is_done("template", 6).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(story.with("fine", "1").await.len(), 0, "none or all of its marks");
    assert_eq!(story.uids().await, uids);
    assert_eq!(identities(&story).await, identities_before);
    let pods = story.pods().list(&ListParams::default()).await.unwrap().items;
    for pod in pods {
        let restarts = pod.data["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0);
        assert_eq!(restarts, 0, "{}", pod.name_any());
        assert!(pod.owner_references().iter().any(|owner| owner.controller == Some(true)), "{}", pod.name_any());
    }
    story.mark("template", json!(0)).await;
    eventually("labels are back", || async {
        let back = story.with("tier", "web").await.len();
        if back == 6 { Ok(()) } else { Err(format!("{back} have it")) }
    })
    .await;
    assert_eq!(story.uids().await, uids);
    story.cluster.stop().await.unwrap();
}
