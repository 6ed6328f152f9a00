//! What properties read from the server, each by itself and from the specification.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{GROUP, NAME, NAMESPACE, SETS};
use crate::clock::FIRST_SECOND;
use crate::kubelet::gates_are_open;
use crate::nodes::DISK;
use crate::object::{asked_node, is_ready, is_terminating, list, text};
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// What was asked for at some time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Asked {
    pub(super) budget: usize,
    /// So many nodes may have a second pod.
    pub(super) surge: usize,
    pub(super) is_paused: bool,
    /// So many of the first nodes are left as they are.
    pub(super) partition: usize,
    /// Changes with everything else that is asked for.
    pub(super) generation: i64,
}

/// Whether something belongs to the set, or to one of the same name before it.
pub(super) fn is_of_set(object: &Value) -> bool {
    let owners = list(&object["metadata"]["ownerReferences"]);
    let is_set = |owner: &Value| owner["kind"] == "DaemonSet" && text(&owner["apiVersion"]).starts_with(GROUP);
    owners.iter().any(|owner| is_set(owner) && owner["name"] == NAME)
}

pub(super) fn controller_of(object: &Value) -> Option<&Value> {
    list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true)
}

pub(super) fn name_of(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// Whether a pod is on its way out because of this write.
pub(super) fn is_deletion(write: &Write<'_>) -> bool {
    write.change.kind == ChangeKind::Deleted || is_terminating(&write.change.object)
}

/// Whether a pod has what the set asks for on this node.
pub(super) fn is_as_asked(pod: &Value, set: &Value, node: &Value) -> bool {
    let (has, wanted) = (&pod["spec"]["containers"][0], &set["spec"]["template"]["spec"]["containers"][0]);
    has["image"] == wanted["image"] && has["env"][0]["value"] == cache_for(set, node)
}

/// Whether something belongs to this very set.
pub(super) fn is_owned_by(object: &Value, set: &Value) -> bool {
    let owners = list(&object["metadata"]["ownerReferences"]);
    owners.iter().any(|owner| owner["uid"] == set["metadata"]["uid"])
}

/// The node of a pod, also before it is bound.
pub(super) fn node_of(pod: &Value) -> &str {
    let bound = text(&pod["spec"]["nodeName"]);
    if bound.is_empty() { asked_node(pod) } else { bound }
}

/// Whether a node should have a pod, and counts: one that is not well neither uses up the budget nor holds up others.
pub(super) fn is_desired(server: &Server, node: &str) -> bool {
    server.get("nodes", "", node).is_some_and(|node| is_open(&node))
}

pub(super) fn is_open(node: &Value) -> bool {
    list(&node["spec"]["taints"]).is_empty() && is_ready(node)
}

/// Whether a node has a pod of the set that is available.
pub(super) fn is_served(server: &Server, node: &str, set: &Value, now: Duration) -> bool {
    let pods = server.list("pods");
    pods.iter().any(|pod| is_of_set(pod) && node_of(pod) == node && is_available(pod, set, now))
}

/// Whether a pod has been ready for as long as the set asks for.
pub(super) fn is_available(pod: &Value, set: &Value, now: Duration) -> bool {
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
pub(super) fn has_ended(pod: &Value) -> bool {
    is_terminating(pod) || pod["status"]["phase"] == "Failed"
}

/// How many of these pods live on a node.
pub(super) fn live_on(server: &Server, node: &str, is_one: impl Fn(&Value) -> bool) -> usize {
    let pods = server.list("pods");
    pods.iter().filter(|pod| is_one(pod) && node_of(pod) == node && !has_ended(pod)).count()
}

/// What the set asks for.
pub(super) fn asked(server: &Server) -> Asked {
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
    let generation = set["metadata"]["generation"].as_i64().unwrap_or(0);
    let is_rolling = strategy["type"] == "RollingUpdate";
    let surge = if is_rolling { amount(&rolling["maxSurge"]) } else { 0 };
    let budget = match &rolling["maxUnavailable"] {
        _ if !is_rolling => 0,
        Value::Null if surge > 0 => 0,
        Value::Null => 1,
        given => amount(given),
    };
    let partition = if is_rolling { amount(&rolling["partition"]) } else { 0 };
    Asked { budget, surge, is_paused: is_rolling && rolling["paused"] == true, partition, generation }
}

/// The value that a node's pod should have.
pub(super) fn cache_for<'s>(set: &'s Value, node: &Value) -> &'s str {
    let disk = &node["metadata"]["labels"][DISK];
    let patch = list(&set["spec"]["patches"]).iter().rfind(|patch| patch["selector"]["matchLabels"][DISK] == *disk);
    patch.map_or("none", |patch| text(&patch["patch"]["spec"]["containers"][0]["env"][0]["value"]))
}
