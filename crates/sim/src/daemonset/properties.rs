//! What must hold of a DaemonSet, at every step and in the end.
//!
//! A manager may be behind: what it does is held against everything that was true in the last while, and against
//! what it did itself. Nobody asks it to know what it cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::daemonset::pod::{HASH_LABEL, REVISION_ANNOTATION};
use http::{Method, Request};
use serde_json::{Value, json};

use super::forbidden::has_gone_on;
use super::gone::stays_held;
use super::held::Held;
use super::rollout::Rollout;
use super::view::{
    Asked, asked, controller_of, has_ended, is_as_asked, is_available, is_begun, is_deletion, is_desired, is_of_set,
    is_open, is_owned_by, is_served, live_on, name_of, node_of,
};
use super::{NAME, NAMESPACE, SETS};
use crate::kubelet::gates_are_open;
use crate::object::{is_out_of_service, is_ready, is_terminating, text};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Properties, Write};

/// A request that was under way for longer may come from a manager that leads no more, or has given it up. It can do no
/// more than that one thing, on the very version that it was decided on, and is made good.
pub(super) const STRAGGLER: Duration = Duration::from_secs(9);

/// So many answers in a row hardly ever come in no time.
const QUICK_ANSWERS: usize = 7;

/// The properties.
#[derive(Default)]
pub struct DaemonSetProperties {
    /// UIDs of all sets of the name that there were.
    sets: BTreeSet<String>,
    /// By node: UIDs of the set's pods there, but for those of stragglers.
    pods: BTreeMap<String, BTreeSet<String>>,
    /// UIDs of pods that stragglers made: a manager was told that they are not there, and may not see them for long.
    straggled: BTreeMap<String, Duration>,
    /// Nodes that a manager has taken out of service, until they are back.
    down: BTreeSet<String>,
    /// Nodes that no pod should start on, or that were not well, or whose pod ended or failed by itself, with when that was last.
    closed: BTreeMap<String, Duration>,
    /// Nodes that have no pod in service, whoever is the cause, with since when.
    outages: BTreeMap<String, Duration>,
    /// When a node last came, went, or was changed by more than its status.
    changed: BTreeMap<String, Duration>,
    /// What was asked for, and until when; the last holds now.
    asked: Vec<(Duration, Asked)>,
    /// Who last wrote pods, when they were sent, and how many.
    burst: Option<(Actor, Duration, usize)>,
    /// How far rollouts have come.
    rollout: Rollout,
    /// What nodes are held back at.
    held: Held,
}

