//! What `dapple plan` foretells, the controller does, pod by pod: over random fleets, and random changes of a set.

mod course;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dapple_control::daemonset::forecast::{Cluster, Forecast, Overridden};
use dapple_control::gates::Gates;
use dapple_plan::fate::{Fate, HeldBy};
use dapple_sim::clock::FIRST_SECOND;
use dapple_sim::faults::Weather;
use dapple_sim::object::{asked_node, is_terminating, text};
use dapple_sim::scenario::{DAEMON_SET, Scenario};
use dapple_sim::script::{Event, Script};
use dapple_sim::server::{ChangeKind, Server};
use dapple_sim::shrink::explain;
use dapple_sim::sim::{Properties, Write};
use dapple_sim::sweep::sweep;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use self::course::{Course, is_bound};

/// So many fleets and changes.
const SEEDS: u64 = 600;
/// So long nothing happens before the change that is foretold, and after it.
const QUIET: Duration = Duration::from_secs(1800);
/// The least between two events.
const BETWEEN: Duration = Duration::from_secs(1);
/// For longer than this nothing is done while a rollout is under way that can go on.
const PAUSE: Duration = Duration::from_secs(300);

/// How often what was foretold was held against what was done.
static JUDGED: AtomicU64 = AtomicU64::new(0);
/// How often that was a rollout over several nodes.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);

/// By name: UID, node and contents.
type Pods = BTreeMap<String, (String, String, Value)>;

/// A story of a seed up to one change of the set, over a connection that never fails, with images that harm nobody.
fn script(seed: u64) -> Script {
    let mut script = (DAEMON_SET.script)(seed);
    (script.weather, script.managers, script.habits.crashes) = (Weather::CALM, 1, 0.0);
    let is_change = |event: &Event| matches!(event, Event::User(edit) if edit.method == Method::PATCH);
    let is_kept = |event: &Event| {
        is_change(event)
            || matches!(event, Event::Node(_) | Event::NodeReady { .. } | Event::NodeLost { .. } | Event::Taint { .. })
    };
    script.events.retain(|(_, event)| is_kept(event));
    let changes: Vec<usize> = (0..script.events.len()).filter(|index| is_change(&script.events[*index].1)).collect();
    let last = changes.get(seed as usize % changes.len().max(1)).copied();
    script.events.truncate(last.map_or(0, |last| last + 1));
    for (_, event) in &mut script.events {
        match event {
            Event::User(edit) => edit.body = edit.body.as_ref().map(|body| harmless(&body.to_string())),
            // Here, the kubelet of a node that is not well does nothing: then it does not say so either.
            Event::NodeReady { node, is_ready: false } => *event = Event::NodeLost { node: node.clone() },
            _ => {}
        }
    }
    // Of two that come at once, the first may be acted on before the second is heard of.
    let mut last = Duration::ZERO;
    for (at, _) in &mut script.events {
        *at = (last + BETWEEN).max(*at);
        last = *at;
    }
    let before = script.events.iter().rev().nth(1).map_or(Duration::ZERO, |(at, _)| *at);
    if let Some((at, _)) = script.events.last_mut() {
        *at = before + QUIET;
    }
    script.calm_at = before + 2 * QUIET;
    script.finish.clear();
    script
}

/// The same without images that make pods or nodes ill, or have nodes shunned.
fn harmless(text: &str) -> Value {
    let harms = ["agent:sick", "agent:lost", "agent:shunned"];
    let text = harms.iter().fold(text.replace("bad", "fine"), |text, image| text.replace(image, "agent:fine"));
    serde_json::from_str(&text).unwrap()
}

/// What was foretold when the set was last changed, and what there was then.
#[derive(Default)]
struct Foretold {
    told: Option<Forecast>,
    /// Its course, if nothing else was under way then.
    course: Option<Course>,
    pods: Pods,
    nodes: BTreeSet<String>,
    /// When a pod or a node was last written.
    last: Duration,
    /// What managers have done to pods since, node by node.
    done: Vec<(String, Option<String>)>,
}

/// Its node, or the one that it waits for.
fn node_of(pod: &Value) -> String {
    let bound = text(&pod["spec"]["nodeName"]);
    if bound.is_empty() { asked_node(pod) } else { bound }.to_owned()
}

/// Whether a pod is the set's.
fn is_its(pod: &Value) -> bool {
    pod["metadata"]["ownerReferences"][0]["name"] == "agent"
        && pod["metadata"]["ownerReferences"][0]["apiVersion"] == "apps.kruise.io/v1beta1"
}

fn pods(server: &Server) -> Pods {
    let all = server.list("pods");
    let its = all.iter().filter(|pod| is_its(pod));
    its.map(|pod| {
        let part = |pointer: &str| text(pod.pointer(pointer).unwrap_or(&Value::Null)).to_owned();
        let contents = pod["spec"]["containers"].clone();
        (part("/metadata/name"), (part("/metadata/uid"), node_of(pod), contents))
    })
    .collect()
}

