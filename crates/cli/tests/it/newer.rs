//! A field that is newer than dapple: its tables do not know it, and whether the cluster does is for the cluster to say.

use std::sync::Arc;

use dapple_admit::ask::Asker;
use dapple_admit::daemonset::DaemonSets;
use dapple_api::daemonset::DaemonSet;
use dapple_api::verdict::Verdict;
use dapple_plan::census::Census;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A field that nobody knows today.
const NEWER: &str = "fieldOfNextYear";
/// The field that plays it.
const PLAYED_BY: &str = "hostnameOverride";

/// The real API server as it will be next year: it knows the newer field, and looks at what is in it.
fn of_next_year(client: Client) -> Client {
    let renamed = |bytes: &[u8], from: &str, to: &str| String::from_utf8_lossy(bytes).replace(from, to).into_bytes();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = renamed(&body.collect_bytes().await?, NEWER, PLAYED_BY);
            let (parts, body) = client.send(Request::from_parts(parts, body.into())).await?.into_parts();
            let body = renamed(&body.collect_bytes().await?, PLAYED_BY, NEWER);
            Ok::<_, kube::Error>(Response::from_parts(parts, Body::from(body)))
        }
    });
    Client::new(service, "default")
}

/// What is to be said of a set whose pods, and those of a patch, have this in the newer field.
async fn judged(client: Client, of_template: &Value, of_patch: &Value) -> Verdict {
    let disk = "node-restriction.kubernetes.io/disk";
    let mut census = Census::default();
    census.put("a", [(Arc::from(disk), Arc::from("large"))]);
    census.put("b", []);
    let pods = json!({NEWER: of_template, "containers": [{"name": "c", "image": "c:1"}]});
    let set: DaemonSet = serde_json::from_value(json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "DaemonSet",
        "metadata": {"name": "agent"}, "spec": {
            "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": pods},
            "patches": [{"selector": {"matchLabels": {disk: "large"}}, "patch": {"spec": {NEWER: of_patch}}}]}}))
    .unwrap();
    let sets = DaemonSets::new(Arc::new(Asker::new(client, "default".to_owned())));
    sets.judge(&set, None, |selectors| census.classes(selectors)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_newer_than_our_tables_is_taken_where_the_cluster_knows_it() {
    let cluster = dapple_testbed::shared().await.unwrap();
    let today = cluster.client().await.unwrap();
    let next_year = of_next_year(today.clone());
    let fields = |verdict: &Verdict| verdict.errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>();
    let of_template = format!("spec.template.spec.{NEWER}");
    let of_patch = format!("spec.patches[0].patch.spec.{NEWER}");

    let (one, other, wrong) = (json!("one"), json!("other"), json!("Not A Name"));
    assert_eq!(judged(next_year.clone(), &one, &other).await, Verdict::default());
    // The patch's value is what pods get: it is the one that is looked at.
    assert_eq!(fields(&judged(next_year.clone(), &one, &wrong).await), [of_patch.as_str()]);
    assert_eq!(fields(&judged(next_year, &wrong, &other).await), [of_template.as_str()]);

    let verdict = judged(today, &one, &other).await;
    assert_eq!(fields(&verdict), [of_template, of_patch]);
    assert!(verdict.errors.iter().all(|error| error.text == "there is no such field"), "{verdict:?}");
}
