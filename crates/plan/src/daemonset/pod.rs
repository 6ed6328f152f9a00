//! The pod that a node gets: the rendered template, with what ties it to its DaemonSet and its node.

use dapple_api::kinds::{self, KindInfo};
use dapple_edit::render::hash;
use serde_json::{Map, Value, json};

use crate::fit::daemon_tolerations;

const SET: KindInfo = kinds::DAEMON_SET.at;

/// The label that says what a pod was rendered from.
pub const HASH_LABEL: &str = "controller-revision-hash";

/// The annotation that names a pod's revision.
pub const REVISION_ANNOTATION: &str = "dapple.dev/revision";

/// Whose pod it is, and what it is to be.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Name of the DaemonSet.
    pub set: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The node.
    pub node: &'a str,
    /// What nodes like this one get.
    pub template: &'a Value,
    /// Names that.
    pub hash: &'a str,
    /// Name of the revision it comes from.
    pub revision: &'a str,
    /// Readiness gates that it needs besides the template's own.
    pub gates: &'a [&'static str],
    /// How often its name was taken by a pod of somebody else.
    pub collisions: u32,
}

/// The pod. Its name depends on what it is alone, so that making it twice makes one.
pub fn pod(wanted: &Wanted<'_>) -> Value {
    let mut metadata = object(&wanted.template["metadata"]);
    metadata.insert("name".to_owned(), json!(pod_name(wanted)));
    change(&mut metadata, "labels", |labels| _ = labels.insert(HASH_LABEL.to_owned(), json!(wanted.hash)));
    change(&mut metadata, "annotations", |annotations| {
        annotations.insert(REVISION_ANNOTATION.to_owned(), json!(wanted.revision));
    });
    metadata.insert("ownerReferences".to_owned(), json!([owner(wanted.set, wanted.uid)]));
    let mut spec = object(&wanted.template["spec"]);
    bind(&mut spec, wanted.node);
    tolerate(&mut spec);
    add_gates(&mut spec, wanted.gates);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// How objects of a DaemonSet name it as their owner.
pub fn owner(set: &str, uid: &str) -> Value {
    json!({
        "apiVersion": SET.api_version(), "kind": SET.kind, "name": set, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Whether an owner of this API version and kind is a DaemonSet of ours.
pub fn is_set(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map(|(group, _)| group);
    group == Some(SET.group) && kind == SET.kind
}

/// A name of at most 63 letters, so that it can be a host's name.
pub fn pod_name(wanted: &Wanted<'_>) -> String {
    let ending = match wanted.collisions {
        0 => hash(&json!([wanted.uid, wanted.node, wanted.hash])),
        collisions => hash(&json!([wanted.uid, wanted.node, wanted.hash, collisions])),
    };
    let kept: String = wanted.set.chars().take(63 - 1 - ending.len()).collect();
    format!("{}-{ending}", kept.trim_end_matches(['-', '.']))
}

/// Ties the pod to its node through the scheduler. What the template's own affinity requires has been asked already, and
/// must not be asked again: labels may change before the pod is bound.
fn bind(spec: &mut Map<String, Value>, node: &str) {
    let required = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    change(spec, "affinity", |affinity| {
        change(affinity, "nodeAffinity", |of_nodes| {
            of_nodes.insert("requiredDuringSchedulingIgnoredDuringExecution".to_owned(), required);
        });
    });
}

/// Adds the tolerations that every DaemonSet's pods have.
fn tolerate(spec: &mut Map<String, Value>) {
    let on_host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        for (key, effect) in daemon_tolerations(on_host_network) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
            if !list.contains(&toleration) {
                list.push(toleration);
            }
        }
    }
}

/// Adds readiness gates. They are no part of what the template means: a change of strategy restarts nobody.
fn add_gates(spec: &mut Map<String, Value>, gates: &[&str]) {
    if gates.is_empty() {
        return;
    }
    let list = spec.entry("readinessGates").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        let missing = gates.iter().map(|gate| json!({"conditionType": gate}));
        let missing: Vec<Value> = missing.filter(|gate| !list.contains(gate)).collect();
        list.extend(missing);
    }
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Changes the object at a field; what is no object there gives way to one.
fn change(map: &mut Map<String, Value>, field: &str, act: impl FnOnce(&mut Map<String, Value>)) {
    let mut inner = match map.remove(field) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    };
    act(&mut inner);
    map.insert(field.to_owned(), Value::Object(inner));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(template: &Value) -> Value {
        pod(&wanted(template, "agent", "n1", "h"))
    }

    fn wanted<'a>(template: &'a Value, set: &'a str, node: &'a str, hash: &'a str) -> Wanted<'a> {
        Wanted { set, uid: "u", node, template, hash, revision: "agent-1", gates: &["G"], collisions: 0 }
    }

    #[test]
    fn a_pod_names_its_owner_its_revision_and_its_node() {
        let template = json!({"metadata": {"labels": {"app": "a"}, "annotations": null}, "spec": {
            "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}, "podAntiAffinity": {}}}});
        let pod = made(&template);
        assert_eq!(pod["metadata"]["labels"], json!({"app": "a", HASH_LABEL: "h"}));
        assert_eq!(pod["metadata"]["annotations"], json!({REVISION_ANNOTATION: "agent-1"}));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u");
        let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(*terms, json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]));
        assert!(pod["spec"]["affinity"].get("podAntiAffinity").is_some(), "the rest stays");
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1 + 6);
        assert_eq!(pod["spec"]["readinessGates"], json!([{"conditionType": "G"}]));
        assert_eq!(made(&json!({"spec": {"hostNetwork": true}}))["spec"]["tolerations"].as_array().unwrap().len(), 7);
    }

    #[test]
    fn names_are_each_its_own_and_not_too_long() {
        let template = json!({});
        let name = |set: &str, node: &str, hash: &str| pod_name(&wanted(&template, set, node, hash));
        assert_eq!(name("agent", "n1", "h"), name("agent", "n1", "h"));
        assert_ne!(name("agent", "n1", "h"), name("agent", "n2", "h"));
        assert_ne!(name("agent", "n1", "h"), name("agent", "n1", "i"));
        let template = json!({});
        assert_ne!(
            pod_name(&Wanted { collisions: 1, ..wanted(&template, "agent", "n1", "h") }),
            name("agent", "n1", "h")
        );
        let long = name(&format!("{}-", "a".repeat(45)), "n1", "h");
        assert!(long.len() <= 63 && !long.contains("--"), "{long}");
    }
}