impl Properties for DaemonSetProperties {
    /// A manager changes only pods that it has looked at, as they were then: whatever comes late changes nothing else.
    fn hear(&mut self, request: &Request<Vec<u8>>) -> Result<(), String> {
        let path = request.uri().path();
        if ![Method::PATCH, Method::DELETE].contains(request.method()) || !path.contains("/pods/") {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        let is_bound = |to: &Value| to["uid"].is_string() && to["resourceVersion"].is_string();
        if is_bound(&body["preconditions"]) || is_bound(&body["metadata"]) {
            return Ok(());
        }
        Err(format!("a {} that does not say of which version: {path} {body}", request.method()))
    }

    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        self.only_what_is_ours(write)?;
        if ["pods", "nodes", SETS].contains(&write.change.resource) {
            self.ask(write, server);
        }
        if ["pods", "nodes", SETS, "controllerrevisions.apps"].contains(&write.change.resource) {
            self.rollout.see(write, server, &self.asked)?;
            self.held.see(write, server, &self.asked, &self.rollout)?;
        }
        match write.change.resource {
            "pods" => {
                let said = self.pod(write, server);
                self.note_outage(node_of(&write.change.object), write.at, server);
                said
            }
            "nodes" => {
                self.node(write, server);
                Ok(())
            }
            SETS if write.change.kind == ChangeKind::Added => {
                // Another set, though of the same name: what the one before left is not its own.
                self.sets.insert(text(&write.change.object["metadata"]["uid"]).to_owned());
                self.pods.clear();
                self.down.clear();
                self.outages = server.list("nodes").iter().map(|node| (name_of(node).to_owned(), write.at)).collect();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn has_gone_on(&self, server: &Server) -> Result<(), String> {
        has_gone_on(server)?;
        stays_held(server)
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        let Some(set) = server.get(SETS, NAMESPACE, NAME) else { return Err("the set is gone".into()) };
        let pods = server.list("pods");
        let nodes = server.list("nodes");
        for node in &nodes {
            let name = text(&node["metadata"]["name"]);
            let here: Vec<_> = pods.iter().filter(|pod| is_of_set(pod) && node_of(pod) == name).collect();
            let [pod] = here.as_slice() else { return Err(format!("{name} has {} pods", here.len())) };
            if !is_as_asked(pod, &set, node) {
                return Err(format!("the pod on {name} is not as asked: {}", pod["spec"]["containers"]));
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
    /// A manager writes nothing but what belongs to the set, its own lease, and events. What counts is whose it was before:
    /// whoever takes in what is not theirs makes it look like theirs.
    fn only_what_is_ours(&self, write: &Write<'_>) -> Result<(), String> {
        let is_ours = |object: &Value| {
            controller_of(object).is_some_and(|owner| self.sets.contains(text(&owner["uid"])) && is_of_set(object))
        };
        // One that belongs to nobody may be taken in, if the set asks for its like.
        let was_ours = |object: &Value| {
            is_ours(object) || (controller_of(object).is_none() && object["metadata"]["labels"]["app"] == NAME)
        };
        write.allow(match write.change.resource {
            "pods" | "controllerrevisions.apps" => {
                is_ours(&write.change.object) && write.change.previous.as_deref().is_none_or(was_ours)
            }
            SETS => write.is_of_status(),
            _ => false,
        })
    }

    fn node(&mut self, write: &Write<'_>, server: &Server) {
        let node: &Value = &write.change.object;
        let name = name_of(node).to_owned();
        let before = write.change.previous.as_deref();
        let is_gone = write.change.kind == ChangeKind::Deleted;
        if is_gone || [Some(node), before].into_iter().flatten().any(|node| !is_open(node)) {
            self.closed.insert(name.clone(), write.at);
        }
        let rest = |node: &Value| (node["metadata"]["labels"].clone(), node["spec"].clone());
        if is_gone || before.is_none_or(|before| rest(before) != rest(node)) {
            self.changed.insert(name.clone(), write.at);
        }
        self.note_outage(&name, write.at, server);
    }

    /// Remembers since when a node has no pod in service.
    fn note_outage(&mut self, node: &str, now: Duration, server: &Server) {
        let set = server.get(SETS, NAMESPACE, NAME);
        if is_desired(server, node) && set.is_some_and(|set| !is_served(server, node, &set, now)) {
            self.outages.entry(node.to_owned()).or_insert(now);
        } else {
            self.outages.remove(node);
        }
    }

    /// Remembers what is asked for now.
    fn ask(&mut self, write: &Write<'_>, server: &Server) {
        let (now, memory) = (write.at, write.memory);
        let asked = asked(server);
        // What held last has held until this very write, however long nothing was written.
        if let Some((until, _)) = self.asked.last_mut() {
            *until = now;
        }
        self.asked.retain(|(until, _)| *until + memory >= now);
        match self.asked.last_mut() {
            Some((_, last)) if last.is_same(&asked) => *last = asked,
            _ => self.asked.push((now, asked)),
        }
    }

    fn any(&self, is_so: impl Fn(&Asked) -> bool) -> bool {
        self.asked.iter().any(|(_, asked)| is_so(asked))
    }

    fn pod(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (pod, change) = (&write.change.object, write.change.kind);
        let set = server.get(SETS, NAMESPACE, NAME);
        let is_its = |pod: &Value| set.as_ref().is_some_and(|set| is_owned_by(pod, set));
        let (node, uid) = (node_of(pod).to_owned(), text(&pod["metadata"]["uid"]).to_owned());
        if write.is_ours() && change == ChangeKind::Added && write.under_way >= STRAGGLER {
            self.straggled.insert(uid.clone(), write.at);
        }
        let here = self.pods.entry(node.clone()).or_default();
        if change == ChangeKind::Deleted || !is_its(pod) || self.straggled.contains_key(&uid) {
            here.remove(&uid);
        } else {
            here.insert(uid);
        }
        let pods_here = here.len();
        if !is_its(pod) {
            return Ok(());
        }
        if write.is_ours() && write.change.previous.as_deref().is_none_or(is_its) {
            self.is_within_burst(write)?;
        }
        if write.is_ours() && change == ChangeKind::Added {
            is_alone_of_its_kind(pod, &node, server)?;
        }
        if write.is_ours() && change == ChangeKind::Added && write.under_way < STRAGGLER {
            let name = text(&pod["metadata"]["name"]);
            let surge = self.asked.iter().map(|(_, asked)| asked.surge).max().unwrap_or(0);
            let is_surge = surge > 0;
            if pods_here > 1 && !is_surge {
                return Err(format!("a second pod on {node}: {name}"));
            }
            // Those of a set that was deleted, and made anew under its name, are not ours to wait for. Nor is one that came so
            // late that nobody expected it any more, before it can have been seen.
            let is_unexpected = |pod: &Value| {
                let came = self.straggled.get(text(&pod["metadata"]["uid"]));
                came.is_some_and(|came| *came + write.memory >= write.at)
            };
            if is_surge && live_on(server, &node, |pod| is_its(pod) && !is_unexpected(pod)) > 2 {
                return Err(format!("a third live pod on {node}: {name}"));
            }
            self.is_made_once(pod, &node, server)?;
            self.is_within_surge(write, &node, surge, server)?;
        }
        let was_available = |pod: &Value| set.as_ref().is_some_and(|set| is_available(pod, set, write.at));
        if write.change.previous.as_ref().is_some_and(|before| was_available(before)) {
            // It was back, whoever takes it away now: time alone may have made it available.
            self.down.remove(&node);
            self.outages.remove(&node);
        }
        if !write.is_ours()
            && write.change.previous.as_ref().is_some_and(|before| is_ready(before) && !has_ended(before))
            && (has_ended(pod) || !is_ready(pod))
        {
            // It was ready, and whoever is behind may think that it has become available since.
            self.closed.insert(node.clone(), write.at);
        }
        if write.is_ours() { self.ours(write, &node, server) } else { Ok(()) }
    }

    /// No more is begun at once than may be. Answers that come at once are followed by as much at once.
    fn is_within_burst(&mut self, write: &Write<'_>) -> Result<(), String> {
        let sent = write.at.saturating_sub(write.under_way);
        let count = match self.burst {
            Some((actor, at, count)) if (actor, at) == (write.actor, sent) => count + 1,
            _ => 1,
        };
        self.burst = Some((write.actor, sent, count));
        let is_one = |asked: &Asked| asked.set.as_ref().is_some_and(|set| set["spec"]["burstReplicas"] == 1);
        if count > 1 + QUICK_ANSWERS && self.asked.iter().all(|(_, asked)| is_one(asked)) {
            return Err(format!("{count} pods are written at once though burstReplicas is 1"));
        }
        Ok(())
    }

    /// No more nodes have a second pod than may, of those that have been there all the while.
    fn is_within_surge(&self, write: &Write<'_>, node: &str, surge: usize, server: &Server) -> Result<(), String> {
        let was_closed = |node: &str| self.closed.get(node).is_some_and(|last| *last + write.memory > write.at);
        // One that is given up by people counts for nothing.
        let is_lost = |node: &str| server.get("nodes", "", node).is_some_and(|node| is_out_of_service(&node));
        let has_second = |node: &str| live_on(server, node, is_of_set) > 1 && !was_closed(node) && !is_lost(node);
        // Of this very set: what one of the same name before it left is not its own.
        let several = self.pods.iter().filter(|(_, pods)| pods.len() > 1).map(|(node, _)| node.as_str());
        let surging: Vec<&str> = several.filter(|node| has_second(node)).collect();
        if surging.contains(&node) && surging.len() > surge {
            return Err(format!("{} nodes have a second pod, {surge} may: {}", surging.len(), surging.join(", ")));
        }
        Ok(())
    }

    /// One decision makes one pod, surge or not.
    fn is_made_once(&self, pod: &Value, node: &str, server: &Server) -> Result<(), String> {
        let variant = |pod: &Value| {
            (pod["metadata"]["annotations"][REVISION_ANNOTATION].clone(), pod["metadata"]["labels"][HASH_LABEL].clone())
        };
        let is_same = |other: &Value| {
            let uid = text(&other["metadata"]["uid"]);
            other["metadata"]["uid"] != pod["metadata"]["uid"]
                && !self.straggled.contains_key(uid)
                && controller_of(other) == controller_of(pod)
                && node_of(other) == node
                && !has_ended(other)
                && variant(other) == variant(pod)
        };
        match server.list("pods").iter().find(|other| is_same(other)) {
            Some(other) => Err(format!("a pod is made twice on {node}: {} and {}", name_of(other), name_of(pod))),
            None => Ok(()),
        }
    }

    /// Nobody takes away what is as it was asked for, and nobody touches what the partition holds back.
    fn is_founded(&self, write: &Write<'_>, node: &Value, set: &Value, server: &Server) -> Result<(), String> {
        let (pod, since) = (&write.change.object, write.at.saturating_sub(write.memory));
        let name = name_of(node);
        let is_lately = |when: Option<&Duration>| when.is_some_and(|when| *when >= since);
        // Whoever does not know what has changed may act on what was.
        if self.asked.len() > 1 || is_lately(self.changed.get(name)) || is_lately(self.closed.get(name)) {
            return Ok(());
        }
        let before = write.change.previous.as_deref().unwrap_or(pod);
        let is_wanted = is_as_asked(before, set, node);
        let is_alone = self.pods.get(name).is_some_and(|here| here.len() == 1) && live_on(server, name, is_of_set) <= 1;
        if is_wanted && is_alone && is_deletion(write) && !has_ended(before) {
            return Err(format!("{} on {name} is deleted though it is as it was asked for", name_of(pod)));
        }
        let nodes = server.list("nodes");
        let is_any_changed = self.changed.values().any(|when| *when >= since);
        let place = nodes.iter().filter(|other| name_of(other) < name).count();
        let held = self.asked.iter().map(|(_, asked)| asked.partition).min().unwrap_or(0);
        let has_other_labels = self.changed.get(name).is_some_and(|when| *when > Duration::ZERO);
        // With a selector, the nodes that it selects share the places that the partition leaves: see `spread`.
        let has_selector = self.asked.iter().any(|(_, asked)| !asked.selector.is_null());
        if !is_wanted && !is_any_changed && !has_other_labels && !has_selector && place < held {
            return Err(format!("{} on {name} is replaced though the partition of {held} holds it back", name_of(pod)));
        }
        Ok(())
    }

    /// A manager has changed a pod.
    fn ours(&mut self, write: &Write<'_>, node: &str, server: &Server) -> Result<(), String> {
        let (pod, Some(before)) = (&write.change.object, &write.change.previous) else { return Ok(()) };
        let name = text(&pod["metadata"]["name"]);
        let (is_deleted, was_deleted) = (is_deletion(write), is_terminating(before));
        if write.change.kind == ChangeKind::Modified && was_deleted && pod["spec"] != before["spec"] {
            return Err(format!("{name} is changed though it is going"));
        }
        // An update in place begins with a gate that is closed.
        let is_changed = pod["spec"]["containers"] != before["spec"]["containers"]
            || (gates_are_open(before) && !gates_are_open(pod));
        // What a hook was told of before was begun then.
        if is_begun(before) {
            return Ok(());
        }
        let (set, now) = (server.get(SETS, NAMESPACE, NAME), write.at);
        let Some(set) = set.filter(|set| is_available(before, set, now) && (is_deleted || is_changed)) else {
            return Ok(());
        };
        let (closed, memory) = (&self.closed, write.memory);
        let may_be_empty = self.any(|asked| asked.scales_partitioned);
        let is_counted = |node: &str| {
            let was_closed = closed.get(node).is_some_and(|last| *last + memory > now);
            let is_kept_empty = may_be_empty && live_on(server, node, is_of_set) == 0;
            !was_closed && !is_kept_empty && is_desired(server, node) && !is_served(server, node, &set, now)
        };
        self.down.retain(|node| is_counted(node));
        if !is_counted(node) {
            return Ok(());
        }
        if !self.any(|asked| !asked.is_paused) {
            return Err(format!("{name} on {node} is taken out of service while the rollout is paused"));
        }
        // It is out of service all the same, for whoever decides next.
        let is_straggler = write.under_way > STRAGGLER;
        // Those that are out of service for other reasons, and for so long that everybody knows, count too.
        let outages = self.outages.iter().filter(|(node, since)| **since + memory < now && is_counted(node));
        let mut down: BTreeSet<&str> = outages.map(|(node, _)| node.as_str()).collect();
        self.down.insert(node.to_owned());
        down.extend(self.down.iter().map(String::as_str));
        let budget = self.asked.iter().map(|(_, asked)| asked.budget).max().unwrap_or(0);
        if down.len() > budget && !is_straggler {
            let (count, down) = (down.len(), down.into_iter().collect::<Vec<_>>().join(", "));
            return Err(format!("{count} nodes are out of service, {budget} may be: {down}"));
        }
        let found = server.get("nodes", "", node).filter(|_| !is_straggler);
        found.map_or(Ok(()), |node| self.is_founded(write, &node, &set, server))
    }
}

/// However late it comes, a request makes no second pod of one rendering: its name is taken.
fn is_alone_of_its_kind(pod: &Value, node: &str, server: &Server) -> Result<(), String> {
    let rendering = |pod: &Value| (controller_of(pod).cloned(), pod["metadata"]["labels"][HASH_LABEL].clone());
    let is_same = |other: &Value| {
        other["metadata"]["uid"] != pod["metadata"]["uid"]
            && node_of(other) == node
            && !has_ended(other)
            && rendering(other) == rendering(pod)
    };
    match server.list("pods").iter().find(|other| is_same(other)) {
        Some(other) => Err(format!("a second pod of one rendering on {node}: {} and {}", name_of(other), name_of(pod))),
        None => Ok(()),
    }
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
    let mut revisions = server.list("controllerrevisions.apps");
    revisions.retain(|revision| is_owned_by(revision, set));
    let Some(newest) = revisions.iter().max_by_key(|revision| revision["revision"].as_i64()) else {
        return Err("there is no revision".into());
    };
    // A late write may have given the highest number to two: either may be meant.
    let is_newest = |revision: &&Arc<Value>| revision["revision"] == newest["revision"];
    let is_told = |revision: &Arc<Value>| {
        let (status, metadata) = (&set["status"], &revision["metadata"]);
        status["currentRevision"] == metadata["name"] && status["updateRevision"] == metadata["labels"][HASH_LABEL]
    };
    if !revisions.iter().filter(is_newest).any(is_told) {
        let (current, update) = (&set["status"]["currentRevision"], &set["status"]["updateRevision"]);
        return Err(format!("the current revision is still {current}, the newest {update}"));
    }
    let spare = |revision: &Value| name_of(revision) != name_of(newest) && !used.contains(name_of(revision));
    let most = set["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
    let kept = revisions.iter().filter(|revision| spare(revision)).count();
    if kept > most { Err(format!("{kept} old revisions are kept, not {most}")) } else { Ok(()) }
}
