//! Editions of pods: what is changed of running ones, and what they have in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::group::OverridePolicySpec;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::edition::{EDITION, Edition};
use dapple_plan::group::gate::MADE_FOR;
use dapple_plan::group::placing::GATE;
use dapple_plan::inplace::STATE_ANNOTATION;
use serde_json::Value;

use super::GROUPS;
use super::asking::{Asking, Rule};
use super::binding::resource;
use super::moves::{comes_back, is_well};
use super::placing::is_gated;
use super::properties::{has_ended, is_in, none_if_empty};
use super::seats::division;
use super::targets::takes_pods;
use crate::object::{is_terminating, list, text};
use crate::server::Server;
use crate::sim::Write;
use crate::webhook::controller_of;

/// Whether nothing was written of a running pod but what gives it another edition.
pub(super) fn is_change(write: &Write<'_>) -> bool {
    let rest = |pod: &Value| {
        let mut rest = pod.clone();
        for field in ["resourceVersion", "managedFields", "generation"] {
            rest["metadata"][field] = Value::Null;
        }
        for (field, keys) in [("labels", &[GATE][..]), ("annotations", &[EDITION, MADE_FOR, STATE_ANNOTATION])] {
            if let Some(entries) = rest["metadata"][field].as_object_mut() {
                entries.retain(|key, _| !keys.contains(&key.as_str()));
            }
            rest["metadata"][field] = none_if_empty(rest["metadata"][field].take());
        }
        for container in rest["spec"]["containers"].as_array_mut().into_iter().flatten() {
            container["image"] = Value::Null;
        }
        rest
    };
    let before = write.change.previous.as_ref().filter(|_| write.change.resource == "pods");
    before.is_some_and(|before| !is_gated(before) && rest(before) == rest(&write.change.object))
}

/// Whether what a policy says is written down, or dropped.
pub(super) fn is_version(write: &Write<'_>) -> bool {
    let owners = list(&write.change.object["metadata"]["ownerReferences"]);
    write.change.resource == "controllerrevisions.apps"
        && owners.iter().any(|owner| owner["kind"] == Pair::Override.kind().kind)
}

/// Whether groups have as many pods as they should.
fn are_placed(pods: &[Arc<Value>], division: &mut Division) -> bool {
    let mut counts = vec![0; division.groups().len()];
    for pod in pods {
        let group = text(&pod["metadata"]["labels"][GATE]);
        let Some(place) = division.groups().iter().position(|known| **known == *group) else { return false };
        counts[place] += 1;
    }
    let is_within = |(group, count): (usize, &usize)| (division.least(group)..=division.most(group)).contains(count);
    if division.is_by_range() {
        counts.iter().enumerate().all(is_within)
    } else {
        division.counts(pods.len()) == counts
    }
}

/// When a group's turn comes: as its policy says, else by name.
fn place_of(policy: &Value, group: &str) -> (usize, String) {
    let order = text(&policy["metadata"]["annotations"]["dapple.dev/rollout-order"]);
    let place = order.split(',').position(|known| known.trim() == group);
    (place.unwrap_or(usize::MAX), group.to_owned())
}

/// Whether a group has a node that takes pods.
fn has_node(server: &Server, group: &str) -> bool {
    let found = server.get(GROUPS, "", group);
    found.is_some_and(|group| server.list("nodes").iter().any(|node| takes_pods(node) && is_in(&group, node)))
}

/// Where all pods of an application are well and say their group, all have the edition of it.
pub(super) fn is_settled(asking: &Asking, server: &Server) -> Result<(), String> {
    let sets = server.list("replicasets.apps");
    let mut applications: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
    for pod in server.list("pods").into_iter().filter(|pod| comes_back(pod) && !has_ended(pod) && !is_terminating(pod))
    {
        let owner = controller_of(&pod).unwrap_or_default();
        let set = sets.iter().find(|set| set["metadata"]["uid"] == owner["uid"]);
        let topmost = set.and_then(|set| controller_of(set)).unwrap_or(owner);
        applications.entry(text(&topmost["uid"]).to_owned()).or_default().push(pod);
    }
    for pods in applications.values() {
        let Some(labels) = asking.labels_for(&pods[0], Duration::MAX).pop() else { continue };
        let (Rule::Divided(spread), Some(policy)) = (Rule::of(&labels), labels[Pair::Override.required()].as_str())
        else {
            continue;
        };
        let Some(policy) = server.get(&resource(Pair::Override), "default", policy) else { continue };
        let Ok(spec) = serde_json::from_value::<OverridePolicySpec>(policy["spec"].clone()) else { continue };
        let says_group = |pod: &Arc<Value>| pod["metadata"]["labels"][GATE].is_string() && !is_gated(pod);
        if !pods.iter().all(|pod| is_well(pod) && says_group(pod)) {
            continue;
        }
        // One that is to be moved, and cannot, stays as it is.
        let spread = server.get(&resource(Pair::Propagation), "default", spread);
        if !spread.as_deref().and_then(division).is_some_and(|mut division| are_placed(pods, &mut division)) {
            continue;
        }
        let lacks = |pod: &&Arc<Value>| {
            let group = text(&pod["metadata"]["labels"][GATE]);
            let wanted = Edition::of("", &spec, group).name;
            let has = pod["metadata"]["annotations"][EDITION].as_str();
            (has != wanted.as_deref())
                .then(|| (place_of(&policy, group), group.to_owned(), pod["metadata"]["name"].clone()))
        };
        let Some((_, group, name)) = pods.iter().filter_map(|pod| lacks(&pod)).min_by_key(|(place, ..)| place.clone())
        else {
            continue;
        };
        // Without a node for another, the first that lacks it stays as it is, and groups after it wait for it.
        if has_node(server, &group) {
            return Err(format!("{name} in {group} lacks the edition of its group"));
        }
    }
    Ok(())
}
