//! Nodes that are down: those that a rollout touched hold it up until somebody does something, and others do not.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::illness::{Course, Illness, SICK, names_ways_out};
use super::story::{ByNode, Story, changed, is_ready, look_at, rolling, tolerant};
use super::watch::{Invariants, watch};

/// How long to look on where nothing may happen.
const QUIET: Duration = Duration::from_secs(4);

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{kind}-{number:03}")).collect()
}

/// Whether every one of these nodes has a ready pod of this image.
fn have(pods: &[(String, Pod)], nodes: &[String], image: &str) -> bool {
    let is_it = |node: &String, (on, pod): &(String, Pod)| on == node && look_at(pod).image == image && is_ready(pod);
    nodes.iter().all(|node| pods.iter().any(|known| is_it(node, known)))
}

/// Nodes whose pod is another one than it was, or gone.
fn touched(first: &ByNode, pods: &[(String, Pod)], nodes: &[String]) -> Vec<String> {
    let is_left = |node: &&String| {
        let mut here = pods.iter().filter(|(on, _)| on == *node);
        here.any(|(_, pod)| pod.metadata.uid.as_ref() == Some(&first[*node].uid))
    };
    nodes.iter().filter(|node| !is_left(node)).cloned().collect()
}

/// Has the kubelets of these nodes leave pods where they are whose deletion was asked for, or end them after all.
async fn hang(story: &Story, pods: &ByNode, nodes: &[String], how: Value) {
    for node in nodes {
        let annotations = json!({"testbed.dapple.dev/deletion": how});
        story.change_pod(&pods[node].name, json!({"metadata": {"annotations": annotations}})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_nodes_that_were_down_before_hold_up_nobody() {
    let story = Story::without_nodes("thirty-down").await;
    // The partition holds `back` back. Of the others, by name alone `old` would be updated first, and `fit` last.
    for (kind, count) in [("back", 10), ("fit", 4), ("hang", 10), ("old", 10)] {
        story.add_nodes(kind, count, json!({})).await;
    }
    let set = |image: &str, partition: usize| {
        let strategy = rolling(json!({"maxUnavailable": 1, "partition": partition}));
        tolerant(story.set(image, json!({"updateStrategy": strategy})))
    };
    story.apply(&set("agent:1", 0)).await;
    let first = story.have_image(34, "agent:1").await;
    story.condition("Progressing", "False", "Complete").await;

    // Ten with old pods, of which some say that they are not ready; ten whose pods were deleted, and nobody ends them.
    let (old, hanging, fit) = (names("old", 10), names("hang", 10), names("fit", 4));
    story.say_ready(&old[..5], json!("false")).await;
    story.say_ready(&old[5..], json!("unknown")).await;
    story.say_ready(&hanging, json!("unknown")).await;
    hang(&story, &first, &hanging, json!("hang")).await;
    for node in &hanging {
        story.delete_pod(&first[node].name).await;
    }
    // What happened before a rollout is told from what happened after by seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    story.apply(&set("agent:2", 10)).await;
    story.every_pod("the others have it", |pods| have(pods, &fit, "agent:2")).await;
    // After all the rest, and no more at once than may be down: then it waits for that one.
    story.every_pod("one that is not ready has it", |pods| have(pods, &old[4..5], "agent:2")).await;
    tokio::time::sleep(QUIET).await;
    let (now, down) = (story.all_pods().await, [old.as_slice(), &hanging].concat());
    assert_eq!(touched(&first, &now, &down), ["old-004"], "the last by name of those that can be reached");

    // And ten with pods of the revision that an undo returns to.
    let back = names("back", 10);
    story.say_ready(&back, json!("unknown")).await;
    story.apply(&set("agent:1", 0)).await;
    story.every_pod("the others are back", |pods| have(pods, &fit, "agent:1")).await;
    tokio::time::sleep(QUIET).await;
    let silent = [back.as_slice(), &hanging, &old[5..]].concat();
    let none: [&str; 0] = [];
    assert_eq!(touched(&first, &story.all_pods().await, &silent), none, "nothing is done where the kubelet is silent");
    for nodes in [&back, &old, &hanging] {
        story.say_ready(nodes, Value::Null).await;
    }
    hang(&story, &first, &hanging, Value::Null).await;
    story.have_image(34, "agent:1").await;
    story.condition("Progressing", "False", "Complete").await;
}

/// What somebody does about an updated node that is dead for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WayOut {
    Repair,
    DeleteTheNode,
    OutOfService,
    RaiseTheBudget,
    Undo,
    Soak,
}

const WAYS_OUT: [WayOut; 6] =
    [WayOut::Repair, WayOut::DeleteTheNode, WayOut::OutOfService, WayOut::RaiseTheBudget, WayOut::Undo, WayOut::Soak];

/// The last but one by name is the second to be updated: the first is well, and an undo has to reach it.
const DEAD: &str = "n-002";
/// How long pods must be ready: far longer than the node takes to die, since the test's own machine may stand still.
const MIN_READY: u64 = 8;
const OTHERS: [&str; 3] = ["n-000", "n-001", "n-003"];

fn set(story: &Story, image: &str, budget: usize, min_ready: u64) -> Value {
    let strategy = rolling(json!({"maxUnavailable": budget}));
    tolerant(story.set(image, json!({"updateStrategy": strategy, "minReadySeconds": min_ready})))
}

/// Whether `text` has a part like this one, where `0` stands for any digit.
fn has_like(text: &str, like: &str) -> bool {
    let is_like = |part: &[u8]| {
        part.iter().zip(like.bytes()).all(|(is, like)| if like == b'0' { is.is_ascii_digit() } else { *is == like })
    };
    text.as_bytes().windows(like.len()).any(is_like)
}

/// Rolls out to four nodes, of which the second dies of it, and waits until the rollout says that it waits.
async fn stalled(name: &str, ready: &'static str) -> (Story, Illness) {
    let story = Story::without_nodes(name).await;
    story.add_nodes("n", 4, json!({})).await;
    // Pods that were ready for too short a time would be down, and come first.
    story.apply(&set(&story, "agent:1", 1, MIN_READY)).await;
    story.have_image(4, "agent:1").await;
    story.status("all are available", |status| status["numberAvailable"] == 4).await;
    story.condition("Progressing", "False", "Complete").await;
    let (after, only) = (Duration::ZERO, Some(story.node(DEAD)));
    let course = Course { ready, takes_pods_along: false, after, only, is_for_good: true, is_over: false };
    let illness = Illness::begin(&story, course);
    story.apply(&set(&story, SICK, 1, MIN_READY)).await;
    illness.reaches(&story, 1).await;
    let waits = ["2 of 4 nodes", &story.node(DEAD), ", not Ready since "];
    let message = story.message(("Progressing", "True", "RollingOut"), &waits).await;
    assert!(has_like(&message, &format!("{}: updated 00:00, not Ready since 00:00", story.node(DEAD))), "{message}");
    names_ways_out(&message);
    // That its pod is available helps nobody.
    story.apply(&set(&story, SICK, 1, 0)).await;
    story.status("it is available", |status| status["numberAvailable"] == 4).await;
    tokio::time::sleep(QUIET).await;
    let pods = story.all_pods().await;
    assert_eq!(pods.iter().filter(|(_, pod)| look_at(pod).image == SICK).count(), 2, "{name}: it waits");
    (story, illness)
}

async fn goes_on(way: WayOut, ready: &'static str) {
    let (story, illness) = stalled(&format!("dead-{way:?}-{ready}").to_lowercase(), ready).await;
    let before = story.all_pods().await;
    match way {
        WayOut::Repair => illness.change(|course| course.is_over = true),
        WayOut::DeleteTheNode => {
            _ = story.nodes.delete(&story.node(DEAD), &DeleteParams::default()).await.expect("the node is deleted");
        }
        WayOut::OutOfService => {
            // Beside the taints that Kubernetes puts there.
            let taint =
                json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
            let patch = Patch::Strategic(json!({"spec": {"taints": [taint]}}));
            story.nodes.patch(&story.node(DEAD), &PatchParams::default(), &patch).await.expect("the node is tainted");
        }
        WayOut::RaiseTheBudget => story.apply(&set(&story, SICK, 2, 0)).await,
        WayOut::Undo => story.apply(&set(&story, "agent:1", 1, 0)).await,
        WayOut::Soak => {
            let soaks = Patch::Merge(json!({"metadata": {"annotations": {"dapple.dev/soak": "5s"}}}));
            story.sets.patch("agent", &PatchParams::default(), &soaks).await.expect("the set is annotated");
        }
    }
    let (image, others) = (if way == WayOut::Undo { "agent:1" } else { SICK }, OTHERS.map(str::to_owned));
    story.every_pod("the others have it", |pods| have(pods, &others, image)).await;
    match (way, ready) {
        (WayOut::Repair | WayOut::DeleteTheNode, _) => _ = story.condition("Progressing", "False", "Complete").await,
        // It cannot hurt it any more.
        (WayOut::Undo, "false") => _ = story.have_image(4, "agent:1").await,
        (WayOut::Undo | WayOut::RaiseTheBudget | WayOut::Soak, "unknown") => {
            let of_dead = |pods: &[(String, Pod)]| -> Vec<Option<String>> {
                pods.iter().filter(|(node, _)| node == DEAD).map(|(_, pod)| pod.metadata.uid.clone()).collect()
            };
            let now = story.all_pods().await;
            assert_eq!(of_dead(&now), of_dead(&before), "{way:?}: its pod is left alone");
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_updated_node_that_dies_for_good_holds_up_the_rest_until_somebody_does_something() {
    let all: Vec<_> = WAYS_OUT.iter().flat_map(|way| [(*way, "false"), (*way, "unknown")]).collect();
    let ended = join_all(all.iter().map(|(way, ready)| tokio::spawn(goes_on(*way, ready)))).await;
    let failed: Vec<_> = all.iter().zip(ended).filter(|(_, ended)| ended.is_err()).map(|(case, _)| case).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_partitioned_scaling_keeps_empty_hold_up_nobody() {
    let story = Story::new("kept-empty").await;
    let set = |image: &str| {
        let strategy = rolling(json!({"maxUnavailable": 1, "partition": 3}));
        story.set(image, json!({"updateStrategy": strategy, "scaleStrategy": {"partitionedScaling": true}}))
    };
    story.apply(&set("agent:1")).await;
    let first = story.pods_are("three have a pod", |seen| seen.len() == 3).await;
    let watched = watch(&story, Invariants { budget: Some(1), most_on_a_node: 1, untouched: vec![] }).await;
    story.apply(&set("agent:2")).await;
    let second = story.have_image(3, "agent:2").await;
    assert_eq!(changed(&first, &second), ["small-001", "small-002", "small-003"]);
    watched.finish().await;
}
