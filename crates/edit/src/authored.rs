//! A pod that nothing owns, as its author has written it.
//!
//! Such a pod has no template, and others have had their say before anybody sees it: a token's volume, a mesh's sidecar. But the
//! API server notes which fields a request has brought before it lets others change the object, in `metadata.managedFields`: an
//! item of a list that nobody has brought was put in.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The pod without items of lists that others have put in, as far as it is known; else as it is. Everything that is no list
/// stays: rules find fields by their names, whoever has written them.
#[must_use]
pub fn authored(pod: &Value) -> Cow<'_, Value> {
    let entries = pod["metadata"]["managedFields"].as_array().into_iter().flatten();
    let brought: Vec<&Value> = entries.filter_map(|entry| entry.pointer("/fieldsV1/f:spec")).collect();
    // A list of fields that names no container is not that of an author.
    let Some(spec) = pod["spec"].as_object().filter(|_| brought.iter().any(|fields| has_containers(fields))) else {
        return Cow::Borrowed(pod);
    };
    let mut authored = pod.clone();
    authored["spec"] = Value::Object(own_fields(spec, &brought));
    Cow::Owned(authored)
}

fn has_containers(brought: &Value) -> bool {
    let containers = brought["f:containers"].as_object().into_iter().flatten();
    containers.into_iter().any(|(_, fields)| is_brought(fields))
}

/// Whether an item was brought itself; else somebody has only changed fields of it.
fn is_brought(fields: &Value) -> bool {
    fields.get(".").is_some()
}

/// Whether nothing is said of what is in it: it was brought as a whole, such as what an affinity asks for.
fn is_whole(fields: &Value) -> bool {
    fields.as_object().is_none_or(Map::is_empty)
}

fn own_fields(fields: &Map<String, Value>, brought: &[&Value]) -> Map<String, Value> {
    let own = |(name, value): (&String, &Value)| {
        let key = format!("f:{name}");
        let below: Vec<&Value> = brought.iter().filter_map(|fields| fields.get(&key)).collect();
        let value = match value {
            Value::Object(_) if below.iter().all(|fields| is_whole(fields)) => value.clone(),
            Value::Object(fields) => Value::Object(own_fields(fields, &below)),
            Value::Array(items) => Value::Array(own_items(items, &below)?),
            _ => value.clone(),
        };
        Some((name.clone(), value))
    };
    fields.iter().filter_map(own).collect()
}

/// The items that were brought; none if the list as a whole was put in.
fn own_items(items: &[Value], brought: &[&Value]) -> Option<Vec<Value>> {
    if !items.iter().all(Value::is_object) {
        return Some(items.to_vec());
    }
    if brought.is_empty() {
        return None;
    }
    let keyed: Vec<(Value, &Value)> =
        brought.iter().filter_map(|fields| fields.as_object()).flatten().filter_map(keyed).collect();
    // Its items are not told apart: it is known only who has written it as a whole.
    if keyed.is_empty() {
        return Some(items.to_vec());
    }
    let own = |item: &Value| {
        let below: Vec<&Value> =
            keyed.iter().filter(|(key, _)| has_key(item, key)).map(|(_, fields)| *fields).collect();
        let fields = item.as_object().filter(|_| below.iter().any(|fields| is_brought(fields)))?;
        Some(Value::Object(own_fields(fields, &below)))
    };
    let own: Vec<Value> = items.iter().filter_map(own).collect();
    if own.is_empty() { None } else { Some(own) }
}

/// What tells an item from others, and its fields: `k:{"name":"c"}`.
fn keyed<'f>((key, fields): (&String, &'f Value)) -> Option<(Value, &'f Value)> {
    Some((serde_json::from_str(key.strip_prefix("k:")?).ok()?, fields))
}

fn has_key(item: &Value, key: &Value) -> bool {
    let mut parts = key.as_object().into_iter().flatten();
    parts.all(|(name, value)| item.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod that kubectl has made, with a sidecar, a token and tolerations that were put in since.
    fn pod() -> Value {
        let brought = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:args": {},
                "f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}},
            "f:affinity": {".": {}, "f:nodeAffinity": {".": {}, "f:requiredDuringSchedulingIgnoredDuringExecution": {}}},
            "f:dnsPolicy": {}, "f:securityContext": {}}});
        let terms = json!([{"matchExpressions": [{"key": "place", "operator": "Exists"}]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"metadata": {"name": "bare", "labels": {"app": "bare", "mesh": "yes"},
                "managedFields": [{"manager": "kubectl-create", "operation": "Update", "fieldsV1": brought}]},
            "spec": {"dnsPolicy": "ClusterFirst", "securityContext": {}, "serviceAccountName": "default",
                "affinity": {"nodeAffinity": required},
                "containers": [{"name": "mesh", "image": "mesh:1"},
                    {"name": "c", "image": "web:1", "args": ["-v"],
                        "env": [{"name": "MESH", "value": "on"}, {"name": "A", "value": "1"}],
                        "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}],
                        "volumeMounts": [{"name": "token", "mountPath": "/var/run"}]}],
                "tolerations": [{"key": "not-ready", "operator": "Exists"}],
                "volumes": [{"name": "token", "projected": {"sources": []}}]}})
    }

    #[test]
    fn what_was_put_into_lists_is_not_the_authors() {
        let mut wanted = pod();
        wanted["spec"]["containers"] = json!([{"name": "c", "image": "web:1", "args": ["-v"],
            "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80, "protocol": "TCP"}]}]);
        for field in ["tolerations", "volumes"] {
            wanted["spec"].as_object_mut().unwrap().remove(field);
        }
        assert_eq!(*authored(&pod()), wanted);
    }

    #[test]
    fn whoever_only_changes_an_item_has_not_brought_it() {
        let mut changed = pod();
        let image = json!({"f:spec": {"f:containers": {"k:{\"name\":\"mesh\"}": {"f:image": {}}}}});
        let updater = json!({"manager": "updater", "operation": "Update", "fieldsV1": image});
        changed["metadata"]["managedFields"].as_array_mut().unwrap().push(updater);
        assert_eq!(authored(&changed)["spec"], authored(&pod())["spec"]);
    }

    #[test]
    fn lists_that_are_written_as_a_whole_stay() {
        let mut pod = pod();
        pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:tolerations"] = json!({});
        assert_eq!(authored(&pod)["spec"]["tolerations"], pod["spec"]["tolerations"]);
    }

    #[test]
    fn a_pod_of_which_nobody_knows_the_author_is_as_it_is() {
        let status = json!({"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}});
        let mover =
            json!({"manager": "m", "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}});
        for entries in [json!(null), json!([]), json!("?"), json!([status]), json!([mover]), json!([{"fieldsV1": 1}])] {
            let mut pod = pod();
            pod["metadata"]["managedFields"] = entries;
            assert_eq!(*authored(&pod), pod);
        }
        assert_eq!(*authored(&json!({})), json!({}));
    }
}
