//! The Job controller: pods that end well are counted, and so are those that do not. A pod that somebody deletes has failed.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_control::env::Clock;
use serde_json::{Value, json};

use super::order::{Ranked, first};
use super::{View, from_template, has_ended, is_active, number};
use crate::object::{is_terminating, list, path_of, text};

/// Keeps a pod there until it was counted.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The label and the annotation that tell a pod's index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Counts pods that have ended, and makes others until enough have ended well.
pub(super) fn sync(view: &View<'_>, job: &Value) {
    let spec = &job["spec"];
    let Some(completions) = number(&spec["completions"]) else { return };
    let pods = view.owned("pods", job);
    let (succeeded, failed) = count(view, job, &pods);
    let has_failed = failed > number(&spec["backoffLimit"]).unwrap_or(6);
    let is_done = has_failed || succeeded >= completions;
    let active: Vec<Arc<Value>> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    let is_indexed = spec["completionMode"] == "Indexed";
    let mut status = json!({"active": active.len(), "succeeded": succeeded, "failed": failed});
    if is_done {
        let kind = if has_failed { "Failed" } else { "Complete" };
        status["conditions"] = json!([{"type": kind, "status": "True"}]);
    }
    view.tell(job, status);
    let most = number(&spec["parallelism"]).unwrap_or(1);
    // Those that are on their way out count until they are gone: upstream waits for them where it numbers pods.
    let going = pods.iter().filter(|pod| is_terminating(pod) && !has_ended(pod)).count();
    let wanted = if is_done { 0 } else { most.min(completions - succeeded) };
    if active.len() > wanted {
        let ranked = active.iter().map(|pod| Ranked { pod: pod.clone(), rank: 0 }).collect();
        for pod in first(ranked, active.len() - wanted, view.sim.clock.now()) {
            untrack(view, &pod);
            view.delete_pod(&pod);
        }
        return;
    }
    let missing = wanted - active.len();
    if is_indexed {
        let taken = pods.iter().filter(|pod| pod["status"]["phase"] != "Failed").filter_map(|pod| index(pod));
        let taken: BTreeSet<usize> = taken.collect();
        let free = (0..completions).filter(|index| !taken.contains(index));
        free.take(missing.saturating_sub(going)).for_each(|index| create(view, job, Some(index)));
    } else {
        (0..missing).for_each(|_| create(view, job, None));
    }
}

/// Lets go of pods that have ended, and returns how many have ended well and how many have not.
fn count(view: &View<'_>, job: &Value, pods: &[Arc<Value>]) -> (usize, usize) {
    let told = |field: &str| number(&job["status"][field]).unwrap_or(0);
    let (mut succeeded, mut failed) = (told("succeeded"), told("failed"));
    for pod in pods.iter().filter(|pod| is_tracked(pod) && !is_active(pod)) {
        if pod["status"]["phase"] == "Succeeded" {
            succeeded += 1;
        } else {
            failed += 1;
        }
        untrack(view, pod);
    }
    (succeeded, failed)
}

fn is_tracked(pod: &Value) -> bool {
    list(&pod["metadata"]["finalizers"]).iter().any(|known| known == TRACKING)
}

fn untrack(view: &View<'_>, pod: &Value) {
    let patch = json!({"metadata": {"uid": pod["metadata"]["uid"], "finalizers": null}});
    view.patch(&path_of(pod), &patch);
}

fn index(pod: &Value) -> Option<usize> {
    text(&pod["metadata"]["labels"][INDEX]).parse().ok()
}

fn create(view: &View<'_>, job: &Value, index: Option<usize>) {
    let name = text(&job["metadata"]["name"]);
    let mut pod = from_template(&job["spec"]["template"]);
    pod["metadata"]["generateName"] = json!(format!("{name}-"));
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    if let Some(index) = index {
        pod["metadata"]["generateName"] = json!(format!("{name}-{index}-"));
        pod["metadata"]["labels"][INDEX] = json!(index.to_string());
        pod["metadata"]["annotations"][INDEX] = json!(index.to_string());
    }
    view.create_pod(job, pod);
}
