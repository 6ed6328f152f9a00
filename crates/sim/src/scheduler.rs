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

/// Whether a node is well, has no taints, and has the labels that a pod selects on.
fn fits(pod: &Value, node: &Value) -> bool {
    let mut wanted = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    is_ready(node)
        && list(&node["spec"]["taints"]).is_empty()
        && wanted.all(|(key, value)| node["metadata"]["labels"][key] == *value)
}
