//! Pods of nobody's that wait behind the gate.

use std::time::Duration;

use dapple_plan::group::binding::Pair;
use dapple_plan::group::costs::{DELETION_COST, SEAT};
use dapple_plan::group::edition::EDITION;
use dapple_plan::group::placing::GATE;
use http::Method;
use serde_json::{Value, json};

use super::binding::{POLICIES, is_label_of_binding};
use super::properties::none_if_empty;
use crate::object::list;
use crate::script::{Edit, Event, Script};
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

pub(super) fn is_gated(pod: &Value) -> bool {
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
            let is_asked = |key: &str| Pair::ALL.iter().any(|pair| key == pair.required());
            labels.retain(|key, _| key != GATE && !is_label_of_binding(key) && !is_asked(key));
        }
        rest["metadata"]["labels"] = none_if_empty(rest["metadata"]["labels"].take());
        if let Some(annotations) = rest["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|key, _| ![DELETION_COST, SEAT, EDITION].contains(&key.as_str()));
        }
        rest["metadata"]["annotations"] = none_if_empty(rest["metadata"]["annotations"].take());
        for container in rest["spec"]["containers"].as_array_mut().into_iter().flatten() {
            container["image"] = Value::Null;
        }
        rest["spec"]["nodeSelector"] = Value::Null;
        rest["spec"]["schedulingGates"] = Value::Null;
        rest["status"] = Value::Null;
        rest
    };
    let before = write.change.previous.as_ref().filter(|_| write.change.resource == "pods");
    before.is_some_and(|before| is_gated(before) && rest(before) == rest(&write.change.object))
}

/// Whether nothing was written of a pod that is placed but what deleting it costs, and that was dapple's.
pub(super) fn is_costing(write: &Write<'_>) -> bool {
    let annotation = |pod: &Value, key: &str| pod["metadata"]["annotations"][key].as_str().map(str::to_owned);
    let is_ours = |pod: &Value| {
        let seat = annotation(pod, SEAT).and_then(|seat| seat.parse::<i64>().ok());
        seat.is_some_and(|seat| annotation(pod, DELETION_COST) == Some((-seat).to_string()))
    };
    let rest = |pod: &Value| {
        let mut rest = pod.clone();
        for field in ["resourceVersion", "managedFields"] {
            rest["metadata"][field] = Value::Null;
        }
        if let Some(annotations) = rest["metadata"]["annotations"].as_object_mut() {
            annotations.remove(DELETION_COST);
            annotations.remove(SEAT);
        }
        rest["metadata"]["annotations"] = none_if_empty(rest["metadata"]["annotations"].take());
        rest
    };
    let before = write.change.previous.as_ref().filter(|_| write.change.resource == "pods");
    before.is_some_and(|before| is_ours(before) && rest(before) == rest(&write.change.object))
}
