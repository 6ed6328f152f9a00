//! One manager leads; when it dies, sleeps or leaves, another takes over, and nothing the first still does counts.

use dapple_api::kinds::NATIVE;
use http::StatusCode;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use crate::proxy::{Proxy, kubeconfig};
use crate::support::{MANAGER_USER, Manager, eventually, group, group_has, leads, lease, node, own_api_server};

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_killed_leader() {
    let (cluster, client) = own_api_server().await;
    // With the permissions of production, no more.
    let config = cluster.kubeconfig_for(MANAGER_USER, &[]).await.unwrap();
    let first = Manager::start(&config, cluster.log("first"));
    leads(&client, &first).await;
    let mut second = Manager::start(&config, cluster.log("second"));
    node(&client, "a", "1").await;
    group(&client, "g", "1").await;
    group_has(&client, "g", &["a"]).await;

    first.signal(Signal::KILL);
    node(&client, "b", "1").await;
    leads(&client, &second).await;
    group_has(&client, "g", &["a", "b"]).await;
    assert_eq!(lease(&client).await.lease_transitions, Some(1));

    // A leader that is asked to stop gives the lease back, so the next need not wait.
    second.signal(Signal::TERM);
    assert!(second.wait().success(), "{}", second.log_text());
    assert_eq!(lease(&client).await.holder_identity.as_deref(), Some(""));
    // Whoever may write the record keeps nobody from leading for longer than a lease lasts.
    let forged = json!({"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": i32::MAX,
        "acquireTime": "2100-01-01T00:00:00.000000Z", "renewTime": "2100-01-01T00:00:00.000000Z"}});
    let leases = Api::<Lease>::namespaced(client.clone(), "dapple-system");
    leases.patch("dapple-manager", &PatchParams::default(), &Patch::Merge(forged)).await.unwrap();
    let third = Manager::start(&config, cluster.log("third"));
    leads(&client, &third).await;
    let taken = lease(&client).await;
    assert_eq!(taken.lease_duration_seconds, Some(15), "{taken:?}");
    drop((first, second, third));
    cluster.stop().await.unwrap();
}

/// The leader decides, sends, and is stopped; its write is under way in the network. Another leads and writes. Then the
/// late write arrives, and the first leader wakes up.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_of_a_deposed_leader_changes_nothing() {
    let (cluster, client) = own_api_server().await;
    let (proxy, address) = Proxy::start(client.clone()).await;
    let first = Manager::start(&kubeconfig(cluster.dir(), address), cluster.log("first"));
    leads(&client, &first).await;
    node(&client, "a", "1").await;
    group(&client, "g", "1").await;
    group_has(&client, "g", &["a"]).await;
    let second = Manager::start(cluster.admin_kubeconfig(), cluster.log("second"));
    eventually("the standby has its caches", || async {
        let log = second.log_text();
        // Of nodes, groups, DaemonSets, revisions, pods and CRDs, of two kinds of policies, of what may ask for them, and of the
        // list of other kinds that may.
        if log.matches("first full view").count() == 9 + NATIVE.len() { Ok(()) } else { Err(log) }
    })
    .await;

    proxy.hold();
    node(&client, "b", "1").await;
    proxy.held().await;
    first.signal(Signal::STOP);
    Api::<Node>::all(client.clone()).delete("b", &DeleteParams::default()).await.unwrap();
    node(&client, "c", "1").await;
    leads(&client, &second).await;
    let right = group_has(&client, "g", &["a", "c"]).await;

    let writes_before = proxy.writes().len();
    proxy.release();
    eventually("the late write is answered", || async {
        let writes = proxy.writes();
        if writes.len() > writes_before { Ok(()) } else { Err(format!("{writes:?}")) }
    })
    .await;
    let (path, answer) = proxy.writes().pop().unwrap();
    assert!(path.ends_with("/nodegroups/g/status"), "{path}");
    assert_eq!(answer, StatusCode::CONFLICT);

    first.signal(Signal::CONT);
    eventually("the first notices that it is deposed", || async {
        let log = first.log_text();
        if log.contains("no longer leading") { Ok(()) } else { Err(log) }
    })
    .await;
    // It sees this node too, and leaves it to the leader.
    node(&client, "d", "1").await;
    let after = group_has(&client, "g", &["a", "c", "d"]).await;
    assert_eq!(proxy.writes().len(), writes_before + 1, "it wrote after it was deposed: {:?}", proxy.writes());
    assert_eq!(after.metadata.uid, right.metadata.uid, "it is the same object");
    leads(&client, &second).await;
    drop((first, second));
    cluster.stop().await.unwrap();
}
