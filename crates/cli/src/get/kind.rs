//! The kinds that `dapple get` shows, and how each is read and shown.

use dapple_api::daemonset::DaemonSet;
use dapple_api::marker::PodMarker;
use dapple_api::pool::{NodePool, YurtAppConfigurationReplacement, YurtAppDaemon, YurtAppSet};
use dapple_plan::pool::object::ApplicationObject;
use dapple_view::daemonset::{self, DaemonSetView, PodFacts};
use dapple_view::marker::{self, MarkerView};
use dapple_view::pool::{self, ApplicationView, NodePoolView, ReplacementView};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::DynamicObject;
use serde::Serialize;

use crate::reach::typed;

/// Namespace and name.
pub(super) type Key = (String, String);

/// A kind that is shown.
pub(super) trait Shown {
    /// What is read of an object.
    type Object;
    /// What is shown of it.
    type View: Serialize + Clone + PartialEq;
    /// Whether pods are shown beside its objects.
    const HAS_PODS: bool = false;
    /// Reads an object.
    fn read(object: &DynamicObject) -> anyhow::Result<Self::Object>;
    /// What selects its pods, if they are shown.
    fn selector(_: &Self::Object) -> Option<&LabelSelector> {
        None
    }
    /// What selects its pods, if something is to be said of them beside this view.
    fn pods_beside<'o>(_: &'o Self::Object, _: &Self::View) -> Option<&'o LabelSelector> {
        None
    }
    /// The view of an object and its pods at a moment.
    fn view(object: &Self::Object, pods: &[PodFacts], now: Timestamp) -> Self::View;
    /// The views in a table.
    fn table(views: &[Self::View], colour: bool, wide: bool) -> String;
    /// Which object a view is of.
    fn key(view: &Self::View) -> Key;
}

/// DaemonSets of apps.kruise.io.
pub(super) struct DaemonSets;

impl Shown for DaemonSets {
    type Object = DaemonSet;
    type View = DaemonSetView;
    const HAS_PODS: bool = true;

    fn read(object: &DynamicObject) -> anyhow::Result<DaemonSet> {
        typed(object)
    }

    fn selector(set: &DaemonSet) -> Option<&LabelSelector> {
        Some(&set.spec.selector)
    }

    fn pods_beside<'o>(set: &'o DaemonSet, view: &DaemonSetView) -> Option<&'o LabelSelector> {
        let is_whole = view.done && view.counts.available == view.counts.desired;
        (!is_whole).then_some(&set.spec.selector)
    }

    fn view(set: &DaemonSet, pods: &[PodFacts], now: Timestamp) -> DaemonSetView {
        DaemonSetView::new(set, pods, now)
    }

    fn table(views: &[DaemonSetView], colour: bool, wide: bool) -> String {
        daemonset::table(views, colour, wide)
    }

    fn key(view: &DaemonSetView) -> Key {
        (view.namespace.clone(), view.name.clone())
    }
}

/// Markers of pods.
pub(super) struct PodMarkers;

impl Shown for PodMarkers {
    type Object = PodMarker;
    type View = MarkerView;

    fn read(object: &DynamicObject) -> anyhow::Result<PodMarker> {
        typed(object)
    }

    fn view(marker: &PodMarker, _: &[PodFacts], now: Timestamp) -> MarkerView {
        MarkerView::new(marker, now)
    }

    fn table(views: &[MarkerView], colour: bool, wide: bool) -> String {
        marker::table(views, colour, wide)
    }

    fn key(view: &MarkerView) -> Key {
        (view.namespace.clone(), view.name.clone())
    }
}

/// Pools of nodes.
pub(super) struct NodePools;

impl Shown for NodePools {
    type Object = NodePool;
    type View = NodePoolView;

    fn read(object: &DynamicObject) -> anyhow::Result<NodePool> {
        typed(object)
    }

    fn view(pool: &NodePool, _: &[PodFacts], now: Timestamp) -> NodePoolView {
        NodePoolView::new(pool, now)
    }

    fn table(views: &[NodePoolView], colour: bool, wide: bool) -> String {
        pool::node_pools(views, colour, wide)
    }

    fn key(view: &NodePoolView) -> Key {
        (String::new(), view.name.clone())
    }
}

/// A kind of applications in pools.
macro_rules! applications {
    ($(#[$about:meta])* $name:ident, $kind:ty) => {
        $(#[$about])*
        pub(super) struct $name;

        impl Shown for $name {
            type Object = ApplicationObject;
            type View = ApplicationView;

            fn read(object: &DynamicObject) -> anyhow::Result<ApplicationObject> {
                Ok(typed::<$kind>(object)?.into())
            }

            fn view(application: &ApplicationObject, _: &[PodFacts], now: Timestamp) -> ApplicationView {
                ApplicationView::new(application, now)
            }

            fn table(views: &[ApplicationView], colour: bool, wide: bool) -> String {
                pool::applications(views, colour, wide)
            }

            fn key(view: &ApplicationView) -> Key {
                (view.namespace.clone(), view.name.clone())
            }
        }
    };
}

applications! {
    /// Applications in pools that they name.
    YurtAppSets, YurtAppSet
}
applications! {
    /// Applications in pools that they select.
    YurtAppDaemons, YurtAppDaemon
}

/// Replacements for applications.
pub(super) struct Replacements;

impl Shown for Replacements {
    type Object = YurtAppConfigurationReplacement;
    type View = ReplacementView;

    fn read(object: &DynamicObject) -> anyhow::Result<YurtAppConfigurationReplacement> {
        typed(object)
    }

    fn view(replacement: &YurtAppConfigurationReplacement, _: &[PodFacts], now: Timestamp) -> ReplacementView {
        ReplacementView::new(replacement, now)
    }

    fn table(views: &[ReplacementView], colour: bool, _: bool) -> String {
        pool::replacements(views, colour)
    }

    fn key(view: &ReplacementView) -> Key {
        (view.namespace.clone(), view.name.clone())
    }
}
