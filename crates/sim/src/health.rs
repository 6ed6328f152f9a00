//! Whether nodes are well. An image may make its node fall ill some time after it runs there, and the node gets well some
//! time after the image is gone: how an agent that breaks nodes looks from outside.

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::object::{is_ready, list, path_of, ready_of, running_images, text, tolerates_all};
use crate::sim::{Actor, Sim};

/// A tag with this word makes its node not ready. Its kubelet still answers.
const SICK: &str = "sick";
/// A tag with this word makes the kubelet of its node fall silent.
const LOST: &str = "lost";
/// A tag with this word has somebody taint its node, whose pods are evicted then. It does not pass.
const SHUNNED: &str = "shunned";

/// The taint of such a node.
pub const BROKEN: (&str, &str) = ("example.com/broken", "NoExecute");

/// The taints that the control plane puts on nodes that are not ready, by the Ready condition.
const TAINTS: [(&str, &str); 2] =
    [("False", "node.kubernetes.io/not-ready"), ("Unknown", "node.kubernetes.io/unreachable")];

/// What becomes of a node on which this image runs: of its Ready condition, or that it is shunned.
pub fn illness_of(image: &str) -> Option<&'static str> {
    let (_, tag) = image.rsplit_once(':')?;
    match tag {
        _ if tag.contains(LOST) => Some("Unknown"),
        _ if tag.contains(SICK) => Some("False"),
        _ if tag.contains(SHUNNED) => Some(SHUNNED),
        _ => None,
    }
}

/// What becomes of a node by what runs there.
fn illness_on(sim: &Sim, node: &str) -> Option<&'static str> {
    let pods = sim.server.list("pods");
    let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node);
    here.flat_map(|pod| running_images(pod)).filter_map(illness_of).max()
}

/// A node falls ill, if what makes it so still runs there.
pub fn fall_ill(sim: &Sim, node: &str) {
    let is_well = sim.server.get("nodes", "", node).is_some_and(|node| is_ready(&node));
    let Some(status) = illness_on(sim, node).filter(|_| is_well) else { return };
    match sim.with_world(|world| world.falls_ill(node, status)) {
        true if status == SHUNNED => shun(sim, node),
        true => set_ready(sim, node, status),
        false => {}
    }
}

/// A node gets a taint, and the pods that do not tolerate it are evicted.
fn shun(sim: &Sim, node: &str) {
    taint(sim, node, BROKEN, true);
    for pod in sim.server.list("pods").iter().filter(|pod| pod["spec"]["nodeName"] == node && !tolerates_all(pod)) {
        sim.ask(Actor::World, Method::DELETE, &path_of(pod), None);
    }
}

/// A node whose kubelet answers gets well, if nothing that makes it ill is left there.
pub fn get_well(sim: &Sim, node: &str) {
    if illness_on(sim, node).is_none() && sim.with_world(|world| world.is_ailing(node)) {
        set_ready(sim, node, "True");
    }
}

/// The Ready condition of a node is this from now on, and the control plane does what follows from it.
pub fn set_ready(sim: &Sim, node: &str, status: &str) {
    let Some(found) = sim.server.get("nodes", "", node) else { return };
    let path = format!("/api/v1/nodes/{node}");
    if ready_of(&found) != status {
        let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": now(sim)});
        let body = json!({"status": {"conditions": [condition]}});
        sim.ask(Actor::World, Method::PATCH, &format!("{path}/status"), Some(&body));
    }
    if sim.with_world(|world| world.habits().taints) {
        let of_conditions = |taint: &Value| TAINTS.iter().any(|(_, key)| taint["key"] == *key);
        let mut taints: Vec<Value> = list(&found["spec"]["taints"]).to_vec();
        taints.retain(|taint| !of_conditions(taint));
        for (_, key) in TAINTS.iter().filter(|(known, _)| *known == status) {
            taints.extend(["NoSchedule", "NoExecute"].map(|effect| json!({"key": key, "effect": effect})));
        }
        put_taints(sim, &found, &taints);
    }
    let mut pods = sim.server.list("pods");
    pods.retain(|pod| pod["spec"]["nodeName"] == node);
    if status == "True" {
        sim.with_world(|world| {
            world.is_well(node);
            world.wake(&pods, Instant::now());
        });
    } else if sim.with_world(|world| world.habits().marks_pods) {
        pods.iter().for_each(|pod| patch_status(sim, pod, &not_ready(pod)));
    }
    sim.bell.notify_one();
}

/// A node has a taint, or not.
pub fn taint(sim: &Sim, node: &str, (key, effect): (&str, &str), is_there: bool) {
    let Some(found) = sim.server.get("nodes", "", node) else { return };
    let mut taints: Vec<Value> = list(&found["spec"]["taints"]).to_vec();
    taints.retain(|taint| taint["key"] != key);
    if is_there {
        taints.push(json!({"key": key, "effect": effect}));
    }
    put_taints(sim, &found, &taints);
}

fn put_taints(sim: &Sim, node: &Value, taints: &[Value]) {
    if taints != list(&node["spec"]["taints"]) {
        let path = format!("/api/v1/nodes/{}", text(&node["metadata"]["name"]));
        sim.ask(Actor::World, Method::PATCH, &path, Some(&json!({"spec": {"taints": taints}})));
    }
}

/// Writes the status of a pod.
pub fn patch_status(sim: &Sim, pod: &Value, status: &Value) {
    let path = format!("{}/status", path_of(pod));
    sim.ask(Actor::World, Method::PATCH, &path, Some(&json!({"status": status})));
}

/// The status of a pod with its Ready condition False.
pub fn not_ready(pod: &Value) -> Value {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in &mut conditions {
        if condition["type"] == "Ready" {
            condition["status"] = json!("False");
        }
    }
    json!({"conditions": conditions})
}

/// The time as objects tell it.
pub fn now(sim: &Sim) -> String {
    dapple_control::env::Clock::now(&sim.clock).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// All nodes are well, and without taints.
pub fn mend(sim: &Sim) {
    for node in sim.server.list("nodes") {
        let name = text(&node["metadata"]["name"]);
        set_ready(sim, name, "True");
        let none = json!({"spec": {"taints": null}});
        sim.ask(Actor::World, Method::PATCH, &format!("/api/v1/nodes/{name}"), Some(&none));
    }
}
