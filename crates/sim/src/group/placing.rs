//! Pods of nobody's that wait behind the gate.

use std::collections::BTreeSet;
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use dapple_plan::group::label::PREFIX;
use dapple_plan::group::placing::{DELETION_COST, GATE};
use http::Method;
use serde_json::{Value, json};

use super::GROUPS;
use super::binding::{POLICIES, is_label_of_binding, resource};
use super::properties::none_if_empty;
use crate::object::{list, text};
use crate::script::{Edit, Event, Script};
use crate::server::Server;
use crate::sim::Write;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Pods come behind the gate, most of them for a policy, and some of them go.
pub(super) fn run_gated(script: &mut Script, random: &mut fastrand::Rng) {
    let last = script.calm_at.as_millis() as u64;
    for number in 0..random.usize(1..12) {
        let pod = format!("gated-{number}");
        let policy = POLICIES.get(random.usize(0..POLICIES.len() + 1));
        let mut metadata = json!({"name": pod, "namespace": "default"});
        if let Some(policy) = policy {
            metadata["labels"] = json!({Pair::Propagation.required(): policy});
        }
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"schedulingGates": [{"name": GATE}], "containers": [{"name": "c", "image": "c:1"}]}});
        let what = format!("{pod} comes behind the gate for {policy:?}");
        let comes = Edit { what, method: Method::POST, path: PODS.into(), body: Some(body) };
        let path = format!("{PODS}/{pod}");
        let goes = Edit { what: format!("{pod} is deleted"), method: Method::DELETE, path, body: None };
        let came_at = random.u64(0..last);
        let mut events = vec![(came_at, comes)];
        if random.u8(0..3) == 0 {
            events.push((random.u64(came_at..last), goes));
        }
        for (at, edit) in events {
            let at = Duration::from_millis(at);
            let place = script.events.partition_point(|(other, _)| *other <= at);
            script.events.insert(place, (at, Event::User(edit)));
        }
    }
}

fn is_gated(pod: &Value) -> bool {
    list(&pod["spec"]["schedulingGates"]).iter().any(|gate| gate["name"] == GATE)
}

/// Whether nothing was written of a pod but what placing it takes.
pub(super) fn is_placement(write: &Write<'_>) -> bool {
    let rest = |pod: &Value| {
        let mut rest = pod.clone();
        for field in ["resourceVersion", "managedFields", "generation"] {
            rest["metadata"][field] = Value::Null;
        }
        if let Some(labels) = rest["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| key != GATE && !is_label_of_binding(key) && key != Pair::Propagation.required());
        }
        rest["metadata"]["labels"] = none_if_empty(rest["metadata"]["labels"].take());
        if let Some(annotations) = rest["metadata"]["annotations"].as_object_mut() {
            annotations.remove(DELETION_COST);
        }
        rest["metadata"]["annotations"] = none_if_empty(rest["metadata"]["annotations"].take());
        rest["spec"]["nodeSelector"] = Value::Null;
        rest["spec"]["schedulingGates"] = Value::Null;
        rest["status"] = Value::Null;
        rest
    };
    let before = write.change.previous.as_ref().filter(|_| write.change.resource == "pods");
    before.is_some_and(|before| is_gated(before) && rest(before) == rest(&write.change.object))
}

/// A gate goes off with the selector of a group, or where nothing is asked for; and no seat is given twice.
pub(super) fn placed(write: &Write<'_>, server: &Server) -> Result<(), String> {
    let pod = &write.change.object;
    let name = &pod["metadata"]["name"];
    if is_gated(pod) {
        return Ok(());
    }
    let group = &pod["metadata"]["labels"][GATE];
    let selector = &pod["spec"]["nodeSelector"];
    let asked = &pod["metadata"]["labels"][Pair::Propagation.required()];
    match (asked.as_str(), group.as_str()) {
        (None, None) => return Ok(()),
        (Some(_), Some(group)) => {
            let by_name = selector[format!("{PREFIX}{group}")] == "true";
            // Labels of groups change; that there is one is what matters here.
            if !by_name && selector.as_object().is_none_or(serde_json::Map::is_empty) {
                return Err(format!("{name} is placed in {group} without a selector: {selector}"));
            }
        }
        (asked, group) => return Err(format!("{name} asks for {asked:?} and is placed in {group:?}")),
    }
    let cost = |pod: &Value| pod["metadata"]["annotations"][DELETION_COST].as_str().map(str::to_owned);
    let is_live = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
    let others = server.list("pods").into_iter().filter(|other| other["metadata"]["name"] != *name && is_live(other));
    let same = others.filter(|other| other["metadata"]["labels"][Pair::Propagation.required()] == *asked);
    let taken: BTreeSet<String> = same.filter_map(|other| cost(&other)).collect();
    match cost(pod) {
        Some(cost) if taken.contains(&cost) => Err(format!("{name} gets a seat that another has: {cost}")),
        _ => Ok(()),
    }
}

/// Nothing waits behind the gate but for a policy that is not there.
pub(super) fn is_settled(server: &Server) -> Result<(), String> {
    let has_all_groups = super::script::NAMES.iter().all(|name| server.get(GROUPS, "", name).is_some());
    for pod in server.list("pods").iter().filter(|pod| is_gated(pod)) {
        let asked = text(&pod["metadata"]["labels"][Pair::Propagation.required()]);
        let is_there = server.get(&resource(Pair::Propagation), "default", asked).is_some();
        if asked.is_empty() || is_there && has_all_groups {
            return Err(format!("{} waits behind the gate for nothing", pod["metadata"]["name"]));
        }
    }
    Ok(())
}
