//! An agent for which somebody taints its node for good: its pod is evicted, and none may start. Such a node is one that the
//! rollout has lost, though no pod should be there any more.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::story::{Story, look_at, rolling};

const BAD: &str = "agent:bad";
/// How long pods must be ready: far longer than it takes until the node is tainted.
const MIN_READY: u64 = 8;
/// Longer than that: a rollout that does not count the node has gone on by then.
const OUTLAST: Duration = Duration::from_secs(MIN_READY + 4);

/// Taints every node on which a pod of the bad image is ready, as those do who look after nodes. What evicts pods there is
/// Kubernetes' own.
struct Shunning {
    nodes: Arc<Mutex<BTreeSet<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Shunning {
    fn begin(story: &Story) -> Self {
        let nodes = Arc::new(Mutex::new(BTreeSet::new()));
        let task = tokio::spawn(shun(story.pods.clone(), story.nodes.clone(), nodes.clone()));
        Self { nodes, task }
    }

    fn nodes(&self) -> BTreeSet<String> {
        assert!(!self.task.is_finished(), "nobody shuns nodes any more");
        self.nodes.lock().unwrap().clone()
    }
}

impl Drop for Shunning {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn shun(pods: Api<Pod>, nodes: Api<Node>, shunned: Arc<Mutex<BTreeSet<String>>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Ok(found) = pods.list(&ListParams::default()).await else { continue };
        for pod in found.iter().filter(|pod| runs_bad(pod)) {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { continue };
            if shunned.lock().unwrap().insert(node.clone()) {
                let taints = json!({"spec": {"taints": [{"key": "example.com/broken", "effect": "NoExecute"}]}});
                nodes.patch(&node, &PatchParams::default(), &Patch::Strategic(taints)).await.expect("it is tainted");
            }
        }
    }
}

fn runs_bad(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().any(|known| known.image == BAD)
}

fn set(story: &Story, image: &str, strategy: Value, min_ready: u64) -> Value {
    story.set(image, json!({"updateStrategy": rolling(strategy), "minReadySeconds": min_ready}))
}

/// Six nodes: the rollout stops at the first, says so, remembers it, and what comes after it goes on.
async fn stops(name: &str, strategy: Value) {
    let story = Story::without_nodes(name).await;
    story.add_nodes("n", 6, json!({})).await;
    story.apply(&set(&story, "agent:1", strategy.clone(), 0)).await;
    story.have_image(6, "agent:1").await;
    story.condition("Progressing", "False", "Complete").await;
    let shunning = Shunning::begin(&story);
    story.apply(&set(&story, BAD, strategy.clone(), MIN_READY)).await;
    let waits =
        [&*story.node("n-005"), "a taint keeps its pods away since", "taint it node.kubernetes.io/out-of-service"];
    story.message(("Progressing", "True", "RollingOut"), &waits).await;
    story.every_pod("it is evicted", |pods| pods.iter().all(|(node, _)| node != "n-005")).await;
    tokio::time::sleep(OUTLAST).await;
    let others = story.all_pods().await;
    assert!(others.len() == 5 && others.iter().all(|(_, pod)| look_at(pod).image == "agent:1"), "{name}: {others:?}");
    assert_eq!(shunning.nodes(), BTreeSet::from([story.node("n-005")]), "{name}");
    let revisions = story.revisions.list(&ListParams::default()).await.unwrap();
    let newest = revisions.iter().max_by_key(|revision| revision.revision).expect("there are revisions");
    let noted = newest.annotations().get("dapple.dev/driven-off").cloned().unwrap_or_default();
    assert!(noted.contains(&story.node("n-005")), "{name}: {noted:?}");
    // An undo gets past it; once the taint is gone, its pod is back.
    story.apply(&set(&story, "agent:1", strategy, 0)).await;
    drop(shunning);
    story.have_image(5, "agent:1").await;
    story.change_node("n-005", json!({"spec": {"taints": null}})).await;
    story.have_image(6, "agent:1").await;
    story.condition("Progressing", "False", "Complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_tainted_for_what_runs_there_gives_no_slot_back() {
    let (standard, surge) = (json!({"maxUnavailable": 1}), json!({"maxSurge": 1}));
    tokio::join!(stops("shunned", standard), stops("shunned-surge", surge));
}
