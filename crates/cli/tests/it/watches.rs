//! One watch of each kind, in each form that it is read in, in a manager, whatever of it reads the kind: counted by a real API server.

use std::collections::BTreeMap;

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

/// Waits until so many managers watch these kinds, in so many forms each, beside what was watched before, and of no other there is more
/// than one for each manager.
async fn are(client: &Client, before: &BTreeMap<String, i64>, kinds: &Forms, count: i64, managers: i64) {
    eventually(&format!("{count} times the watches of {kinds:?}"), || async {
        let mut more = watches(client).await;
        more.iter_mut().for_each(|(kind, count)| *count -= before.get(kind).copied().unwrap_or_default());
        let is_so = kinds.iter().all(|(kind, forms)| more.get(kind).copied().unwrap_or_default() == forms * count);
        let most = |kind: &String| managers * kinds.get(kind).copied().unwrap_or(1);
        if is_so && more.iter().all(|(kind, count)| *count <= most(kind)) { Ok(()) } else { Err(format!("{more:?}")) }
    })
    .await;
}

/// Kinds, and in how many forms each is read.
type Forms = BTreeMap<String, i64>;

/// These kinds, in one form each.
fn forms<'k>(kinds: impl Iterator<Item = &'k KindInfo>) -> Forms {
    kinds.map(|kind| (named(kind), 1)).collect()
}

/// What the API server calls a kind here.
fn named(kind: &KindInfo) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

/// What a manager with all families and webhooks reads: what families say, what webhooks look at besides, and CRDs.
fn all() -> Forms {
    let reads = families::ALL.into_iter().flat_map(Family::controllers).flat_map(|controller| controller.reads);
    let besides = [kinds::NODE_POOL.at, kinds::REPLACEMENT.at, kinds::CUSTOM_RESOURCE_DEFINITION];
    let mut all = forms(reads.chain(&besides));
    // Groups want the metadata of all of these, and pools the whole of their own.
    all.extend([kinds::NATIVE_DEPLOYMENT, kinds::NATIVE_STATEFUL_SET].map(|native| (named(&native.at), 2)));
    all
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
    let read = forms(families::GROUP.controllers().flat_map(|of| of.reads));
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
