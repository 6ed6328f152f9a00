//! What must hold of a DaemonSet, at every step and in the end.
//!
//! A manager may be behind: what it does is held against everything that was true in the last while, and against
//! what it did itself. Nobody asks it to know what it cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dapple_plan::daemonset::pod::REVISION_ANNOTATION;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, SETS};
use crate::clock::FIRST_SECOND;
use crate::kubelet::gates_are_open;
use crate::nodes::DISK;
use crate::object::{asked_node, is_ready, is_terminating, list, text};
use crate::script::{Event, Script};
use crate::server::{ChangeKind, Server};
use crate::sim::{Properties, Write};

/// So long a manager may act on what is no longer true where watches may fail: the longest silence of one, and the
/// longest delay of a request after it.
const LONG_MEMORY: Duration = Duration::from_secs(300);
/// And so long where nothing goes wrong on the way.
const SHORT_MEMORY: Duration = Duration::from_secs(5);
/// A request that was under way for longer may come from a manager that leads no more, or has given it up. It can do no
/// more than that one thing, on the very version that it was decided on, and is made good.
const STRAGGLER: Duration = Duration::from_secs(9);

/// What was asked for at some time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Asked {
    budget: usize,
    is_surge: bool,
    is_paused: bool,
}

/// The properties.
#[derive(Default)]
pub struct DaemonSetProperties {
    /// For how long a manager may be behind.
    memory: Duration,
    /// By node: UIDs of the set's pods there, but for those of stragglers.
    pods: BTreeMap<String, BTreeSet<String>>,
    /// UIDs of pods that stragglers made: a manager was told that they are not there, and may not see them for long.
    straggled: BTreeSet<String>,
    /// Nodes that a manager has taken out of service, until they are back.
    down: BTreeSet<String>,
    /// Nodes that no pod should start on, or that were not well, or whose pod ended by itself, with when that was last.
    closed: BTreeMap<String, Duration>,
    /// What was asked for, and until when; the last holds now.
    asked: Vec<(Duration, Asked)>,
}

impl Properties for DaemonSetProperties {
    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        only_what_is_ours(write)?;
        if ["pods", "nodes", SETS].contains(&write.change.resource) {
            self.ask(write.at, server);
        }
        match write.change.resource {
            "pods" => self.pod(write, server),
            "nodes" => {
                let seen = [Some(&write.change.object), write.change.previous.as_ref()];
                let is_gone = write.change.kind == ChangeKind::Deleted;
                if is_gone || seen.into_iter().flatten().any(|node| !is_open(node)) {
                    self.closed.insert(text(&write.change.object["metadata"]["name"]).to_owned(), write.at);
                }
                Ok(())
            }
            SETS if write.change.kind == ChangeKind::Added => {
                // Another set, though of the same name: what the one before left is not its own.
                self.pods.clear();
                self.down.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Err("the set is gone".into()) };
        let pods = server.list("pods");
        let nodes = server.list("nodes");
        for node in &nodes {
            let name = text(&node["metadata"]["name"]);
            let here: Vec<_> = pods.iter().filter(|pod| is_of_set(pod) && node_of(pod) == name).collect();
            let [pod] = here.as_slice() else { return Err(format!("{name} has {} pods", here.len())) };
            let (image, cache) =
                (&pod["spec"]["containers"][0]["image"], &pod["spec"]["containers"][0]["env"][0]["value"]);
            let wanted = (&set["spec"]["template"]["spec"]["containers"][0]["image"], json!(cache_for(&set, node)));
            if (image, cache) != (wanted.0, &wanted.1) {
                return Err(format!("the pod on {name} has {image} and {cache}, not {} and {}", wanted.0, wanted.1));
            }
            if !is_ready(pod) || is_terminating(pod) {
                return Err(format!("the pod on {name} is not ready"));
            }
        }
        let of_set = pods.iter().filter(|pod| is_of_set(pod)).count();
        if of_set != nodes.len() {
            return Err(format!("there are {of_set} pods for {} nodes", nodes.len()));
        }
        status_is_true(&set, nodes.len())?;
        revisions_are_few(&set, server)
    }
}

impl DaemonSetProperties {
    /// The properties of a run of this script.
    pub fn new(script: &Script) -> Self {
        let is_isolated = script.events.iter().any(|(_, event)| matches!(event, Event::Isolate { .. }));
        let is_calm = script.weather.requests == 0.0 && script.weather.lines == 0.0 && !is_isolated;
        Self { memory: if is_calm { SHORT_MEMORY } else { LONG_MEMORY }, ..Self::default() }
    }

    /// Remembers what is asked for now.
    fn ask(&mut self, now: Duration, server: &Server) {
        let asked = asked(server);
        let memory = self.memory;
        self.asked.retain(|(until, _)| *until + memory >= now);
        match self.asked.last_mut() {
            Some((until, last)) if *last == asked => *until = now,
            Some((until, _)) => {
                *until = now;
                self.asked.push((now, asked));
            }
            None => self.asked.push((now, asked)),
        }
    }

