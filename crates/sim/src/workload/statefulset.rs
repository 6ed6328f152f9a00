//! The StatefulSet controller: pods with numbers, whose names come back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{View, from_template, has_ended, hash, number};
use crate::object::{is_ready, is_terminating, text};

/// The label that tells a pod's revision.
const REVISION: &str = "controller-revision-hash";
/// And its number.
const ORDINAL: &str = "apps.kubernetes.io/pod-index";

/// Pods of all numbers that are asked for, then none of others, then all of one revision.
pub(super) fn sync(view: &View<'_>, set: &Value) {
    let Some(wanted) = number(&set["spec"]["replicas"]) else { return };
    let start = number(&set["spec"]["ordinals"]["start"]).unwrap_or(0);
    let is_parallel = set["spec"]["podManagementPolicy"] == "Parallel";
    let pods: BTreeMap<usize, Arc<Value>> = view
        .owned("pods", set)
        .into_iter()
        .filter_map(|pod| Some((text(&pod["metadata"]["labels"][ORDINAL]).parse().ok()?, pod)))
        .collect();
    let ready = pods.values().filter(|pod| is_ready(pod)).count();
    view.tell(set, json!({"replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready}));
    for ordinal in start..start + wanted {
        let pod = pods.get(&ordinal);
        match pod {
            None => create(view, set, ordinal),
            // It is made anew once it is gone.
            Some(pod) if has_ended(pod) && !is_terminating(pod) => view.delete_pod(pod),
            Some(_) => {}
        }
        if !is_parallel && !pod.is_some_and(|pod| is_healthy(pod)) {
            return;
        }
    }
    let condemned = pods.iter().rev().filter(|(ordinal, _)| !(start..start + wanted).contains(*ordinal));
    for (_, pod) in condemned {
        if !is_terminating(pod) {
            view.delete_pod(pod);
        }
        if !is_parallel {
            return;
        }
    }
    let revision = hash(&set["spec"]["template"]);
    for (_, pod) in pods.range(start..start + wanted).rev() {
        let is_old = pod["metadata"]["labels"][REVISION] != revision;
        if is_old && !is_terminating(pod) {
            return view.delete_pod(pod);
        }
        if !is_healthy(pod) {
            return;
        }
    }
}

fn is_healthy(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && is_ready(pod) && !is_terminating(pod)
}

fn create(view: &View<'_>, set: &Value, ordinal: usize) {
    let name = format!("{}-{ordinal}", text(&set["metadata"]["name"]));
    let mut pod = from_template(&set["spec"]["template"]);
    pod["metadata"]["labels"][REVISION] = json!(hash(&set["spec"]["template"]));
    pod["metadata"]["labels"][ORDINAL] = json!(ordinal.to_string());
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["name"] = json!(name);
    view.create_pod(set, pod);
}
