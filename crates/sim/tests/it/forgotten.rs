//! Watches and pages whose versions are forgotten: a real server forgets when it likes, so it cannot be asked.

use dapple_sim::server::{Answer, Server, Watch};
use http::Request;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn server() -> Server {
    Server::new(|| jiff::Timestamp::from_second(1_800_000_000).unwrap(), 1)
}

fn send(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match server.answer(&Request::builder().method(method).uri(path).body(body).unwrap()) {
        Answer::Whole(response) => (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap()),
        Answer::Watch(_) => panic!("{path} is a watch"),
    }
}

fn watch(server: &Server, query: &str) -> Watch {
    let request = Request::get(format!("{LEASES}?watch=1&{query}")).body(Vec::new()).unwrap();
    match server.answer(&request) {
        Answer::Watch(watch) => watch,
        Answer::Whole(response) => panic!("{response:?}"),
    }
}

fn create(server: &Server, name: &str) -> u64 {
    let (code, made) = send(server, "POST", LEASES, &json!({"metadata": {"name": name}}));
    assert_eq!(code, 201, "{made}");
    made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Type and name of the next event.
fn next(watch: &mut Watch) -> Option<(String, String)> {
    let line = watch.next()?;
    assert_eq!(line.bytes.last(), Some(&b'\n'));
    let event: Value = serde_json::from_slice(&line.bytes).unwrap();
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    Some((event["type"].as_str().unwrap().to_owned(), name.to_owned()))
}

fn event(kind: &str, name: &str) -> Option<(String, String)> {
    Some((kind.to_owned(), name.to_owned()))
}

#[test]
fn a_watch_that_kept_up_goes_on_and_one_that_did_not_ends() {
    let server = server();
    let from = format!("resourceVersion={}", create(&server, "a"));
    let (mut quick, mut slow) = (watch(&server, &from), watch(&server, &from));
    create(&server, "b");
    assert_eq!(next(&mut quick), event("ADDED", "b"));
    assert_eq!(next(&mut quick), None);
    server.compact();
    create(&server, "c");
    assert_eq!(next(&mut quick), event("ADDED", "c"));
    let line = slow.next().unwrap();
    let said: Value = serde_json::from_slice(&line.bytes).unwrap();
    assert_eq!((&said["type"], &said["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(line.is_last);
    assert_eq!(slow.next(), None);
    assert_eq!(server.changes_since(0).len(), 6, "those who check see everything");
}

#[test]
fn bookmarks_tell_how_far_a_watch_has_come() {
    let server = server();
    create(&server, "a");
    let mut all = watch(&server, "allowWatchBookmarks=true&timeoutSeconds=7");
    assert_eq!(all.bookmark(), None, "not before what there is");
    assert_eq!(next(&mut all), event("ADDED", "a"));
    assert_eq!(all.bookmark().unwrap().version, server.version());
    let (code, _) = send(&server, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    assert_eq!((code, next(&mut all)), (201, None));
    let line = all.bookmark().unwrap();
    let said: Value = serde_json::from_slice(&line.bytes).unwrap();
    assert_eq!((&said["type"], &said["object"]["kind"]), (&json!("BOOKMARK"), &json!("Lease")));
    assert_eq!(said["object"]["metadata"]["resourceVersion"], json!(server.version().to_string()));
    assert_eq!((all.timeout().as_secs(), all.resource()), (7, "leases.coordination.k8s.io"));
    assert_eq!(watch(&server, "").bookmark(), None, "nobody asked");
}

#[test]
fn pages_of_a_forgotten_version_can_be_continued_otherwise() {
    let server = server();
    ["a", "b", "c"].iter().for_each(|name| _ = create(&server, name));
    let (_, first) = send(&server, "GET", &format!("{LEASES}?limit=1"), &Value::Null);
    create(&server, "d");
    server.compact();
    let proceed =
        |from: &Value| format!("{LEASES}?limit=5&continue={}", from["metadata"]["continue"].as_str().unwrap());
    let (code, refused) = send(&server, "GET", &proceed(&first), &Value::Null);
    assert_eq!((code, &refused["reason"]), (410, &json!("Expired")));
    let (code, rest) = send(&server, "GET", &proceed(&refused), &Value::Null);
    let names: Vec<&Value> = rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!((code, json!(names)), (200, json!(["b", "c", "d"])));
}

#[tokio::test]
async fn a_watch_is_woken_by_any_write() {
    let server = server();
    let mut watch = watch(&server, "");
    let waiting = tokio::spawn(async move {
        watch.changed().await;
        next(&mut watch)
    });
    tokio::task::yield_now().await;
    create(&server, "a");
    assert_eq!(waiting.await.unwrap(), event("ADDED", "a"));
}
