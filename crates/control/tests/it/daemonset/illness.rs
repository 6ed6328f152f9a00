//! Nodes that fall ill with what runs on them, played by the test: kwok's nodes take no harm from any image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};

use super::story::Story;
use crate::support::eventually;

/// The image that makes nodes ill.
pub(super) const SICK: &str = "agent:sick";
/// How often the test looks who fell ill.
const TICK: Duration = Duration::from_millis(100);

/// What somebody can do about a node that is dead for good has to be in what is said of it.
pub(super) fn names_ways_out(said: &str) {
    for way in ["repair", "delete", "node.kubernetes.io/out-of-service", "maxUnavailable", "undo"] {
        assert!(said.contains(way), "{way:?} is not in {said}");
    }
}

/// What the image does to a node.
#[derive(Debug, Clone)]
pub(super) struct Course {
    /// What becomes of its readiness: `false` or `unknown`.
    pub(super) ready: &'static str,
    /// Whether its pods are not ready either.
    pub(super) takes_pods_along: bool,
    /// How long after a container runs the image.
    pub(super) after: Duration,
    /// The only node that falls ill, if not all do.
    pub(super) only: Option<String>,
    /// Whether nodes stay ill, whatever they run.
    pub(super) is_for_good: bool,
    /// Whether the image does no harm any more, and all that were ill are well.
    pub(super) is_over: bool,
}

/// The illness under way.
pub(super) struct Illness {
    course: Arc<Mutex<Course>>,
    record: Arc<Mutex<Record>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Record {
    ill: BTreeSet<String>,
    most_ill: usize,
}

impl Illness {
    /// Begins to play it on the nodes of a story.
    pub(super) fn begin(story: &Story, course: Course) -> Self {
        let (course, record) = (Arc::new(Mutex::new(course)), Arc::new(Mutex::new(Record::default())));
        let player = Player {
            nodes: story.nodes.clone(),
            pods: story.pods.clone(),
            course: course.clone(),
            record: record.clone(),
            there: BTreeMap::new(),
            since: BTreeMap::new(),
        };
        let events = watcher(story.pods.clone(), watcher::Config::default());
        Self { course, record, task: tokio::spawn(player.play(events)) }
    }

    /// Changes its course.
    pub(super) fn change(&self, change: impl FnOnce(&mut Course)) {
        change(&mut self.course.lock().unwrap());
    }

    /// The nodes that are ill.
    pub(super) fn ill(&self) -> BTreeSet<String> {
        assert!(!self.task.is_finished(), "the illness ended early");
        self.record.lock().unwrap().ill.clone()
    }

    /// The most nodes that were ill at once.
    pub(super) fn most_ill(&self) -> usize {
        self.record.lock().unwrap().most_ill
    }

    /// Waits until so many nodes are ill.
    pub(super) async fn reaches(&self, story: &Story, count: usize) {
        eventually(&format!("{}: {count} nodes are ill", story.name), || async {
            let ill = self.ill();
            if ill.len() >= count { Ok(()) } else { Err(format!("{ill:?}")) }
        })
        .await;
    }
}

impl Drop for Illness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Player {
    nodes: Api<Node>,
    pods: Api<Pod>,
    course: Arc<Mutex<Course>>,
    record: Arc<Mutex<Record>>,
    there: BTreeMap<String, Pod>,
    /// Since when a node is to fall ill, or an ill one to be well.
    since: BTreeMap<String, Instant>,
}

impl Player {
    async fn play(mut self, events: impl Stream<Item = watcher::Result<Event<Pod>>>) {
        let mut events = std::pin::pin!(events);
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => _ = self.there.insert(pod.name_any(), pod),
                    Some(Ok(Event::Delete(pod))) => _ = self.there.remove(&pod.name_any()),
                    Some(Ok(Event::Init)) => self.there.clear(),
                    Some(Ok(Event::InitDone) | Err(_)) => {}
                    None => return,
                },
                _ = ticks.tick() => self.look().await,
            }
        }
    }

    async fn look(&mut self) {
        let course = self.course.lock().unwrap().clone();
        let on_nodes: BTreeSet<String> = self.there.values().filter_map(node_of).collect();
        let ill = self.record.lock().unwrap().ill.clone();
        for node in on_nodes.union(&ill) {
            let is_exposed = self.there.values().any(|pod| node_of(pod).as_ref() == Some(node) && is_sick(pod));
            let is_chosen = course.only.as_ref().is_none_or(|only| only == node);
            let is_ill = ill.contains(node);
            // Somebody has to make a silent kubelet speak again.
            let is_due = match (is_ill, course.is_over) {
                (true, true) => true,
                (true, false) => course.ready == "false" && !course.is_for_good && !is_exposed,
                (false, is_over) => !is_over && is_exposed && is_chosen,
            };
            if !is_due {
                self.since.remove(node);
            } else if self.since.entry(node.clone()).or_insert_with(Instant::now).elapsed() >= course.after {
                self.since.remove(node);
                self.turn(node, !is_ill, &course).await;
            }
        }
    }

    /// Makes a node ill, or well.
    async fn turn(&self, node: &str, is_ill: bool, course: &Course) {
        {
            let mut record = self.record.lock().unwrap();
            if is_ill {
                record.ill.insert(node.to_owned());
            } else {
                record.ill.remove(node);
            }
            record.most_ill = record.most_ill.max(record.ill.len());
        }
        let ready = if is_ill { json!(course.ready) } else { Value::Null };
        let patch = json!({"metadata": {"annotations": {"testbed.dapple.dev/ready": ready}}});
        unless_gone(self.nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await);
        if !course.takes_pods_along {
            return;
        }
        let readiness = if is_ill { json!("fail") } else { Value::Null };
        let patch = json!({"metadata": {"annotations": {"testbed.dapple.dev/readiness": readiness}}});
        let concerned = |pod: &&Pod| node_of(pod).as_deref() == Some(node) && (!is_ill || is_sick(pod));
        for pod in self.there.values().filter(concerned) {
            unless_gone(self.pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
        }
    }
}

fn unless_gone<T>(answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(error)) if error.code == 404 => {}
        answer => _ = answer.expect("it is changed"),
    }
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Whether a container runs the image.
fn is_sick(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().any(|known| known.image == SICK)
}

impl Story {
    /// What a kubelet says of its node: nothing with `unknown`, and that it is well with null.
    pub(super) async fn say_ready(&self, nodes: &[String], ready: Value) {
        let patch = json!({"metadata": {"annotations": {"testbed.dapple.dev/ready": ready}}});
        let expected = match ready.as_str() {
            Some("false") => "False",
            Some(_) => "Unknown",
            None => "True",
        };
        for node in nodes {
            self.change_node(node, patch.clone()).await;
        }
        self.readiness_is(nodes, expected).await;
    }

    /// Waits until these nodes are ready, or not.
    pub(super) async fn readiness_is(&self, nodes: &[String], expected: &str) {
        eventually(&format!("{}: nodes with Ready {expected}", self.name), || async {
            let mine = ListParams::default().labels(&format!("story={}", self.name));
            let found = self.nodes.list(&mine).await.map_err(|error| error.to_string())?;
            let is_other = |node: &&Node| {
                let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let mut ready = conditions.filter(|is| is.type_ == "Ready");
                nodes.contains(&self.short(&node.name_any())) && !ready.any(|is| is.status == expected)
            };
            let others: Vec<String> = found.iter().filter(is_other).map(ResourceExt::name_any).collect();
            if others.is_empty() { Ok(()) } else { Err(format!("not so: {others:?}")) }
        })
        .await;
    }
}
