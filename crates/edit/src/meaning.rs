//! What a document means, whoever wrote it: without what is empty, and without what Kubernetes would put there itself.
//!
//! The API server fills in defaults where it knows the schema, other products' webhooks fill in more, and Go writes nulls,
//! empty objects and amounts of its own spelling. None of that is a change, and none may restart a pod.
//!
//! Documents that mean the same are told by comparing what they mean by all that is known today. Their names live longer:
//! a hash has a **form**, the state of knowledge that it was made by, and [`hash_in_form`] gives the same hash for a form
//! for ever, whatever is learned later.

mod defaults;

use serde_json::{Map, Value, json};

use self::defaults::{DEFAULTS, Defaults};
use crate::amount;
use crate::document::Document;
use crate::render::hash;
use crate::schema::{Shape, Type};

/// The form of hash that is made today. Form 1 was over the document as written; form 2 is over what it means.
pub const NEWEST_FORM: u8 = 2;

/// The document without what says nothing. Equal meanings give equal pods.
pub fn meaning(kind: Document, document: &Value) -> Value {
    Table { defaults: DEFAULTS, form: NEWEST_FORM }.of_value(document, kind.shape())
}

/// The name of a document in a form of hash. Of a form that is yet to come, as of the newest: what a newer dapple named so
/// cannot be told.
pub fn hash_in_form(form: u8, kind: Document, document: &Value) -> String {
    hash_by(DEFAULTS, form.min(NEWEST_FORM), kind, document)
}

fn hash_by(defaults: &[Defaults], form: u8, kind: Document, document: &Value) -> String {
    match form {
        0 | 1 => hash(document),
        form => hash(&Table { defaults, form }.of_value(document, kind.shape())),
    }
}

/// What is known as of a form.
#[derive(Clone, Copy)]
struct Table<'a> {
    defaults: &'a [Defaults],
    form: u8,
}

impl Table<'_> {
    fn of_value(self, value: &Value, shape: Shape) -> Value {
        match (value, shape) {
            (Value::Object(map), Shape::Object(id)) => Value::Object(self.of_object(map, id.get())),
            // Keys of a map are the user's: one with an empty value is still there.
            (Value::Object(map), Shape::Map(item)) => {
                let entries = map.iter().filter(|(_, value)| !value.is_null());
                Value::Object(entries.map(|(key, value)| (key.clone(), self.of_value(value, *item))).collect())
            }
            (Value::Array(items), Shape::List(item)) => items.iter().map(|value| self.of_value(value, *item)).collect(),
            (value, Shape::Quantity) => of_amount(value),
            (value, _) => value.clone(),
        }
    }

    fn of_object(self, map: &Map<String, Value>, of: &Type) -> Map<String, Value> {
        let mut kept = Map::new();
        for (name, value) in map {
            let value = of.field(name).map_or_else(|| value.clone(), |field| self.of_value(value, field.shape));
            if !self.is_default(of, name, &value, map) && !says_nothing(of, name, &value) {
                kept.insert(name.clone(), value);
            }
        }
        match of.name {
            "PodSpec" => settle_pod(&mut kept),
            "Container" => settle_requests(&mut kept),
            _ => {}
        }
        kept
    }

    fn is_default(self, of: &Type, field: &str, value: &Value, map: &Map<String, Value>) -> bool {
        let known = self.defaults.iter().filter(|known| known.since <= self.form && known.of.contains(&of.name));
        let mut fields = known.flat_map(|known| known.fields);
        fields.any(|(name, filled)| *name == field && filled.is(value, map))
    }
}

/// Empty is as good as absent, but for selectors: an empty one selects everything, an absent one nothing. And a volume
/// without a source is an empty directory: one with an empty source of another kind is not.
fn says_nothing(of: &Type, name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => {
            map.is_empty() && !name.ends_with("Selector") && (of.name != "Volume" || name == "emptyDir")
        }
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// An amount in one spelling: `0.5`, `500m` and `"0.5"` are the same. What is none stays as it is.
fn of_amount(value: &Value) -> Value {
    amount::nanos(value).map_or_else(|| value.clone(), |nanos| json!(format!("{nanos}n")))
}

/// What in a pod follows from something else in it.
fn settle_pod(spec: &mut Map<String, Value>) {
    // The old name of the field: where both are written, the new one holds.
    if let Some(account) = spec.remove("serviceAccount") {
        spec.entry("serviceAccountName").or_insert(account);
    }
    if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    // In the node's network, every port is one of the node.
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        let ports = containers.filter_map(|container| container.get_mut("ports")?.as_array_mut()).flatten();
        for port in ports.filter_map(Value::as_object_mut) {
            if port.get("hostPort").is_some_and(|host| Some(host) == port.get("containerPort")) {
                port.remove("hostPort");
            }
        }
    }
}

