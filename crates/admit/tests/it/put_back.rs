//! Writes to workloads of applications in pools, as one replica answers by what it knows of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_admit::pool::Workloads;
use dapple_api::pool::{SubjectKind, YurtAppConfigurationReplacement, YurtAppSetSpec};
use dapple_control::metrics::Metrics;
use dapple_control::pool::Blueprints;
use dapple_plan::pool::version::{Application, InForce, Version};
use dapple_plan::pool::workload::render;
use http::{Request, Response};
use k8s_openapi::ByteString;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::caches;

const MANAGER: &str = "system:serviceaccount:dapple-system:dapple-manager";

/// A cluster that lists these objects by the plurals of their kinds, and tells of no change.
fn api_server(objects: BTreeMap<&'static str, Value>) -> Client {
    let objects = Arc::new(objects);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let plural = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (code, answer) = match objects.get(plural.as_str()) {
            Some(_) if is_watch => {
                (503, json!({"kind": "Status", "apiVersion": "v1", "code": 503, "message": "not now"}))
            }
            Some(items) => {
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
            }
            None => (404, json!({"kind": "Status", "apiVersion": "v1", "code": 404, "message": "there are none"})),
        };
        let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
        std::future::ready(answer)
    });
    Client::new(service, "default")
}

fn spec() -> Value {
    let pods = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let workload = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pods}});
    json!({"selector": {"matchLabels": {"app": "web"}}, "workloadTemplate": {"deploymentTemplate": workload},
        "topology": {"pools": [{"name": "edge"}, {"name": "core"}]}})
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "default", "uid": format!("of-{name}"), "resourceVersion": "1", "generation": 1})
}

fn replacements() -> Value {
    json!([{"pools": ["edge"], "items": [{"image": {"containerName": "c", "imageClaim": "c:2"}}]}])
}

/// An application, its replacement, and no other kinds of objects.
fn cluster(annotations: Value) -> Client {
    let mut of_web = metadata("web");
    of_web["annotations"] = annotations;
    let set =
        json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "metadata": of_web, "spec": spec()});
    let replacement = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
        "metadata": metadata("far"), "subject": {"kind": "YurtAppSet", "name": "web"}, "replacements": replacements()});
    api_server(BTreeMap::from([
        ("yurtappsets", json!([set])),
        ("yurtappconfigurationreplacements", json!([replacement])),
        ("controllerrevisions", json!([])),
        ("nodepools", json!([])),
    ]))
}

/// The workload that the pool `edge` has.
fn workload() -> Value {
    let spec: YurtAppSetSpec = serde_json::from_value(spec()).unwrap();
    let replacements = serde_json::from_value(replacements()).unwrap();
    let version = Version::of_set(&spec, Some(InForce { name: "far".to_owned(), replacements }));
    let application = Application {
        kind: SubjectKind::YurtAppSet,
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        uid: "of-web".to_owned(),
        selector: spec.selector.clone(),
        history_limit: 10,
    };
    render(&application, &version, "edge", &[]).unwrap().new_workload("web-edge-xxxxx", "r1", &BTreeMap::new())
}

fn stray(old: &Value) -> Value {
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("stray:1");
    new
}

/// The object as it is taken, and what is told.
fn taken(workloads: &Workloads, user: &str, (old, new): (&Value, &Value)) -> (Value, Value) {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "name": "web-edge-xxxxx",
        "namespace": "default", "operation": "UPDATE", "userInfo": {"username": user}, "object": new, "oldObject": old}});
    let answer = workloads.answer(review.to_string().as_bytes()).unwrap();
    let response = &answer["response"];
    assert_eq!(response["allowed"], true, "nothing is refused: {answer}");
    let mut taken = new.clone();
    if response["patch"].is_string() {
        let patch: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        json_patch::patch(&mut taken, &patch).unwrap();
    }
    (taken, response["warnings"].clone())
}

/// A replica that knows this cluster, or soon will.
fn replica(client: Client, stop: &CancellationToken) -> Workloads {
    let blueprints = Arc::new(Blueprints::start(&caches(client, stop), stop));
    let own = Arc::new(std::sync::OnceLock::from(MANAGER.to_owned()));
    Workloads { blueprints, own, metrics: Arc::new(Metrics::new()) }
}

#[tokio::test(start_paused = true)]
async fn a_replica_puts_back_what_it_knows_better_and_nothing_else() {
    let stop = CancellationToken::new();
    let replica = replica(cluster(json!({})), &stop);
    let old = workload();
    let new = stray(&old);
    let change = (&old, &new);
    assert_eq!(taken(&replica, "ann", change), (new.clone(), Value::Null), "it has read nothing yet");
    let mut tries = 0..600;
    while taken(&replica, "ann", change).0 != old {
        assert!(tries.next().is_some(), "it has had time to read everything");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (_, warnings) = taken(&replica, "ann", change);
    let wanted = "edit YurtAppConfigurationReplacement default/far replacements[0].items[0] instead; put back here: \
                  spec.template.spec.containers[name=c].image";
    assert_eq!(warnings, json!([wanted]));
    assert_eq!(taken(&replica, MANAGER, change).0, new, "the manager writes what it means");

    // Of an application that was deleted and made anew, and of one that is nobody's.
    for (field, value) in [("uid", "another"), ("name", "another"), ("kind", "Other"), ("apiVersion", "apps/v1")] {
        let mut others = old.clone();
        others["metadata"]["ownerReferences"][0][field] = json!(value);
        let stray = stray(&others);
        assert_eq!(taken(&replica, "ann", (&others, &stray)), (stray.clone(), Value::Null), "{field}");
    }

    let mut replacement: YurtAppConfigurationReplacement = serde_json::from_value(json!({
        "metadata": {"name": "far"}, "subject": {"kind": "YurtAppSet", "name": "web"},
        "replacements": [{"pools": "*", "items": [{"image": {"containerName": "none", "imageClaim": "c:2"}}]}]}))
    .unwrap();
    let told = replica.blueprints.judge("default", &replacement);
    assert!(told.is_ok() && told.warnings.len() == 1, "{told:?}");
    assert!(told.warnings[0].ends_with("nothing is changed in edge, core"), "{told:?}");
    replacement.subject.name = "another".to_owned();
    assert!(replica.blueprints.judge("default", &replacement).warnings.is_empty(), "it waits for its application");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_put_back_while_an_application_is_suspended() {
    let stop = CancellationToken::new();
    let replica = replica(cluster(json!({"dapple.dev/suspend": "true"})), &stop);
    let replacement: YurtAppConfigurationReplacement = serde_json::from_value(json!({
        "metadata": {"name": "far"}, "subject": {"kind": "YurtAppSet", "name": "web"},
        "replacements": [{"pools": "*", "items": [{"image": {"containerName": "none", "imageClaim": "c:2"}}]}]}))
    .unwrap();
    let mut tries = 0..600;
    while replica.blueprints.judge("default", &replacement).warnings.is_empty() {
        assert!(tries.next().is_some(), "it has had time to read the application");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Time for all the rest.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let old = workload();
    let new = stray(&old);
    assert_eq!(taken(&replica, "ann", (&old, &new)), (new.clone(), Value::Null));
    stop.cancel();
}
