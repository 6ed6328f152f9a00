//! Markers: labels and annotations on as many pods of a namespace as are asked for, those that match, the preferred ones first.
//!
//! What a marker does is decided in [`dapple_plan::marker`], and what becomes of a pod in [`dapple_edit::marker`]. Pods, nodes, results
//! of probes and probers are told as they change (`subscribe`), each to the markers of its namespace (`site`), which keep how each pod
//! stands to them (`memory`): so an event costs its own bookkeeping. A look (`reconcile`) sends what is to be done (`send`) and tells how
//! it stands (`status`). Nothing is kept from one term to the next.
//!
//! A controller of its own (`probes`) writes what nodes are to probe, by what markers ask for (`askers`).

use std::future::ready;

use dapple_api::kinds;
use futures::future::BoxFuture;

use crate::family::{Controller, ControllerContext, Family, Part};
use crate::worker::started;

mod asked;
mod askers;
mod cache;
mod job;
mod memory;
mod metrics;
mod owners;
mod probes;
mod reconcile;
mod send;
mod site;
mod status;
mod subscribe;
mod view;

use metrics::MarkerMetrics;
use probes::{NodePodProbes, ProbeMetrics};
use reconcile::Markers;

/// The family.
pub const FAMILY: Family = Family {
    name: "marker",
    adoptable: &[],
    parts: &[Part {
        name: "marker",
        needs: &[&kinds::POD_MARKER, &kinds::NODE_POD_PROBE],
        controllers: &[
            Controller {
                reads: &[kinds::POD_MARKER.at, kinds::NODE_POD_PROBE.at, kinds::LEASE, kinds::NODE, kinds::POD],
                start: |context| started(Markers::start(context), context),
            },
            Controller {
                reads: &[kinds::POD_MARKER.at, kinds::NODE_POD_PROBE.at, kinds::NODE, kinds::POD],
                start: |context| started(NodePodProbes::start(context), context),
            },
        ],
        tell_off: nobody_waits,
    }],
    gates: &[],
    register: |metrics| {
        metrics.of_family::<MarkerMetrics>();
        metrics.of_family::<ProbeMetrics>();
    },
};

/// Pods run with the marks that they have.
fn nobody_waits(_: ControllerContext, _: String) -> BoxFuture<'static, ()> {
    Box::pin(ready(()))
}
