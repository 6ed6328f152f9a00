//! An agent that breaks its node: a rollout of it stops after as many nodes as may be down, and whatever comes after it heals
//! them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::illness::{Course, Illness, SICK};
use super::steps::condition;
use super::story::{Story, look_at, rolling, tolerant};

/// When a node falls ill, and how long a pod must be ready meanwhile: far longer, since the test's own machine may stand still.
const DELAY: Duration = Duration::from_secs(1);
const MIN_READY: u64 = 10;
/// Longer than that: whoever counts pods alone goes on then.
const OUTLAST: Duration = Duration::from_secs(MIN_READY + 3);
/// How long to look on where nothing may happen.
const QUIET: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Standard,
    InPlace,
    Surge,
}

#[derive(Debug, Clone)]
struct Case {
    ready: &'static str,
    takes_pods_along: bool,
    /// Whether its pods may start on a node that is not ready: without a toleration of their own they may not.
    is_tolerant: bool,
    how: How,
    /// How many nodes may be down at once, of so many.
    most: Value,
    allowed: usize,
    nodes: usize,
}

/// Of eleven nodes, ten per cent are two.
fn cases(ready: &'static str) -> Vec<Case> {
    let mut all = Vec::new();
    for (most, allowed, nodes) in [(json!(1), 1, 6), (json!("10%"), 2, 11)] {
        for how in [How::Standard, How::InPlace, How::Surge] {
            for takes_pods_along in [false, true] {
                let most = most.clone();
                all.push(Case { ready, takes_pods_along, is_tolerant: true, how, most, allowed, nodes });
            }
        }
    }
    all
}

/// Some of them, with pods that may not start on nodes that are not ready.
fn kept_out(ready: &'static str, is_chosen: impl Fn(&Case) -> bool) -> Vec<Case> {
    let chosen = cases(ready).into_iter().filter(|case| is_chosen(case));
    chosen.map(|case| Case { is_tolerant: false, ..case }).collect()
}

impl Case {
    fn name(&self) -> String {
        let pods = if self.takes_pods_along { "pods-down" } else { "pods-up" };
        let place = if self.is_tolerant { "anywhere" } else { "kept-out" };
        format!("ill-{}-{:?}-{pods}-{}-{place}", self.ready, self.how, self.allowed).to_lowercase()
    }

    fn set(&self, story: &Story, image: &str, min_ready: u64) -> Value {
        let most = self.most.clone();
        let strategy = match self.how {
            How::Standard => json!({"maxUnavailable": most}),
            How::InPlace => json!({"maxUnavailable": most, "rollingUpdateType": "InPlaceIfPossible"}),
            How::Surge => json!({"maxSurge": most}),
        };
        let set = story.set(image, json!({"updateStrategy": rolling(strategy), "minReadySeconds": min_ready}));
        if self.is_tolerant { tolerant(set) } else { set }
    }

    fn course(&self, after: Duration) -> Course {
        let Self { ready, takes_pods_along, .. } = *self;
        Course { ready, takes_pods_along, after, only: None, is_for_good: false, is_over: false }
    }

    /// A set of `agent:1` on the case's nodes.
    async fn started(&self) -> Story {
        let story = Story::without_nodes(&self.name()).await;
        story.add_nodes("n", self.nodes, json!({})).await;
        story.apply(&self.set(&story, "agent:1", 0)).await;
        self.completes(&story, "agent:1").await;
        story
    }

    /// Waits until every node is ready and has this image, and the set says so.
    async fn completes(&self, story: &Story, image: &str) {
        story.have_image(self.nodes, image).await;
        let nodes: Vec<String> = (0..self.nodes).map(|number| format!("n-{number:03}")).collect();
        story.readiness_is(&nodes, "True").await;
        story.condition("Progressing", "False", "Complete").await;
    }
}

/// Nodes that have a pod of this image.
fn having(pods: &[(String, Pod)], image: &str) -> BTreeSet<String> {
    pods.iter().filter(|(_, pod)| look_at(pod).image == image).map(|(node, _)| node.clone()).collect()
}

/// What the pods of these nodes are: whatever replaces, deletes or changes one shows.
async fn identities(story: &Story, nodes: &BTreeSet<String>) -> BTreeSet<String> {
    let told = |pod: &Pod| format!("{:?} {:?} {:?}", pod.uid(), pod.labels(), pod.metadata.deletion_timestamp);
    let pods = story.all_pods().await;
    pods.iter().filter(|(node, _)| nodes.contains(&story.node(node))).map(|(_, pod)| told(pod)).collect()
}

/// Nodes where an update has begun: they have no pod but of the bad image, or one that is leaving or taken out of service to be
/// changed, or none.
async fn begun(story: &Story, nodes: usize) -> BTreeSet<String> {
    let pods = story.all_pods().await;
    let is_closed = |pod: &Pod| condition(pod, "InPlaceUpdateReady") == Some("False");
    let is_left = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && !is_closed(pod);
    let is_old = |pod: &Pod| look_at(pod).image != SICK && is_left(pod);
    let old: BTreeSet<&String> = pods.iter().filter(|(_, pod)| is_old(pod)).map(|(node, _)| node).collect();
    let bad = having(&pods, SICK);
    (0..nodes).map(|number| format!("n-{number:03}")).filter(|node| bad.contains(node) || !old.contains(node)).collect()
}

