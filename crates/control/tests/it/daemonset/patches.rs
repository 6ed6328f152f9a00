//! Patches by node label: who gets what, and who is left alone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::story::{ByNode, Story, cache, changed, rolling};
use super::watch::{Invariants, watch};
use crate::support::repository;

fn with_cache(seen: &ByNode, value: &str) -> Vec<String> {
    seen.iter().filter(|(_, pod)| pod.cache == value).map(|(node, _)| node.clone()).collect()
}

/// The variables of a pod's first container.
fn env(pod: &Pod) -> BTreeMap<String, String> {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let variables = container.iter().flat_map(|known| known.env.iter().flatten());
    variables.map(|known| (known.name.clone(), known.value.clone().unwrap_or_default())).collect()
}

/// A patch of variables, for nodes that the selector matches.
fn sets(selector: Value, priority: i32, variables: &[(&str, &str)]) -> Value {
    let env: Vec<Value> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let patch = json!({"spec": {"containers": [{"name": "agent", "env": env}]}});
    json!({"selector": selector, "priority": priority, "patch": patch})
}

/// The patches of each variant and how many nodes it has, as the status tells.
fn variants(status: &Value) -> Vec<(Value, i64)> {
    let all = status["variants"].as_array().into_iter().flatten();
    let places = |known: &Value| known.get("patches").cloned().unwrap_or_else(|| json!([]));
    all.map(|known| (places(known), known["desired"].as_i64().unwrap_or_default())).collect()
}

