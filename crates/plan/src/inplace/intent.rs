//! The cpu and memory that a pod is yet to be given: written down before it is resized.
//!
//! Label and amounts of a pod are changed by two requests, and whoever sends them may stop in between. So the first one,
//! which sets the label, also notes the amounts on the pod; whoever comes next resizes it to them, and takes the note away
//! once they are there: what somebody else sets later is not ours to set back.
//!
//! Invariant, tested as a property: the amounts of a pod, overlaid by those of its note, are what its label stands for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::amounts::{KINDS, NAMES, container, kept};
use super::{Difference, exactly};

/// The annotation that says which amounts a pod is yet to be given.
pub const RESIZE_ANNOTATION: &str = "dapple.dev/resize";

/// What a pod's note of a resize asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Intent {
    /// Nothing: there is none, or none that can be read, or it is of another label than the pod has.
    #[default]
    None,
    /// The pod is to be resized.
    Pending,
    /// The pod has the amounts, and the note can go.
    Done,
}

/// What the annotation says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The label that these amounts belong to. Who does not know of the note, such as OpenKruise, may give the pod
    /// another: then it means nothing any more.
    revision: String,
    containers: ByContainer,
}

/// By container, by `requests` or `limits`, by resource: an amount.
type ByContainer = BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>>;

impl Note {
    /// Reads the annotation; nothing if it says anything but amounts of cpu and memory.
    fn parse(annotation: &str) -> Option<Self> {
        let note: Self = serde_json::from_str(annotation).ok()?;
        let mut kinds = note.containers.values().flatten();
        let is_known = kinds.all(|(kind, amounts)| {
            KINDS.contains(&kind.as_str())
                && amounts.iter().all(|(name, amount)| NAMES.contains(&name.as_str()) && kept(amount).is_some())
        });
        is_known.then_some(note)
    }
}

/// What the note of a pod with this label asks for. Of the pod, its containers are read.
pub fn intent(annotation: Option<&str>, label: &str, pod: &Value) -> Intent {
    let note = annotation.and_then(Note::parse).filter(|note| note.revision == label && !note.containers.is_empty());
    let Some(note) = note else { return Intent::None };
    let mut is_done = true;
    for (name, kinds) in &note.containers {
        let Some(container) = container(pod, name) else { return Intent::None };
        for (kind, amounts) in kinds {
            let has = |name: &str| container.get("resources")?.get(kind)?.get(name).and_then(kept);
            is_done &= amounts.iter().all(|(name, amount)| has(name) == kept(amount));
        }
    }
    if is_done { Intent::Done } else { Intent::Pending }
}

/// The note to be written with a change to this hash: what the pod was yet to be given, and over it what differs now.
/// Nothing if no amount is to change.
pub(crate) fn noted(pending: Option<&str>, difference: &Difference, hash: &str) -> Option<String> {
    let mut containers = pending.and_then(Note::parse).unwrap_or_default().containers;
    for (name, amounts) in &difference.resources {
        let kinds = containers.entry(name.clone()).or_default();
        for (kind, amounts) in amounts.as_object().into_iter().flatten() {
            let known = kinds.entry(kind.clone()).or_default();
            let amounts = amounts.as_object().into_iter().flatten();
            known.extend(amounts.map(|(name, amount)| (name.clone(), amount.clone())));
        }
    }
    let note = Note { revision: hash.to_owned(), containers };
    // Text and amounts alone: it cannot fail.
    (!note.containers.is_empty()).then(|| serde_json::to_string(&note).unwrap_or_default())
}

/// The strategic merge patch for the subresource `resize` that gives a pod the amounts of its note. It does nothing to
/// another pod of that name, nor to one that has changed since.
pub fn resize(annotation: &str, uid: &str, version: u64) -> Option<Value> {
    let note = Note::parse(annotation)?;
    let containers = note.containers.iter().map(|(name, amounts)| json!({"name": name, "resources": amounts}));
    let containers: Vec<Value> = containers.collect();
    Some(json!({"metadata": exactly(uid, version), "spec": {"containers": containers}}))
}

/// The strategic merge patch that takes the note away.
pub fn clear(uid: &str, version: u64) -> Value {
    let mut metadata = exactly(uid, version);
    metadata.insert("annotations".to_owned(), json!({RESIZE_ANNOTATION: null}));
    json!({"metadata": metadata})
}
