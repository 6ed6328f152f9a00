//! What people complain about elsewhere, one story each, with the issue that tells it.

use dapple_testbed::Readiness;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::story::{Story, cache, changed, is_ready, look_at, rolling};
use super::watch::{Invariants, watch};
use crate::support::eventually;

fn within(budget: usize) -> Invariants {
    Invariants { budget: Some(budget), most_on_a_node: 1, untouched: vec![] }
}

fn with_image(pods: &[(String, Pod)], image: &str) -> usize {
    pods.iter().filter(|(_, pod)| look_at(pod).image == image).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_rollout_leaves_out_gets_its_old_pod_back() {
    let story = Story::new("left-out").await;
    let set = |image: &str| {
        let chosen = json!({"maxUnavailable": 2, "selector": {"matchLabels": {"disk": "large"}}});
        story.set(image, json!({"updateStrategy": rolling(chosen)}))
    };
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    let watched = watch(&story, within(2)).await;
    story.apply(&set("agent:2")).await;
    let updated = story.have_image(2, "agent:2").await;
    assert_eq!(watched.made().await, 2);
    watched.finish().await;
    let message = story.condition("Progressing", "False", "HeldBack").await;
    assert!(message.starts_with("4 of 6 nodes are held back"), "{message}");

    for node in ["small-000", "large-000"] {
        story.pods.delete(&updated[node].name, &DeleteParams::default()).await.unwrap();
    }
    let again = story.pods_are("both come back", |seen| seen.len() == 6 && changed(&updated, seen).len() == 2).await;
    assert_eq!((again["small-000"].image.as_str(), again["large-000"].image.as_str()), ("agent:1", "agent:2"));
}

// kruise#1871: removing the canary label does not roll back. A live pod is left as it is; one that is lost comes back as
// the others there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_no_canary_any_more_keeps_its_pod_until_it_is_lost() {
    let story = Story::new("no-canary").await;
    let set = |image: &str| {
        let chosen = json!({"maxUnavailable": 2, "selector": {"matchLabels": {"canary": "yes"}}});
        story.set(image, json!({"updateStrategy": rolling(chosen)}))
    };
    story.change_node("small-001", json!({"metadata": {"labels": {"canary": "yes"}}})).await;
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    story.apply(&set("agent:2")).await;
    let updated = story.have_image(1, "agent:2").await;
    story.condition("Progressing", "False", "HeldBack").await;

    story.change_node("small-001", json!({"metadata": {"labels": {"canary": null}}})).await;
    // Nothing is to happen.
    story.nodes_are_seen().await;
    story.nothing_changes(&updated).await;
    assert_eq!(updated["small-001"].image, "agent:2");

    story.pods.delete(&updated["small-001"].name, &DeleteParams::default()).await.unwrap();
    let again = story.have_image(6, "agent:1").await;
    assert_eq!(changed(&updated, &again), ["small-001"]);
}

