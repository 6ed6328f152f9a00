//! What must hold of NodeGroups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dapple_plan::group::label::PREFIX;
use http::Request;
use serde_json::{Value, json};

use super::asking::Asking;
use super::crowd::Crowd;
use super::halted::Halted;
use super::moves::Moves;
use super::replaced::Replaced;
use super::script::NAMES;
use super::seats::Seats;
use super::targets::Targets;
use super::trial::{self, Trial};
use super::vain::Vain;
use super::{GROUPS, binding, editions, placing};
use crate::object::{list, text};
use crate::server::{ChangeKind, Server};
use crate::sim::{Properties, Write};

/// Objects as they were, with until when; the last are as they are now.
pub(super) type Past<T> = Vec<(Duration, T)>;

/// The properties.
#[derive(Default)]
pub struct GroupProperties {
    /// All nodes.
    nodes: Past<Vec<Arc<Value>>>,
    /// Each group, by name.
    groups: BTreeMap<String, Past<Arc<Value>>>,
    /// Since when each pod is on its node, by UID.
    bound: BTreeMap<String, Duration>,
    /// What has asked for policies.
    asking: Asking,
    /// Where pods were placed.
    seats: Seats,
    /// Which were moved.
    moves: Moves,
    /// Where to.
    targets: Targets,
    /// Which were replaced before they had a place.
    replaced: Replaced,
    /// What many applications lose together.
    crowd: Crowd,
    /// How one application gets other editions.
    trial: Trial,
    /// What is not done while a rollout halts.
    halted: Halted,
    /// What is not done since it does not help.
    vain: Vain,
}

impl Properties for GroupProperties {
    fn hear(&mut self, request: &Request<Vec<u8>>) -> Result<(), String> {
        self.replaced.hear(request)
    }

    fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let is_label = write.change.resource == "nodes" && is_of_labels(write, |key| key.starts_with(PREFIX));
        write.allow(
            is_label
                || binding::is_of_binding(write)
                || placing::is_placement(write)
                || placing::is_costing(write)
                || is_eviction(write)
                || editions::is_change(write)
                || editions::is_version(write)
                // An eviction is counted there.
                || write.change.resource == trial::BUDGETS && write.is_of_status()
                || (write.change.resource == GROUPS || binding::is_policy(write)) && write.is_of_status(),
        )?;
        self.asking.see(write);
        self.crowd.see(write, server)?;
        self.trial.see(write, server)?;
        self.halted.see(write, server)?;
        self.vain.see(write)?;
        if write.change.resource == "pods" {
            let uid = text(&write.change.object["metadata"]["uid"]);
            if !self.bound.contains_key(uid) && write.change.object["spec"]["nodeName"].is_string() {
                self.bound.insert(uid.to_owned(), write.at);
            }
            if write.is_ours() {
                self.seats.placed(write, &self.asking, &self.groups, server)?;
            }
            self.targets.is_sensible(write, &self.asking, (&self.groups, &self.nodes), server)?;
            self.targets.see(write);
            self.replaced.see(write)?;
            self.seats.see(write);
            self.moves.see(write, server)?;
        }
        match write.change.resource {
            "nodes" if write.is_ours() => {
                self.relabelled(write, server)?;
                remember(&mut self.nodes, write, server.list("nodes"));
            }
            "nodes" => remember(&mut self.nodes, write, server.list("nodes")),
            GROUPS if write.is_ours() => return self.told(write),
            GROUPS => {
                let group = write.change.object.clone();
                remember(self.groups.entry(text(&group["metadata"]["name"]).to_owned()).or_default(), write, group);
            }
            _ => {}
        }
        Ok(())
    }

    fn is_settled(&self, server: &Server) -> Result<(), String> {
        if let Some(gone) = NAMES.iter().find(|name| server.get(GROUPS, "", name).is_none()) {
            return Err(format!("the group {gone} is gone"));
        }
        let (nodes, groups) = (server.list("nodes"), server.list(GROUPS));
        for group in &groups {
            let wanted = members(group, &nodes);
            let status = &group["status"];
            let told = status["containedNodes"].as_array().into_iter().flatten();
            let told: BTreeSet<&str> = told.filter_map(Value::as_str).collect();
            if told != wanted || status["observedGeneration"] != group["metadata"]["generation"] {
                return Err(format!("a group says: {}, {told:?}, not {wanted:?}", group["metadata"]["name"]));
            }
            if status["nodeCount"] != json!(wanted.len()) {
                return Err(format!(
                    "{} counts {}, not {}",
                    group["metadata"]["name"],
                    status["nodeCount"],
                    wanted.len()
                ));
            }
            let others = groups.iter().filter(|other| other["metadata"]["name"] != group["metadata"]["name"]);
            let is_shared = others.into_iter().any(|other| !members(other, &nodes).is_disjoint(&wanted));
            let exclusive = list(&status["conditions"]).iter().find(|known| known["type"] == "Exclusive");
            if exclusive.is_none_or(|told| told["status"] != if is_shared { "False" } else { "True" }) {
                return Err(format!("{} says of nodes in other groups: {exclusive:?}", group["metadata"]["name"]));
            }
        }
        let pods = server.list("pods");
        for node in &nodes {
            let naming = groups.iter().filter(|group| !list(&group["spec"]["nodes"]).is_empty() && is_in(group, node));
            let wanted: BTreeSet<String> =
                naming.map(|group| format!("{PREFIX}{}", text(&group["metadata"]["name"]))).collect();
            let there =
                pods.iter().filter(|pod| pod["spec"]["nodeName"] == node["metadata"]["name"] && !has_ended(pod));
            let kept: BTreeSet<String> = there.flat_map(|pod| group_labels(&pod["spec"]["nodeSelector"])).collect();
            let told: BTreeSet<String> = group_labels(&node["metadata"]["labels"]).collect();
            if !told.is_superset(&wanted) || !told.iter().all(|label| wanted.contains(label) || kept.contains(label)) {
                return Err(format!("{} has the labels {told:?}, not {wanted:?}", node["metadata"]["name"]));
            }
        }
        binding::is_settled(server)?;
        editions::is_settled(&self.asking, server)?;
        self.seats.is_settled(&self.asking, server)
    }
}

