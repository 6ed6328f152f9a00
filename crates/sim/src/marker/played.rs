//! What probers and controllers of others do in a script: they go by what is there.

use dapple_api::marker::PROBER_NAMESPACE;
use http::Method;
use serde_json::{Value, json};

use super::RESULTS;
use crate::object::{is_terminating, list, path_of, text};
use crate::sim::{Actor, LEASES, Sim};

const PROBES_PATH: &str = "/apis/dapple.dev/v1alpha1/nodepodprobes";

/// What the manager asks the prober of a node for, pod by pod.
fn asked(object: &Value) -> &[Value] {
    list(&object["spec"]["podProbes"])
}

/// The prober of a node stores what probes came to that it is to run: in the runs of containers that it is asked for, or in some before.
pub fn probed(sim: &Sim, node: &str, state: &str, is_old: bool) {
    let Some(object) = sim.server.get(RESULTS, "", node) else { return };
    let result = |probe: &Value| {
        let id = if is_old { json!("containerd://old") } else { probe["containerID"].clone() };
        json!({"name": probe["name"], "containerID": id, "state": state})
    };
    let of_pod = |pod: &Value| {
        let states: Vec<Value> = list(&pod["probes"]).iter().map(result).collect();
        json!({"name": pod["name"], "namespace": pod["namespace"], "uid": pod["uid"], "probeStates": states})
    };
    let told: Vec<Value> = asked(&object).iter().map(of_pod).collect();
    let status = json!({"status": {"podProbeStatuses": told}});
    sim.ask(Actor::World, Method::PATCH, &format!("{PROBES_PATH}/{node}/status"), Some(&status));
}

/// The prober of a node renews its Lease, if there is anything to probe.
pub fn renewed(sim: &Sim, node: &str) {
    if !sim.server.get(RESULTS, "", node).is_some_and(|object| !asked(&object).is_empty()) {
        return;
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{PROBER_NAMESPACE}/leases");
    let spec = json!({"holderIdentity": node, "renewTime": micro_time(sim)});
    if sim.server.get(LEASES, PROBER_NAMESPACE, node).is_some() {
        sim.ask(Actor::World, Method::PATCH, &format!("{path}/{node}"), Some(&json!({"spec": spec})));
        return;
    }
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}, "spec": spec});
    sim.ask(Actor::World, Method::POST, &path, Some(&lease));
}

fn micro_time(sim: &Sim) -> String {
    let now = dapple_control::env::Clock::now(&sim.clock);
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// A controller deletes the pods with a label, and makes another for each.
pub fn replaced(sim: &Sim, key: &str, value: &str) {
    for pod in sim.server.list("pods").iter().filter(|pod| !is_terminating(pod)) {
        if pod["metadata"]["labels"][key] != value {
            continue;
        }
        let options = json!({"gracePeriodSeconds": 0});
        sim.ask(Actor::World, Method::DELETE, &path_of(pod), Some(&options));
        let name = format!("new-{}", text(&pod["metadata"]["name"]));
        let successor = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": pod["metadata"]["namespace"], "labels": {"app": "web"}},
            "spec": bare(&pod["spec"])});
        sim.ask(Actor::World, Method::POST, "/api/v1/namespaces/default/pods", Some(&successor));
    }
}

/// What a pod was made of.
fn bare(spec: &Value) -> Value {
    json!({"nodeName": spec["nodeName"], "containers": [{"name": "c", "image": spec["containers"][0]["image"]}]})
}
