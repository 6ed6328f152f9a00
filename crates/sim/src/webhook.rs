//! The webhook for pods: what a replica of dapple answers the API server that shows it a new pod. What it decides is dapple's
//! own code; what it knows of applications is what the server had at some version.

use std::collections::BTreeMap;

use dapple_api::kinds::{NATIVE_DAEMON_SET, find_native};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::gate::{Applicant, patch};
use http::{Method, Request};
use serde_json::Value;

use crate::faults::CallFate;
use crate::object::{list, text};
use crate::server::Server;
use crate::sim::Sim;

/// So many owners above each other are looked at.
const MOST_OWNERS: usize = 8;

/// What asks for policies in a pod's name, as far as it is known.
enum Asks {
    None,
    Unknown,
    Of(BTreeMap<String, String>),
}

/// The request to make a pod as it is after the webhook; none if nothing is changed.
pub fn admit(sim: &Sim, request: &Request<Vec<u8>>) -> Option<Request<Vec<u8>>> {
    if *request.method() != Method::POST || !request.uri().path().ends_with("/pods") {
        return None;
    }
    let version = match sim.call_fate()? {
        CallFate::Lost => return None,
        CallFate::Fine => sim.server.version(),
        CallFate::Old(age) => sim.version_at(sim.now().saturating_sub(age)),
    };
    let mut admitted = request.clone();
    *admitted.body_mut() = answer(&sim.server, version, request.body())?;
    Some(admitted)
}

/// The pod as a replica with this view changes it.
fn answer(server: &Server, version: u64, body: &[u8]) -> Option<Vec<u8>> {
    let mut pod: Value = serde_json::from_slice(body).ok()?;
    let asks = asks(server, version, &pod);
    let applicant = match &asks {
        Asks::None => Applicant::None,
        Asks::Unknown => Applicant::Unknown,
        Asks::Of(labels) => Applicant::Of(labels),
    };
    let operations = patch(&pod, applicant);
    let operations: json_patch::Patch = serde_json::from_value(operations.into()).ok()?;
    // One that does not apply is not sent.
    json_patch::patch(&mut pod, &operations).ok()?;
    Some(pod.to_string().into_bytes())
}

/// The topmost of a pod and its owners that has a label of policies. A pod with an owner does not ask itself.
fn asks(server: &Server, version: u64, pod: &Value) -> Asks {
    let Some(mut owner) = controller_of(pod) else { return Asks::Of(labels(pod)) };
    let mut topmost = Asks::None;
    for _ in 0..MOST_OWNERS {
        let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
        let Some(kind) = find_native(group, text(&owner["kind"])) else { break };
        if kind.at == NATIVE_DAEMON_SET.at {
            return Asks::None;
        }
        let resource = if group.is_empty() { kind.at.plural.to_owned() } else { format!("{}.{group}", kind.at.plural) };
        let known = server.list_at(&resource, version);
        let Some(found) = known.iter().find(|known| known["metadata"]["uid"] == owner["uid"]) else {
            return Asks::Unknown;
        };
        let labels = labels(found);
        if Pair::ALL.iter().any(|pair| labels.contains_key(pair.required()) || labels.contains_key(pair.binding())) {
            topmost = Asks::Of(labels);
        }
        match controller_of(found) {
            Some(above) => owner = above,
            None => break,
        }
    }
    topmost
}

/// What controls an object.
pub fn controller_of(object: &Value) -> Option<Value> {
    list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true).cloned()
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let all = object["metadata"]["labels"].as_object().into_iter().flatten();
    all.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}
