//! What properties read from the server, each by itself and from the specification.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::story::SOAK;
use super::{GROUP, NAME, NAMESPACE, SETS};
use crate::clock::FIRST_SECOND;
use crate::hook;
use crate::kubelet::gates_are_open;
use crate::nodes::DISK;
use crate::object::{asked_node, is_ready, is_terminating, list, text};
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// What was asked for at some time.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) budget: usize,
    /// So many nodes may have a second pod.
    pub(super) surge: usize,
    pub(super) is_paused: bool,
    /// Pods get what is new once somebody deletes them.
    pub(super) is_on_delete: bool,
    /// So many of the first nodes are left as they are.
    pub(super) partition: usize,
    /// The only nodes that are updated.
    pub(super) selector: Value,
    /// Whether the partition holds back first pods too.
    pub(super) scales_partitioned: bool,
    /// For how long a node that is not ready counts.
    pub(super) soak: Option<Duration>,
    /// All nodes there were.
    pub(super) nodes: usize,
    /// Changes with everything else that is asked for.
    pub(super) generation: i64,
    /// The set itself; none if there was none.
    pub(super) set: Option<Arc<Value>>,
}

impl Asked {
    /// Whether the same is asked for, of the same set.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let uid = |asked: &Self| asked.set.as_ref().map(|set| set["metadata"]["uid"].clone());
        let all = |asked: &Self| {
            let amounts = [asked.budget, asked.surge, asked.partition, asked.nodes];
            (amounts, asked.soak, asked.generation, uid(asked))
        };
        all(self) == all(other)
    }

    /// So many nodes may be under way at once.
    pub(super) fn limit(&self) -> usize {
        if self.surge > 0 { self.surge } else { self.budget }
    }

    /// Whether the selector of the strategy leaves a node alone.
    pub(super) fn leaves_alone(&self, node: &Value) -> bool {
        let labels = self.selector["matchLabels"].as_object();
        labels.is_some_and(|labels| labels.iter().any(|(key, value)| node["metadata"]["labels"][key] != *value))
    }
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
    // The second of the condition is told, not where in it: its end counts.
    let is_long = |since: Timestamp| waits == 0 || since.as_second() + 1 + waits <= now;
    is_up && !is_terminating(pod) && since.is_some_and(is_long)
}

/// Whether a pod is on its way out, or has ended.
pub(super) fn has_ended(pod: &Value) -> bool {
    is_terminating(pod) || pod["status"]["phase"] == "Failed"
}

/// Whether somebody has begun to take a pod out of service, to change it or to delete it.
pub(super) fn is_begun(pod: &Value) -> bool {
    let gates = list(&pod["spec"]["readinessGates"]);
    let is_closed =
        |known: &Value| known["status"] == "False" && gates.iter().any(|gate| gate["conditionType"] == known["type"]);
    list(&pod["status"]["conditions"]).iter().any(is_closed)
        || ["PreparingDelete", "PreparingUpdate", "Updating"].contains(&text(&pod["metadata"]["labels"][hook::STATE]))
}

/// Whether a pod was changed where it runs, and still runs what it was.
pub(super) fn is_changing(pod: &Value) -> bool {
    let runs = |place: usize| &pod["status"]["containerStatuses"][place]["image"];
    let wanted = list(&pod["spec"]["containers"]).iter().enumerate();
    wanted
        .map(|(place, wanted)| (runs(place), &wanted["image"]))
        .any(|(runs, wanted)| runs.is_string() && runs != wanted)
}

/// Whether this write begins to take a pod away, or to change it.
pub(super) fn begins(write: &Write<'_>) -> bool {
    let (pod, Some(before)) = (&write.change.object, &write.change.previous) else { return false };
    let is_changed = || is_begun(pod) || pod["spec"]["containers"] != before["spec"]["containers"];
    !has_ended(before) && !is_begun(before) && (is_deletion(write) || is_changed())
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
    let (all, selected) = (server.list("nodes").len(), selected(server));
    let is_on_delete = strategy["type"] == "OnDelete";
    let none = Value::Null;
    // With OnDelete, whatever is there means nothing.
    let rolling = if is_on_delete { &none } else { &strategy["rollingUpdate"] };
    let is_in_place = rolling["rollingUpdateType"] == "InPlaceIfPossible";
    let surge = if is_in_place { 0 } else { amount(&rolling["maxSurge"], |percent| (percent * all).div_ceil(100)) };
    let budget = match &rolling["maxUnavailable"] {
        _ if is_on_delete => 0,
        Value::Null if surge > 0 => 0,
        Value::Null => 1,
        given => amount(given, |percent| (percent * all).div_ceil(100)),
    };
    Asked {
        budget,
        surge,
        is_paused: rolling["paused"] == true,
        is_on_delete,
        partition: amount(&rolling["partition"], |percent| percent * selected / 100),
        selector: rolling["selector"].clone(),
        scales_partitioned: set["spec"]["scaleStrategy"]["partitionedScaling"] == true,
        soak: soak_of(&set),
        nodes: all,
        generation: set["metadata"]["generation"].as_i64().unwrap_or(0),
        set: Some(set),
    }
}

/// A number, or what a percentage comes to.
fn amount(value: &Value, percent: impl Fn(usize) -> usize) -> usize {
    match value {
        Value::Number(number) => number.as_u64().unwrap_or(0) as usize,
        Value::String(text) => percent(text.trim_end_matches('%').parse().unwrap_or(0)),
        _ => 0,
    }
}

/// How many nodes the template selects, whatever an outage does to them: scripts' templates select all, and taints of
/// others than the control plane keep pods from nodes that have none.
fn selected(server: &Server) -> usize {
    let pods = server.list("pods");
    let has_pod = |node: &Value| pods.iter().any(|pod| is_of_set(pod) && node_of(pod) == name_of(node));
    server.list("nodes").iter().filter(|node| !has_custom_taint(node) || has_pod(node)).count()
}

/// Whether somebody else than the control plane and the cloud provider keeps pods from a node.
pub(super) fn has_custom_taint(node: &Value) -> bool {
    let is_of_system =
        |key: &str| ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"].iter().any(|of| key.starts_with(of));
    list(&node["spec"]["taints"]).iter().any(|taint| !is_of_system(text(&taint["key"])))
}

fn soak_of(set: &Value) -> Option<Duration> {
    let text = set["metadata"]["annotations"][SOAK].as_str()?;
    let (digits, unit) = text.split_at(text.len().saturating_sub(1));
    let number: u64 = digits.parse().ok()?;
    Some(Duration::from_secs(number * if unit == "m" { 60 } else { 1 }))
}

/// The value that a node's pod should have.
pub(super) fn cache_for<'s>(set: &'s Value, node: &Value) -> &'s str {
    let disk = &node["metadata"]["labels"][DISK];
    let patch = list(&set["spec"]["patches"]).iter().rfind(|patch| patch["selector"]["matchLabels"][DISK] == *disk);
    patch.map_or("none", |patch| text(&patch["patch"]["spec"]["containers"][0]["env"][0]["value"]))
}