/// Whether a pod is on its way out. What evicts it first tells so in its status.
fn is_eviction(write: &Write<'_>) -> bool {
    let is_leaving = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let was_there = write.change.previous.as_ref().is_some_and(|before| !is_leaving(before));
    let is_gone = write.change.kind == ChangeKind::Deleted || is_leaving(&write.change.object);
    write.change.resource == "pods" && (was_there && is_gone || write.is_of_status())
}

impl GroupProperties {
    /// No node loses a label that a pod on it selects on, unless the pod came just then.
    fn relabelled(&self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let (node, before) = (&write.change.object, write.change.previous.as_deref().unwrap_or(&Value::Null));
        let kept: BTreeSet<String> = group_labels(&node["metadata"]["labels"]).collect();
        let lost: BTreeSet<String> =
            group_labels(&before["metadata"]["labels"]).filter(|label| !kept.contains(label)).collect();
        let since = write.at.saturating_sub(write.memory);
        let was_there = |pod: &Value| self.bound.get(text(&pod["metadata"]["uid"])).is_some_and(|came| *came < since);
        for pod in server.list("pods") {
            let is_here = pod["spec"]["nodeName"] == node["metadata"]["name"] && !has_ended(&pod);
            if is_here
                && was_there(&pod)
                && group_labels(&pod["spec"]["nodeSelector"]).any(|label| lost.contains(&label))
            {
                let (node, pod) = (&node["metadata"]["name"], &pod["metadata"]["name"]);
                return Err(format!("{node} loses {lost:?} under the pod {pod}"));
            }
        }
        Ok(())
    }

    /// What a manager tells of a group was true: of the group as it was at the generation that is told, and of the nodes as
    /// they were at some time.
    fn told(&self, write: &Write<'_>) -> Result<(), String> {
        let group = &write.change.object;
        let since = write.at.saturating_sub(write.memory);
        let told: BTreeSet<&str> = list(&group["status"]["containedNodes"]).iter().map(text).collect();
        let name = text(&group["metadata"]["name"]);
        let none = Vec::new();
        let is_told =
            |group: &Value| group["metadata"]["generation"] == write.change.object["status"]["observedGeneration"];
        let groups = self.groups.get(name).unwrap_or(&none).iter();
        let groups = groups.filter(|(until, group)| *until >= since && is_told(group));
        let was_true = |group: &Value| {
            let nodes = self.nodes.iter().filter(|(until, _)| *until >= since);
            nodes.into_iter().any(|(_, nodes)| members(group, nodes) == told)
        };
        if groups.into_iter().any(|(_, group)| was_true(group)) {
            return Ok(());
        }
        Err(format!("a group is told to have nodes that it did not have: {name}, {told:?}"))
    }
}

/// Adds what is from now on, and drops what nobody can still believe.
pub(super) fn remember<T>(past: &mut Past<T>, write: &Write<'_>, now: T) {
    end(past, write);
    past.push((Duration::MAX, now));
}

/// From now on there is none. Drops what nobody can still believe.
pub(super) fn end<T>(past: &mut Past<T>, write: &Write<'_>) {
    if let Some((until, _)) = past.last_mut() {
        *until = (*until).min(write.at);
    }
    past.retain(|(until, _)| until.saturating_add(write.memory) >= write.at);
}

/// Whether nothing but such labels was written.
pub(super) fn is_of_labels(write: &Write<'_>, is_such: impl Fn(&str) -> bool) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for known_to_the_server in ["resourceVersion", "managedFields"] {
            rest["metadata"][known_to_the_server] = Value::Null;
        }
        if let Some(labels) = rest["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| !is_such(key));
        }
        rest["metadata"]["labels"] = none_if_empty(rest["metadata"]["labels"].take());
        rest
    };
    write.change.previous.as_ref().is_some_and(|before| rest(before) == rest(&write.change.object))
}

/// No labels are as good as an empty map of them.
pub(super) fn none_if_empty(value: Value) -> Value {
    if value.as_object().is_some_and(serde_json::Map::is_empty) { Value::Null } else { value }
}

/// The labels of groups in a map.
fn group_labels(map: &Value) -> impl Iterator<Item = String> {
    map.as_object().into_iter().flat_map(|map| map.keys()).filter(|key| key.starts_with(PREFIX)).cloned()
}

/// Whether a pod does not run any more, for good.
pub(super) fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]))
}

fn members<'n>(group: &Value, nodes: &'n [Arc<Value>]) -> BTreeSet<&'n str> {
    nodes.iter().filter(|node| is_in(group, node)).map(|node| text(&node["metadata"]["name"])).collect()
}

pub(super) fn is_in(group: &Value, node: &Value) -> bool {
    let spec = &group["spec"];
    let is_named = spec["nodes"].as_array().into_iter().flatten().any(|name| *name == node["metadata"]["name"]);
    let labels = spec["matchLabels"].as_object().filter(|labels| !labels.is_empty());
    let has_labels = |labels: &serde_json::Map<String, Value>| {
        labels.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value)
    };
    is_named || labels.is_some_and(has_labels)
}
