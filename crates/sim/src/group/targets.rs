//! Where pods that are moved are to go: to a group that lacks pods, and has a node that takes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::group::NodeGroupSpec;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::edition::EDITION;
use dapple_plan::group::placing::{GATE, selector};
use http::Method;
use serde_json::{Value, json};

use super::asking::{Asking, Rule};
use super::binding::path as policy_path;
use super::placing::is_gated;
use super::properties::{Past, is_in};
use super::script::PATH as GROUPS_PATH;
use super::seats::{Groups, Owner, division, is_live, number_of, owner_of};
use crate::nodes::DISK;
use crate::object::{is_ready, text};
use crate::script::{Edit, Event, Script};
use crate::server::{ChangeKind, Server};
use crate::sim::Write;

/// In the end a policy gives most of an application's pods to a group that has no nodes: nothing is gained by moving any.
pub(super) fn ask_for_nothing(script: &mut Script) {
    let (full, empty, policy) = ("full", "empty", "nowhere");
    let nodes: Vec<String> = (0..8).map(|number| format!("node-{number}")).collect();
    let group = |name: &str, spec: Value| {
        let body = json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
            "metadata": {"name": name}, "spec": spec});
        let what = format!("creates the group {name}: {}", body["spec"]);
        Edit { what, method: Method::POST, path: GROUPS_PATH.into(), body: Some(body) }
    };
    let weights = |empty_gets: u8| {
        let item = |(name, weight): (&str, u8)| json!({"nodeGroupNames": [name], "weight": weight});
        let all = [(full, 1), (empty, empty_gets)];
        json!({"staticWeightList": all.into_iter().filter(|(_, weight)| *weight > 0).map(item).collect::<Vec<_>>()})
    };
    let (pair, name) = (Pair::Propagation, "settled");
    let divides = json!({"apiVersion": pair.kind().api_version(), "kind": pair.kind().kind,
        "metadata": {"name": policy, "namespace": "default"}, "spec": weights(0)});
    let template =
        json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default", "labels": {pair.required(): policy}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": template}});
    let create = |path: String, body: Value| {
        let what = format!("creates the {} {}", text(&body["kind"]), text(&body["metadata"]["name"]));
        Edit { what, method: Method::POST, path, body: Some(body) }
    };
    script.setup.extend([
        group(full, json!({"nodes": nodes})),
        group(empty, json!({"matchLabels": {DISK: "none"}})),
        create(policy_path(pair), divides),
        create("/apis/apps/v1/namespaces/default/replicasets".into(), owner),
    ]);
    let what = format!("has the PropagationPolicy {policy} give pods to a group without nodes");
    let path = format!("{}/{policy}", policy_path(pair));
    let edit = Edit { what, method: Method::PATCH, path, body: Some(json!({"spec": weights(3)})) };
    script.finish.push(Event::User(edit));
    // The gate is put by the webhook.
    script.habits.has_webhook = true;
}

/// What was seen of pods.
#[derive(Default)]
pub(super) struct Targets {
    /// When a pod of an owner last came, went or got a group.
    changed: BTreeMap<Owner, Duration>,
}

