//! What is said and counted of what was done: Events with the reasons of Kubernetes and OpenKruise, and metrics by set.

use std::sync::Arc;

use dapple_plan::daemonset::cell::Act;
use dapple_plan::daemonset::desired::{Unrendered, Variants};
use dapple_plan::fit;
use tokio::time::Instant;

use super::Set;
use super::metrics::PatchMetrics;
use crate::observed::KindWire;
use crate::slim::{Key, Node, Pod, SetWire};
use crate::writes::client::in_words;
use crate::writes::events::{EventType, Recorder, Report};

/// Where to report and count.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) recorder: Arc<Recorder>,
    pub(super) metrics: Arc<PatchMetrics>,
}

impl Reporter {
    /// Says something about a set that somebody should look at.
    pub(super) fn report(&self, set: &Set, reason: &'static str, note: String) {
        self.say(set, (EventType::Warning, "Reconciling", reason), note);
    }

    fn say(&self, set: &Set, (event_type, action, reason): (EventType, &'static str, &'static str), note: String) {
        let (key, uid) = (set.meta.key.clone(), set.meta.uid.to_string());
        self.recorder.report(Report { about: SetWire::KIND, key, uid, event_type, action, reason, note });
    }

    /// Something was done to a pod. `patches`: how many made what it is.
    pub(super) fn say_done(&self, set: &Set, act: Act, pod: &str, patches: usize) {
        let (what, note) = match act {
            Act::Create => (("Creating", "SuccessfulCreate"), format!("Created pod: {pod}")),
            Act::Delete(_) => (("Deleting", "SuccessfulDelete"), format!("Deleted pod: {pod}")),
            Act::Edit => {
                (("Updating", "SuccessfulUpdatePodInPlace"), format!("successfully update pod {pod} in-place"))
            }
            Act::Mark(_) | Act::Gate { .. } | Act::Resize | Act::ClearResize => return,
        };
        self.say(set, (EventType::Normal, what.0, what.1), note);
        if !matches!(act, Act::Delete(_)) {
            self.metrics.applied(&set.meta.key, patches);
        }
    }

    /// A pod that ended is about to be deleted.
    pub(super) fn say_ended(&self, set: &Set, pod: &Pod) {
        let (key, node) = (&pod.meta.key, pod.node.as_deref().unwrap_or_default());
        let (what, how, end) = match &*pod.phase {
            "Succeeded" => ((EventType::Normal, "Deleting", "SucceededDaemonPod"), "succeeded", "delete"),
            _ => ((EventType::Warning, "Deleting", "FailedDaemonPod"), "failed", "kill"),
        };
        self.say(set, what, format!("Found {how} daemon pod {key} on node {node}, will try to {end} it"));
    }

    /// A pod could not be changed where it runs, though it looked so.
    pub(super) fn say_unchangeable(&self, set: &Set, pod: &str, error: &kube::Error) {
        let note = format!("failed to update pod {pod} in-place, it is replaced: {}", in_words(error));
        self.say(set, (EventType::Warning, "Updating", "FailedUpdatePodInPlace"), note);
    }

    /// Finds out which patches each node gets, and renders what is new. Measures each rendering, and counts nodes whose
    /// patches do not apply.
    pub(super) fn match_patches(&self, set: &Key, variants: &mut Variants, nodes: &[Arc<Node>]) {
        let mut failed = 0;
        for node in nodes {
            let (begun, known) = (Instant::now(), variants.all().len());
            let number = variants.of(fit::Node { name: node.name(), labels: &node.labels, taints: &[] });
            let variant = &variants.all()[number];
            if number >= known && !(variant.patches.is_empty() && variant.rules.is_empty()) {
                self.metrics.rendered(set, begun.elapsed());
            }
            let is_failed = matches!(variant.rendering, Err(Unrendered::Edit(_) | Unrendered::Unselected));
            failed += usize::from(is_failed && is_for(variants, number, node));
        }
        self.metrics.failed(set, failed);
    }

    /// The API server has refused pods of a rendering: each node that should get one is without it.
    pub(super) fn count_refused(&self, set: &Key, variants: &mut Variants, hash: &str, nodes: &[Arc<Node>]) {
        let mut refused = 0;
        for node in nodes {
            let number = variants.of(fit::Node { name: node.name(), labels: &node.labels, taints: &[] });
            let variant = &variants.all()[number];
            let is_it = variant.rendering.as_ref().is_ok_and(|rendered| *rendered.hash == *hash);
            refused += usize::from(is_it && !variant.patches.is_empty() && is_for(variants, number, node));
        }
        self.metrics.failed(set, refused);
    }

    /// The API server has refused a pod that so many patches made what it is.
    pub(super) fn count_refused_pod(&self, set: &Key, patches: usize) {
        self.metrics.failed(set, usize::from(patches > 0));
    }

    /// A set is gone: nothing is kept of it.
    pub(super) fn forget(&self, set: &Key) {
        self.recorder.forget(SetWire::KIND, set);
        self.metrics.forget(set);
    }
}

/// Whether pods of a variant may run on a node: patches for others do no harm.
fn is_for(variants: &Variants, variant: usize, node: &Node) -> bool {
    let node = fit::Node { name: node.name(), labels: &node.labels, taints: &node.fit_taints() };
    variants.misfit(variant, node).is_none()
}
