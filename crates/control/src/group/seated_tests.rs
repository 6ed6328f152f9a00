use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;
use crate::slim::{Interner, read};

/// A pod of the owner, gated or in a group.
fn pod(name: &str, version: u64, group: Option<&str>) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": true});
    let gates = if group.is_some() { json!([]) } else { json!([{"name": GATE}]) };
    let labels = group.map(|group| json!({GATE: group}));
    json!({"metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": version.to_string(),
        "ownerReferences": [owner], "labels": labels.unwrap_or(json!({}))},
        "spec": {"schedulingGates": gates, "containers": []}, "status": {}})
}

fn group(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {"matchLabels": {"disk": name}}})
}

fn policy() -> Policy<PropagationPolicySpec> {
    let weights = ["east", "west"].map(|name| json!({"nodeGroupNames": [name], "weight": 1}));
    let object = json!({"metadata": {"name": "spread", "namespace": "d", "uid": "p", "resourceVersion": "1"},
        "spec": {"staticWeightList": weights}});
    read(&object, &mut Interner::default()).expect("a policy")
}

fn seatings() -> Seatings {
    let stores = Stores { pods: Arc::default(), nodes: Arc::default(), groups: Arc::default() };
    for name in ["east", "west"] {
        let group = serde_json::from_value(group(name)).expect("a group");
        stores.groups.apply(Event::Apply(group));
    }
    Seatings::new(stores)
}

fn tell(seatings: &Seatings, event: Event<Value>) {
    let observed = |pod: Value| serde_json::from_value(pod).expect("a pod");
    seatings.stores.pods.apply(match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(pod) => Event::InitApply(observed(pod)),
        Event::Apply(pod) => Event::Apply(observed(pod)),
        Event::Delete(pod) => Event::Delete(observed(pod)),
    });
}

/// The group that a pod gets, if anything is decided about it.
fn place_of(seatings: &Seatings, name: &str) -> Option<String> {
    let owner = OwnerKey::by(Arc::from("d"), Some(Arc::from("o")), |_| None);
    let editions = EditionsOfOwner::default();
    let facts = Facts { editions: &editions, allowed: &BTreeMap::new(), has_room: &|_, _, _| true };
    let Decided::Decisions(decisions) = seatings.decide(&owner, &policy(), Numbering::default(), &facts) else {
        return None;
    };
    decisions.into_iter().find(|(known, _)| **known == *name).and_then(|(_, decision)| match decision {
        Decision::Place(placement) => Some(placement.group.to_string()),
        _ => None,
    })
}

#[test]
fn a_seat_is_free_once_the_list_is_done_that_does_not_name_its_pod_any_more() {
    let seatings = seatings();
    tell(&seatings, Event::Init);
    tell(&seatings, Event::InitApply(pod("gone", 1, Some("east"))));
    tell(&seatings, Event::InitApply(pod("waits", 2, None)));
    tell(&seatings, Event::InitDone);
    assert_eq!(place_of(&seatings, "waits").as_deref(), Some("west"), "the other has the seat in the east");
    tell(&seatings, Event::Init);
    tell(&seatings, Event::InitApply(pod("waits", 2, None)));
    assert_eq!(place_of(&seatings, "waits"), None, "the list may name the other yet");
    // Those who subscribe are told later that the other is gone.
    tell(&seatings, Event::InitDone);
    assert_eq!(place_of(&seatings, "waits").as_deref(), Some("east"));
}
