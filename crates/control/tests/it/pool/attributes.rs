//! Labels, annotations and taints: applied, moved, put right, and undone.

use dapple_api::partition::ServiceAccount;
use dapple_control::install::install_policies;
use dapple_testbed::ClusterSpec;
use serde_json::{Value, json};

use super::story::{LABEL, PREVIOUS, QUIET, REPLACED, Story, Versions};
use crate::support::{eventually, kubectl_ok, manager};

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

/// What a node was made with.
fn own() -> (Value, Value) {
    (json!({"disk": "old", "own": "1"}), json!([taint("disk", "old"), taint("own", "1")]))
}

fn beijing() -> Value {
    json!({"type": "Edge", "labels": {"disk": "ssd", "zone": "a"}, "annotations": {"note": "in beijing"},
        "taints": [taint("disk", "ssd"), taint("edge", "")]})
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_what_their_pool_gives_and_lose_it_when_they_leave() {
    let story = Story::new(ClusterSpec::api_server()).await;
    let _manager = manager(&story.cluster, "pool-attributes").await;
    for name in ["a", "b", "c"] {
        let (labels, taints) = own();
        story.node(name, labels, taints).await;
    }
    let before = story.read("a").await;
    story.pool("beijing", beijing()).await;
    story.pool("hangzhou", json!({"labels": {"zone": "b"}, "annotations": {"other": "x"}})).await;
    applied_and_told(&story).await;
    moved_in_one_write(&story).await;
    what_others_add_survives(&story).await;
    a_change_of_the_pool_reaches_its_nodes(&story).await;
    suspended(&story).await;
    story.put("a", None).await;
    let after = story.until("a", "is as before", |node| node["metadata"]["annotations"][PREVIOUS].is_null()).await;
    assert_eq!((&after["metadata"]["labels"], &after["spec"]), (&before["metadata"]["labels"], &before["spec"]));
    assert_eq!(after["metadata"]["annotations"], before["metadata"]["annotations"]);
    unreadable(&story).await;
    kept_by_others(&story).await;
    story.cluster.stop().await.unwrap();
}

async fn applied_and_told(story: &Story) {
    for name in ["a", "b"] {
        story.put(name, Some("beijing")).await;
    }
    let node = story.until("a", "has it all", |node| node["metadata"]["annotations"]["note"] == "in beijing").await;
    let labels = json!({"disk": "ssd", "own": "1", "zone": "a", LABEL: "beijing"});
    assert_eq!(node["metadata"]["labels"], labels);
    let taints = json!([taint("disk", "ssd"), taint("own", "1"), {"key": "edge", "effect": "NoSchedule"}]);
    assert_eq!(node["spec"]["taints"], taints);
    let message = story.says("beijing", "Applied", "Applied").await;
    assert_eq!(message, "All 2 nodes have what the pool gives.");
    let found = story.pools().get("beijing").await.unwrap();
    assert_eq!(found.data["status"]["nodes"], json!(["a", "b"]));
    assert_eq!(
        (&found.data["status"]["readyNodeNum"], &found.data["status"]["unreadyNodeNum"]),
        (&json!(0), &json!(2))
    );
    let printed = kubectl_ok(&story.cluster, &["get", "nodepool", "beijing", "--no-headers"], "");
    assert_eq!(printed.split_whitespace().take(4).collect::<Vec<_>>(), ["beijing", "Edge", "0", "2"], "{printed}");
    story.says("hangzhou", "Applied", "NoNodes").await;
}

async fn moved_in_one_write(story: &Story) {
    let versions = Versions::watch(story);
    eventually("the node is seen", || async { if versions.of("b") > 0 { Ok(()) } else { Err(String::new()) } }).await;
    let seen = versions.of("b");
    story.put("b", Some("hangzhou")).await;
    let node = story.until("b", "is moved", |node| node["metadata"]["annotations"]["other"] == "x").await;
    let labels = json!({"disk": "old", "own": "1", "zone": "b", LABEL: "hangzhou"});
    assert_eq!(node["metadata"]["labels"], labels);
    assert_eq!(node["spec"]["taints"], own().1);
    assert!(node["metadata"]["annotations"]["note"].is_null(), "{node}");
    story.says("hangzhou", "Applied", "Applied").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(versions.of("b"), seen + 2, "the label, and one write of ours");
}

/// What others change is put right, and what they add stays: taints are one list.
async fn what_others_add_survives(story: &Story) {
    let foreign = taint("foreign", "x");
    let taints = json!([foreign, taint("disk", "theirs"), taint("own", "1")]);
    let labels = json!({"zone": "theirs", "foreign": "x"});
    story.patch_node("a", json!({"metadata": {"labels": labels}, "spec": {"taints": taints}})).await;
    let node = story.until("a", "is put right", |node| node["metadata"]["labels"]["zone"] == "a").await;
    assert_eq!(node["metadata"]["labels"]["foreign"], "x");
    let expected = json!([foreign, taint("disk", "ssd"), taint("own", "1"), {"key": "edge", "effect": "NoSchedule"}]);
    assert_eq!(node["spec"]["taints"], expected);
    let gone = json!({"metadata": {"labels": {"foreign": null}},
        "spec": {"taints": expected.as_array().unwrap()[1..].to_vec()}});
    story.patch_node("a", gone).await;
}

async fn a_change_of_the_pool_reaches_its_nodes(story: &Story) {
    let spec = json!({"labels": {"disk": null, "zone": "c"}, "annotations": {"note": null}});
    story.patch_pool("beijing", json!({"spec": spec})).await;
    let node = story.until("a", "is changed", |node| node["metadata"]["labels"]["zone"] == "c").await;
    assert_eq!(node["metadata"]["labels"]["disk"], "old");
    assert!(node["metadata"]["annotations"]["note"].is_null(), "{node}");
}

async fn suspended(story: &Story) {
    let suspend = "dapple.dev/suspend";
    story.annotate_pool("beijing", suspend, Some("true")).await;
    story.says("beijing", "Suspended", "Suspended").await;
    story.patch_pool("beijing", json!({"spec": {"labels": {"zone": "d"}}})).await;
    story.says("beijing", "Applied", "Applying").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(story.read("a").await["metadata"]["labels"]["zone"], "c");
    story.annotate_pool("beijing", suspend, None).await;
    story.until("a", "is written again", |node| node["metadata"]["labels"]["zone"] == "d").await;
}

/// What is remembered on a node, and was edited by hand, changes nothing there, and nothing elsewhere.
async fn unreadable(story: &Story) {
    let text = "{\"labels\": [";
    story.patch_node("c", json!({"metadata": {"annotations": {PREVIOUS: text}}})).await;
    story.put("c", Some("beijing")).await;
    let message = story.says("beijing", "Applied", "Failed").await;
    assert!(
        message.contains("cannot be written: 1 (c: annotation nodepool.openyurt.io/previous-attributes"),
        "{message}"
    );
    let node = story.read("c").await;
    assert_eq!(node["metadata"]["annotations"], json!({PREVIOUS: text}));
    assert!(node["metadata"]["labels"]["zone"].is_null());
    story.patch_node("c", json!({"metadata": {"annotations": {PREVIOUS: null}}})).await;
    story.until("c", "is written", |node| node["metadata"]["labels"]["zone"] == "d").await;
    assert!(story.read("c").await["metadata"]["annotations"][REPLACED].as_str().unwrap().contains("\"beijing\""));
}

/// What is remembered on a node can be edited by hand so that it is read: what Kubernetes keeps is no pool's all the same. With the
/// policy on what the manager writes, a write that took it off would be refused for ever.
async fn kept_by_others(story: &Story) {
    let manager = ServiceAccount { namespace: "dapple-system".to_owned(), name: "dapple-manager".to_owned() };
    install_policies(&story.client, &manager).await.unwrap();
    story.node("d", json!({"kubernetes.io/os": "linux", "own": "1"}), json!([])).await;
    let found = serde_json::to_value(story.nodes().get("d").await.unwrap()).unwrap();
    // The API server gives every new node one of its own.
    let taints = found["spec"]["taints"].clone();
    assert_eq!(taints[0]["key"], "node.kubernetes.io/not-ready");
    let remembered = json!({"labels": {"kubernetes.io/os": "linux"}, "taints": taints});
    let replaced = json!({"labels": {"kubernetes.io/os": "theirs"}});
    let edited = json!({PREVIOUS: remembered.to_string(), REPLACED: replaced.to_string()});
    story.patch_node("d", json!({"metadata": {"annotations": edited}})).await;
    story.until("d", "remembers it no more", |node| node["metadata"]["annotations"][PREVIOUS].is_null()).await;
    let found = serde_json::to_value(story.nodes().get("d").await.unwrap()).unwrap();
    assert_eq!(found["metadata"]["labels"], json!({"kubernetes.io/os": "linux", "own": "1"}));
    assert_eq!(found["spec"]["taints"], taints);
    // What a pool gives comes and goes.
    story.patch_node("d", json!({"metadata": {"annotations": edited, "labels": {LABEL: "hangzhou"}}})).await;
    story.until("d", "is in the pool", |node| node["metadata"]["labels"]["zone"] == "b").await;
    story.put("d", None).await;
    story.until("d", "has left it", |node| node["metadata"]["labels"]["zone"].is_null()).await;
    let found = serde_json::to_value(story.nodes().get("d").await.unwrap()).unwrap();
    assert_eq!(found["metadata"]["labels"], json!({"kubernetes.io/os": "linux", "own": "1"}));
    assert_eq!(found["spec"]["taints"], taints);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_keeps_changing_a_node_is_named_and_given_way_to() {
    let story = Story::new(ClusterSpec::api_server()).await;
    let first = manager(&story.cluster, "pool-fight").await;
    story.pool("beijing", json!({"labels": {"zone": "a"}})).await;
    story.node("a", json!({LABEL: "beijing"}), json!([])).await;
    for _ in 0..3 {
        story.until("a", "is put right", |node| node["metadata"]["labels"]["zone"] == "a").await;
        kubectl_ok(&story.cluster, &["label", "node", "a", "zone=theirs", "--overwrite"], "");
    }
    story.until("a", "is put right", |node| node["metadata"]["labels"]["zone"] == "a").await;
    kubectl_ok(&story.cluster, &["label", "node", "a", "zone=theirs", "--overwrite"], "");
    let message = story.says("beijing", "Applied", "Contested").await;
    assert!(message.contains("1 (a: label zone, which kubectl-label changes)"), "{message}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(story.read("a").await["metadata"]["labels"]["zone"], "theirs");
    assert!(story.events("Contested").await.iter().any(|said| said.contains("kubectl-label")));
    // A leader that is new to it, or a change of the pool, begins anew; once it is as it should be, nothing more is written.
    first.end().await;
    let _second = manager(&story.cluster, "pool-fight").await;
    story.until("a", "is put right", |node| node["metadata"]["labels"]["zone"] == "a").await;
    story.says("beijing", "Applied", "Applied").await;
    let versions = Versions::watch(&story);
    tokio::time::sleep(QUIET).await;
    assert!(versions.of("a") <= 1, "nothing is written");
    story.cluster.stop().await.unwrap();
}
