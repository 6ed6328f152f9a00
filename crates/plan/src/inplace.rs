//! Changing a pod where it runs, as OpenKruise does it: its annotation and its readiness gate, so that either can go on
//! where the other stopped.
//!
//! A running pod takes other images, labels and annotations, and other amounts of cpu and memory. [`difference`] says
//! whether that is all that is to change; [`change`] and then [`resize`] are the patches that change it; [`progress`] tells
//! when the node has done it.
//!
//! Invariants, tested as properties:
//! - A pod made from the one template, with the patches of its difference to another, is as one made from the other.
//! - A change on top of one under way forgets no container that the node has yet to restart.

mod amounts;
mod intent;
mod progress;
mod readers;

use std::collections::{BTreeMap, BTreeSet};

use dapple_edit::document::Document;
use dapple_edit::image::Image;
use dapple_edit::meaning::meaning;
use dapple_edit::path::{Path, Step};
use dapple_edit::render::changes;
use serde_json::{Map, Value, json};

pub(crate) use self::intent::noted;
pub use self::intent::{Intent, RESIZE_ANNOTATION, clear, intent, resize};
pub use self::progress::{PATIENCE, Progress, Resize, Running, changed_at, progress};

use self::amounts::{Amounts, container, containers, qos};
use self::progress::State;

/// The condition that is false while a pod is being changed: a readiness gate, so that the pod gets no traffic meanwhile.
pub const GATE: &str = "InPlaceUpdateReady";

/// The annotation that says which change is under way, and what ran before it.
pub const STATE_ANNOTATION: &str = "apps.kruise.io/inplace-update-state";

/// The annotation by which OpenKruise remembers a change that it will make after a grace period.
pub const GRACE_ANNOTATION: &str = "apps.kruise.io/inplace-update-grace";

/// What differs between two renderings where a running pod can be given all of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Difference {
    /// Labels with their new values; none where a label goes.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations, likewise.
    pub annotations: BTreeMap<String, Option<String>>,
    /// By container: its new image.
    pub images: BTreeMap<String, String>,
    /// By container: the amounts that change, as `{"requests": {"cpu": …}, "limits": {…}}`.
    pub resources: BTreeMap<String, Value>,
}

/// What has to change at a pod of the one template to make it one of the other. `None`: it must be replaced.
pub fn difference(before: &Value, after: &Value) -> Option<Difference> {
    let written = (before, after);
    let (before, after) = (meaning(Document::PodTemplate, before), meaning(Document::PodTemplate, after));
    let mut found = Difference::default();
    let (mut pulled, mut sized) = (BTreeSet::new(), BTreeSet::new());
    for change in changes(Document::PodTemplate, &before, &after) {
        match place(&change.path)? {
            Place::Label(key) => _ = found.labels.insert(key.to_owned(), text(change.after)?),
            Place::Annotation(key) => _ = found.annotations.insert(key.to_owned(), text(change.after)?),
            Place::Image(name) => {
                found.images.insert(name.to_owned(), text(change.after)??);
                pulled.insert(name.to_owned());
            }
            Place::PullPolicy(name) => _ = pulled.insert(name.to_owned()),
            Place::Amount(name) => _ = sized.insert(name.to_owned()),
        }
    }
    // It follows from the image where it is not written, and cannot be changed.
    let both = |name: &str| container(&before, name).zip(container(&after, name));
    for (old, new) in pulled.iter().filter_map(|name| both(name)) {
        if pull_policy(old) != pull_policy(new) {
            return None;
        }
    }
    for name in sized {
        // As they are written: what they mean is the same, and nobody would know the numbers again.
        let (old, new) = container(written.0, &name).zip(container(written.1, &name))?;
        let changed = Amounts::of(old)?.changes_to(&Amounts::of(new)?)?;
        if !changed.is_empty() {
            found.resources.insert(name, Value::Object(changed));
        }
    }
    let can_have_it = found.resources.is_empty() || (can_resize(&before) && qos(&before)? == qos(&after)?);
    (can_have_it && !readers::would_miss(&after, &found)).then_some(found)
}

/// Whether Kubernetes resizes containers of such a pod at all.
fn can_resize(template: &Value) -> bool {
    let is_windows = template.pointer("/spec/os/name").is_some_and(|name| name == "windows");
    // Amounts for the pod as a whole bind those of its containers.
    !is_windows && template.pointer("/spec/resources").is_none()
}

/// A new label, annotation or image; nothing if it is none that could be.
fn text(value: Option<Value>) -> Option<Option<String>> {
    match value {
        None => Some(None),
        Some(Value::String(text)) => Some(Some(text)),
        Some(_) => None,
    }
}

fn pull_policy(container: &Value) -> &str {
    let image = || container.get("image")?.as_str()?.parse::<Image>().ok();
    let default = || if image().is_some_and(|image| !image.is_latest()) { "IfNotPresent" } else { "Always" };
    container.get("imagePullPolicy").and_then(Value::as_str).unwrap_or_else(default)
}

