//! Webhooks about pools, asked by a real API server.

use dapple_control::install::apply;
use serde_json::{Value, json};

use crate::support::{eventually, text};
use crate::webhooks::{Hooked, ok};

#[tokio::test(flavor = "multi_thread")]
async fn pools_with_nodes_stay() {
    let hooked = Hooked::start().await;
    let manager = hooked.replica();
    hooked.asked().await;
    pools_are_kept_when_all_are_deleted_at_once(&hooked).await;
    drop(manager);
    hooked.cluster.stop().await.unwrap();
}

/// Of a collection that is deleted, the API server gives no names beside the objects.
async fn pools_are_kept_when_all_are_deleted_at_once(hooked: &Hooked) {
    let pool = json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool", "metadata": {"name": "kept"},
        "spec": {"type": "Edge"}});
    apply(&hooked.client, &pool).await.unwrap();
    let home = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "home",
        "labels": {"apps.openyurt.io/nodepool": "kept"}}});
    apply(&hooked.client, &home).await.unwrap();
    eventually("the pool is known to have nodes", || async {
        let said = hooked.kubectl(&["delete", "nodepool/kept", "--dry-run=server"], "");
        if said.status.success() { Err(text(&said.stdout)) } else { Ok(()) }
    })
    .await;
    let all = http::Request::delete("/apis/apps.openyurt.io/v1beta1/nodepools").body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = hooked.client.request::<Value>(all).await else { panic!("it was deleted") };
    for part in ["NodePool.apps.openyurt.io \"kept\" is invalid", "the pool still has nodes", "from home"] {
        assert!(status.message.contains(part), "{part} in {}", status.message);
    }
    ok(&hooked.kubectl(&["get", "nodepool/kept"], ""));
}