/// A container requests what it may use, if it does not say otherwise.
fn settle_requests(container: &mut Map<String, Value>) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) else { return };
    requests.retain(|name, amount| limits.get(name) != Some(amount));
    if requests.is_empty() {
        resources.remove("requests");
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
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "hostNetwork": false}});
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
            (json!({"name": "a"}), json!({"name": "a", "securityContext": {"privileged": false}})),
            (
                json!({"name": "a", "resources": {"limits": {"cpu": 1}}}),
                json!({"name": "a", "resources": {"limits": {"cpu": 1}, "requests": {"cpu": "0"}}}),
            ),
            (
                json!({"name": "a", "ports": [{"containerPort": 80}]}),
                json!({"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}),
            ),
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

    #[test]
    fn what_follows_from_something_else_means_nothing() {
        let of_container = |one: Value, other: Value| same(container(one), container(other));
        assert!(of_container(
            json!({"resources": {"limits": {"cpu": "0.5", "memory": "1Gi"}}, "stdin": false}),
            json!({"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}, "requests": {"cpu": "500m"}}}),
        ));
        assert!(of_container(
            json!({"env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}),
            json!({"env": [{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}]}),
        ));
        assert!(of_container(
            json!({"livenessProbe": {"grpc": {"port": 1}}, "lifecycle": {"preStop": {"httpGet": {"port": 1}}}}),
            json!({"livenessProbe": {"grpc": {"port": 1, "service": ""}, "timeoutSeconds": 0, "initialDelaySeconds": 0},
                "lifecycle": {"preStop": {"httpGet": {"port": 1, "scheme": "HTTP", "path": "/"}}}}),
        ));
        let on_host = |port: Value| json!({"spec": {"hostNetwork": true, "containers": [{"ports": [port]}]}});
        assert!(same(on_host(json!({"containerPort": 80})), on_host(json!({"containerPort": 80, "hostPort": 80}))));
        assert!(!same(on_host(json!({"containerPort": 80})), on_host(json!({"containerPort": 80, "hostPort": 81}))));
        let account = |spec: Value| json!({"spec": spec});
        let named = account(json!({"serviceAccountName": "a"}));
        assert!(same(account(json!({"serviceAccount": "a"})), named.clone()));
        assert!(same(account(json!({"serviceAccount": "b", "serviceAccountName": "a"})), named));
    }

    #[test]
    fn volumes_get_what_kubernetes_fills_in() {
        let volume = |volume: Value| json!({"spec": {"volumes": [volume]}});
        let token = |token: Value| json!({"projected": {"sources": [{"serviceAccountToken": token}]}});
        for (one, other) in [
            (json!({"emptyDir": {}}), json!({"name": null})),
            (json!({"emptyDir": {"medium": "", "sizeLimit": "1Gi"}}), json!({"emptyDir": {"sizeLimit": "1024Mi"}})),
            (
                json!({"iscsi": {"iqn": "i"}}),
                json!({"iscsi": {"iqn": "i", "iscsiInterface": "default", "readOnly": false}}),
            ),
            (
                json!({"rbd": {"image": "i"}}),
                json!({"rbd": {"image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}}),
            ),
            (
                json!({"azureDisk": {"diskName": "d"}}),
                json!({"azureDisk": {"diskName": "d", "cachingMode": "ReadWrite",
                "fsType": "ext4", "kind": "Shared", "readOnly": false}}),
            ),
            (
                json!({"scaleIO": {"system": "s"}}),
                json!({"scaleIO": {"system": "s", "storageMode": "ThinProvisioned", "fsType": "xfs"}}),
            ),
            (
                json!({"image": {"reference": "a:1"}}),
                json!({"image": {"reference": "a:1", "pullPolicy": "IfNotPresent"}}),
            ),
            (token(json!({"path": "p"})), token(json!({"path": "p", "expirationSeconds": 3600}))),
        ] {
            assert!(same(volume(one.clone()), volume(other.clone())), "{one} and {other}");
        }
        assert!(!same(volume(json!({"downwardAPI": {}})), volume(json!({}))), "it is not an empty directory");
    }

    #[test]
    fn a_hash_stays_whatever_is_learned_later() {
        const LEARNED: Defaults = Defaults {
            since: 3,
            of: &["Container"],
            fields: &[("fieldOfNextYear", defaults::Filled::Text("as ever"))],
        };
        let later = [DEFAULTS, &[LEARNED]].concat();
        let kind = Document::PodTemplate;
        let plain = container(json!({"name": "a", "image": "a:1"}));
        let written = container(json!({"name": "a", "image": "a:1", "fieldOfNextYear": "as ever", "tty": false}));
        for document in [&plain, &written] {
            for form in [1, 2] {
                assert_eq!(hash_by(&later, form, kind, document), hash_in_form(form, kind, document));
            }
        }
        assert_ne!(hash_in_form(2, kind, &plain), hash_in_form(2, kind, &written), "nobody knew");
        assert_eq!(hash_by(&later, 3, kind, &plain), hash_by(&later, 3, kind, &written), "now it is known");
        assert_eq!(hash_in_form(3, kind, &written), hash_in_form(2, kind, &written), "one from a newer dapple");
    }

    /// Pods in clusters carry these: neither may ever change.
    #[test]
    fn hashes_of_a_form_are_for_ever() {
        let document = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"hostNetwork": true, "containers": [
            {"name": "a", "image": "a:1", "tty": false, "resources": {"limits": {"cpu": "0.5"}, "requests": {"cpu": "500m"}},
                "ports": [{"containerPort": 80, "hostPort": 80}]}]}});
        assert_eq!(hash_in_form(1, Document::PodTemplate, &document), hash(&document));
        assert_eq!(hash_in_form(2, Document::PodTemplate, &document), "8d200cce8dfc498e");
    }
}
