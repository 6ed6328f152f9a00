//! Whose pods are whose: taking in, letting go, and leaving alone.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::story::{Story, changed, look_at, rolling};
use super::watch::{Invariants, watch};
use crate::support::eventually;

/// UIDs of the controlling owners of a pod.
fn owners(pod: &Pod) -> Vec<String> {
    let owners = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
    owners.map(|owner| owner.uid.clone()).collect()
}

async fn uid(story: &Story, set: &str) -> String {
    story.sets.get(set).await.unwrap().uid().unwrap_or_default()
}

/// A pod on a node that nobody's controller made.
async fn make_by_hand(story: &Story, name: &str, node: &str, metadata: Value) {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "agent"}},
        "spec": {"nodeName": story.node(node), "containers": [{"name": "agent", "image": "agent:by-hand"}]},
    });
    for (field, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    let pod = serde_json::from_value(pod).unwrap();
    // The namespace's service account comes a moment after the namespace.
    eventually("the pod is taken", || async {
        story.pods.create(&PostParams::default(), &pod).await.map_err(|error| error.to_string())
    })
    .await;
}

// kruise#2520: pods whose owner was written with another version of the API stall the rollout.
#[tokio::test(flavor = "multi_thread")]
async fn another_api_version_in_the_owner_stalls_nothing() {
    let story = Story::new("other-version").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 2}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let older = json!([{"op": "replace", "path": "/metadata/ownerReferences/0/apiVersion", "value": "apps.kruise.io/v1alpha1"}]);
    let older = Patch::<()>::Json(serde_json::from_value(older).unwrap());
    for pod in first.values() {
        story.pods.patch(&pod.name, &PatchParams::default(), &older).await.unwrap();
    }
    for revision in story.revisions.list(&ListParams::default()).await.unwrap() {
        story.revisions.patch(&revision.name_any(), &PatchParams::default(), &older).await.unwrap();
    }
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    story.have_image(6, "agent:2").await;
    assert_eq!(watched.made().await, 6);
    watched.finish().await;
    let has_all = |status: &Value| status["updatedNumberScheduled"] == 6 && status["numberAvailable"] == 6;
    story.status("all are counted", has_all).await;
    assert_eq!(story.revisions.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_made_anew_takes_in_what_the_old_one_left() {
    let story = Story::new("anew").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 2}))}));
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    story.apply(&set("agent:2")).await;
    let first = story.have_image(6, "agent:2").await;
    let before = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    story.sets.delete("agent", &orphan).await.unwrap();
    eventually("the set is gone", || async {
        let found = story.sets.get_opt("agent").await.map_err(|error| error.to_string())?;
        if found.is_none() { Ok(()) } else { Err("still there".to_owned()) }
    })
    .await;
    assert_eq!(story.settled().await.as_ref(), Ok(&first), "its pods are not");

    story.apply(&set("agent:2")).await;
    let told = story.status("all are its own", |status| status["numberAvailable"] == 6).await;
    assert_eq!(told["updateRevision"], before["updateRevision"]);
    let seen = story.pods_are("one on each node", |seen| seen.len() == 6).await;
    assert_eq!(changed(&first, &seen), Vec::<String>::new(), "the very same pods");
    let new = uid(&story, "agent").await;
    assert!(story.all_pods().await.iter().all(|(_, pod)| owners(pod) == [new.clone()]));
    let revisions = story.revisions.list(&ListParams::default()).await.unwrap();
    assert_eq!(revisions.items.len(), 2);
    assert!(revisions.iter().all(|known| known.owner_references().iter().all(|owner| owner.uid == new)));
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_that_another_product_left_are_taken_in_before_any_is_made() {
    let story = Story::new("left").await;
    let set = story.set("agent:1", json!({}));
    let mut template = set["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    let left = json!({"metadata": {"name": "agent-zzz", "labels": {"app": "agent", "controller-revision-hash": "zzz"}},
        "revision": 1, "data": {"spec": {"template": template}}});
    story.revisions.create(&PostParams::default(), &serde_json::from_value(left).unwrap()).await.unwrap();
    story.apply(&set).await;
    story.have_image(6, "agent:1").await;
    let told = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    assert_eq!((&told["updateRevision"], &told["currentRevision"]), (&json!("zzz"), &json!("agent-zzz")));
    let revisions = story.revisions.list(&ListParams::default()).await.unwrap();
    assert_eq!(revisions.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["agent-zzz"]);
    let hashes = story.all_pods().await.into_iter().map(|(_, pod)| pod.labels()["controller-revision-hash"].clone());
    assert!(hashes.into_iter().all(|hash| hash == "zzz"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_made_by_hand_is_taken_in_and_one_of_two_goes() {
    let story = Story::new("by-hand").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let first = story.have_image(6, "agent:1").await;
    make_by_hand(&story, "by-hand", "small-000", json!({})).await;
    eventually("the one by hand is gone", || async {
        let found = story.pods.get_opt("by-hand").await.map_err(|error| error.to_string())?;
        if found.is_none() { Ok(()) } else { Err("still there".to_owned()) }
    })
    .await;
    assert_eq!(story.pods_are("one on each node", |seen| seen.len() == 6).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_somebody_relabels_is_let_go_and_another_is_made() {
    let story = Story::new("let-go").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let first = story.have_image(6, "agent:1").await;
    let name = &first["small-000"].name;
    let studied = Patch::Merge(json!({"metadata": {"labels": {"app": "studied"}}}));
    story.pods.patch(name, &PatchParams::default(), &studied).await.unwrap();
    let pods = story.every_pod("there is another", |pods| pods.len() == 7).await;
    let there: Vec<&Pod> = pods.iter().filter(|(node, _)| node == "small-000").map(|(_, pod)| pod).collect();
    assert_eq!(there.len(), 2);
    let mine = uid(&story, "agent").await;
    for pod in there {
        let expected = if pod.name_any() == *name { vec![] } else { vec![mine.clone()] };
        assert_eq!(owners(pod), expected, "{}", pod.name_any());
    }
    story.status("all are available", |status| status["numberAvailable"] == 6).await;
    assert_eq!(story.pods.get(name).await.unwrap().uid(), Some(first["small-000"].uid.clone()), "it is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sets_with_the_same_selector_leave_each_others_pods_alone() {
    let story = Story::new("two-sets").await;
    let set = |name: &str, image: &str| {
        let mut set = story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 3}))}));
        set["metadata"]["name"] = json!(name);
        set
    };
    story.apply(&set("agent", "one:1")).await;
    story.apply(&set("other", "other:1")).await;
    let count = |pods: &[(String, Pod)], image: &str| {
        pods.iter().filter(|(_, pod)| look_at(pod).image == image && super::story::is_ready(pod)).count()
    };
    story.every_pod("each has its own", |pods| count(pods, "one:1") == 6 && count(pods, "other:1") == 6).await;
    story.apply(&set("agent", "one:2")).await;
    let pods = story.every_pod("one follows", |pods| count(pods, "one:2") == 6 && count(pods, "one:1") == 0).await;
    assert_eq!((pods.len(), count(&pods, "other:1")), (12, 6));
    let (one, other) = (uid(&story, "agent").await, uid(&story, "other").await);
    for (node, pod) in &pods {
        let expected = if look_at(pod).image == "one:2" { &one } else { &other };
        assert_eq!(owners(pod), std::slice::from_ref(expected), "{node}");
    }
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_another_owner_are_never_touched() {
    let story = Story::new("foreign-owner").await;
    let client = story.cluster.client().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &story.name);
    let map = serde_json::from_value(json!({"metadata": {"name": "owner"}})).unwrap();
    let owner = maps.create(&PostParams::default(), &map).await.unwrap().controller_owner_ref(&()).unwrap();
    make_by_hand(&story, "theirs", "small-000", json!({"ownerReferences": [owner]})).await;
    let before = story.pods.get("theirs").await.unwrap();
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 3}))}));
    for image in ["agent:1", "agent:2"] {
        story.apply(&set(image)).await;
        let count = |pods: &[(String, Pod)]| pods.iter().filter(|(_, pod)| look_at(pod).image == image).count();
        story.every_pod("the set has its pods", |pods| pods.len() == 7 && count(pods) == 6).await;
    }
    story.condition("Progressing", "False", "Complete").await;
    let after = story.pods.get("theirs").await.unwrap();
    assert_eq!(
        (after.uid(), after.owner_references(), after.labels()),
        (before.uid(), before.owner_references(), before.labels())
    );
    assert_eq!(after.metadata.deletion_timestamp, None);
}
