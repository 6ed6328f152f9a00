//! The DaemonSet stories on a real control plane with kwok nodes: patches by node label, changes that touch only those
//! they concern, updates within the budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_control::install::install_crds;
use dapple_testbed::progress::Quiet;
use dapple_testbed::{Cluster, ClusterSpec, Fleet, Need, Upstream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::support::{Manager, eventually, manager};

struct Story {
    cluster: Cluster,
    client: Client,
    sets: Api<DynamicObject>,
    pods: Api<Pod>,
    _manager: Manager,
}

/// Six nodes, `n0` to `n5`; the last two have large disks.
async fn story() -> Story {
    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await.unwrap();
    let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, &Quiet).await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    let fleet =
        "kinds:\n- {name: small, count: 4, labels: {disk: small}}\n- {name: large, count: 2, labels: {disk: large}}\n";
    cluster.apply_fleet(&Fleet::from_yaml(fleet, "fleet").unwrap()).await.unwrap();
    let gvk = kube::api::GroupVersionKind::gvk("apps.kruise.io", "v1beta1", "DaemonSet");
    let sets = Api::namespaced_with(client.clone(), "default", &kube::api::ApiResource::from_gvk(&gvk));
    let pods = Api::namespaced(client.clone(), "default");
    let manager = manager(&cluster, "daemonset").await;
    Story { cluster, client, sets, pods, _manager: manager }
}

fn set(image: &str, strategy: Value, patches: Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": strategy, "patches": patches,
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [
                {"name": "agent", "image": image, "env": [{"name": "CACHE", "value": "500Gi"}]}]}},
        },
    })
}

fn cache(disk: &str, value: &str) -> Value {
    let env = json!([{"name": "CACHE", "value": value}]);
    json!({"selector": {"matchLabels": {"disk": disk}}, "patch": {"spec": {"containers": [{"name": "agent", "env": env}]}}})
}

fn rolling(more: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": more})
}

/// A pod's UID, image and the value of its variable.
type Seen = (String, String, String);

impl Story {
    async fn apply(&self, set: &Value) {
        let params = PatchParams::apply("test").force();
        self.sets.patch("agent", &params, &Patch::Apply(set)).await.expect("the set is taken");
    }

    /// The pods by node, if every one is ready and none is going.
    async fn settled(&self) -> Result<BTreeMap<String, Seen>, String> {
        let pods = self.pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let mut seen = BTreeMap::new();
        for pod in pods {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let is_ready = conditions.into_iter().any(|is| is.type_ == "Ready" && is.status == "True");
            if !is_ready || pod.metadata.deletion_timestamp.is_some() {
                return Err(format!("{} is not there yet", pod.name_any()));
            }
            let spec = pod.spec.clone().unwrap_or_default();
            let container = &spec.containers[0];
            let value = container.env.iter().flatten().find(|variable| variable.name == "CACHE");
            let value = value.and_then(|variable| variable.value.clone()).unwrap_or_default();
            let image = container.image.clone().unwrap_or_default();
            let node = spec.node_name.unwrap_or_default();
            if seen.insert(node.clone(), (pod.metadata.uid.unwrap_or_default(), image, value)).is_some() {
                return Err(format!("two pods on {node}"));
            }
        }
        Ok(seen)
    }

    /// Waits until the pods are as they should be: by node, image and value.
    async fn pods_are(&self, what: &str, is_right: impl Fn(&BTreeMap<String, Seen>) -> bool) -> BTreeMap<String, Seen> {
        eventually(what, || async {
            let seen = self.settled().await?;
            if is_right(&seen) { Ok(seen) } else { Err(format!("{seen:?}")) }
        })
        .await
    }

    async fn status(&self, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || async {
            let set = self.sets.get("agent").await.map_err(|error| error.to_string())?;
            let is_fresh = set.data["status"]["observedGeneration"] == json!(set.metadata.generation);
            if is_fresh && is_right(&set.data["status"]) {
                Ok(set.data["status"].clone())
            } else {
                Err(format!("{}", set.data["status"]))
            }
        })
        .await
    }
}

fn values(seen: &BTreeMap<String, Seen>) -> Vec<(&str, &str)> {
    seen.values().map(|(_, image, value)| (image.as_str(), value.as_str())).collect()
}

