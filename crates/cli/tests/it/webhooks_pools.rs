//! Webhooks about pools and the applications in them, asked by a real API server.

use serde_json::{Value, json};

use crate::webhooks::{Hooked, a_pool_with_nodes_is_kept, failed, ok};

#[tokio::test(flavor = "multi_thread")]
async fn pools_with_nodes_stay_and_typos_of_applications_are_refused() {
    let hooked = Hooked::start().await;
    let manager = hooked.replica();
    hooked.asked().await;
    pools_are_kept_when_all_are_deleted_at_once(&hooked).await;
    typos_are_refused_with_their_fields(&hooked);
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

/// Of a collection that is deleted, the API server gives no names beside the objects.
async fn pools_are_kept_when_all_are_deleted_at_once(hooked: &Hooked) {
    a_pool_with_nodes_is_kept(hooked).await;
    let all = http::Request::delete("/apis/apps.openyurt.io/v1beta1/nodepools").body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = hooked.client.request::<Value>(all).await else { panic!("it was deleted") };
    for part in ["NodePool.apps.openyurt.io \"kept\" is invalid", "the pool still has nodes", "from home"] {
        assert!(status.message.contains(part), "{part} in {}", status.message);
    }
    ok(&hooked.kubectl(&["get", "nodepool/kept"], ""));
}

fn application(kind: &str, container: Value, rest: Value) -> Value {
    let mut container = container;
    container["name"] = "c".into();
    container["image"] = "c:1".into();
    let pods = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}});
    let workload = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": pods}});
    let mut object = json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": kind,
        "metadata": {"name": "app", "namespace": "default"}, "spec": {
            "selector": {"matchLabels": {"app": "a"}}, "workloadTemplate": {"deploymentTemplate": workload}}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

fn typos_are_refused_with_their_fields(hooked: &Hooked) {
    let create = |object: &Value| hooked.kubectl(&["apply", "-f", "-"], &object.to_string());
    let of_pool = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let pools = |patch: Value| json!({"topology": {"pools": [{"name": "plain"}, {"name": "kept", "patch": patch}]}});
    let template = "spec.workloadTemplate.deploymentTemplate.spec.template.spec.containers[0]";
    let patch = "spec.topology.pools[1].patch.spec.template.spec.containers[name=c]";
    for (object, wanted) in [
        (
            application("YurtAppDaemon", json!({"envv": []}), json!({"nodepoolSelector": {}})),
            format!("{template}.envv: there is no such field"),
        ),
        (application("YurtAppSet", json!({"envv": []}), json!({})), format!("{template}.envv: there is no such field")),
        (
            application("YurtAppSet", json!({}), pools(of_pool(json!({"name": "c", "envv": []})))),
            format!("{patch}.envv: there is no such field"),
        ),
        (
            application(
                "YurtAppSet",
                json!({}),
                pools(of_pool(json!({"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}))),
            ),
            format!("{patch}.resources.requests"),
        ),
    ] {
        let said = failed(&create(&object));
        assert!(said.contains(&wanted), "{wanted} in {said}");
    }
    let right = application("YurtAppSet", json!({}), pools(of_pool(json!({"name": "c", "env": []}))));
    ok(&create(&right));
    ok(&create(&application("YurtAppDaemon", json!({}), json!({"nodepoolSelector": {}}))));
}
