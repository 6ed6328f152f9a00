//! The scheduler: binds pods to nodes that fit.

use http::Method;
use serde_json::{Value, json};

use crate::object::{asked_node, is_ready, is_terminating, list, path_of, text};
use crate::sim::{Actor, Sim};

/// Binds a pod, if it waits behind no gate and some node fits. A pod of a DaemonSet names its node by affinity.
pub fn bind(sim: &Sim, pod: &Value) {
    if is_terminating(pod) || !list(&pod["spec"]["schedulingGates"]).is_empty() {
        return;
    }
    let asked = asked_node(pod);
    let chooses = asked.is_empty() && sim.with_world(|world| world.habits().schedules);
    let node = if chooses { choose(sim, pod) } else { Some(asked.to_owned()) };
    let Some(node) = node else { return sim.with_world(|world| world.is_unscheduled(pod)) };
    if sim.server.get("nodes", "", &node).is_none() {
        return;
    }
    let target = json!({"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}});
    sim.ask(Actor::World, Method::POST, &format!("{}/binding", path_of(pod)), Some(&target));
}

/// Of the nodes that fit, the one with the fewest pods.
fn choose(sim: &Sim, pod: &Value) -> Option<String> {
    let pods = sim.server.list("pods");
    let count = |node: &Value| pods.iter().filter(|pod| pod["spec"]["nodeName"] == node["metadata"]["name"]).count();
    let nodes = sim.server.list("nodes");
    let chosen = nodes.iter().filter(|node| fits(pod, node)).min_by_key(|node| count(node))?;
    Some(text(&chosen["metadata"]["name"]).to_owned())
}

/// Whether a node is well, has no taints that a pod does not tolerate, and has the labels that the pod selects on.
fn fits(pod: &Value, node: &Value) -> bool {
    let mut wanted = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    is_ready(node)
        && list(&node["spec"]["taints"]).iter().all(|taint| is_tolerated(pod, taint))
        && wanted.all(|(key, value)| node["metadata"]["labels"][key] == *value)
        && is_required(pod, node)
}

/// Whether a pod tolerates a taint, whatever its value is.
fn is_tolerated(pod: &Value, taint: &Value) -> bool {
    let is_for = |toleration: &Value, field: &str| toleration[field].is_null() || toleration[field] == taint[field];
    let mut existing = list(&pod["spec"]["tolerations"]).iter().filter(|toleration| toleration["operator"] == "Exists");
    existing.any(|toleration| is_for(toleration, "key") && is_for(toleration, "effect"))
}

/// Whether a node meets one of the terms that a pod requires, if there are any. Of operators only `In` is known: nobody here has
/// others.
fn is_required(pod: &Value, node: &Value) -> bool {
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = list(&affinity["nodeSelectorTerms"]);
    let is_met = |wanted: &Value| {
        let label = &node["metadata"]["labels"][text(&wanted["key"])];
        wanted["operator"] == "In" && list(&wanted["values"]).contains(label)
    };
    terms.is_empty() || terms.iter().any(|term| list(&term["matchExpressions"]).iter().all(is_met))
}