    fn any(&self, is_so: impl Fn(&Asked) -> bool) -> bool {
        self.asked.iter().any(|(_, asked)| is_so(asked))
    }

    fn pod(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (pod, change) = (&write.change.object, write.change.kind);
        let is_of_set = server.get(SETS, NAMESPACE, NAME).is_some_and(|set| is_owned_by(pod, &set));
        let (node, uid) = (node_of(pod).to_owned(), text(&pod["metadata"]["uid"]).to_owned());
        if write.is_ours() && change == ChangeKind::Added && write.under_way >= STRAGGLER {
            self.straggled.insert(uid.clone());
        }
        let here = self.pods.entry(node.clone()).or_default();
        if change == ChangeKind::Deleted || !is_of_set || self.straggled.contains(&uid) {
            here.remove(&uid);
        } else {
            here.insert(uid);
        }
        let pods_here = here.len();
        if !is_of_set {
            return Ok(());
        }
        if write.is_ours() && change == ChangeKind::Added && write.under_way < STRAGGLER {
            let name = text(&pod["metadata"]["name"]);
            let is_surge = self.any(|asked| asked.is_surge);
            if pods_here > 1 && !is_surge {
                return Err(format!("a second pod on {node}: {name}"));
            }
            if is_surge && live_on(server, &node) > 2 {
                return Err(format!("a third live pod on {node}: {name}"));
            }
        }
        let set = server.get(SETS, NAMESPACE, NAME);
        let was_available = |pod: &Value| set.as_ref().is_some_and(|set| is_available(pod, set, write.at));
        if write.change.previous.as_ref().is_some_and(|before| was_available(before)) {
            // It was back, whoever takes it away now.
            self.down.remove(&node);
        }
        if !write.is_ours()
            && write.change.previous.as_ref().is_some_and(|before| is_ready(before) && !has_ended(before))
            && has_ended(pod)
        {
            // It was ready, and whoever is behind may think that it has become available since.
            self.closed.insert(node.clone(), write.at);
        }
        if write.is_ours() { self.ours(write, &node, server) } else { Ok(()) }
    }

    /// A manager has changed a pod.
    fn ours(&mut self, write: &Write<'_>, node: &str, server: &Server) -> Result<(), String> {
        let (pod, Some(before)) = (&write.change.object, &write.change.previous) else { return Ok(()) };
        let name = text(&pod["metadata"]["name"]);
        let is_deleted = write.change.kind == ChangeKind::Deleted || is_terminating(pod);
        let was_deleted = is_terminating(before);
        if write.change.kind == ChangeKind::Modified && was_deleted && pod["spec"] != before["spec"] {
            return Err(format!("{name} is changed though it is going"));
        }
        // An update in place begins with a gate that is closed.
        let is_changed = pod["spec"]["containers"] != before["spec"]["containers"]
            || (gates_are_open(before) && !gates_are_open(pod));
        let (set, now) = (server.get(SETS, NAMESPACE, NAME), write.at);
        let Some(set) = set.filter(|set| is_available(before, set, now) && (is_deleted || is_changed)) else {
            return Ok(());
        };
        let (closed, memory) = (&self.closed, self.memory);
        let is_counted = |node: &str| {
            let was_closed = closed.get(node).is_some_and(|last| *last + memory > now);
            !was_closed && is_desired(server, node) && !is_served(server, node, &set, now)
        };
        self.down.retain(|node| is_counted(node));
        if !is_counted(node) {
            return Ok(());
        }
        if !self.any(|asked| !asked.is_paused) {
            return Err(format!("{name} on {node} is taken out of service while the rollout is paused"));
        }
        if write.under_way > STRAGGLER {
            return Ok(());
        }
        self.down.insert(node.to_owned());
        let budget = self.asked.iter().map(|(_, asked)| asked.budget).max().unwrap_or(0);
        if self.down.len() > budget {
            let down: Vec<&str> = self.down.iter().map(String::as_str).collect();
            return Err(format!("{} nodes are taken out of service, {budget} may be: {}", down.len(), down.join(", ")));
        }
        Ok(())
    }
}

/// Whether something belongs to the set, or to one of the same name before it.
fn is_of_set(object: &Value) -> bool {
    let owners = list(&object["metadata"]["ownerReferences"]);
    owners.iter().any(|owner| owner["kind"] == "DaemonSet" && owner["name"] == NAME)
}

/// Whether something belongs to this very set.
fn is_owned_by(object: &Value, set: &Value) -> bool {
    let owners = list(&object["metadata"]["ownerReferences"]);
    owners.iter().any(|owner| owner["uid"] == set["metadata"]["uid"])
}

/// The node of a pod, also before it is bound.
fn node_of(pod: &Value) -> &str {
    let bound = text(&pod["spec"]["nodeName"]);
    if bound.is_empty() { asked_node(pod) } else { bound }
}