// Story 1 of the spec.
#[tokio::test(flavor = "multi_thread")]
async fn nydus_gets_a_large_cache_on_nodes_with_large_disks() {
    let story = Story::new("nydus").await;
    story.add_nodes("storage", 1, json!({"node-role/nydus-storage": "large"})).await;
    let text = std::fs::read_to_string(repository().join("examples/daemonset/nydus.yaml")).unwrap();
    let mut set: Value = serde_saphyr::from_str(&text).unwrap();
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({"story": "nydus"});
    story.apply(&set).await;
    story.pods_are("every node has its pod", |seen| seen.len() == 7).await;
    for (node, pod) in story.all_pods().await {
        let expected = if node == "storage-000" {
            BTreeMap::from([("LOCAL_CACHE_SIZE", "2Ti"), ("FEATURE_GATE_LARGE_DISK", "true")])
        } else {
            BTreeMap::from([("LOCAL_CACHE_SIZE", "500Gi")])
        };
        let expected: BTreeMap<String, String> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(env(&pod), expected, "{node}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_patches_overlap_the_higher_priority_wins_and_then_the_later() {
    let story = Story::new("overlap").await;
    let (large, every) = (json!({"matchLabels": {"disk": "large"}}), json!({}));
    let rare = json!({"matchExpressions": [{"key": "rare", "operator": "Exists"}]});
    story.change_node("small-000", json!({"metadata": {"labels": {"rare": ""}}})).await;
    let patches = json!([
        sets(rare.clone(), 1, &[("CACHE", "first-of-two")]),
        sets(every, 0, &[("CACHE", "zero")]),
        sets(large.clone(), -1, &[("CACHE", "minus"), ("MINUS", "applies")]),
        sets(rare, 1, &[("CACHE", "second-of-two")]),
    ]);
    story.apply(&story.set("agent:1", json!({"patches": patches}))).await;
    // The set may be seen before the label, and the pod follows then.
    let is_right = |seen: &ByNode| seen.len() == 6 && with_cache(seen, "second-of-two") == ["small-000"];
    let seen = story.pods_are("every node has its pod", is_right).await;
    assert_eq!(with_cache(&seen, "zero").len(), 5);
    let lower = story.all_pods().await.into_iter().filter(|(_, pod)| env(pod).contains_key("MINUS"));
    assert_eq!(lower.map(|(node, _)| node).collect::<Vec<_>>().len(), 2, "the lower one applies, and is overruled");
    let expected = [(json!([1]), 3), (json!([1, 0, 3]), 1), (json!([2, 1]), 2)];
    let is_told = |status: &Value| status["numberAvailable"] == 6 && variants(status) == expected;
    story.status("all are available", is_told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_patches_of_a_kilobyte_each_all_apply() {
    let story = Story::new("ten").await;
    let patch = |number: usize| {
        let with = |value: &str| sets(json!({"matchLabels": {"disk": "large"}}), 0, &[(&format!("P{number}"), value)]);
        let short = with("")["patch"].to_string().len();
        let full = with(&"x".repeat(1024 - short));
        assert_eq!(full["patch"].to_string().len(), 1024);
        full
    };
    let patches: Vec<Value> = (0..10).map(patch).collect();
    story.apply(&story.set("agent:1", json!({"patches": patches}))).await;
    story.pods_are("every node has its pod", |seen| seen.len() == 6).await;
    for (node, pod) in story.all_pods().await {
        let expected = if node.starts_with("large") { 11 } else { 1 };
        assert_eq!(env(&pod).len(), expected, "{node}");
    }
    story.condition("Degraded", "False", "AsExpected").await;
    // Another value in the last of them: as many bytes, and only its own nodes restart.
    let before = story.settled().await.unwrap();
    let mut patches = patches;
    patches[9] = sets(json!({"matchLabels": {"disk": "large"}}), 0, &[("P9", "short")]);
    story.apply(&story.set("agent:1", json!({"patches": patches}))).await;
    let after = story.pods_are("large disks follow", |seen| changed(&before, seen).len() == 2).await;
    assert_eq!(changed(&before, &after), ["large-000", "large-001"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_patches_and_patches_for_nobody_restart_nobody() {
    let story = Story::new("nobody").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let first = story.pods_are("every node has its pod", |seen| seen.len() == 6).await;
    let before = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    let nobody = json!({"matchLabels": {"disk": "of-nobody"}});
    for patches in [json!([]), json!([sets(nobody, 3, &[("CACHE", "none")])])] {
        story.apply(&story.set("agent:1", json!({"patches": patches}))).await;
        let told = story.status("it is told", |status| status["numberAvailable"] == 6).await;
        assert_eq!(variants(&told), [(json!([]), 6)]);
        assert_eq!(told["updateRevision"], before["updateRevision"], "pods carry what they did");
        story.condition("Progressing", "False", "Complete").await;
        let newest = story.newest_is_current().await;
        assert_eq!(before["currentRevision"] == json!(newest), patches == json!([]), "{patches}");
        assert_eq!(changed(&first, &story.settled().await.unwrap()), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn going_back_to_a_revision_brings_template_and_patches_back() {
    let story = Story::new("rollback").await;
    let two = rolling(json!({"maxUnavailable": 2}));
    let set = |image: &str, value: &str| {
        story.set(image, json!({"patches": [cache("large", value)], "updateStrategy": two.clone()}))
    };
    story.apply(&set("agent:1", "2Ti")).await;
    story.have_image(6, "agent:1").await;
    let first = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    story.apply(&set("agent:2", "4Ti")).await;
    story.have_image(6, "agent:2").await;

    // As a tool would: what the revision holds is a patch of the set.
    let name = first["currentRevision"].as_str().unwrap();
    let revision = story.revisions.get(name).await.unwrap();
    let mut data = serde_json::to_value(revision.data.unwrap()).unwrap();
    assert_eq!(data["spec"]["template"].as_object_mut().unwrap().remove("$patch"), Some(json!("replace")));
    let mut back = set("", "");
    back["spec"]["template"] = data["spec"]["template"].clone();
    back["spec"]["patches"] = data["spec"]["patches"].clone();
    let watched = watch(&story, Invariants { budget: Some(2), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&back).await;
    let seen = story.have_image(6, "agent:1").await;
    watched.finish().await;
    assert_eq!(with_cache(&seen, "2Ti"), ["large-000", "large-001"]);
    let told = story.status("it is the newest", |status| status["updateRevision"] == first["updateRevision"]).await;
    assert_eq!(told["variants"][0]["hash"], first["variants"][0]["hash"]);
    assert_eq!(story.revisions.get(name).await.unwrap().revision, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn relabelled_nodes_follow_one_at_a_time() {
    let story = Story::new("relabelled").await;
    let one = rolling(json!({"maxUnavailable": 1}));
    story.apply(&story.set("agent:1", json!({"patches": [cache("large", "2Ti")], "updateStrategy": one}))).await;
    let first = story.pods_are("every node has its pod", |seen| seen.len() == 6).await;
    let untouched = vec!["large-000", "large-001", "small-002", "small-003"];
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched }).await;
    for node in ["small-000", "small-001"] {
        story.change_node(node, json!({"metadata": {"labels": {"disk": "large"}}})).await;
    }
    let second = story.pods_are("both follow", |seen| with_cache(seen, "2Ti").len() == 4).await;
    assert_eq!(changed(&first, &second), ["small-000", "small-001"]);
    assert_eq!(watched.made().await, 2);
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relabelled_node_follows_in_place_where_only_the_image_differs() {
    let story = Story::new("relabelled-in-place").await;
    let strategy = rolling(json!({"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 1}));
    let patch = json!({"selector": {"matchLabels": {"disk": "large"}},
        "patch": {"spec": {"containers": [{"name": "agent", "image": "agent:large"}]}}});
    story.apply(&story.set("agent:1", json!({"patches": [patch], "updateStrategy": strategy}))).await;
    let first = story.have_image(2, "agent:large").await;
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched: vec![] }).await;
    for node in ["small-000", "small-001"] {
        story.change_node(node, json!({"metadata": {"labels": {"disk": "large"}}})).await;
    }
    let second = story.have_image(4, "agent:large").await;
    assert_eq!(changed(&first, &second), Vec::<String>::new(), "every pod is the same one");
    assert_eq!(watched.order(&story).await.len(), 2);
    assert_eq!(watched.finish().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_what_their_labels_say_and_only_those_concerned_restart() {
    let story = Story::new("patches").await;
    let set = |value: &str| story.set("agent:1", json!({"patches": [cache("large", value)]}));
    story.apply(&set("2Ti")).await;
    let first = story.pods_are("every node has its pod", |seen| seen.len() == 6).await;
    assert_eq!(with_cache(&first, "2Ti"), ["large-000", "large-001"]);
    let told = story.status("the status counts them", |status| status["numberAvailable"] == 6).await;
    assert_eq!((&told["desiredNumberScheduled"], &told["updatedNumberScheduled"]), (&json!(6), &json!(6)));
    assert_eq!(told["currentRevision"], json!(story.newest().await));

    // Another value for large disks: only their pods restart.
    story.apply(&set("4Ti")).await;
    let second = story.pods_are("large disks have more", |seen| with_cache(seen, "4Ti").len() == 2).await;
    assert_eq!(changed(&first, &second), ["large-000", "large-001"]);

    // A node that gets a large disk: its pod follows, and no other.
    story.change_node("small-000", json!({"metadata": {"labels": {"disk": "large"}}})).await;
    let third = story.pods_are("the relabelled node follows", |seen| with_cache(seen, "4Ti").len() == 3).await;
    assert_eq!(changed(&second, &third), ["small-000"]);

    // The first revision again: it is the newest now, and template and patches are as they were.
    story.apply(&set("2Ti")).await;
    story.pods_are("back again", |seen| with_cache(seen, "2Ti").len() == 3).await;
    let revisions = story.revisions.list(&ListParams::default()).await.unwrap();
    let mut numbers: Vec<i64> = revisions.iter().map(|known| known.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);

    // Pods that somebody deletes come back; nodes that go take theirs along, and new ones get one.
    story.pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    story.pods_are("they come back", |seen| seen.len() == 6).await;
    story.nodes.delete(&story.node("small-003"), &DeleteParams::default()).await.unwrap();
    story.pods_are("one less", |seen| seen.len() == 5).await;
    story.add_nodes("new", 1, json!({"disk": "large"})).await;
    story.pods_are("one more", |seen| seen.len() == 6 && seen["new-000"].cache == "2Ti").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_does_not_apply_holds_up_its_own_nodes_only() {
    let story = Story::new("broken-patch").await;
    let broken: Value =
        json!({"selector": {"matchLabels": {"disk": "large"}}, "patch": {"spec": {"containers": [{"image": "x"}]}}});
    // The API server takes it: what a patch may say is not all in its schema.
    let set = story.set("agent:1", json!({"updateStrategy": rolling(json!({})), "patches": [broken]}));
    let object: DynamicObject = serde_json::from_value(set).unwrap();
    story.sets.create(&PostParams::default(), &object).await.unwrap();
    let seen = story.pods_are("the others have theirs", |seen| seen.len() == 4).await;
    assert!(seen.keys().all(|node| node.starts_with("small")), "{seen:?}");
    story.event(&["spec.patches[0]", "an item has no \"name\""]).await;
    let message = story.condition("Degraded", "True", "PatchFailed").await;
    assert!(message.contains("spec.patches[0]"), "{message}");
}
