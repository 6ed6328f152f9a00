//! Whoever holds pods of a set with lifecycle hooks: lets go when asked, and holds again what was changed.

use std::time::Duration;

use serde_json::{Value, json};

/// The label that holds a pod, and its value.
pub const HOLD: (&str, &str) = ("example.com/hold", "yes");

/// So long it takes before letting go, and before holding again.
pub const TAKES: Duration = Duration::from_secs(7);

/// The label that says what a pod is held for, as OpenKruise has it.
pub const STATE: &str = "lifecycle.apps.kruise.io/state";

/// What it does next about a pod, as a merge patch.
pub fn next(pod: &Value) -> Option<Value> {
    let labels = &pod["metadata"]["labels"];
    let (key, value) = HOLD;
    let is_held = labels[key] == value;
    let label = match labels[STATE].as_str()? {
        "PreparingDelete" | "PreparingUpdate" if is_held => Value::Null,
        "Updated" if !is_held => json!(value),
        _ => return None,
    };
    Some(json!({"metadata": {"uid": pod["metadata"]["uid"], "labels": {key: label}}}))
}
