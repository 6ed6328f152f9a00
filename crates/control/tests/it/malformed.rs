//! An object that does not parse stops nobody else.

use std::collections::BTreeMap;

use dapple_api::group::NodeGroupSpec;
use dapple_testbed::ClusterSpec;
use dapple_testbed::testing::start;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use crate::support::{eventually, group, group_has, http_get, kubectl_ok, manager, node};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_cannot_be_read_is_reported_and_passed_over() {
    let cluster = start(ClusterSpec::api_server()).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    dapple_control::install::install_crds(&client).await.unwrap();
    // A schema without types stands for an older or a newer one: the API server lets anything pass.
    let anything = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
        "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]);
    let crd = "nodegroups.groupmanagement.kubeedge.io";
    kubectl_ok(&cluster, &["patch", "crd", crd, "--type=json", "-p", &anything.to_string()], "");
    let kind = GroupVersionKind::gvk("groupmanagement.kubeedge.io", "v1alpha1", "NodeGroup");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    eventually("the API server takes a malformed group", || async {
        let bad: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
            "metadata": {"name": "bad"}, "spec": {"nodes": "not-a-list"},
        }))
        .unwrap();
        api.create(&PostParams::default(), &bad).await.map_err(|error| error.to_string())
    })
    .await;

    let manager = manager(&cluster, "malformed").await;
    node(&client, "fine", json!({"zone": "1"})).await;
    let spec =
        NodeGroupSpec { match_labels: BTreeMap::from([("zone".into(), "1".into())]), ..NodeGroupSpec::default() };
    group(&client, "good", spec).await;
    group_has(&client, "good", &["fine"]).await;

    let events = Api::<Event>::namespaced(client.clone(), "default");
    let note = eventually("an event tells about the bad group", || async {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let about = all.items.into_iter().find(|event| {
            event.reason.as_deref() == Some("Malformed")
                && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some("bad")
        });
        about.and_then(|event| event.note).ok_or_else(|| "no event".to_owned())
    })
    .await;
    assert!(note.contains("NodeGroup") && note.contains("spec.nodes: ") && note.contains("must be a list"), "{note}");
    eventually("it is counted", || async {
        let (_, metrics) = http_get(manager.address, "/metrics").await?;
        let is_counted = metrics.contains("dapple_malformed_objects_total{kind=\"NodeGroup\"}");
        if is_counted { Ok(()) } else { Err(metrics) }
    })
    .await;
    drop(manager);
    cluster.stop().await.unwrap();
}
