//! What a document means, whoever wrote it: without what is empty, and without what Kubernetes would put there itself.
//!
//! The API server fills in defaults where it knows the schema, other products' webhooks fill in more, and Go writes nulls
//! and empty objects. None of that is a change, and none may restart a pod.

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::image::Image;
use crate::schema::{Shape, Type};

/// The document without what says nothing. Equal meanings give equal pods.
pub fn meaning(kind: Document, document: &Value) -> Value {
    of_value(document, kind.shape())
}

fn of_value(value: &Value, shape: Shape) -> Value {
    match (value, shape) {
        (Value::Object(map), Shape::Object(id)) => Value::Object(of_object(map, id.get())),
        // Keys of a map are the user's: one with an empty value is still there.
        (Value::Object(map), Shape::Map(item)) => {
            let entries = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(entries.map(|(key, value)| (key.clone(), of_value(value, *item))).collect())
        }
        (Value::Array(items), Shape::List(item)) => items.iter().map(|value| of_value(value, *item)).collect(),
        (value, _) => value.clone(),
    }
}

fn of_object(map: &Map<String, Value>, of: &Type) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, value) in map {
        let value = of.field(name).map_or_else(|| value.clone(), |field| of_value(value, field.shape));
        let is_default = default_of(of.name, name, map).is_some_and(|default| default == value);
        if !is_default && !says_nothing(name, &value) {
            kept.insert(name.clone(), value);
        }
    }
    kept
}

/// Empty is as good as absent, but for selectors: an empty one selects everything, an absent one nothing.
fn says_nothing(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty() && !name.ends_with("Selector"),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// What Kubernetes puts into a field that is absent.
fn default_of(of: &str, field: &str, map: &Map<String, Value>) -> Option<Value> {
    Some(match (of, field) {
        ("PodSpec", "restartPolicy") => json!("Always"),
        ("PodSpec", "dnsPolicy") => json!("ClusterFirst"),
        ("PodSpec", "schedulerName") => json!("default-scheduler"),
        ("PodSpec", "terminationGracePeriodSeconds") => json!(30),
        ("PodSpec", "enableServiceLinks") => json!(true),
        ("Container", "terminationMessagePath") => json!("/dev/termination-log"),
        ("Container", "terminationMessagePolicy") => json!("File"),
        ("Container", "imagePullPolicy") => json!(pull_policy(map.get("image"))),
        ("ContainerPort", "protocol") => json!("TCP"),
        ("EnvVar", "value") | ("HostPathVolumeSource", "type") | ("GRPCAction", "service") => json!(""),
        ("ObjectFieldSelector", "apiVersion") => json!("v1"),
        ("Probe", "timeoutSeconds" | "successThreshold") => json!(1),
        ("Probe", "periodSeconds") => json!(10),
        ("Probe", "failureThreshold") => json!(3),
        ("HTTPGetAction", "scheme") => json!("HTTP"),
        ("HTTPGetAction", "path") => json!("/"),
        (
            "ConfigMapVolumeSource" | "SecretVolumeSource" | "ProjectedVolumeSource" | "DownwardAPIVolumeSource",
            "defaultMode",
        ) => json!(0o644),
        ("ServiceAccountTokenProjection", "expirationSeconds") => json!(3600),
        _ => return None,
    })
}

fn pull_policy(image: Option<&Value>) -> &'static str {
    let parsed = image.and_then(Value::as_str).and_then(|image| image.parse::<Image>().ok());
    match parsed.map(|image| image.is_latest()) {
        Some(false) => "IfNotPresent",
        _ => "Always",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: Value, other: Value) -> bool {
        meaning(Document::PodTemplate, &one) == meaning(Document::PodTemplate, &other)
    }

    fn container(container: Value) -> Value {
        json!({"spec": {"containers": [container]}})
    }

    #[test]
    fn what_others_fill_in_means_nothing() {
        let written = json!({"metadata": {"labels": {"app": "a"}}, "spec": {
            "containers": [{"name": "a", "image": "a:1", "ports": [{"containerPort": 80}],
                "env": [{"name": "E"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}}}],
            "volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "w", "hostPath": {"path": "/x"}}]}});
        let filled = json!({"metadata": {"creationTimestamp": null, "labels": {"app": "a"}, "annotations": {}}, "spec": {
            "containers": [{"name": "a", "image": "a:1", "imagePullPolicy": "IfNotPresent", "resources": {}, "args": [],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "E", "value": ""},
                    {"name": "F", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80, "scheme": "HTTP", "path": "/"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}}],
            "volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 420}},
                {"name": "w", "hostPath": {"path": "/x", "type": ""}}],
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "securityContext": {}}});
        assert!(same(written.clone(), filled.clone()));
        let once = meaning(Document::PodTemplate, &filled);
        assert_eq!(meaning(Document::PodTemplate, &once), once);
        let workload = |template: Value| json!({"spec": {"replicas": 1, "template": template}});
        assert_eq!(meaning(Document::Deployment, &workload(written)), meaning(Document::Deployment, &workload(filled)));
    }

    #[test]
    fn what_makes_another_pod_means_something() {
        for (one, other) in [
            (json!({"name": "a", "image": "a"}), json!({"name": "a", "image": "a", "imagePullPolicy": "IfNotPresent"})),
            (json!({"name": "a", "image": "a:1"}), json!({"name": "a", "image": "a:1", "imagePullPolicy": "Always"})),
            (json!({"name": "a"}), json!({"name": "a", "stdin": false})),
            (json!({"name": "a"}), json!({"name": "a", "fieldOfNextYear": "x"})),
            (json!({"name": "a", "args": ["x", "y"]}), json!({"name": "a", "args": ["y", "x"]})),
            (json!({"name": "a", "args": ["x"]}), json!({"name": "a", "args": ["x", ""]})),
        ] {
            assert!(!same(container(one.clone()), container(other.clone())), "{one} and {other}");
        }
        let annotated = |value: Value| json!({"metadata": {"annotations": {"a": value}}});
        assert!(!same(annotated(json!("")), json!({})), "an annotation without a value is one");
        let affinity = |selector: Value| json!({"spec": {"topologySpreadConstraints": [{"labelSelector": selector}]}});
        assert!(!same(affinity(json!({})), affinity(Value::Null)), "everything is not nothing");
    }
}
