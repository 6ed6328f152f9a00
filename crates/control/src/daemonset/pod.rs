//! What follows from the facts about a pod for its DaemonSet.

use std::sync::Arc;

use dapple_plan::daemonset::cell::{Gate, Held, PodState};
use dapple_plan::daemonset::inplace::{
    self, Intent, Progress, RESIZE_ANNOTATION, Resize, STATE_ANNOTATION, changed_at, progress,
};
use dapple_plan::daemonset::lifecycle::{NOT_READY_GATE, STATE_LABEL, State, is_fully_held, is_held};
use dapple_plan::daemonset::pod::{HASH_LABEL, REVISION_ANNOTATION};
use serde_json::{Value, json};

use super::Set;
use super::known::Names;
use crate::slim::{Container, Pod};

/// A pod as deciding sees it.
pub(super) fn pod_state(set: &Set, pod: &Pod, names: &Names, is_unchangeable: bool) -> PodState {
    let hooks = set.spec.lifecycle.as_ref();
    let (deletion, update) =
        (hooks.and_then(|hooks| hooks.pre_delete.as_ref()), hooks.and_then(|hooks| hooks.in_place_update.as_ref()));
    let label = |key: &str| pod.labels.get(key);
    let state = pod.annotations.get(STATE_ANNOTATION);
    let intent = intent(pod);
    let edit = match state {
        _ if is_unchangeable => Progress::Stuck,
        None if intent != Intent::Pending => Progress::Done,
        // At the beginning of time nothing has waited too long: when it will have is part of the answer.
        state => progress(state, intent, &pod.running(), resize(pod), i64::MIN),
    };
    let hash = pod.labels.get_shared(HASH_LABEL).unwrap_or_else(|| Arc::from(""));
    let named = pod.annotations.get(REVISION_ANNOTATION);
    let revision = named.map(|name| names.revisions.get(name));
    let gone = names.gone.as_ref().filter(|(name, _)| Some(name.as_str()) == named).map(|(_, number)| *number);
    PodState {
        name: pod.meta.key.name.clone(),
        version: pod.meta.version,
        hash: names.meanings.get(&hash).unwrap_or(&hash).clone(),
        template: revision.flatten().map(|(_, meaning)| meaning.clone()),
        number: match revision {
            Some(known) => known.map(|(number, _)| *number).or(gone),
            None => names.numbers.get(&hash).copied(),
        },
        label: hash,
        created: pod.created,
        changed: state.and_then(changed_at),
        ready_since: pod.ready_since,
        leaving_since: pod.leaving_since,
        has_ended: ["Failed", "Succeeded"].contains(&pod.phase.as_ref()),
        edit,
        intent,
        gate: gate(pod, inplace::GATE),
        service: gate(pod, NOT_READY_GATE),
        state: State::parse(label(STATE_LABEL)),
        held: Held {
            from_deletion: deletion.is_some_and(|hook| is_held(hook, label, &pod.finalizers)),
            from_update: update.is_some_and(|hook| is_held(hook, label, &pod.finalizers)),
            again: update.is_some_and(|hook| is_fully_held(hook, label, &pod.finalizers)),
        },
        trouble: pod.trouble.clone(),
    }
}

/// Whether its cpu or memory are yet to be changed. Few pods have such a note.
pub(super) fn intent(pod: &Pod) -> Intent {
    let note = pod.annotations.get(RESIZE_ANNOTATION);
    note.map(|note| inplace::intent(Some(note), hash_label(pod), &resources(pod))).unwrap_or_default()
}

/// How the kubelet does with a change of its cpu or memory.
fn resize(pod: &Pod) -> Resize {
    let pending = pod.condition("PodResizePending").map(|known| (&*known.reason, known.since));
    let said = Resize::read(pending, pod.condition("PodResizeInProgress").is_some());
    said.or_unseen(pod.annotations.get(STATE_ANNOTATION), || resources(pod))
}

fn gate(pod: &Pod, condition_type: &str) -> Gate {
    Gate::read(pod.gate(condition_type).map(|status| status.name()))
}

/// The cpu and memory that its containers were to have, and have, as in a Pod.
fn resources(pod: &Pod) -> Value {
    // What the API server sent can be read again.
    let read = |json: &str| serde_json::from_str(json).unwrap_or(Value::Null);
    let of = |text: fn(&Container) -> &str| -> Vec<Value> {
        pod.containers.iter().map(|known| json!({"name": &*known.name, "resources": read(text(known))})).collect()
    };
    json!({
        "spec": {"containers": of(|known| &known.resources)},
        "status": {"containerStatuses": of(|known| &known.status_resources)},
    })
}

/// The hash that a pod carries.
pub(super) fn hash_label(pod: &Pod) -> &str {
    pod.labels.get(HASH_LABEL).unwrap_or_default()
}
