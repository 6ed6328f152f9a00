//! Reading objects as JSON.

use serde_json::Value;

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

/// Whether the Ready condition of a pod or a node is True.
pub fn is_ready(object: &Value) -> bool {
    list(&object["status"]["conditions"]).iter().any(|known| known["type"] == "Ready" && known["status"] == "True")
}
