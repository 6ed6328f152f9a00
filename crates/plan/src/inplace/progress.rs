//! How far a change has come: the annotation that remembers it, in OpenKruise's form.

use std::collections::BTreeMap;

use dapple_edit::image::Image;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Intent, Target, is_resized};

/// For so many seconds a resize may be deferred. Then the pod is replaced: a new one can make others give way to it.
pub const PATIENCE: i64 = 300;

/// A container as it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running<'a> {
    /// Its name.
    pub name: &'a str,
    /// The image that it should run.
    pub image: &'a str,
    /// The image that it runs, as the node names it. Empty if the node has said nothing yet.
    pub status_image: &'a str,
    /// What the node identifies that image by. Empty if the node has said nothing yet.
    pub image_id: &'a str,
}

/// How the kubelet does with a resize: from the pod's conditions PodResizePending and PodResizeInProgress. One that it has
/// not answered yet is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resize {
    /// There is none.
    #[default]
    None,
    /// It is being done.
    InProgress,
    /// There is no room for it at present.
    Deferred {
        /// Since when, in seconds since 1970.
        since: i64,
    },
    /// The node can never do it.
    Infeasible,
}

impl Resize {
    /// From the reason that the condition PodResizePending gives and since when it does, and from whether there is the
    /// condition PodResizeInProgress. They are there only while they are true.
    pub fn read(pending: Option<(&str, i64)>, is_in_progress: bool) -> Self {
        match pending {
            Some(("Infeasible", _)) => Self::Infeasible,
            Some((_, since)) => Self::Deferred { since },
            None if is_in_progress => Self::InProgress,
            None => Self::None,
        }
    }

    /// The kubelet says something only once it has seen the change: until then, what containers have tells.
    pub fn or_unseen(self, state: Option<&str>, pod: impl FnOnce() -> Value) -> Self {
        if self == Self::None && state.is_some() && !is_resized(&pod()) { Self::InProgress } else { self }
    }
}

/// How far a change has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Progress {
    /// There is none, or the node has done all of it.
    #[default]
    Done,
    /// The node is at it.
    Waiting,
    /// It cannot be done: the pod has to be replaced.
    Stuck,
    /// As waiting, but stuck from this time on, in seconds since 1970.
    Until(i64),
}

/// How far the change has come that the annotation tells of. One that cannot be read tells of none.
pub fn progress(
    state_annotation: Option<&str>,
    intent: Intent,
    containers: &[Running<'_>],
    resize: Resize,
    now: i64,
) -> Progress {
    let state = state_annotation.and_then(State::parse);
    if state.as_ref().is_some_and(State::is_postponed) {
        return Progress::Stuck;
    }
    if intent == Intent::Pending {
        // What the kubelet says is about an earlier one.
        return Progress::Waiting;
    }
    let Some(state) = state else { return Progress::Done };
    // Somebody else's resize is not ours to wait for, and no reason to replace a pod.
    match resize {
        _ if !state.update_resources => (),
        Resize::None => (),
        Resize::InProgress => return Progress::Waiting,
        Resize::Infeasible => return Progress::Stuck,
        Resize::Deferred { since } => {
            let end = since.saturating_add(PATIENCE);
            return if now >= end { Progress::Stuck } else { Progress::Until(end) };
        }
    }
    if state.last().all(|(name, recorded)| is_done(name, recorded, containers)) {
        Progress::Done
    } else {
        Progress::Waiting
    }
}

/// When a pod was last changed where it runs, in seconds since 1970.
pub fn changed_at(state_annotation: &str) -> Option<i64> {
    let time = State::parse(state_annotation)?.update_timestamp?;
    time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// What the annotation says. Field names, their order, and what is left out are OpenKruise's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct State {
    revision: String,
    update_timestamp: Option<String>,
    last_container_statuses: Option<BTreeMap<String, Recorded>>,
    #[serde(skip_serializing_if = "is_false")]
    update_resources: bool,
    #[serde(skip_serializing_if = "is_false")]
    update_images: bool,
    /// Images that follow once other containers are ready. We never put anything off; OpenKruise does by priority.
    #[serde(skip_serializing)]
    next_container_images: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing)]
    next_container_ref_metadata: Option<Map<String, Value>>,
    #[serde(skip_serializing)]
    next_container_resources: Option<Map<String, Value>>,
    container_batches_record: Option<Vec<Batch>>,
}

/// What ran in a container before the change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Recorded {
    #[serde(rename = "imageID", skip_serializing_if = "String::is_empty")]
    image_id: String,
}

/// Containers that were changed at one time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Batch {
    timestamp: Option<String>,
    containers: Option<Vec<String>>,
}

impl State {
    /// Reads the annotation.
    pub(super) fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// The annotation.
    pub(super) fn to_json(&self) -> String {
        // Text and flags alone: it cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Images that were to follow later.
    pub(super) fn postponed_images(&self) -> BTreeMap<String, String> {
        self.next_container_images.clone().unwrap_or_default()
    }

    /// The state once these images are given to the pod. Containers that the node has not restarted for the change before
    /// are waited for as before; the others run what is recorded now.
    pub(super) fn superseded(&self, images: &BTreeMap<String, String>, resizes: bool, target: &Target<'_>) -> Self {
        let under_way = self.last().filter(|(name, recorded)| !is_done(name, recorded, target.containers));
        let mut last: BTreeMap<String, Recorded> =
            under_way.map(|(name, recorded)| (name.clone(), recorded.clone())).collect();
        for name in images.keys() {
            let running = target.containers.iter().find(|container| container.name == name);
            let image_id = running.map(|container| container.image_id.to_owned()).unwrap_or_default();
            last.entry(name.clone()).or_insert(Recorded { image_id });
        }
        let batch =
            Batch { timestamp: Some(target.now.to_owned()), containers: Some(images.keys().cloned().collect()) };
        Self {
            revision: target.hash.to_owned(),
            update_timestamp: Some(target.now.to_owned()),
            update_resources: resizes || self.update_resources,
            update_images: !last.is_empty(),
            last_container_statuses: (!last.is_empty()).then_some(last),
            container_batches_record: Some(vec![batch]),
            ..Self::default()
        }
    }

    fn last(&self) -> impl Iterator<Item = (&String, &Recorded)> {
        self.last_container_statuses.iter().flatten()
    }

    /// Whether OpenKruise stopped before it had given the pod everything. What else it meant to change is in its own form
    /// and by its own rules (containers restarted for their environment): a new pod has all of it.
    fn is_postponed(&self) -> bool {
        let has_any = |later: &Option<Map<String, Value>>| later.as_ref().is_some_and(|later| !later.is_empty());
        !self.postponed_images().is_empty()
            || has_any(&self.next_container_ref_metadata)
            || has_any(&self.next_container_resources)
    }
}

/// Whether a container runs what it should. A tag may be pushed anew and two names may be of one image: so either counts,
/// another image by identity or the right one by name.
fn is_done(name: &str, recorded: &Recorded, containers: &[Running<'_>]) -> bool {
    containers.iter().find(|container| container.name == name).is_some_and(|running| {
        let is_another = !running.image_id.is_empty() && running.image_id != recorded.image_id;
        is_another || is_same_image(running.image, running.status_image)
    })
}

fn is_same_image(one: &str, other: &str) -> bool {
    let full = |name: &str| name.parse::<Image>().ok().map(|image| image.in_full());
    one == other || full(one).is_some_and(|image| Some(image) == full(other))
}

fn is_false(flag: &bool) -> bool {
    !flag
}
