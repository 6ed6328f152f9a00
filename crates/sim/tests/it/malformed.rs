//! Whatever is sent, the server answers.

use dapple_sim::server::{Answer, Server};
use http::Request;
use serde_json::{Value, json};

/// A value of every kind, to be put into every place.
fn odd() -> Vec<Value> {
    vec![json!(null), json!(true), json!(-1), json!("x"), json!([]), json!(["x", null, 3]), json!({}), json!({"x": 1})]
}

/// Every copy of a value with one part replaced by something odd.
fn mangled(value: &Value) -> Vec<Value> {
    let mut all = odd();
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                all.extend(mangled(inner).into_iter().map(|inner| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), inner);
                    Value::Object(fields)
                }));
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                all.extend(mangled(inner).into_iter().map(|inner| {
                    let mut items = items.clone();
                    items[index] = inner;
                    Value::Array(items)
                }));
            }
        }
        _ => {}
    }
    all
}

fn send(server: &Server, method: &str, path: &str, kind: &str, body: &Value) -> u16 {
    let body = body.to_string().into_bytes();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
    match server.answer(&request) {
        Answer::Whole(response) => response.status().as_u16(),
        Answer::Watch(_) => 200,
    }
}

#[test]
fn nothing_that_is_sent_breaks_it() {
    let server = Server::new(|| jiff::Timestamp::UNIX_EPOCH, 1);
    let core = "/api/v1/namespaces/default";
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}});
    let metadata = json!({"name": "a", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a/b"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "u", "blockOwnerDeletion": true}]});
    let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "tolerations": [{"key": "a"}],
        "containers": [{"name": "c", "image": "i", "resources": resources}], "initContainers": [{"name": "d"}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{"state": {"running": {}}}],
        "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "a"}]}});
    let budget = json!({"metadata": metadata, "spec": {"selector": {"matchLabels": {"a": "b"}}},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"b": "t"}, "conditions": [{"type": "a"}]}});
    let set = json!({"metadata": metadata, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {}}},
        "status": {"conditions": [{"type": "a"}]}});
    let places = [
        (format!("{core}/pods"), pod),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(), budget),
        ("/apis/apps.kruise.io/v1beta1/namespaces/default/daemonsets".to_owned(), set),
        ("/api/v1/namespaces".to_owned(), json!({"metadata": metadata, "spec": {"finalizers": ["a"]}})),
        (format!("{core}/events"), json!({"metadata": metadata, "involvedObject": {"name": "b"}})),
    ];
    let mut refused = 0;
    for (path, whole) in &places {
        let one = format!("{path}/a");
        for body in mangled(whole) {
            // Each finds the same: what the last one left is taken away.
            let held = json!({"metadata": {"finalizers": null}});
            send(&server, "PATCH", &one, "application/merge-patch+json", &held);
            send(&server, "DELETE", &one, "application/json", &json!({"gracePeriodSeconds": 0}));
            while server.collect_garbage() {}
            send(&server, "POST", path, "application/json", whole);
            let mut write = |method: &str, path: &str, kind: &str| {
                refused += u32::from(send(&server, method, path, kind, &body) >= 400);
            };
            for kind in ["merge-patch", "strategic-merge-patch", "json-patch"] {
                write("PATCH", &one, &format!("application/{kind}+json"));
                write("PATCH", &format!("{one}/status"), &format!("application/{kind}+json"));
                write("PATCH", &format!("{one}/resize"), &format!("application/{kind}+json"));
            }
            write("PUT", &one, "application/json");
            write("POST", &format!("{one}/eviction"), "application/json");
            write("POST", &format!("{one}/binding"), "application/json");
            write("DELETE", &one, "application/json");
            write("POST", path, "application/json");
            server.collect_garbage();
        }
    }
    assert!(refused > 1000, "{refused}");
}
