//! How the pods of an application stand, as repair goes by it.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::kinds::KindInfo;
use dapple_plan::group::costs::seat_of;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::{GATE, is_for_group};
use dapple_plan::group::repair::PodState;
use dapple_plan::group::standing::PROTECTED;
pub(super) use dapple_plan::group::standing::is_rolling_out;
use dapple_plan::health::Health;

use super::application::{Applications, Asking};
use super::owner::{is_gated, is_live, number_label, ordinal};
use super::seated::Stores;
use super::turns::Availability;
use crate::caches::store::Store;
use crate::slim::Pod;

/// What pods are held against.
pub(super) struct Standing<'a> {
    pub(super) stores: &'a Stores,
    pub(super) division: &'a Division,
    /// The number of the first pod, where pods have numbers.
    pub(super) start: usize,
    pub(super) available: Availability,
}

/// The UIDs of what may control pods of an application: itself, and what it controls.
pub(super) fn owners_of_pods(applications: &Applications, asking: &Asking) -> Vec<Arc<str>> {
    let mut owners = applications.owned_by(asking);
    owners.push(asking.meta.uid.clone());
    owners
}

/// All live pods of an application.
pub(super) fn pods_of_application(
    applications: &Applications,
    pods: &Store<Pod>,
    namespace: &str,
    asking: &Asking,
) -> Vec<Arc<Pod>> {
    live_pods_of(pods, namespace, &owners_of_pods(applications, asking))
}

/// All live pods that some workloads control.
pub(super) fn live_pods_of(pods: &Store<Pod>, namespace: &str, owners: &[Arc<str>]) -> Vec<Arc<Pod>> {
    let found = owners.iter().flat_map(|uid| pods.find(Pod::BY_OWNER, uid));
    found.filter(|pod| is_live(pod) && *pod.meta.key.namespace == *namespace).collect()
}

/// A pod, as repair goes by it. `kind` is that of its owner.
pub(super) fn state_of(standing: &Standing<'_>, kind: Option<KindInfo>, pod: &Pod) -> PodState {
    let groups = standing.division.groups();
    let number_of = |group: &str| groups.iter().position(|known| known.eq_ignore_ascii_case(group));
    let said = pod.labels.get(GATE);
    let near = if said.is_some() { BTreeSet::new() } else { standing.stores.groups_of(pod, groups) };
    let number = kind.and_then(|kind| pod.labels.get(number_label(kind.kind)?));
    PodState {
        name: pod.meta.key.name.clone(),
        group: said.and_then(number_of),
        near: near.iter().filter_map(|group| number_of(group)).collect(),
        ordinal: number.and_then(|number| ordinal(number, standing.start)),
        seat: seat_of(&pod.annotations),
        is_available: standing.available.has(pod),
        is_gated: is_gated(pod),
        is_protected: is_protected(pod),
        is_stale: is_stale(standing.stores, pod),
        reach: None,
    }
}

/// Whether a pod that was placed has no node, and waits for others than its group has by now.
pub(super) fn is_stale(stores: &Stores, pod: &Pod) -> bool {
    let said = pod.labels.get(GATE).filter(|_| !pod.is_bound && !is_gated(pod));
    let selector = said.and_then(|group| stores.selector(&group.to_ascii_lowercase()));
    selector.is_some_and(|selector| !is_for_group(&pod.node_selector, &selector))
}

/// Whether somebody has said that a pod must not be evicted.
pub(super) fn is_protected(pod: &Pod) -> bool {
    PROTECTED.iter().any(|(key, value)| pod.annotations.get(key) == Some(value))
}

/// How many pods of an application are leaving nodes that are not well: what was moved or changed last may have made them so.
pub(super) fn stranded(stores: &Stores, owners: &[Arc<str>]) -> usize {
    let pods = owners.iter().flat_map(|uid| stores.pods.find(Pod::BY_OWNER, uid));
    let is_stranded = |pod: &Arc<Pod>| {
        pod.leaving_since.is_some() && stores.node_of(pod).is_some_and(|node| node.health != Health::Ready)
    };
    pods.filter(is_stranded).count()
}
