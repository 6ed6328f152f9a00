//! What a kubelet says about a pod. Free of I/O.

use serde_json::{Value, json};

use crate::object::{list, text};

/// Pods whose image ends so never become ready.
pub const BAD_IMAGE: &str = "bad";

/// The address of each pod: nobody goes there.
const POD_IP: &str = "10.0.0.1";

/// What a kubelet has to say.
pub enum Status {
    /// Nothing new.
    Same,
    /// This, and whether there is more to come.
    Is {
        /// The whole status, as a merge patch.
        status: Value,
        /// Whether the kubelet has to look again without anything happening.
        again: bool,
    },
}

/// What the kubelet says about a pod on its node. A pod that is `doomed` ends once it runs, one that is `held` is not
/// ready.
pub fn status(pod: &Value, now: &str, is_doomed: bool, is_held: bool) -> Status {
    let known = &pod["status"];
    if known["phase"] == "Failed" || known["phase"] == "Succeeded" {
        return Status::Same;
    }
    if is_doomed && known["phase"] == "Running" {
        let conditions = conditions(pod, false, now);
        return Status::Is { status: json!({"phase": "Failed", "conditions": conditions}), again: false };
    }
    let ends = ["Never", "OnFailure"].contains(&text(&pod["spec"]["restartPolicy"]));
    let was_ready = list(&known["containerStatuses"]).iter().any(|container| container["ready"] == true);
    if ends && was_ready && known["phase"] == "Running" {
        let conditions = conditions(pod, false, now);
        return Status::Is { status: json!({"phase": "Succeeded", "conditions": conditions}), again: false };
    }
    let containers: Vec<(Value, bool)> = list(&pod["spec"]["containers"])
        .iter()
        .enumerate()
        .map(|(place, wanted)| container(wanted, &known["containerStatuses"][place], now, is_held))
        .collect();
    // A container that has just begun is not ready yet, and one that is to end has not ended.
    let again = ends || containers.iter().any(|(_, has_begun)| *has_begun);
    let containers: Vec<Value> = containers.into_iter().map(|(container, _)| container).collect();
    let is_ready = containers.iter().all(|container| container["ready"] == true) && gates_are_open(pod);
    let conditions = conditions(pod, is_ready, now);
    let is_same = known["phase"] == "Running"
        && known["containerStatuses"] == json!(containers)
        && known["conditions"] == conditions;
    if is_same {
        return Status::Same;
    }
    let start = if known["startTime"].is_string() { known["startTime"].clone() } else { json!(now) };
    let status = json!({"phase": "Running", "podIP": POD_IP, "startTime": start, "containerStatuses": containers,
        "conditions": conditions});
    Status::Is { status, again }
}

/// A container's status, and whether it has just begun.
fn container(wanted: &Value, known: &Value, now: &str, is_held: bool) -> (Value, bool) {
    let image = text(&wanted["image"]);
    let has_begun = known["image"] != wanted["image"];
    let restarts = known["restartCount"].as_i64().map_or(0, |count| count + i64::from(has_begun));
    let is_ready = !has_begun && !is_held && !image.ends_with(BAD_IMAGE);
    let since = if has_begun { json!(now) } else { known["state"]["running"]["startedAt"].clone() };
    let mut container = json!({
        "name": wanted["name"],
        "image": image,
        "imageID": format!("sha256:{image}"),
        "containerID": format!("containerd://{}-{image}-{restarts}", text(&wanted["name"])),
        "ready": is_ready,
        "restartCount": restarts,
        "state": {"running": {"startedAt": since}},
    });
    if wanted["resources"].is_object() {
        container["resources"] = wanted["resources"].clone();
    }
    (container, has_begun)
}

/// Whether all readiness gates of a pod are True.
pub fn gates_are_open(pod: &Value) -> bool {
    let is_true = |kind: &Value| {
        list(&pod["status"]["conditions"]).iter().any(|known| known["type"] == *kind && known["status"] == "True")
    };
    list(&pod["spec"]["readinessGates"]).iter().all(|gate| is_true(&gate["conditionType"]))
}

/// The conditions with Ready as told; those of others stay as they are.
fn conditions(pod: &Value, is_ready: bool, now: &str) -> Value {
    let status = if is_ready { "True" } else { "False" };
    let known = list(&pod["status"]["conditions"]);
    let mut conditions: Vec<Value> = known.iter().filter(|known| known["type"] != "Ready").cloned().collect();
    let same = known.iter().find(|known| known["type"] == "Ready" && known["status"] == status);
    let ready = same.cloned().unwrap_or_else(|| json!({"type": "Ready", "status": status, "lastTransitionTime": now}));
    conditions.push(ready);
    json!(conditions)
}
