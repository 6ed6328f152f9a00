//! One watch of each kind in a manager, whatever of it reads the kind: counted by a real API server.

use std::collections::{BTreeMap, BTreeSet};

use dapple_api::kinds::{self, KindInfo};
use dapple_control::families;
use dapple_control::family::Family;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use rustix::process::Signal;

use crate::support::{Manager, eventually, leads};
use crate::webhooks::Hooked;

/// By resource and group: how many watches the API server serves.
async fn watches(client: &Client) -> BTreeMap<String, i64> {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let mut watches = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_longrunning_requests{")) {
        let (labels, count) = line.rsplit_once("} ").unwrap();
        let label = |name: &str| {
            let value = labels.split(',').find_map(|label| label.strip_prefix(&format!("{name}=\"")));
            value.map(|value| value.trim_end_matches('"').to_owned()).unwrap_or_default()
        };
        if label("verb") == "WATCH" {
            *watches.entry(format!("{}.{}", label("resource"), label("group"))).or_default() +=
                count.parse::<f64>().unwrap() as i64;
        }
    }
    watches
}

/// Waits until there are so many watches of these kinds more than before, and of no other more than one for each manager.
async fn are(client: &Client, before: &BTreeMap<String, i64>, kinds: &BTreeSet<String>, count: i64, managers: i64) {
    eventually(&format!("{count} watches of each of {kinds:?}"), || async {
        let mut more = watches(client).await;
        more.iter_mut().for_each(|(kind, count)| *count -= before.get(kind).copied().unwrap_or_default());
        let is_so = kinds.iter().all(|kind| more.get(kind).copied().unwrap_or_default() == count);
        if is_so && more.values().all(|count| *count <= managers) { Ok(()) } else { Err(format!("{more:?}")) }
    })
    .await;
}

/// What the API server calls a kind here.
fn named(kind: &KindInfo) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

/// What a manager with all families and webhooks reads: what families say, what webhooks look at besides, and CRDs.
fn all() -> BTreeSet<String> {
    let reads = families::ALL.into_iter().flat_map(Family::controllers).flat_map(|controller| controller.reads);
    let besides = [kinds::NODE_POOL.at, kinds::REPLACEMENT.at, kinds::CUSTOM_RESOURCE_DEFINITION];
    reads.chain(&besides).map(named).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_watched_once_whoever_reads_it() {
    let hooked = Hooked::start().await;
    let client = &hooked.client;
    let before = watches(client).await;
    let mut leader = hooked.replica_with(0, &[]);
    hooked.asked().await;
    are(client, &before, &all(), 1, 1).await;
    leads(client, &leader).await;
    let mut standby = hooked.replica_with(1, &[]);
    are(client, &before, &all(), 2, 2).await;
    leader.signal(Signal::TERM);
    assert!(leader.wait().success(), "{}", leader.log_text());
    leads(client, &standby).await;
    are(client, &before, &all(), 1, 1).await;
    standby.signal(Signal::TERM);
    assert!(standby.wait().success(), "{}", standby.log_text());
    are(client, &before, &all(), 0, 0).await;

    // A family that goes off leaves none; one that comes back has its own again.
    let groups = Manager::with(
        &hooked.kubeconfig,
        hooked.cluster.log("groups"),
        &["--listen", "127.0.0.1:0", "--families", "group"],
    );
    let read: BTreeSet<String> = families::GROUP.controllers().flat_map(|of| of.reads).map(named).collect();
    are(client, &before, &read, 1, 1).await;
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    crds.delete("nodegroups.groupmanagement.kubeedge.io", &DeleteParams::default()).await.unwrap();
    // CRDs are watched on, so that it comes back.
    are(client, &before, &read, 0, 1).await;
    dapple_control::install::install_crds(client).await.unwrap();
    are(client, &before, &read, 1, 1).await;
    drop(groups);
    hooked.cluster.stop().await.unwrap();
}
