//! Probes as they are run: with defaults filled in and numbers for ports, and named by what they are.

use std::sync::Arc;

use dapple_edit::render::hash;
use serde_json::{Map, Value, json};

/// What a probe can do.
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// Times and thresholds, as Kubernetes has them where they are not given.
const NUMBERS: [(&str, i64); 5] = [
    ("initialDelaySeconds", 0),
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
];

/// Texts of a handler, likewise.
const TEXTS: [(&str, &str, &str); 3] =
    [("httpGet", "path", "/"), ("httpGet", "scheme", "HTTP"), ("grpc", "service", "")];

/// A probe with defaults filled in, so that equal probes are equal however they are written. Nothing if it does not do one thing.
#[must_use]
pub fn filled(probe: &Value) -> Option<Value> {
    let given = probe.as_object()?.iter().filter(|(_, value)| !value.is_null());
    let mut filled: Map<String, Value> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
    // It says how a pod ends that fails its probe. A marker ends none.
    filled.remove("terminationGracePeriodSeconds");
    let handlers: Vec<&str> = HANDLERS.into_iter().filter(|name| filled.contains_key(*name)).collect();
    let [handler] = handlers[..] else { return None };
    for (name, default) in NUMBERS {
        let number = filled.get(name).and_then(Value::as_i64).filter(|number| *number > 0);
        filled.insert(name.to_owned(), json!(number.unwrap_or(default)));
    }
    let action = filled.get_mut(handler)?.as_object_mut()?;
    action.retain(|_, value| !value.is_null());
    // Only the pod itself is probed.
    action.remove("host");
    for (_, field, default) in TEXTS.into_iter().filter(|(of, ..)| *of == handler) {
        let is_given = action.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !is_given {
            action.insert(field.to_owned(), json!(default));
        }
    }
    Some(Value::Object(filled))
}

/// The name of a probe of a container, with defaults filled in: what is equal has one name, and what is changed another.
#[must_use]
pub fn name(container: &str, filled: &Value) -> Arc<str> {
    Arc::from(hash(&json!({"container": container, "probe": filled})))
}

/// The port that a probe names, if it names one.
#[must_use]
pub fn named_port(probe: &Value) -> Option<&str> {
    HANDLERS.into_iter().find_map(|handler| probe.get(handler)?.get("port")?.as_str())
}

/// Whether a probe goes over the network, so that it needs the pod's address.
#[must_use]
pub fn needs_address(probe: &Value) -> bool {
    probe.get("exec").is_none()
}

/// A probe with the number of the port that it names, of a container with these ports. Nothing if the container has no such port.
#[must_use]
pub fn resolved(probe: &Value, ports: &[(Arc<str>, u16)]) -> Option<Value> {
    let Some(named) = named_port(probe) else { return Some(probe.clone()) };
    let (_, number) = ports.iter().find(|(name, _)| **name == *named)?;
    let mut resolved = probe.clone();
    for handler in HANDLERS {
        if let Some(port) = resolved.get_mut(handler).and_then(|action| action.get_mut("port")) {
            *port = json!(number);
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_kubernetes() {
        let numbers = json!({"initialDelaySeconds": 0, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
            "failureThreshold": 3});
        let with = |handler: &str, action: Value| {
            let mut expected = numbers.clone();
            expected[handler] = action;
            Some(expected)
        };
        let http = json!({"httpGet": {"port": 80}});
        assert_eq!(filled(&http), with("httpGet", json!({"port": 80, "path": "/", "scheme": "HTTP"})));
        assert_eq!(filled(&json!({"grpc": {"port": 80}})), with("grpc", json!({"port": 80, "service": ""})));
        assert_eq!(filled(&json!({"tcpSocket": {"port": "web"}})), with("tcpSocket", json!({"port": "web"})));
        assert_eq!(filled(&json!({"exec": {"command": ["a"]}})), with("exec", json!({"command": ["a"]})));
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let plain = filled(&json!({"httpGet": {"port": 80}, "periodSeconds": 5}));
        for same in [
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 5, "timeoutSeconds": 1}),
            json!({"httpGet": {"port": 80, "path": "", "host": ""}, "periodSeconds": 5, "failureThreshold": 0}),
            json!({"httpGet": {"port": 80, "host": null}, "periodSeconds": 5, "exec": null, "timeoutSeconds": null}),
            json!({"httpGet": {"port": 80}, "periodSeconds": 5, "terminationGracePeriodSeconds": 9}),
        ] {
            assert_eq!(filled(&same), plain, "{same}");
        }
        let newer = filled(&json!({"exec": {"command": ["a"]}, "newField": 1})).expect("it does one thing");
        assert_eq!(newer["newField"], 1, "what comes with a newer Kubernetes passes");
    }

    #[test]
    fn a_probe_does_one_thing() {
        for wrong in [json!({}), json!({"exec": {}, "grpc": {"port": 1}}), json!({"exec": 1}), json!(null)] {
            assert_eq!(filled(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_follow_from_container_and_definition() {
        let of = |container: &str, probe: Value| name(container, &filled(&probe).expect("a probe"));
        let probe = |period: i64| json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "periodSeconds": period});
        assert_eq!(of("a", probe(10)), of("a", json!({"exec": {"command": ["cat", "/tmp/healthy"]}})));
        assert_ne!(of("a", probe(10)), of("b", probe(10)));
        assert_ne!(of("a", probe(10)), of("a", probe(5)), "an edited one is new");
        assert_eq!(of("a", probe(10)).len(), 16);
    }

    #[test]
    fn ports_get_their_numbers() {
        let ports = [(Arc::from("web"), 8080), (Arc::from("admin"), 9090)];
        let probe = json!({"httpGet": {"port": "admin", "path": "/"}, "periodSeconds": 1});
        let expected = json!({"httpGet": {"port": 9090, "path": "/"}, "periodSeconds": 1});
        assert_eq!(resolved(&probe, &ports), Some(expected.clone()));
        assert_eq!(resolved(&expected, &ports), Some(expected));
        assert_eq!(resolved(&json!({"tcpSocket": {"port": "none"}}), &ports), None);
        assert_eq!(named_port(&probe), Some("admin"));
        assert_eq!(named_port(&json!({"exec": {"command": ["a"]}})), None);
        assert!(needs_address(&probe) && !needs_address(&json!({"exec": {"command": ["a"]}})));
    }
}