/// Whether a node should have a pod, and counts: one that is not well neither uses up the budget nor holds up others.
fn is_desired(server: &Server, node: &str) -> bool {
    server.get("nodes", "", node).is_some_and(|node| is_open(&node))
}

fn is_open(node: &Value) -> bool {
    list(&node["spec"]["taints"]).is_empty() && is_ready(node)
}

/// Whether a node has a pod of the set that is available.
fn is_served(server: &Server, node: &str, set: &Value, now: Duration) -> bool {
    let pods = server.list("pods");
    pods.iter().any(|pod| is_of_set(pod) && node_of(pod) == node && is_available(pod, set, now))
}

/// Whether a pod has been ready for as long as the set asks for.
fn is_available(pod: &Value, set: &Value, now: Duration) -> bool {
    let ready = list(&pod["status"]["conditions"]).iter().find(|known| known["type"] == "Ready");
    let since = ready.and_then(|ready| text(&ready["lastTransitionTime"]).parse::<Timestamp>().ok());
    let waits = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let now = FIRST_SECOND + now.as_secs() as i64;
    let runs = |place: usize, wanted: &Value| pod["status"]["containerStatuses"][place]["image"] == wanted["image"];
    let is_as_asked = list(&pod["spec"]["containers"]).iter().enumerate().all(|(place, wanted)| runs(place, wanted));
    let is_up = is_ready(pod) && gates_are_open(pod) && is_as_asked;
    is_up && !is_terminating(pod) && since.is_some_and(|since| since.as_second() + waits <= now)
}

/// Whether a pod is on its way out, or has ended.
fn has_ended(pod: &Value) -> bool {
    is_terminating(pod) || pod["status"]["phase"] == "Failed"
}

/// How many pods of the set live on a node.
fn live_on(server: &Server, node: &str) -> usize {
    let pods = server.list("pods");
    pods.iter().filter(|pod| is_of_set(pod) && node_of(pod) == node && !has_ended(pod)).count()
}

/// What the set asks for.
fn asked(server: &Server) -> Asked {
    // A set that is not there asks for nothing.
    let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Asked { is_paused: true, ..Asked::default() } };
    let strategy = &set["spec"]["updateStrategy"];
    let rolling = &strategy["rollingUpdate"];
    let nodes = server.list("nodes").len();
    let amount = |value: &Value| match value {
        Value::Number(number) => number.as_u64().unwrap_or(0) as usize,
        Value::String(percent) => {
            let percent: usize = percent.trim_end_matches('%').parse().unwrap_or(0);
            (percent * nodes).div_ceil(100)
        }
        _ => 0,
    };
    let is_rolling = strategy["type"] == "RollingUpdate";
    let is_surge = is_rolling && amount(&rolling["maxSurge"]) > 0;
    let budget = match &rolling["maxUnavailable"] {
        _ if !is_rolling => 0,
        Value::Null if is_surge => 0,
        Value::Null => 1,
        given => amount(given),
    };
    Asked { budget, is_surge, is_paused: is_rolling && rolling["paused"] == true }
}

/// The value that a node's pod should have.
fn cache_for<'s>(set: &'s Value, node: &Value) -> &'s str {
    let disk = &node["metadata"]["labels"][DISK];
    let patch = list(&set["spec"]["patches"]).iter().rfind(|patch| patch["selector"]["matchLabels"][DISK] == *disk);
    patch.map_or("none", |patch| text(&patch["patch"]["spec"]["containers"][0]["env"][0]["value"]))
}

/// A manager writes nothing but what belongs to the set, its own lease, and events.
fn only_what_is_ours(write: &Write<'_>) -> Result<(), String> {
    write.allow(match write.change.resource {
        "pods" | "controllerrevisions.apps" => is_of_set(&write.change.object),
        SETS => write.leaves_spec(),
        _ => false,
    })
}

fn status_is_true(set: &Value, nodes: usize) -> Result<(), String> {
    let status = &set["status"];
    if status["observedGeneration"] != set["metadata"]["generation"] {
        return Err("the status is of an older generation".into());
    }
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
        "updatedNumberScheduled",
    ];
    let wrong = counts.iter().find(|count| status[**count] != json!(nodes));
    wrong.map_or(Ok(()), |count| Err(format!("the status says {count}: {}, not {nodes}", status[*count])))
}

/// Those that pods were made from, the newest, and no more of the rest than may be kept.
fn revisions_are_few(set: &Value, server: &Server) -> Result<(), String> {
    let pods = server.list("pods");
    let used: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| is_of_set(pod))
        .map(|pod| text(&pod["metadata"]["annotations"][REVISION_ANNOTATION]))
        .collect();
    let spare = |revision: &Value| {
        let name = text(&revision["metadata"]["name"]);
        is_of_set(revision) && set["status"]["updateRevision"] != name && !used.contains(name)
    };
    let most = set["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
    let kept = server.list("controllerrevisions.apps").iter().filter(|revision| spare(revision)).count();
    if kept > most { Err(format!("{kept} old revisions are kept, not {most}")) } else { Ok(()) }
}