// kruise#1323, kruise#898, deckhouse#5039, k8s#123232: a fleet that is not ready for a moment is deleted as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_not_ready_is_not_swept_away() {
    let story = Story::new("not-swept").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 2}))}));
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let nodes: Vec<String> = first.keys().map(|node| story.node(node)).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    story.cluster.hold_readiness("not-swept", &nodes, Readiness::Fail).await.unwrap();
    story.status("none is ready", |status| status["numberReady"] == 0).await;
    story.condition("Available", "False", "TooFew").await;

    let watched = watch(&story, Invariants { budget: None, most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    story.every_pod("two are replaced", |pods| with_image(pods, "agent:2") == 2).await;
    // And no more than two.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let pods = story.all_pods().await;
    assert_eq!((pods.len(), with_image(&pods, "agent:2")), (6, 2));
    // Both at once, so in either order.
    let mut touched = watched.order(&story).await;
    touched.sort();
    assert_eq!(touched, ["small-002", "small-003"]);
    let message = story.message(("Progressing", "True", "RollingOut"), &["2 of 6 nodes", "is not ready"]).await;
    assert!(message.starts_with("2 of 6 nodes"), "{message}");

    story.cluster.release_readiness("not-swept").await.unwrap();
    story.have_image(6, "agent:2").await;
    assert_eq!(watched.most_moving().await, 2, "nodes that were without old and new at once");
    watched.finish().await;
}

// kruise#2522, k8s#117658: nodes that are not ready, or take no pods, hold up the rest.
#[tokio::test(flavor = "multi_thread")]
async fn sick_and_closed_nodes_do_not_hold_up_the_others() {
    let story = Story::new("sick").await;
    let set = |image: &str| {
        let mut set = story.set(image, json!({"updateStrategy": rolling(json!({"maxUnavailable": 1}))}));
        let ill = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
        set["spec"]["template"]["spec"]["tolerations"] = ill;
        set
    };
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    // The last by name would be the first to be updated.
    let (sick, closed, cordoned) = ("small-003", "small-002", "small-001");
    story.change_node(sick, json!({"metadata": {"annotations": {"testbed.dapple.dev/ready": "false"}}})).await;
    let taints = json!([{"key": "closed", "value": "yes", "effect": "NoSchedule"}]);
    story.change_node(closed, json!({"spec": {"taints": taints}})).await;
    story.change_node(cordoned, json!({"spec": {"unschedulable": true}})).await;
    let sick_node = story.node(sick);
    story.cluster.hold_readiness("sick", &[&sick_node], Readiness::Fail).await.unwrap();
    story.every_pod("its pod is down", |pods| pods.iter().any(|(on, pod)| on == sick && !is_ready(pod))).await;
    eventually("the sick node is not ready", || async {
        let node = story.nodes.get(&sick_node).await.map_err(|error| error.to_string())?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_sick = conditions.iter().any(|is| is.type_ == "Ready" && is.status == "False");
        if is_sick { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
    story.nodes_are_seen().await;

    let watched = watch(&story, Invariants { budget: None, most_on_a_node: 1, untouched: vec![closed] }).await;
    story.apply(&set("agent:2")).await;
    let has_it =
        |node: &str, pods: &[(String, Pod)]| pods.iter().any(|(on, pod)| on == node && look_at(pod).image == "agent:2");
    let others = ["large-000", "large-001", "small-000", cordoned];
    story.every_pod("the others follow", |pods| others.iter().all(|node| has_it(node, pods))).await;
    // A node that says that it is not ready can be reached: it comes after all the rest, and is waited for from then on.
    story.every_pod("the sick one follows", |pods| has_it(sick, pods)).await;
    assert_eq!(watched.order(&story).await, [cordoned, "small-000", "large-001", "large-000", sick]);
    story.message(("Progressing", "True", "RollingOut"), &[&sick_node, "not Ready since"]).await;
    watched.finish().await;

    // The sick one is well again. The closed one keeps what it has, as Kubernetes leaves and counts it.
    story.change_node(sick, json!({"metadata": {"annotations": {"testbed.dapple.dev/ready": null}}})).await;
    story.cluster.release_readiness("sick").await.unwrap();
    let is_told = |status: &Value| status["updatedNumberScheduled"] == 5 && status["numberMisscheduled"] == 1;
    story.status("five are updated", is_told).await;
    story.change_node(closed, json!({"spec": {"taints": null}})).await;
    story.have_image(6, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn which_node_comes_next_is_foreseeable() {
    let story = Story::new("order").await;
    let set = |image: &str, canary: Option<&str>| {
        let one = rolling(json!({"maxUnavailable": 1}));
        let mut set = story.set(image, json!({"updateStrategy": one, "patches": [cache("large", "2Ti")]}));
        set["metadata"]["annotations"] = canary.map(|canary| json!({"dapple.dev/canary": canary})).unwrap_or_default();
        set
    };
    for node in ["large-000", "small-001"] {
        story.change_node(node, json!({"metadata": {"labels": {"rollout": "first"}}})).await;
    }
    story.apply(&set("agent:1", None)).await;
    story.have_image(6, "agent:1").await;
    let orders = [
        (None, ["small-003", "small-002", "small-001", "small-000", "large-001", "large-000"]),
        (Some("rollout=first"), ["small-001", "large-000", "small-003", "small-002", "small-000", "large-001"]),
        (Some("each-variant"), ["small-003", "large-001", "small-002", "small-001", "small-000", "large-000"]),
    ];
    for (number, (canary, expected)) in orders.into_iter().enumerate() {
        let image = format!("agent:{}", number + 2);
        let watched = watch(&story, within(1)).await;
        story.apply(&set(&image, canary)).await;
        story.have_image(6, &image).await;
        assert_eq!(watched.order(&story).await, expected, "{canary:?}");
        watched.finish().await;
    }
}

// kruise#443: pods of nodes that are gone stay, pending for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_deleted_takes_its_pods_along() {
    let story = Story::new("gone").await;
    story.add_bare_node("bare").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let is_pending = |(node, pod): &(String, Pod)| node == "bare" && !is_ready(pod);
    story.every_pod("the bare node has a pod", |pods| pods.len() == 7 && pods.iter().any(is_pending)).await;
    for node in ["bare", "small-000"] {
        story.nodes.delete(&story.node(node), &DeleteParams::default()).await.unwrap();
    }
    let seen = story.pods_are("both pods are gone", |seen| seen.len() == 5).await;
    assert!(!seen.contains_key("small-000"), "{seen:?}");
    story.status("and are not counted", |status| status["desiredNumberScheduled"] == 5).await;
}

// kruise#1012: a surge that does not come up is stuck for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_surge_that_does_not_come_up_says_so_and_a_newer_template_ends_it() {
    let story = Story::new("stuck-surge").await;
    let set = |image: &str| story.set(image, json!({"updateStrategy": rolling(json!({"maxSurge": 1}))}));
    // Pods of the bad template ask themselves for never becoming ready.
    let mut bad = set("agent:bad");
    bad["spec"]["template"]["metadata"]["annotations"] = json!({"testbed.dapple.dev/readiness": "fail"});
    story.apply(&set("agent:1")).await;
    let first = story.have_image(6, "agent:1").await;
    let watched = watch(&story, Invariants { budget: Some(0), most_on_a_node: 2, untouched: vec![] }).await;
    story.apply(&bad).await;
    story.every_pod("one has a second pod", |pods| with_image(pods, "agent:bad") == 1).await;
    let waits = format!("waiting for {}", story.node("small-003"));
    let waits = |status: &Value| {
        status["updatedNumberScheduled"] == 1 && status["numberAvailable"] == 6 && status.to_string().contains(&waits)
    };
    story.status("all are available, and it says for whom it waits", waits).await;
    let pods = story.all_pods().await;
    let kept = pods.iter().filter(|(node, pod)| first[node].uid == pod.uid().unwrap_or_default()).count();
    assert_eq!((pods.len(), kept), (7, 6), "everybody has the old pod still");

    story.apply(&set("agent:2")).await;
    story.have_image(6, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
    assert_eq!(watched.finish().await, (0, 2));
}

// kruise#1341, kruise#1855, k8s#139226: nobody can tell from the status how far a rollout is.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_how_far_a_rollout_is() {
    let story = Story::new("told").await;
    let set = |image: &str| {
        let one = rolling(json!({"maxUnavailable": 1}));
        story.set(image, json!({"updateStrategy": one, "patches": [cache("large", "2Ti")]}))
    };
    let variants = |status: &Value| -> Vec<[i64; 4]> {
        let count = |known: &Value, field: &str| known[field].as_i64().unwrap_or(-1);
        let all = status["variants"].as_array().into_iter().flatten();
        all.map(|known| ["desired", "updated", "ready", "available"].map(|field| count(known, field))).collect()
    };
    story.apply(&set("agent:1")).await;
    story.have_image(6, "agent:1").await;
    let told = story.status("all are available", |status| status["numberAvailable"] == 6).await;
    assert_eq!(variants(&told), [[4, 4, 4, 4], [2, 2, 2, 2]]);

    let bad = story.node("large-001");
    story.cluster.hold_readiness("told", &[&bad], Readiness::Fail).await.unwrap();
    story.status("the bad node is down", |status| status["numberAvailable"] == 5).await;
    let watched = watch(&story, within(1)).await;
    story.apply(&set("agent:2")).await;
    // One line for each kind of node.
    let stops = |status: &Value| {
        status["updatedNumberScheduled"] == 1
            && variants(status) == [[4, 0, 4, 4], [2, 1, 1, 1]]
            && (&status["numberAvailable"], &status["numberUnavailable"]) == (&json!(5), &json!(1))
    };
    let told = story.status("it stops at the bad node", stops).await;
    assert_ne!(told["currentRevision"], json!(story.newest().await));
    let parts: [&str; 2] = ["1 of 6 nodes have revision", &bad];
    let message = story.message(("Progressing", "True", "RollingOut"), &parts).await;
    assert!(message.starts_with(parts[0]), "{message}");
    story.condition("Available", "True", "Enough").await;
    story.condition("Degraded", "False", "AsExpected").await;

    story.cluster.release_readiness("told").await.unwrap();
    story.have_image(6, "agent:2").await;
    story.condition("Progressing", "False", "Complete").await;
    let is_over = |status: &Value| variants(status) == [[4, 4, 4, 4], [2, 2, 2, 2]];
    story.status("all are available", |status| status["numberAvailable"] == 6 && is_over(status)).await;
    story.newest_is_current().await;
    watched.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_end_come_back_and_the_status_says_where_they_keep_ending() {
    let story = Story::new("ends").await;
    story.apply(&story.set("agent:1", json!({}))).await;
    let mut before = story.have_image(6, "agent:1").await;
    for _ in 0..2 {
        let name = &before["small-000"].name;
        let failed = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
        story.pods.patch_status(name, &PatchParams::default(), &failed).await.unwrap();
        let is_back = |seen: &super::story::ByNode| seen.len() == 6 && changed(&before, seen) == ["small-000"];
        before = story.pods_are("it comes back", is_back).await;
    }
    let twice = format!("{} (2 times)", story.node("small-000"));
    story.message(("Degraded", "True", "PodsFail"), &[&twice]).await;
}