impl Targets {
    /// Takes in a write of a pod.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let place = |pod: &Value| (is_live(pod), is_gated(pod), pod["metadata"]["labels"][GATE].clone());
        let (pod, before) = (&write.change.object, write.change.previous.as_deref());
        if write.change.kind == ChangeKind::Deleted || before.map(place) != Some(place(pod)) {
            self.changed.insert(owner_of(pod), write.at);
        }
    }

    /// A pod is taken away to be moved only if some group that lacks pods has a node for it. To be asked before the write is
    /// taken in. Where what it follows from has changed too lately for the manager to know, or where the pod may lack an
    /// edition, nothing is asked.
    pub(super) fn is_sensible(
        &self,
        write: &Write<'_>,
        asking: &Asking,
        (groups, nodes): (&Groups, &Past<Vec<Arc<Value>>>),
        server: &Server,
    ) -> Result<(), String> {
        let Some(pod) = write.change.previous.as_deref().filter(|pod| write.is_ours() && is_live(pod)) else {
            return Ok(());
        };
        let is_taken = !is_live(&write.change.object) || write.change.kind == ChangeKind::Deleted;
        let since = write.at.saturating_sub(write.memory);
        let is_news = self.changed.get(&owner_of(pod)).is_none_or(|at| *at >= since);
        let has_edition = pod["metadata"]["annotations"][EDITION].is_string();
        if !is_taken || is_news || has_edition || is_gated(pod) || number_of(pod).is_some() {
            return Ok(());
        }
        let has_node = |group: &str| {
            let versions = groups.get(group).into_iter().flatten();
            let mut versions = versions.filter(|(until, _)| *until >= since);
            let nodes = || nodes.iter().filter(|(until, _)| *until >= since).flat_map(|(_, nodes)| nodes);
            versions.any(|(_, version)| nodes().any(|node| takes_pods(node) && is_in(version, node)))
        };
        // One that waits for nodes which its group had once is made anew for those that it has.
        let own = text(&pod["metadata"]["labels"][GATE]);
        let versions = groups.get(own).into_iter().flatten().filter(|(until, _)| *until >= since);
        if versions.map(|(_, version)| version).any(|version| is_stale(pod, own, version)) && has_node(own) {
            return Ok(());
        }
        let Some(divisions) = divisions(asking, pod, since) else { return Ok(()) };
        let mut told = String::new();
        for mut division in divisions {
            let Some(counts) = counts(&division, pod, server) else { return Ok(()) };
            let shares = division.counts(counts.iter().sum());
            let wanted = |group: usize| if division.is_by_range() { division.most(group) } else { shares[group] };
            let mut lacking = (0..counts.len()).filter(|group| counts[*group] < wanted(*group));
            if lacking.any(|group| has_node(&division.groups()[group])) {
                return Ok(());
            }
            told = format!("{counts:?}, not {shares:?} of {:?}", division.groups());
        }
        let name = &pod["metadata"]["name"];
        Err(format!("a pod is moved, and no group that lacks pods has a node: {name}, {told}"))
    }
}

/// Whether a node is well, and open to pods.
pub(super) fn takes_pods(node: &Value) -> bool {
    is_ready(node) && node["spec"]["unschedulable"] != true
}

/// Whether a pod has no node, and selects others than those of its group.
fn is_stale(pod: &Value, name: &str, group: &Value) -> bool {
    let spec = serde_json::from_value::<NodeGroupSpec>(group["spec"].clone());
    let selector = spec.map(|spec| selector(name, &spec)).unwrap_or_default();
    let own = &pod["spec"]["nodeSelector"];
    pod["spec"]["nodeName"].is_null() && selector.iter().any(|(key, value)| own[key] != **value)
}

/// All ways in which the pods of an application may have been divided since then. None if it may have asked for something else.
fn divisions(asking: &Asking, pod: &Value, since: Duration) -> Option<Vec<Division>> {
    let mut divisions = Vec::new();
    for labels in asking.labels_for(pod, since) {
        let Rule::Divided(policy) = Rule::of(&labels) else { return None };
        if !labels[Pair::Override.required()].is_null() {
            return None;
        }
        divisions.extend(asking.policies(policy, since).filter_map(division));
    }
    Some(divisions).filter(|found| !found.is_empty())
}

/// How many pods of an owner each group has, this one included. None if some are in no group that is listed.
fn counts(division: &Division, pod: &Value, server: &Server) -> Option<Vec<usize>> {
    let mut counts = vec![0; division.groups().len()];
    let all = server.list("pods");
    let others = all.iter().filter(|other| {
        other["metadata"]["uid"] != pod["metadata"]["uid"] && is_live(other) && owner_of(other) == owner_of(pod)
    });
    for pod in others.map(|other| &**other).chain([pod]) {
        let said = text(&pod["metadata"]["labels"][GATE]);
        let group = division.groups().iter().position(|group| **group == *said)?;
        counts[group] += 1;
    }
    Some(counts)
}
