//! The webhook for pods: what a replica of dapple answers the API server that shows it a new pod. What it decides is dapple's
//! own code; what it knows of applications is what the server had at some version.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::{NATIVE_DAEMON_SET, find_native};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::editions::Editions;
use dapple_plan::group::gate::{Applicant, patch, patch_made};
use dapple_plan::group::placing::{GATE, probable_group};
use dapple_plan::group::standing::{number_label, ordinal};
use http::{Method, Request};
use serde_json::Value;

use crate::faults::CallFate;
use crate::group::{is_live, owner_of};
use crate::object::{list, text};
use crate::server::Server;
use crate::sim::Sim;

/// So many owners above each other are looked at.
const MOST_OWNERS: usize = 8;

/// What asks for policies in a pod's name, as far as it is known.
enum Asks {
    None,
    Unknown,
    Of(Labels),
}

/// Something that asks for policies, and what controls the pod.
struct Asking {
    asks: Asks,
    owner: Option<Arc<Value>>,
}

type Labels = BTreeMap<String, String>;

/// The request to make a pod as it is after the webhook; none if nothing is changed.
pub fn admit(sim: &Sim, request: &Request<Vec<u8>>) -> Option<Request<Vec<u8>>> {
    if *request.method() != Method::POST || !request.uri().path().ends_with("/pods") {
        return None;
    }
    if is_hidden(sim, request.body()) {
        return None;
    }
    let version = match sim.call_fate()? {
        CallFate::Lost => return None,
        CallFate::Fine => sim.server.version(),
        CallFate::Old(age) => sim.version_at(sim.now().saturating_sub(age)),
    };
    let mut admitted = request.clone();
    *admitted.body_mut() = answer((&sim.server, version), sim.makes_pods(), request.body())?;
    Some(admitted)
}

/// Whether a pod is never shown to the webhook.
fn is_hidden(sim: &Sim, body: &[u8]) -> bool {
    let Some(label) = sim.with_world(|world| world.habits().hides) else { return false };
    serde_json::from_slice::<Value>(body).is_ok_and(|pod| pod["metadata"]["labels"][label].is_string())
}

/// The pod as a replica with this view changes it.
fn answer(view: (&Server, u64), makes_pods: bool, body: &[u8]) -> Option<Vec<u8>> {
    let mut pod: Value = serde_json::from_slice(body).ok()?;
    let Asking { asks, owner } = asking(view, &pod);
    let applicant = match &asks {
        Asks::None => Applicant::None,
        Asks::Unknown => Applicant::Unknown,
        Asks::Of(labels) => Applicant::Of(labels),
    };
    let mut operations = patch(&pod, applicant);
    if let Asks::Of(labels) = &asks
        && makes_pods
        && !operations.is_empty()
        && let Some(made) = make(view, &pod, labels, owner.as_deref())
    {
        operations = patch_made(&pod, &made, labels);
    }
    let operations: json_patch::Patch = serde_json::from_value(operations.into()).ok()?;
    // One that does not apply is not sent.
    json_patch::patch(&mut pod, &operations).ok()?;
    Some(pod.to_string().into_bytes())
}

/// The pod by the edition of the group that it will probably get, and now and then by that of any: replicas guess, and the leader
/// has to live with it.
fn make((server, version): (&Server, u64), pod: &Value, labels: &Labels, owner: Option<&Value>) -> Option<Value> {
    let spec = |pair: Pair| {
        let name = labels.get(pair.required())?;
        let known = server.list_at(&format!("{}.{}", pair.kind().plural, pair.kind().group), version);
        known.iter().find(|policy| policy["metadata"]["name"] == **name).map(|policy| policy["spec"].clone())
    };
    let spread: PropagationPolicySpec = serde_json::from_value(spec(Pair::Propagation)?).ok()?;
    let rules: OverridePolicySpec = serde_json::from_value(spec(Pair::Override)?).ok()?;
    let mut division = Division::of(&spread)?;
    let groups = division.groups().to_vec();
    let mut random = fastrand::Rng::with_seed(server.version());
    let group = match random.u8(0..4) {
        0 => random.choice(&groups)?.clone(),
        _ => {
            let pods = server.list_at("pods", version);
            let is_own = |other: &&Arc<Value>| owner_of(other) == owner_of(pod) && is_live(other);
            let said = |other: &Arc<Value>| other["metadata"]["labels"][GATE].as_str().map(str::to_owned);
            let there: Vec<Option<String>> = pods.iter().filter(is_own).map(said).collect();
            let number = owner.and_then(|owner| {
                let start = usize::try_from(owner["spec"]["ordinals"]["start"].as_u64().unwrap_or(0)).ok()?;
                ordinal(labels_of(pod).get(number_label(text(&owner["kind"]))?)?, start)
            });
            probable_group(&mut division, there.iter().map(|group| (group.as_deref(), 1)), number, None)?
        }
    };
    let template = owner.map(|owner| Arc::new(owner["spec"]["template"].clone()));
    Editions::of("", &[Arc::new(rules)], &groups, template).make(pod, &group).ok()
}

/// The topmost of a pod and its owners that has a label of policies. A pod with an owner does not ask itself.
fn asking((server, version): (&Server, u64), pod: &Value) -> Asking {
    let Some(mut owner) = controller_of(pod) else { return Asking { asks: Asks::Of(labels_of(pod)), owner: None } };
    let (mut topmost, mut direct) = (Asks::None, None);
    for _ in 0..MOST_OWNERS {
        let Some(resource) = resource_of(&owner) else { break };
        if owner["kind"] == NATIVE_DAEMON_SET.at.kind {
            return Asking { asks: Asks::None, owner: direct };
        }
        let known = server.list_at(&resource, version);
        let Some(found) = known.iter().find(|known| known["metadata"]["uid"] == owner["uid"]) else {
            return Asking { asks: Asks::Unknown, owner: direct };
        };
        direct.get_or_insert_with(|| found.clone());
        let labels = labels_of(found);
        if Pair::ALL.iter().any(|pair| labels.contains_key(pair.required()) || labels.contains_key(pair.binding())) {
            topmost = Asks::Of(labels);
        }
        match controller_of(found) {
            Some(above) => owner = above,
            None => break,
        }
    }
    Asking { asks: topmost, owner: direct }
}

/// The resource of an owner, if it is of a kind of Kubernetes' own.
pub fn resource_of(owner: &Value) -> Option<String> {
    let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let at = find_native(group, text(&owner["kind"]))?.at;
    Some(if group.is_empty() { at.plural.to_owned() } else { format!("{}.{group}", at.plural) })
}

/// What controls an object.
pub fn controller_of(object: &Value) -> Option<Value> {
    list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true).cloned()
}

fn labels_of(object: &Value) -> Labels {
    let all = object["metadata"]["labels"].as_object().into_iter().flatten();
    all.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}
