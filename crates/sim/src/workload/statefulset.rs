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
    let revision = format!("{}-{}", text(&set["metadata"]["name"]), hash(&set["spec"]["template"]));
    record(view, set, &revision);
    let updated = pods.values().filter(|pod| pod["metadata"]["labels"][REVISION] == revision).count();
    view.tell(
        set,
        json!({"replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": updated}),
    );
    for ordinal in start..start + wanted {
        let pod = pods.get(&ordinal);
        match pod {
            None => create(view, set, ordinal, &revision),
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
    if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return;
    }
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

/// Writes down what pods of a revision are made of.
fn record(view: &View<'_>, set: &Value, revision: &str) {
    if !view.owned("controllerrevisions.apps", set).iter().any(|known| known["metadata"]["name"] == revision) {
        let mut template = set["spec"]["template"].clone();
        template["$patch"] = "replace".into();
        let object = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": revision},
            "revision": 1, "data": {"spec": {"template": template}}});
        let namespace = text(&set["metadata"]["namespace"]);
        view.create(&format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions"), set, object);
    }
}

fn create(view: &View<'_>, set: &Value, ordinal: usize, revision: &str) {
    let name = format!("{}-{ordinal}", text(&set["metadata"]["name"]));
    let mut pod = from_template(&set["spec"]["template"]);
    pod["metadata"]["labels"][REVISION] = json!(revision);
    pod["metadata"]["labels"][ORDINAL] = json!(ordinal.to_string());
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["name"] = json!(name);
    view.create_pod(set, pod);
}
