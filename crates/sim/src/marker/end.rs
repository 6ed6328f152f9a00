//! How everything is in the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use dapple_api::selector::Selector;
use dapple_edit::marker::Place;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::{KEPT, MARKERS, PROBED, RESULTS, name, record};
use crate::object::{is_terminating, list, text};
use crate::server::Server;

/// Whether every marker has done what it can.
pub(super) fn is_settled(server: &Server) -> Result<(), String> {
    let markers = server.list(MARKERS);
    is_asked_for(&markers, server)?;
    for marker in &markers {
        is_told(marker)?;
        if ![KEPT, PROBED].contains(&name(marker)) {
            marks_are_right(marker, &markers, server)?;
        }
    }
    Ok(())
}

/// Whether each node is to probe the pods that the marker wants probed that goes by a probe, in the runs that there are, and nothing
/// else.
fn is_asked_for(markers: &[Arc<Value>], server: &Server) -> Result<(), String> {
    let mut expected = BTreeSet::new();
    let pods = server.list("pods");
    for marker in markers.iter().filter(|marker| name(marker) == PROBED) {
        for pod in pods.iter().filter(|pod| is_live(pod) && matches(marker, pod, server)) {
            let node = text(&pod["spec"]["nodeName"]);
            let run = list(&pod["status"]["containerStatuses"]).first().map(|status| text(&status["containerID"]));
            if let Some(run) = run.filter(|_| server.get("nodes", "", node).is_some()) {
                expected.insert([node, text(&pod["metadata"]["uid"]), run].map(str::to_owned));
            }
        }
    }
    let mut found = BTreeSet::new();
    for object in server.list(RESULTS) {
        for pod in list(&object["spec"]["podProbes"]) {
            for probe in list(&pod["probes"]) {
                found.insert([name(&object), text(&pod["uid"]), text(&probe["containerID"])].map(str::to_owned));
            }
        }
    }
    if found == expected { Ok(()) } else { Err(format!("nodes are to probe something else: {found:?}, {expected:?}")) }
}

/// Whether a pod neither has ended nor is about to.
fn is_live(pod: &Value) -> bool {
    !is_terminating(pod) && !["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]))
}

/// What it says is of its spec, and nothing waits that is not held.
fn is_told(marker: &Value) -> Result<(), String> {
    let (status, generation) = (&marker["status"], &marker["metadata"]["generation"]);
    if status["observedGeneration"] != *generation {
        return Err(format!("a marker tells of another spec: {}, {status}", name(marker)));
    }
    if is_held(marker) || status["unknown"] != 0 {
        return Ok(());
    }
    if status["waiting"] != 0 || status["failed"] != 0 || status["succeeded"] != status["desired"] {
        return Err(format!("a marker is not done: {}, {status}", name(marker)));
    }
    Ok(())
}

fn is_held(marker: &Value) -> bool {
    let conditions = list(&marker["status"]["conditions"]);
    conditions.iter().any(|known| known["type"] == "Held" && known["status"] == "True")
}

fn selector(value: &Value) -> Option<Selector> {
    Selector::new(&LabelSelector::deserialize(value).ok()?).ok()
}

/// Whether a pod matches by its labels, without the marker's own marks, and by those of its node.
fn matches(marker: &Value, pod: &Value, server: &Server) -> bool {
    let (requirements, marks) = (&marker["spec"]["matchRequirements"], record(pod));
    let of_pod = selector(&requirements["podSelector"]).is_none_or(|selector| {
        selector.matches(|key| {
            let value = pod["metadata"]["labels"][key].as_str();
            marks.without(&|other: &str| other == name(marker), Place::Label, key, value)
        })
    });
    let node = server.get("nodes", "", text(&pod["spec"]["nodeName"]));
    let of_node = |selector: Selector| {
        let node = node.as_deref();
        selector.matches(|key| node.and_then(|node| node["metadata"]["labels"][key].as_str()))
    };
    of_pod && selector(&requirements["nodeSelector"]).is_none_or(of_node)
}

/// Whether no pod has marks that does not match, and, where nothing stands against it, as many are marked as the number says.
fn marks_are_right(marker: &Value, markers: &[Arc<Value>], server: &Server) -> Result<(), String> {
    let pods = server.list("pods");
    let pods: Vec<&Arc<Value>> = pods.iter().filter(|pod| is_live(pod)).collect();
    let is_gone = |pod: &&Arc<Value>| server.get("nodes", "", text(&pod["spec"]["nodeName"])).is_none();
    if is_held(marker) || marker["status"]["unknown"] != 0 || pods.iter().any(is_gone) {
        return Ok(());
    }
    let is_own = |pod: &&&Arc<Value>| record(pod).of(name(marker)).next().is_some();
    let matching = pods.iter().filter(|pod| matches(marker, pod, server)).count();
    for pod in pods.iter().filter(is_own) {
        if !matches(marker, pod, server) {
            return Err(format!("a pod that does not match has marks: {}, of {}", name(pod), name(marker)));
        }
    }
    let desired = desired(&marker["spec"]["strategy"]["replicas"], matching);
    let own = pods.iter().filter(is_own).count();
    if own > desired {
        return Err(format!("too many pods are marked: {own} of {desired}, by {}", name(marker)));
    }
    let stands_alone = markers.len() == 1 && marker["spec"]["strategy"]["conflictPolicy"] == "Overwrite";
    if stands_alone && marker["status"]["desired"] != desired {
        return Err(format!(
            "a marker asks for other pods: {}, {desired} of {matching}, {}",
            name(marker),
            marker["status"]
        ));
    }
    Ok(())
}

/// How many of so many pods are to be marked.
fn desired(replicas: &Value, matching: usize) -> usize {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    match (replicas.as_u64(), replicas.as_str().and_then(|text| text.strip_suffix('%'))) {
        (Some(count), _) => number(count).min(matching),
        (None, Some(percent)) => {
            let percent: usize = percent.parse().unwrap_or(0);
            (matching * percent).div_ceil(100)
        }
        (None, None) => matching,
    }
}
