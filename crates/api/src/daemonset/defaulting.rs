//! What a DaemonSet that leaves something out is filled up with, as a JSON patch: what is there is not touched, and not
//! even read through types that may know less than the cluster does.

use serde_json::{Map, Value, json};

/// The changes that state the defaults of a DaemonSet of v1beta1, as RFC 6902 operations. None once they are stated.
pub fn default_patch(set: &Value) -> Vec<Value> {
    let Some(spec) = set["spec"].as_object() else { return Vec::new() };
    let mut patch = Vec::new();
    let mut add = |path: &str, value: Value| patch.push(json!({"op": "add", "path": path, "value": value}));
    for (field, default) in [("burstReplicas", 250), ("revisionHistoryLimit", 10)] {
        if is_absent(spec, field) {
            add(&format!("/spec/{field}"), default.into());
        }
    }
    let none = Map::new();
    let strategy = spec.get("updateStrategy").and_then(Value::as_object);
    if is_absent(spec, "updateStrategy") {
        add("/spec/updateStrategy", json!({}));
    }
    let (has_strategy, strategy) = (strategy.is_some() || is_absent(spec, "updateStrategy"), strategy.unwrap_or(&none));
    if !has_strategy {
        // Of another type: whoever validates says so.
        return patch;
    }
    if is_absent(strategy, "type") {
        add("/spec/updateStrategy/type", "RollingUpdate".into());
    }
    if strategy.get("type").is_none_or(|kind| kind.is_null() || kind == "RollingUpdate") {
        for operation in rolling_update(strategy) {
            add(operation.0, operation.1);
        }
    }
    patch
}

/// What a rolling update leaves out.
fn rolling_update(strategy: &Map<String, Value>) -> Vec<(&'static str, Value)> {
    let none = Map::new();
    let mut changes = Vec::new();
    let update = match strategy.get("rollingUpdate") {
        None | Some(Value::Null) => {
            changes.push(("/spec/updateStrategy/rollingUpdate", json!({})));
            &none
        }
        Some(Value::Object(update)) => update,
        Some(_) => return changes,
    };
    let is_zero = |field: &str| {
        matches!(update.get(field), None | Some(Value::Null)) || update[field] == 0 || update[field] == "0%"
    };
    let unavailable = if is_zero("maxSurge") { 1 } else { 0 };
    let defaults = [
        ("rollingUpdateType", "/spec/updateStrategy/rollingUpdate/rollingUpdateType", json!("Standard")),
        ("maxUnavailable", "/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(unavailable)),
        ("maxSurge", "/spec/updateStrategy/rollingUpdate/maxSurge", json!(0)),
        ("partition", "/spec/updateStrategy/rollingUpdate/partition", json!(0)),
        ("paused", "/spec/updateStrategy/rollingUpdate/paused", json!(false)),
    ];
    changes.extend(
        defaults.into_iter().filter(|(field, ..)| is_absent(update, field)).map(|(_, path, value)| (path, value)),
    );
    changes
}

fn is_absent(object: &Map<String, Value>, field: &str) -> bool {
    object.get(field).is_none_or(Value::is_null)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies additions to objects, which is all that defaulting does.
    fn defaulted(mut set: Value) -> Value {
        for operation in default_patch(&set) {
            let (path, field) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
            set.pointer_mut(path).unwrap()[field] = operation["value"].clone();
        }
        set
    }

    #[test]
    fn what_is_left_out_is_stated_once() {
        let full = json!({"spec": {"burstReplicas": 250, "revisionHistoryLimit": 10, "updateStrategy": {
            "type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": "Standard", "maxUnavailable": 1,
            "maxSurge": 0, "partition": 0, "paused": false}}}});
        assert_eq!(defaulted(json!({"spec": {}})), full);
        assert_eq!(defaulted(json!({"spec": {"updateStrategy": null, "burstReplicas": null}})), full);
        assert_eq!(default_patch(&full), Vec::<Value>::new(), "a second time changes nothing");
    }

    #[test]
    fn what_is_there_stays() {
        let surge = defaulted(
            json!({"spec": {"newer": {"x": 1.50}, "updateStrategy": {"rollingUpdate": {"maxSurge": "10%"}}}}),
        );
        assert_eq!(surge["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 0);
        assert_eq!(surge["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"], "10%");
        assert_eq!(surge["spec"]["newer"], json!({"x": 1.50}));
        let on_delete = defaulted(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
        assert_eq!(on_delete["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
        for odd in [json!({}), json!({"spec": 1}), json!(null), json!({"spec": {"updateStrategy": 1}})] {
            let _ = default_patch(&odd);
        }
    }
}