fn changed(before: &BTreeMap<String, Seen>, after: &BTreeMap<String, Seen>) -> Vec<String> {
    after
        .iter()
        .filter(|(node, seen)| before.get(*node).map(|known| &known.0) != Some(&seen.0))
        .map(|(node, _)| node.clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_what_their_labels_say_and_only_those_concerned_restart() {
    let story = story().await;
    story.apply(&set("agent:1", rolling(json!({})), json!([cache("large", "2Ti")]))).await;
    let first = story.pods_are("every node has its pod", |seen| seen.len() == 6).await;
    let large = |seen: &BTreeMap<String, Seen>| {
        seen.iter().filter(|(_, known)| known.2 == "2Ti").map(|(node, _)| node.clone()).collect::<Vec<_>>()
    };
    assert_eq!(large(&first), ["large-000", "large-001"]);
    let told = story.status("the status counts them", |status| status["numberAvailable"] == 6).await;
    assert_eq!((&told["desiredNumberScheduled"], &told["updatedNumberScheduled"]), (&json!(6), &json!(6)));
    assert_eq!(told["currentRevision"], told["updateRevision"]);

    // Another value for large disks: only their pods restart.
    story.apply(&set("agent:1", rolling(json!({})), json!([cache("large", "4Ti")]))).await;
    let second = story
        .pods_are("large disks have more", |seen| seen.values().filter(|known| known.2 == "4Ti").count() == 2)
        .await;
    assert_eq!(changed(&first, &second), ["large-000", "large-001"]);

    // A node that gets a large disk: its pod follows, and no other.
    let nodes: Api<Node> = Api::all(story.client.clone());
    let label = json!({"metadata": {"labels": {"disk": "large"}}});
    nodes.patch("small-000", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    let third = story
        .pods_are("the relabelled node follows", |seen| seen.values().filter(|known| known.2 == "4Ti").count() == 3)
        .await;
    assert_eq!(changed(&second, &third), ["small-000"]);

    // The first revision again: it is the newest now, and template and patches are as they were.
    story.apply(&set("agent:1", rolling(json!({})), json!([cache("large", "2Ti")]))).await;
    story.pods_are("back again", |seen| seen.values().filter(|known| known.2 == "2Ti").count() == 3).await;
    let revisions: Api<k8s_openapi::api::apps::v1::ControllerRevision> =
        Api::namespaced(story.client.clone(), "default");
    let mut numbers: Vec<i64> =
        revisions.list(&ListParams::default()).await.unwrap().iter().map(|known| known.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);

    // Pods that somebody deletes come back; nodes that go take theirs along, and new ones get one.
    story.pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    story.pods_are("they come back", |seen| seen.len() == 6).await;
    nodes.delete("small-003", &DeleteParams::default()).await.unwrap();
    story.pods_are("one less", |seen| seen.len() == 5).await;
    story.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_keep_the_budget_and_the_partition() {
    let story = story().await;
    story.apply(&set("agent:1", rolling(json!({"maxUnavailable": 2})), json!([]))).await;
    story.pods_are("every node has its pod", |seen| seen.len() == 6).await;
    story.status("all are available", |status| status["numberAvailable"] == 6).await;

    let watch = tokio::spawn(most_unavailable(story.pods.clone()));
    story.apply(&set("agent:2", rolling(json!({"maxUnavailable": 2, "partition": 2})), json!([]))).await;
    let updated = story
        .pods_are("four of six are updated", |seen| {
            values(seen).iter().filter(|(image, _)| *image == "agent:2").count() == 4
        })
        .await;
    let held: Vec<&String> = updated.iter().filter(|(_, known)| known.1 == "agent:1").map(|(node, _)| node).collect();
    assert_eq!(held, ["large-000", "large-001"], "the first by name are held back");
    let told = story.status("the status says so", |status| status["updatedNumberScheduled"] == 4).await;
    assert_ne!(told["currentRevision"], told["updateRevision"]);

    // A pod on a node that is held back comes back as it was.
    let name =
        story.pods.list(&ListParams::default().fields("spec.nodeName=large-000")).await.unwrap().items[0].name_any();
    story.pods.delete(&name, &DeleteParams::default()).await.unwrap();
    let again =
        story.pods_are("it comes back", |seen| seen.len() == 6 && seen["large-000"].0 != updated["large-000"].0).await;
    assert_eq!(again["large-000"].1, "agent:1");

    story.apply(&set("agent:2", rolling(json!({"maxUnavailable": 2})), json!([]))).await;
    story.pods_are("all are updated", |seen| values(seen).iter().all(|(image, _)| *image == "agent:2")).await;
    story.status("and settled", |status| status["currentRevision"] == status["updateRevision"]).await;
    // It looked until now, and saw nothing amiss.
    watch.abort();
    let ended = watch.await.expect_err("it only ends when it is told to");
    assert!(ended.is_cancelled(), "{ended}");
    story.cluster.stop().await.unwrap();
}

/// Fails the test if more than two of six nodes are without a ready pod at once.
async fn most_unavailable(pods: Api<Pod>) {
    loop {
        let all = pods.list(&ListParams::default()).await.unwrap();
        let is_up = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            pod.metadata.deletion_timestamp.is_none()
                && conditions.into_iter().any(|is| is.type_ == "Ready" && is.status == "True")
        };
        let up = all.iter().filter(is_up).count();
        assert!(up >= 4, "{up} of 6 are up");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_does_not_apply_holds_up_its_own_nodes_only() {
    let story = story().await;
    let broken =
        json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}});
    // The API server takes it: what a patch may say is not all in its schema.
    let object: DynamicObject = serde_json::from_value(set("agent:1", rolling(json!({})), json!([broken]))).unwrap();
    story.sets.create(&PostParams::default(), &object).await.unwrap();
    let seen = story.pods_are("the others have theirs", |seen| seen.len() == 4).await;
    assert!(seen.keys().all(|node| node.starts_with("small")), "{seen:?}");
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(story.client.clone(), "default");
    eventually("an event says why", || async {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let notes: Vec<String> = all.iter().filter_map(|event| event.note.clone()).collect();
        if notes.iter().any(|note| note.contains("spec.patches[0]") && note.contains("2 nodes keep what they run")) {
            Ok(())
        } else {
            Err(format!("{notes:?}"))
        }
    })
    .await;
    story.cluster.stop().await.unwrap();
}
