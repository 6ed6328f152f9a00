//! The ReplicaSet controller.

use std::sync::Arc;

use dapple_control::env::Clock;
use serde_json::{Value, json};

use super::order::{Ranked, first};
use super::{View, from_template, is_active, number};
use crate::object::{is_ready, text};
use crate::webhook::controller_of;

/// As many pods as are asked for.
pub(super) fn sync(view: &View<'_>, set: &Value) {
    // Without a number, somebody only wants the labels of an application.
    let Some(wanted) = number(&set["spec"]["replicas"]) else { return };
    let mut pods = view.owned("pods", set);
    pods.retain(|pod| is_active(pod));
    for _ in pods.len()..wanted {
        let mut pod = from_template(&set["spec"]["template"]);
        pod["metadata"]["generateName"] = json!(format!("{}-", text(&set["metadata"]["name"])));
        view.create_pod(set, pod);
    }
    if pods.len() > wanted {
        let now = view.sim.clock.now();
        let surplus = pods.len() - wanted;
        first(ranked(view, set, &pods), surplus, now).iter().for_each(|pod| view.delete_pod(pod));
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    view.tell(set, json!({"replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready}));
}

/// Pods with how many others are on their node that are of the same Deployment.
fn ranked(view: &View<'_>, set: &Value, pods: &[Arc<Value>]) -> Vec<Ranked> {
    let related: Vec<Arc<Value>> = match controller_of(set) {
        Some(deployment) => {
            let sets = view.list("replicasets.apps").into_iter();
            let sets = sets.filter(|set| controller_of(set).is_some_and(|owner| owner["uid"] == deployment["uid"]));
            sets.flat_map(|set| view.owned("pods", &set)).filter(|pod| is_active(pod)).collect()
        }
        None => pods.to_vec(),
    };
    let rank =
        |pod: &Value| related.iter().filter(|other| other["spec"]["nodeName"] == pod["spec"]["nodeName"]).count();
    pods.iter().map(|pod| Ranked { pod: pod.clone(), rank: rank(pod) }).collect()
}