/// Waits until the manager tells of as many nodes as may be lost, each by a rollout: then it knows of them. What it had asked
/// for before is done by then, since it tells only once all that it asked for is answered.
async fn is_told(story: &Story, case: &Case) {
    let tells = |status: &Value| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        let progressing = all.find(|known| known["type"] == "Progressing");
        let message = progressing.and_then(|known| known["message"].as_str()).unwrap_or_default();
        message.matches(": updated ").count() >= case.allowed
    };
    story.status(&format!("it tells that {} nodes are ill", case.allowed), tells).await;
}

/// Rolls the bad image out to pods that must be ready for longer than their node takes to fall ill.
async fn breaks_no_more_than_allowed(case: &Case, story: &Story, illness: &Illness) {
    story.apply(&case.set(story, SICK, MIN_READY)).await;
    illness.reaches(story, case.allowed).await;
    tokio::time::sleep(OUTLAST).await;
    assert_eq!(illness.most_ill(), case.allowed, "{}: {:?}", story.name, illness.ill());
    assert_eq!(having(&story.all_pods().await, SICK).len(), case.allowed, "{}", story.name);
}

/// Rolls it out to pods that count at once: no update begins once the manager sees that as many nodes are lost as may be.
async fn breaks_no_more_once_it_shows(case: &Case, story: &Story, illness: &Illness) {
    illness.change(|course| *course = case.course(Duration::ZERO));
    story.apply(&case.set(story, SICK, 0)).await;
    illness.reaches(story, case.allowed).await;
    is_told(story, case).await;
    let broken = begun(story, case.nodes).await;
    assert!(broken.len() < case.nodes, "{}: all {} nodes are ill", story.name, broken.len());
    tokio::time::sleep(OUTLAST).await;
    assert_eq!(begun(story, case.nodes).await, broken, "{}: {:?} are ill", story.name, illness.ill());
}

/// Whoever says that it is not ready can be reached, and is healed by what comes after.
async fn nodes_that_are_not_ready(case: Case) {
    let story = case.started().await;
    let illness = Illness::begin(&story, case.course(DELAY));
    breaks_no_more_than_allowed(&case, &story, &illness).await;
    story.apply(&case.set(&story, "agent:1", 0)).await;
    case.completes(&story, "agent:1").await;
    breaks_no_more_once_it_shows(&case, &story, &illness).await;
    story.apply(&case.set(&story, "agent:3", 0)).await;
    case.completes(&story, "agent:3").await;
}

/// Whoever says nothing is left alone until it speaks again.
async fn nodes_that_are_silent(case: Case) {
    let story = case.started().await;
    let illness = Illness::begin(&story, case.course(DELAY));
    breaks_no_more_than_allowed(&case, &story, &illness).await;
    let before = identities(&story, &illness.ill()).await;
    story.apply(&case.set(&story, "agent:3", 0)).await;
    story.status("the good one is seen", |_| true).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(identities(&story, &illness.ill()).await, before, "{}: nothing is done there", story.name);
    assert_eq!(having(&story.all_pods().await, "agent:3").len(), 0, "{}: it waits for them", story.name);
    illness.change(|course| course.is_over = true);
    case.completes(&story, "agent:3").await;

    breaks_no_more_once_it_shows(&case, &story, &illness).await;
    let (ill, before) = (illness.ill(), identities(&story, &illness.ill()).await);
    story.apply(&case.set(&story, "agent:3", 0)).await;
    story
        .every_pod("whoever can be reached is back", |pods| having(pods, "agent:3").len() >= case.nodes - ill.len())
        .await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(identities(&story, &ill).await, before, "{}: nothing is done there", story.name);
    illness.change(|course| course.is_over = true);
    case.completes(&story, "agent:3").await;
}

/// Plays all cases at once, and names those that fail.
async fn play<F: Future<Output = ()> + Send + 'static>(cases: Vec<Case>, story: fn(Case) -> F) {
    let names: Vec<String> = cases.iter().map(Case::name).collect();
    let ended = join_all(cases.into_iter().map(|case| tokio::spawn(story(case)))).await;
    let failed: Vec<&String> =
        names.iter().zip(ended).filter(|(_, ended)| ended.is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_makes_its_node_not_ready_is_stopped_and_undone() {
    play(cases("false"), nodes_that_are_not_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_silences_its_kubelet_is_stopped_and_the_silent_are_left_alone() {
    play(cases("unknown"), nodes_that_are_silent).await;
}

// A pod that is not written for it may not start on a node that is not ready, and the bad one must go all the same: in a surge
// too, where the next one would start beside it, and here has to come after it.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_may_not_start_on_ill_nodes_is_taken_away_from_them() {
    // Nodes that are closed count for no percentage, so that fewer may be down once some are ill.
    let ill = kept_out("false", |case| case.allowed == 1 || (case.how == How::Standard && case.takes_pods_along));
    let silent = kept_out("unknown", |case| case.allowed == 1 && !case.takes_pods_along);
    tokio::join!(play(ill, nodes_that_are_not_ready), play(silent, nodes_that_are_silent));
}