impl Properties for Foretold {
    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (change, is_ours) = (write.change, write.is_ours());
        if change.resource == "daemonsets.apps.kruise.io" && !is_ours && change.kind == ChangeKind::Modified {
            let mut cluster = Cluster::default();
            for (resource, kind) in
                [("nodes", "Node"), ("pods", "Pod"), ("controllerrevisions.apps", "ControllerRevision")]
            {
                for object in server.list(resource) {
                    let mut object = Value::clone(&object);
                    object["kind"] = kind.into();
                    cluster.add(&object)?;
                }
            }
            let now = Timestamp::from_second(FIRST_SECOND).unwrap() + write.at;
            let told = cluster.forecast(&change.object, Overridden::default(), &Gates::default(), now)?;
            self.pods = pods(server);
            self.course = (write.at > self.last + PAUSE).then(|| Course::of(&told, &self.pods));
            if self.course.is_some() {
                is_bound(&told, &change.object, server)?;
            }
            self.told = Some(told);
            self.nodes = server.list("nodes").iter().map(|node| text(&node["metadata"]["name"]).to_owned()).collect();
            self.done.clear();
            return Ok(());
        }
        if change.resource == "nodes" {
            // What was foretold, was foretold for the nodes as they were.
            (self.told, self.course) = (None, None);
        }
        if ["nodes", "pods"].contains(&change.resource) {
            self.last = write.at;
        }
        let (Some(told), true, "pods") = (&self.told, is_ours, change.resource) else { return Ok(()) };
        // What is done first is what was foretold to be done first.
        let pod = &change.object;
        let name = (change.kind != ChangeKind::Added).then(|| text(&pod["metadata"]["name"]).to_owned());
        let done = (node_of(pod), name);
        if let Some(course) = self.course.as_mut().filter(|_| is_its(pod)) {
            course.touch(&done.0, server)?;
        }
        // Pods are made one after the other, as answers come.
        if done.1.is_some() && self.done.len() < told.ahead.first.len() {
            let mut first = told.ahead.first.iter().filter_map(|action| Some((&*action.node, &**action.pod.as_ref()?)));
            if !first.any(|first| first == (done.0.as_str(), done.1.as_deref().unwrap_or_default())) {
                return Err(format!("{done:?} is done first, and was not foretold to be: {:?}", told.ahead.first));
            }
        }
        self.done.push(done);
        Ok(())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        let Some(told) = &self.told else { return Ok(()) };
        JUDGED.fetch_add(1, Ordering::Relaxed);
        let (now, fates) = (pods(server), &told.ahead.fates);
        if fates.pods.keys().collect::<BTreeSet<_>>() != self.pods.keys().collect() {
            return Err(format!("of other pods than {:?} was foretold: {:?}", self.pods.keys(), fates.pods.keys()));
        }
        let is_going = |name: &str| server.get("pods", "default", name).is_some_and(|pod| is_terminating(&pod));
        for (name, (node, fate)) in &fates.pods {
            let (uid, _, contents) = &self.pods[name];
            let still = now.get(name).filter(|(known, ..)| known == uid && !is_going(name));
            let others = || now.values().filter(|(known, on, _)| on == node && known != uid);
            let has_new = || others().any(|(known, ..)| self.pods.values().all(|(before, ..)| before != known));
            let is_so = match fate {
                Fate::Recreated => still.is_none() && others().next().is_some(),
                // In a surge it may be one of two.
                Fate::Removed | Fate::Moved => still.is_none() && !has_new(),
                // That is so for now, where others were under way.
                Fate::HeldBack(HeldBy::Budget) if self.course.is_none() => true,
                Fate::InPlace => still.is_some_and(|(_, _, now)| now != contents),
                Fate::Waits | Fate::HeldBack(_) | Fate::LeftAlone => still.is_some_and(|(_, _, now)| now == contents),
            };
            if !is_so {
                return Err(format!("{name} on {node} was foretold to be {fate:?}; it is {still:?}"));
            }
        }
        let served: BTreeSet<&String> = self.pods.values().map(|(_, node, _)| node).collect();
        for node in self.nodes.iter().filter(|node| !served.contains(node)) {
            let has_one = now.values().any(|(_, on, _)| on == node);
            if has_one != fates.created_on.contains(node) {
                return Err(format!("{node}: a pod is made: {has_one}, and was foretold for {:?}", fates.created_on));
            }
        }
        let Some(course) = &self.course else { return Ok(()) };
        FOLLOWED.fetch_add(u64::from(course.is_over()), Ordering::Relaxed);
        course.is_told(server)
    }
}

#[test]
fn what_is_foretold_is_done() {
    let scenario = Scenario { script, properties: || Box::<Foretold>::default(), ..DAEMON_SET };
    let sum = sweep(&scenario, 1..SEEDS + 1, None, |_, _| {}).unwrap();
    if let Some((seed, _)) = sum.failed.first() {
        panic!("{:?}\n{}", sum.failed, explain(&scenario, *seed).unwrap());
    }
    let judged = JUDGED.load(Ordering::Relaxed);
    assert!(judged > SEEDS / 2, "of {SEEDS} changes, {judged} could be judged");
    let followed = FOLLOWED.load(Ordering::Relaxed);
    assert!(followed > SEEDS / 20, "of {SEEDS} changes, {followed} rolled out over several nodes");
}
