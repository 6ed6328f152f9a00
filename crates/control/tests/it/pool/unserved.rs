//! Where another product serves a kind of applications, nothing is done for it, and replacements for it say so.

use dapple_control::install::install_crds;
use dapple_testbed::ClusterSpec;
use dapple_testbed::testing::start;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use super::story::QUIET;
use crate::support::{eventually, kubectl_ok, manager};

const CRD: &str = "yurtappsets.apps.openyurt.io";

#[tokio::test(flavor = "multi_thread")]
async fn replacements_for_what_another_product_serves_say_so() {
    let cluster = start(ClusterSpec::api_server()).await.expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    install_crds(&client).await.unwrap();
    let owner = |name: &str| {
        let label = format!("app.kubernetes.io/managed-by={name}");
        kubectl_ok(&cluster, &["label", "crd", CRD, &label, "--overwrite"], "");
    };
    owner("another-product");
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    let application = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppSet", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "workloadTemplate": {"deploymentTemplate": template},
            "topology": {"pools": [{"name": "beijing"}]}}});
    let replacement = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigurationReplacement",
        "metadata": {"name": "web"}, "subject": {"kind": "YurtAppSet", "name": "web"},
        "replacements": [{"pools": "*", "items": [{"replicas": 0}]}]});
    for object in [application, replacement] {
        kubectl_ok(&cluster, &["create", "-n", "default", "-f", "-"], &object.to_string());
    }
    let kind = GroupVersionKind::gvk("apps.openyurt.io", "v1alpha1", "YurtAppConfigurationReplacement");
    let replacements = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind));
    let says = async |reason: &str| {
        eventually(&format!("it says {reason}"), || async {
            let found = replacements.get("web").await.map_err(|error| error.to_string())?;
            let told = found.data["status"]["conditions"][0].clone();
            if told["reason"] == reason { Ok(told["message"].to_string()) } else { Err(told.to_string()) }
        })
        .await
    };
    let manager = manager(&cluster, "pool-unserved").await;
    let message = says("NotServed").await;
    assert!(message.contains(&format!("the CRD {CRD} belongs to another product")), "{message}");
    tokio::time::sleep(QUIET).await;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "default");
    assert_eq!(deployments.list(&ListParams::default()).await.unwrap().items.len(), 0, "nothing is made");

    owner("dapple");
    says("RollingOut").await;
    eventually("its workload is made", || async {
        let found = deployments.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if found == 1 { Ok(()) } else { Err(format!("{found} are there")) }
    })
    .await;
    drop(manager);
    cluster.stop().await.unwrap();
}