/// A field of a pod that may change while it runs.
pub(crate) enum Place<'a> {
    /// The label of this key.
    Label(&'a str),
    /// The annotation of this key.
    Annotation(&'a str),
    /// The image of this container.
    Image(&'a str),
    /// When the image of this container is pulled: as written, it may change if the image makes up for it.
    PullPolicy(&'a str),
    /// Cpu or memory of this container.
    Amount(&'a str),
}

/// Which of the fields that Kubernetes lets change in a running pod this is; nothing if it is none.
pub(crate) fn place(path: &Path) -> Option<Place<'_>> {
    match path.steps() {
        [Step::Field(top), Step::Field(map), Step::Field(key)] if top == "metadata" => match map.as_str() {
            "labels" => Some(Place::Label(key)),
            "annotations" => Some(Place::Annotation(key)),
            _ => None,
        },
        [Step::Field(top), Step::Field(list), Step::Keyed { value: name, .. }, rest @ ..]
            if top == "spec" && list == "containers" =>
        {
            let fields: Option<Vec<&str>> = rest.iter().map(field).collect();
            match fields?.as_slice() {
                ["image"] => Some(Place::Image(name)),
                ["imagePullPolicy"] => Some(Place::PullPolicy(name)),
                ["resources", "limits" | "requests", "cpu" | "memory"] => Some(Place::Amount(name)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn field(step: &Step) -> Option<&str> {
    match step {
        Step::Field(name) => Some(name),
        Step::Item(_) | Step::Keyed { .. } => None,
    }
}

/// The pod that is to change, and what it is to be.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its resource version, as last seen.
    pub version: u64,
    /// Names the new rendering.
    pub hash: &'a str,
    /// Name of the new revision.
    pub revision: &'a str,
    /// The time, as RFC 3339 has it.
    pub now: &'a str,
    /// The state annotation that it has.
    pub state: Option<&'a str>,
    /// The note of its resize, if that is yet to be done.
    pub pending: Option<&'a str>,
    /// Its containers as they run.
    pub containers: &'a [Running<'a>],
    /// The lifecycle state that it gets with the change.
    pub lifecycle: Option<&'a str>,
}

/// The strategic merge patch that gives a pod other labels, annotations and images, and remembers what ran before: so
/// [`progress`] can tell when the node has done it. It does nothing to another pod of that name, nor to one that has changed
/// since.
pub fn change(difference: &Difference, target: &Target<'_>) -> Value {
    let under_way = target.state.and_then(State::parse).unwrap_or_default();
    // What OpenKruise had put off until other containers are ready: now is later.
    let mut images = under_way.postponed_images();
    images.extend(difference.images.clone());
    let state = under_way.superseded(&images, !difference.resources.is_empty(), target);
    let mut annotations = json_map(&difference.annotations);
    annotations.insert(STATE_ANNOTATION.to_owned(), json!(state.to_json()));
    let mut metadata = exactly(target.uid, target.version);
    metadata.insert("labels".to_owned(), Value::Object(json_map(&difference.labels)));
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
    let mut patch = json!({"metadata": metadata});
    if !images.is_empty() {
        let images = images.iter().map(|(name, image)| json!({"name": name, "image": image}));
        patch["spec"] = json!({"containers": images.collect::<Vec<_>>()});
    }
    patch
}

/// The strategic merge patch for the subresource `status` that opens or closes a readiness gate.
pub fn gate(condition: &str, is_open: bool, uid: &str, version: u64, now: &str) -> Value {
    let status = if is_open { "True" } else { "False" };
    let mut written = json!({"type": condition, "status": status, "lastTransitionTime": now});
    written["reason"] = match (condition == GATE, is_open) {
        (true, true) => json!("InPlaceUpdateComplete"),
        (true, false) => json!("StartInPlaceUpdate"),
        (false, true) => Value::Null,
        (false, false) => json!("LifecycleHook"),
    };
    if is_open {
        // Who kept it closed is listed there by OpenKruise, and would count as keeping it closed still.
        written["message"] = Value::Null;
    }
    json!({"metadata": exactly(uid, version), "status": {"conditions": [written]}})
}

/// Whether the node has given all containers of a pod the cpu and memory that its spec has. A node that does not report
/// amounts is not waited for.
///
/// The kubelet says that a resize is pending or in progress only once it has seen it: until then this tells.
pub fn is_resized(pod: &Value) -> bool {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    statuses.filter(|status| status.get("resources").is_some_and(Value::is_object)).all(|status| {
        let name = status.get("name").and_then(Value::as_str);
        let wanted = name.and_then(|name| container(pod, name)).and_then(Amounts::of);
        let Some((wanted, given)) = wanted.zip(Amounts::of(status)) else { return true };
        given.has(&wanted)
    })
}

/// Metadata by which a patch applies to this pod alone, as last seen.
pub(crate) fn exactly(uid: &str, version: u64) -> Map<String, Value> {
    Map::from_iter([("uid".to_owned(), json!(uid)), ("resourceVersion".to_owned(), json!(version.to_string()))])
}

fn json_map(values: &BTreeMap<String, Option<String>>) -> Map<String, Value> {
    values.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
}

/// All containers of a pod or a template, those that run first included.
fn all_containers(template: &Value) -> impl Iterator<Item = &Value> {
    containers(template, "containers").chain(containers(template, "initContainers"))
}

#[cfg(test)]
#[path = "inplace_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "inplace_properties.rs"]
mod properties;
