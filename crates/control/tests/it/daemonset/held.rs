//! Nodes that are held back: who they are does not change with an outage, and what they get back is the last complete
//! revision.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::fields::LONG;
use super::steps::with_image;
use super::story::{ByNode, Story, changed, look_at, rolling};
use super::watch::{Invariants, watch};

/// How long to look on where nothing may happen.
const QUIET: Duration = Duration::from_secs(4);

fn names(kind: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{kind}-{number:03}")).collect()
}

fn set(story: &Story, image: &str, strategy: Value) -> Value {
    story.set(image, json!({"updateStrategy": rolling(strategy)}))
}

/// Taints a node, beside the taints that Kubernetes puts there.
async fn taint(story: &Story, node: &str, key: &str) {
    let patch = Patch::Strategic(json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}));
    story.nodes.patch(&story.node(node), &PatchParams::default(), &patch).await.expect("the node is tainted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_and_taints_release_nobody() {
    let story = Story::without_nodes("percent").await;
    story.add_nodes("n", 8, json!({})).await;
    let half = |image: &str| set(&story, image, json!({"partition": "50%", "maxUnavailable": "100%"}));
    story.apply(&half("agent:1")).await;
    story.have_image(8, "agent:1").await;
    story.apply(&half("agent:2")).await;
    let first = story.have_image(4, "agent:2").await;
    assert_eq!(with_image(&first, "agent:1"), names("n", 0..4));

    story.say_ready(&names("n", 7..8), json!("false")).await;
    story.say_ready(&names("n", 3..4), json!("unknown")).await;
    for (node, key) in [
        ("n-000", "example.com/full"),
        ("n-004", "example.com/full"),
        ("n-005", "node.kubernetes.io/maintenance"),
        ("n-006", "node.cloudprovider.kubernetes.io/shutdown"),
    ] {
        taint(&story, node, key).await;
    }
    // Nothing is to happen, and nothing but the counts shows what the controller knows. Nodes that are not ready are
    // tainted too.
    tokio::time::sleep(QUIET).await;
    story.nothing_changes(&first).await;
    let is_counted = |status: &Value| status["desiredNumberScheduled"] == 2 && status["numberMisscheduled"] == 6;
    story.status("as Kubernetes counts", is_counted).await;
    story.nothing_changes(&first).await;
}

const CLOSED: [&str; 4] = ["n-004", "n-005", "n-006", "n-007"];

/// Eight nodes with pods, four of which are closed now; on the others, new pods come up late.
async fn half_closed(name: &str, quarter: impl Fn(&Story, &str) -> Value) -> Story {
    let story = Story::without_nodes(name).await;
    story.add_nodes("n", 8, json!({})).await;
    story.apply(&quarter(&story, "agent:1")).await;
    story.have_image(8, "agent:1").await;
    for node in CLOSED {
        taint(&story, node, "example.com/full").await;
    }
    story.status("four should have one", |status| status["desiredNumberScheduled"] == 4).await;
    story.delay(&["n-000", "n-001", "n-002", "n-003"], LONG).await;
    story
}

async fn a_quarter_of_the_open_nodes_is_down() {
    let quarter = |story: &Story, image: &str| set(story, image, json!({"maxUnavailable": "25%"}));
    let story = half_closed("share", quarter).await;
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched: CLOSED.to_vec() }).await;
    story.apply(&quarter(&story, "agent:2")).await;
    watched.sees_down(1).await;
    tokio::time::sleep(QUIET).await;
    story.release().await;
    story.have_image(4, "agent:2").await;
    assert_eq!(watched.finish().await, (1, 1), "a quarter of four");
}

