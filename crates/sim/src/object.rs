//! Reading objects as JSON.

use serde_json::Value;

/// The taint of a node that is shut down for good.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A text, empty if it is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A list, empty if it is none.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Where a pod is served.
pub fn path_of(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]))
}

/// The node that a pod of a DaemonSet asks for, by affinity.
pub fn asked_node(pod: &Value) -> &str {
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    text(&affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
}

/// Whether the deletion of an object has been asked for.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The status of the Ready condition of a pod or a node; empty if it has none.
pub fn ready_of(object: &Value) -> &str {
    let ready = list(&object["status"]["conditions"]).iter().find(|known| known["type"] == "Ready");
    ready.map_or("", |ready| text(&ready["status"]))
}

/// Whether the Ready condition of a pod or a node is True.
pub fn is_ready(object: &Value) -> bool {
    ready_of(object) == "True"
}

/// The images that the containers of a pod run.
pub fn running_images(pod: &Value) -> impl Iterator<Item = &str> {
    list(&pod["status"]["containerStatuses"]).iter().map(|container| text(&container["image"]))
}

/// Whether an administrator has taken a node out of service for good.
pub fn is_out_of_service(node: &Value) -> bool {
    list(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == OUT_OF_SERVICE)
}

/// Whether a pod, or one of this template, tolerates every taint.
pub fn tolerates_all(pod: &Value) -> bool {
    list(&pod["spec"]["tolerations"]).iter().any(|known| known["key"].is_null())
}
