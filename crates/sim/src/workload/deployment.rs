//! The Deployment controller: a ReplicaSet for each template, and rolling updates from one to the next.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{View, hash, number, path, progress};
use crate::object::text;

/// By which ReplicaSets of one Deployment, and their pods, are told apart.
const HASH: &str = "pod-template-hash";

/// One step of a rolling update by a quarter.
pub(super) fn sync(view: &View<'_>, deployment: &Value) {
    // Without a number, somebody only wants the labels of an application.
    let Some(wanted) = number(&deployment["spec"]["replicas"]) else { return };
    let sets = view.owned("replicasets.apps", deployment);
    let name = format!("{}-{}", text(&deployment["metadata"]["name"]), hash(&deployment["spec"]["template"]));
    let sum = |field: &str| sets.iter().filter_map(|set| number(&set["status"][field])).sum::<usize>();
    let newest = sets.iter().find(|set| set["metadata"]["name"] == name);
    let updated = newest.and_then(|set| number(&set["status"]["replicas"])).unwrap_or(0);
    let mut status = json!({"replicas": sum("replicas"), "readyReplicas": sum("readyReplicas"),
        "updatedReplicas": updated, "availableReplicas": sum("availableReplicas")});
    if let Some(conditions) = progress::conditions(view, deployment, &status, newest.is_none()) {
        status["conditions"] = conditions;
    }
    view.tell(deployment, status);
    if deployment["spec"]["paused"] == true {
        return;
    }
    let total: usize = sets.iter().map(|set| replicas(set)).sum();
    let room = (wanted + wanted.div_ceil(4)).saturating_sub(total);
    let Some(new) = newest else {
        return create(view, deployment, &name, room.min(wanted));
    };
    let current = replicas(new);
    if current > wanted {
        return scale(view, new, wanted);
    }
    let grown = current + room.min(wanted - current);
    if grown > current {
        return scale(view, new, grown);
    }
    let old: Vec<&Arc<Value>> =
        sets.iter().filter(|set| set["metadata"]["name"] != name && replicas(set) > 0).collect();
    shrink(view, new, &old, wanted);
}

/// Takes from old ReplicaSets what may go: first what is not available anyway.
fn shrink(view: &View<'_>, new: &Value, old: &[&Arc<Value>], wanted: usize) {
    let least = wanted - wanted / 4;
    let total: usize = replicas(new) + old.iter().map(|set| replicas(set)).sum::<usize>();
    let most = total.saturating_sub(least + replicas(new).saturating_sub(available(new)));
    let mut left = most;
    let mut kept: Vec<usize> = Vec::new();
    for set in old {
        let idle = replicas(set).saturating_sub(available(set)).min(left);
        left -= idle;
        kept.push(replicas(set) - idle);
    }
    let running: usize = available(new) + old.iter().map(|set| available(set)).sum::<usize>();
    left = left.min(running.saturating_sub(least));
    for (set, mut keep) in old.iter().zip(kept) {
        let gone = keep.min(left);
        left -= gone;
        keep -= gone;
        if keep < replicas(set) {
            scale(view, set, keep);
        }
    }
}

fn create(view: &View<'_>, deployment: &Value, name: &str, replicas: usize) {
    let hash = name.rsplit('-').next().unwrap_or_default();
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = json!(hash);
    let namespace = text(&deployment["metadata"]["namespace"]);
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": template["metadata"]["labels"]},
        "spec": {"replicas": replicas, "selector": selector, "template": template}});
    view.create(&format!("/apis/apps/v1/namespaces/{namespace}/replicasets"), deployment, set);
}

fn scale(view: &View<'_>, set: &Value, replicas: usize) {
    view.patch(&path(set), &json!({"spec": {"replicas": replicas}}));
}

fn replicas(set: &Value) -> usize {
    number(&set["spec"]["replicas"]).unwrap_or(0)
}

fn available(set: &Value) -> usize {
    number(&set["status"]["availableReplicas"]).unwrap_or(0).min(replicas(set))
}
