//! A kind that another product serves is left alone.

use std::collections::BTreeMap;

use dapple_api::group::NodeGroupSpec;
use dapple_control::install::{find_crd, install_crds};
use dapple_testbed::testing::start;
use dapple_testbed::{Cluster, ClusterSpec};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::support::{eventually, group, group_has, http_get, kubectl_ok, manager, node};

const CRD: &str = "nodegroups.groupmanagement.kubeedge.io";

#[tokio::test(flavor = "multi_thread")]
async fn another_products_crd_is_not_touched_and_its_family_stays_off_until_it_is_handed_over() {
    let cluster = start(ClusterSpec::api_server()).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    kubectl_ok(&cluster, &["label", "crd", CRD, "app.kubernetes.io/managed-by=another-product", "--overwrite"], "");
    let before = find_crd(&client, CRD).await.unwrap().unwrap();

    let installed = install_crds(&client).await.unwrap();
    let foreign: Vec<&str> = installed.iter().filter(|crd| crd.foreign).map(|crd| crd.name.as_str()).collect();
    assert_eq!(foreign, [CRD]);
    assert_eq!(find_crd(&client, CRD).await.unwrap().unwrap(), before, "not one byte of it changed");

    // Nobody else makes it here, and pods need it.
    kubectl_ok(&cluster, &["create", "serviceaccount", "default"], "");
    gated(&cluster, "waits");
    let manager = manager(&cluster, "foreign").await;
    eventually("the manager says that the family is off", || async {
        let (_, metrics) = http_get(manager.address, "/metrics").await?;
        let off = metrics.contains("dapple_family_serving{family=\"group\"} 0");
        if off { Ok(()) } else { Err(metrics) }
    })
    .await;
    says_why_it_waits(&client, "waits").await;
    node(&client, "fine", json!({"zone": "1"})).await;
    let spec =
        NodeGroupSpec { match_labels: BTreeMap::from([("zone".into(), "1".into())]), ..NodeGroupSpec::default() };
    group(&client, "theirs", spec).await;
    let groups = kube::Api::<dapple_api::group::NodeGroup>::all(client.clone());
    // A change of the CRD has it looked at once more.
    kubectl_ok(&cluster, &["annotate", "crd", CRD, "example.com/note=theirs"], "");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(groups.get("theirs").await.unwrap().status, None, "theirs is not ours to write");

    kubectl_ok(&cluster, &["label", "crd", CRD, "app.kubernetes.io/managed-by=dapple", "--overwrite"], "");
    group_has(&client, "theirs", &["fine"]).await;
    eventually("the pod is released, since it asks for nothing", || async {
        let pod =
            Api::<Pod>::namespaced(client.clone(), "default").get("waits").await.map_err(|error| error.to_string())?;
        let gates = pod.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        if gates.is_empty() { Ok(()) } else { Err(format!("{gates:?}")) }
    })
    .await;
    eventually("the manager is ready", || async {
        let (status, text) = http_get(manager.address, "/readyz").await?;
        if status == 200 { Ok(()) } else { Err(text) }
    })
    .await;

    kubectl_ok(&cluster, &["label", "crd", CRD, "app.kubernetes.io/managed-by=another-product", "--overwrite"], "");
    eventually("the manager gives the family up", || async {
        let (_, metrics) = http_get(manager.address, "/metrics").await?;
        if metrics.contains("dapple_family_serving{family=\"group\"} 0") { Ok(()) } else { Err(metrics) }
    })
    .await;
    node(&client, "later", json!({"zone": "1"})).await;
    gated(&cluster, "waits-again");
    says_why_it_waits(&client, "waits-again").await;
    kubectl_ok(&cluster, &["label", "crd", CRD, "app.kubernetes.io/managed-by=dapple", "--overwrite"], "");
    group_has(&client, "theirs", &["fine", "later"]).await;
    drop(manager);
    cluster.stop().await.unwrap();
}

/// Makes a pod that waits behind the gate.
fn gated(cluster: &Cluster, name: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "schedulingGates": [{"name": "dapple.dev/group"}], "containers": [{"name": "c", "image": "c:1"}]}});
    kubectl_ok(cluster, &["create", "-n", "default", "-f", "-"], &pod.to_string());
}

/// Waits until an Event says that nobody places a pod, and why.
async fn says_why_it_waits(client: &Client, pod: &str) {
    let events = Api::<Event>::namespaced(client.clone(), "default");
    let said = eventually(&format!("{pod} says why it waits"), || async {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let is_it = |event: &Event| {
            event.involved_object.name.as_deref() == Some(pod) && event.reason.as_deref() == Some("NotServed")
        };
        all.items.into_iter().find(is_it).and_then(|event| event.message).ok_or_else(|| "no event".to_owned())
    })
    .await;
    assert!(said.contains(&format!("the CRD {CRD} belongs to another product")), "{said}");
}