async fn a_quarter_of_the_open_nodes_has_two_pods() {
    let quarter = |story: &Story, image: &str| set(story, image, json!({"maxSurge": "25%"}));
    let story = half_closed("surge-share", quarter).await;
    let watched = watch(&story, Invariants { budget: Some(0), most_on_a_node: 2, untouched: CLOSED.to_vec() }).await;
    story.apply(&quarter(&story, "agent:2")).await;
    watched.sees_doubled(1).await;
    tokio::time::sleep(QUIET).await;
    story.release().await;
    story.have_image(4, "agent:2").await;
    assert_eq!(watched.most_doubled().await, 1, "a quarter of four");
    assert_eq!(watched.finish().await, (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_is_a_share_of_the_nodes_that_should_have_a_pod() {
    tokio::join!(a_quarter_of_the_open_nodes_is_down(), a_quarter_of_the_open_nodes_has_two_pods());
}

/// Has the kubelet of a node been silent for twenty minutes.
async fn silent_for_long(story: &Story, nodes: &[String]) {
    story.say_ready(nodes, json!("unknown")).await;
    let since = k8s_openapi::jiff::Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_mins(20);
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for node in nodes {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "lastTransitionTime": since, "lastHeartbeatTime": since});
        let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        let patched: Node =
            story.nodes.patch_status(&story.node(node), &PatchParams::default(), &patch).await.expect("it is told");
        assert_eq!(patched.name_any(), story.node(node));
    }
}

/// Waits until these nodes have this image, whatever others have.
async fn reached(story: &Story, nodes: &[String], image: &str) {
    let has_it = |node: &String, pods: &[(String, Pod)]| {
        pods.iter().any(|(on, pod)| on == node && look_at(pod).image == image && super::story::is_ready(pod))
    };
    story.every_pod("all but the silent have it", |pods| nodes.iter().all(|node| has_it(node, pods))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_straggler_takes_nobody_back_to_what_it_runs() {
    let story = Story::without_nodes("straggler").await;
    story.add_nodes("n", 6, json!({})).await;
    let all_at =
        |image: &str, partition: usize| set(&story, image, json!({"maxUnavailable": 6, "partition": partition}));
    story.apply(&all_at("agent:1", 0)).await;
    let first = story.have_image(6, "agent:1").await;
    story.newest_is_current().await;
    let (straggler, others) = (names("n", 5..6), names("n", 0..5));
    silent_for_long(&story, &straggler).await;
    for image in ["agent:2", "agent:3", "agent:4"] {
        story.apply(&all_at(image, 0)).await;
        reached(&story, &others, image).await;
        story.newest_is_current().await;
    }
    // Held back are the first three.
    story.apply(&all_at("agent:5", 3)).await;
    reached(&story, &names("n", 3..5), "agent:5").await;
    let fourth = story.pods_are("each has its own", |seen| seen.len() == 6).await;
    assert_eq!(fourth["n-005"], first["n-005"], "the straggler is left alone");
    story.delete_pod(&fourth["n-001"].name).await;
    let is_back = |seen: &ByNode| seen.len() == 6 && changed(&fourth, seen) == ["n-001"];
    let fifth = story.pods_are("it comes back", is_back).await;
    assert_eq!(fifth["n-001"].image, "agent:4", "what ran there");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_completes_nothing() {
    let story = Story::without_nodes("outage").await;
    story.add_nodes("n", 6, json!({})).await;
    let all_at =
        |image: &str, partition: usize| set(&story, image, json!({"maxUnavailable": 6, "partition": partition}));
    story.apply(&all_at("agent:1", 0)).await;
    story.have_image(6, "agent:1").await;
    let complete = story.newest_is_current().await;

    // Two that are held back, whose machines the cloud has shut down, and whose pods are gone.
    story.apply(&all_at("agent:2", 2)).await;
    let before = story.have_image(4, "agent:2").await;
    silent_for_long(&story, &names("n", 0..2)).await;
    for node in names("n", 0..2) {
        taint(&story, &node, "node.cloudprovider.kubernetes.io/shutdown").await;
        story.delete_pod(&before[&node].name).await;
    }
    story.pods_are("they are gone", |seen| seen.len() == 4).await;
    tokio::time::sleep(QUIET).await;
    story.status("nothing is complete", |status| status["currentRevision"] == json!(complete)).await;
    for node in names("n", 0..2) {
        story.change_node(&node, json!({"spec": {"taints": null}})).await;
    }
    story.say_ready(&names("n", 0..2), Value::Null).await;
    let after = story.pods_are("they come back", |seen| seen.len() == 6).await;
    assert_eq!(with_image(&after, "agent:1"), names("n", 0..2), "what ran there");

    // Most of them, none held back.
    silent_for_long(&story, &names("n", 0..4)).await;
    story.apply(&all_at("agent:3", 0)).await;
    reached(&story, &names("n", 4..6), "agent:3").await;
    tokio::time::sleep(QUIET).await;
    story.status("nothing is complete", |status| status["currentRevision"] == json!(complete)).await;
    story.say_ready(&names("n", 0..4), Value::Null).await;
    story.have_image(6, "agent:3").await;
    assert_ne!(story.newest_is_current().await, complete);
}

/// A node that is not selected loses its pod, of the newest revision. What it had nobody knows once that is gone: it gets the
/// last complete revision, as every node that the strategy leaves out. Its place is used until then, and no longer.
async fn a_place_is_used_until_the_next_pod_is_there(story: &Story, mut set: Value) {
    // No budget keeps anybody.
    set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(8);
    story.apply(&set).await;
    let before = story.have_image(6, "agent:2").await;
    let hangs = |how: Value| json!({"metadata": {"annotations": {"testbed.dapple.dev/deletion": how}}});
    story.change_pod(&before["a-002"].name, hangs(json!("hang"))).await;
    story.delete_pod(&before["a-002"].name).await;
    story.status("it is being replaced", |status| status["numberAvailable"] == 7).await;
    tokio::time::sleep(QUIET).await;
    let now = story.all_pods().await;
    let kept: Vec<&String> = now.iter().filter(|(on, pod)| before[on] == look_at(pod)).map(|(on, _)| on).collect();
    assert_eq!((now.len(), kept.len()), (8, 8), "no other gets its place: {kept:?}");

    story.change_pod(&before["a-002"].name, hangs(Value::Null)).await;
    // The last by name of those that are selected and wait.
    let after = story
        .pods_are("another has its place", |seen| seen.len() == 8 && changed(&before, seen) == ["a-002", "b-002"])
        .await;
    assert_eq!(with_image(&after, "agent:1"), ["a-002", "b-001"]);
    story.nothing_changes(&after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_selector_the_partition_says_how_many_get_it_in_all() {
    let story = Story::without_nodes("selector-partition").await;
    story.add_nodes("a", 4, json!({"pool": "a"})).await;
    story.add_nodes("b", 4, json!({"pool": "b"})).await;
    story.change_node("b-000", json!({"metadata": {"labels": {"rank": "first"}}})).await;
    let set = |image: &str, pool: &str, partition: Value| {
        let chosen = json!({"selector": {"matchLabels": {"pool": pool}}, "partition": partition, "maxUnavailable": 1});
        let mut set = set(&story, image, chosen);
        set["metadata"]["annotations"] = json!({"dapple.dev/canary": "rank=first"});
        set
    };
    story.apply(&set("agent:1", "a", json!(8))).await;
    story.have_image(8, "agent:1").await;
    let steps = [
        ("a", json!(5), vec!["a-001", "a-002", "a-003"]),
        ("a", json!("50%"), vec!["a-000", "a-001", "a-002", "a-003"]),
        // All places are used, by nodes that are not selected any more.
        ("b", json!(4), vec!["a-000", "a-001", "a-002", "a-003"]),
        // The canary comes first, then the last by name.
        ("b", json!(3), vec!["a-000", "a-001", "a-002", "a-003", "b-000"]),
        ("b", json!(2), vec!["a-000", "a-001", "a-002", "a-003", "b-000", "b-003"]),
    ];
    for (pool, partition, expected) in steps {
        story.apply(&set("agent:2", pool, partition.clone())).await;
        let seen = story.have_image(expected.len(), "agent:2").await;
        assert_eq!(with_image(&seen, "agent:2"), expected, "{pool} {partition}");
        story.nothing_changes(&seen).await;
    }
    a_place_is_used_until_the_next_pod_is_there(&story, set("agent:2", "b", json!(2))).await;
    // Unselected nodes of other revisions use no place: of eight, six get it, wherever the others are.
    story.apply(&set("agent:3", "b", json!(2))).await;
    let last = story.have_image(4, "agent:3").await;
    assert_eq!(with_image(&last, "agent:3"), names("b", 0..4));
}
