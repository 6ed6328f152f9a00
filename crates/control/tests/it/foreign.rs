//! A kind that another product serves is left alone.

use std::collections::BTreeMap;

use dapple_api::group::NodeGroupSpec;
use dapple_control::install::{find_crd, install_crds};
use dapple_testbed::ClusterSpec;
use dapple_testbed::testing::start;

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

    let manager = manager(&cluster, "foreign").await;
    eventually("the manager says that the family is off", || async {
        let (_, metrics) = http_get(manager.address, "/metrics").await?;
        let off = metrics.contains("dapple_family_serving{family=\"group\"} 0");
        if off { Ok(()) } else { Err(metrics) }
    })
    .await;
    node(&client, "fine", serde_json::json!({"zone": "1"})).await;
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
    node(&client, "later", serde_json::json!({"zone": "1"})).await;
    kubectl_ok(&cluster, &["label", "crd", CRD, "app.kubernetes.io/managed-by=dapple", "--overwrite"], "");
    group_has(&client, "theirs", &["fine", "later"]).await;
    drop(manager);
    cluster.stop().await.unwrap();
}
