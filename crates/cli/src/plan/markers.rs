//! What the PodMarkers of files would mark and unmark, by the pods that run.

use std::collections::BTreeMap;

use dapple_api::kinds;
use dapple_api::marker::PodMarker;
use dapple_api::reading::read;
use dapple_plan::marker::rule::Rule;
use dapple_plan::world::name_of;
use dapple_view::marker::MarkerPlanView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;

use super::annotations_applied;
use crate::markers::{add_results, seen};
use crate::sources::{Live, Sources, with_notice};

/// What each marker of the files would do in the cluster.
pub(super) async fn views(live: &Live, sources: &Sources) -> anyhow::Result<Vec<MarkerPlanView>> {
    let mut given: BTreeMap<String, Vec<PodMarker>> = BTreeMap::new();
    for object in sources.manifests.iter().map(|manifest| manifest.value()) {
        let is_marker = kinds::of(object).is_some_and(|(own, _)| own.name == kinds::Name::PodMarker);
        // One that cannot be read is an error of its own, which is told with the others.
        if let Some(marker) = is_marker.then(|| read::<PodMarker>(object).ok()).flatten() {
            given.entry(name_of(object).namespace).or_default().push(marker);
        }
    }
    let mut views = Vec::new();
    for (namespace, markers) in given {
        let notice = format!("reading the pods of the namespace {namespace} ...");
        views.extend(with_notice(&notice, of_namespace(&live.client, &namespace, markers)).await?);
    }
    Ok(views)
}

async fn of_namespace(client: &Client, namespace: &str, given: Vec<PodMarker>) -> anyhow::Result<Vec<MarkerPlanView>> {
    let (mut seen, at) = (seen(client, namespace).await?, Timestamp::now());
    let mut changed = BTreeMap::new();
    for marker in given {
        let name = marker.metadata.name.clone().unwrap_or_default();
        let before = seen.marker(&name);
        let marker = applied(before, marker, at);
        changed.insert(name, before.is_none_or(|before| Rule::of(before) != Rule::of(&marker)));
        seen.add_marker(marker);
    }
    add_results(client, &mut seen).await?;
    let view =
        |(name, changed): (String, bool)| Some(MarkerPlanView::new(namespace, &name, seen.account(&name)?, changed));
    Ok(changed.into_iter().filter_map(view).collect())
}

/// A marker as it is once the files are applied: what a file does not say of it stays. A new one is younger than all others.
fn applied(now: Option<&PodMarker>, mut next: PodMarker, at: Timestamp) -> PodMarker {
    let Some(now) = now else {
        next.metadata.creation_timestamp = Some(Time(at));
        return next;
    };
    let mut marker = now.clone();
    marker.metadata.annotations = Some(annotations_applied(&now.metadata, &next.metadata));
    marker.spec = next.spec;
    marker
}
