//! The same script gives the same bytes.

use dapple_sim::server::{Answer, Change, Server};
use http::Request;
use serde_json::{Value, json};

/// What a server answered, byte by byte, and what it did.
fn run(seed: u64) -> (Vec<Vec<u8>>, Vec<Change>) {
    let server = Server::new(|| jiff::Timestamp::from_second(1_800_000_000).unwrap(), seed);
    let mut said = Vec::new();
    let mut send = |method: &str, path: &str, body: &Value| {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        match server.answer(&request) {
            Answer::Whole(response) => said.push(response.into_body()),
            Answer::Watch(mut watch) => said.extend(std::iter::from_fn(|| watch.next().map(|line| line.bytes))),
        }
    };
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"generateName": "p-", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for _ in 0..5 {
        send("POST", pods, &pod);
    }
    send("POST", pods, &json!({"metadata": {"name": "q"}, "spec": pod["spec"]}));
    send("PATCH", &format!("{pods}/q"), &json!({"metadata": {"labels": {"a": "c"}}}));
    send("PATCH", &format!("{pods}/q/status"), &json!({"status": {"phase": "Running"}}));
    send("GET", &format!("{pods}?limit=2"), &Value::Null);
    send("GET", &format!("{pods}?watch=1"), &Value::Null);
    send("DELETE", &format!("{pods}/q"), &Value::Null);
    send("GET", &format!("{pods}?watch=1&resourceVersion=14"), &Value::Null);
    server.collect_garbage();
    let changes = server.changes_since(0);
    (said, changes)
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (first, second) = (run(7), run(7));
    assert!(first.1.len() > 10);
    assert_eq!(first, second);
    assert_ne!(first.0, run(8).0, "names and UIDs follow from the seed");
}
