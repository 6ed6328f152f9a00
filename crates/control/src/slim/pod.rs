//! A Pod as dapple keeps it: whose it is, where it runs, which images, and how it is doing.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_plan::daemonset::cell::Gate;
use dapple_plan::daemonset::inplace::{self, GATE, Intent, RESIZE_ANNOTATION, Resize, STATE_ANNOTATION};
use dapple_plan::daemonset::lifecycle::NOT_READY_GATE;
use dapple_plan::daemonset::pod::HASH_LABEL;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Interner, StringMap};
use crate::observed::{KindInfo, Wire};
use crate::store::{Cached, Index, Meta};

/// Annotations of these prefixes are read by dapple; all others are left on the wire, since some hold kilobytes.
const KEPT_ANNOTATIONS: [&str; 4] = ["dapple.dev/", "apps.kruise.io/", "kruise.io/", "lifecycle.apps.kruise.io/"];

/// A cached Pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace, name, UID and version.
    pub meta: Meta,
    /// Labels.
    pub labels: StringMap,
    /// The annotations that dapple reads.
    pub annotations: StringMap,
    /// UID of the controlling owner.
    pub owner: Option<Arc<str>>,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// `status.phase`.
    pub phase: Arc<str>,
    /// Since when its Ready condition is True, in seconds; `None` while it is not.
    pub ready_since: Option<i64>,
    /// When its deletion was asked for, in seconds, if it was.
    pub leaving_since: Option<i64>,
    /// Finalizers.
    pub finalizers: Box<[Arc<str>]>,
    /// The gate of updates in place.
    pub gate: Gate,
    /// The gate of hooks.
    pub service: Gate,
    /// How the kubelet does with a change of cpu or memory.
    pub resize: Resize,
    /// Whether cpu or memory are yet to be changed.
    pub intent: Intent,
    /// Why it does not come up: the first reason that a container, or the scheduler, gives.
    pub trouble: Option<Arc<str>>,
    /// Containers, in the spec's order.
    pub containers: Box<[Container]>,
}

/// A cached container: what was asked for, and what runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Name.
    pub name: Arc<str>,
    /// Image in the spec.
    pub image: Arc<str>,
    /// Image in the status, empty before it runs.
    pub status_image: Arc<str>,
    /// `imageID` in the status, empty before it runs.
    pub image_id: Arc<str>,
    /// Whether the container is ready.
    pub ready: bool,
}

/// The fields of a Pod that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct PodWire {
    metadata: PodMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
    #[serde(default)]
    finalizers: Vec<String>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
}

impl PodMeta {
    /// The timestamp is that of the end of the grace period.
    fn leaving_since(&self) -> Option<i64> {
        let end = self.deletion_timestamp?.as_second();
        Some(end - self.deletion_grace_period_seconds.unwrap_or(0))
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Owner {
    uid: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: Option<String>,
    affinity: Affinity,
    containers: Vec<ContainerWire>,
    readiness_gates: Vec<ReadinessGate>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadinessGate {
    condition_type: String,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerWire {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default)]
    resources: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default, rename = "imageID")]
    image_id: String,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    state: ContainerState,
    #[serde(default)]
    resources: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Deserialize)]
struct Waiting {
    #[serde(default)]
    reason: String,
}

impl PodStatus {
    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|is| is.kind == kind)
    }

    fn gate(&self, spec: &PodSpec, kind: &str) -> Gate {
        if !spec.readiness_gates.iter().any(|gate| gate.condition_type == kind) {
            return Gate::Absent;
        }
        match self.condition(kind).map(|is| is.status.as_str()) {
            Some("True") => Gate::Open,
            Some("False") => Gate::Closed,
            _ => Gate::Unset,
        }
    }

    /// The conditions are there only while they are true.
    fn resize(&self) -> Resize {
        let since = |is: &Condition| is.last_transition_time.map_or(0, Timestamp::as_second);
        match (self.condition("PodResizePending"), self.condition("PodResizeInProgress")) {
            (Some(pending), _) if pending.reason == "Infeasible" => Resize::Infeasible,
            (Some(pending), _) => Resize::Deferred { since: since(pending) },
            (None, Some(_)) => Resize::InProgress,
            (None, None) => Resize::None,
        }
    }

    fn trouble(&self) -> Option<&str> {
        let waiting =
            self.container_statuses.iter().find_map(|status| Some(status.state.waiting.as_ref()?.reason.as_str()));
        let unplaced = || self.condition("PodScheduled").filter(|is| is.status == "False").map(|is| is.reason.as_str());
        // What every pod goes through when it starts is no trouble.
        let is_start = |reason: &str| ["", "ContainerCreating", "PodInitializing"].contains(&reason);
        waiting.or_else(unplaced).filter(|reason| !is_start(reason))
    }
}

/// As much of a pod's affinity as names the one node that it waits for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: NodeAffinity,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: NodeSelector,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    node_selector_terms: Vec<NodeTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeTerm {
    match_fields: Vec<NodeField>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeField {
    key: String,
    #[serde(default)]
    values: Vec<String>,
}

impl PodSpec {
    /// The pod's node, or the one that it waits for: a DaemonSet's pod names it before the scheduler has seen it.
    fn node(&self) -> Option<&String> {
        let terms =
            &self.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms;
        let named = || match terms.as_slice() {
            [term] => term.match_fields.iter().find(|field| field.key == "metadata.name")?.values.first(),
            _ => None,
        };
        self.node_name.as_ref().or_else(named)
    }
}

/// The cpu and memory that was asked for, of all containers.
fn asked(spec: &PodSpec) -> Value {
    let asked = spec.containers.iter().map(|known| json!({"name": known.name, "resources": known.resources}));
    json!({"containers": asked.collect::<Vec<_>>()})
}

/// Whether all containers have the cpu and memory that was asked for.
fn is_resized(spec: &PodSpec, status: &PodStatus) -> bool {
    let given = status.container_statuses.iter().map(|known| json!({"name": known.name, "resources": known.resources}));
    inplace::is_resized(&json!({"spec": asked(spec), "status": {"containerStatuses": given.collect::<Vec<_>>()}}))
}

/// What is still to be asked for. Few pods have such a note.
fn intent(metadata: &PodMeta, spec: &PodSpec) -> Intent {
    let note = metadata.annotations.get(RESIZE_ANNOTATION);
    let label = metadata.labels.get(HASH_LABEL).map(String::as_str).unwrap_or_default();
    note.map(|note| inplace::intent(Some(note), label, &json!({"spec": asked(spec)}))).unwrap_or_default()
}

impl Wire for PodWire {
    const KIND: KindInfo = KindInfo { group: "", version: "v1", kind: "Pod", plural: "pods" };
}

impl Cached for Pod {
    type Wire = PodWire;

    fn slim(meta: Meta, wire: PodWire, strings: &mut Interner) -> Self {
        let PodWire { mut metadata, spec, status } = wire;
        metadata.annotations.retain(|key, _| KEPT_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
        let ready = status.conditions.iter().find(|is| is.kind == "Ready" && is.status == "True");
        let owner = metadata.owner_references.iter().find(|owner| owner.controller);
        let trouble = status.trouble().filter(|_| ready.is_none()).map(|why| strings.share(why));
        let finalizers = metadata.finalizers.iter().map(|name| strings.share(name)).collect();
        let is_edited = metadata.annotations.contains_key(STATE_ANNOTATION);
        let resize = match status.resize() {
            // The kubelet says something only once it has seen the change.
            Resize::None if is_edited && !is_resized(&spec, &status) => Resize::InProgress,
            resize => resize,
        };
        let share_container = |container: &ContainerWire| {
            let state = status.container_statuses.iter().find(|state| state.name == container.name);
            Container {
                name: strings.share(&container.name),
                image: strings.share(&container.image),
                status_image: strings.share(state.map_or("", |state| &state.image)),
                image_id: strings.share(state.map_or("", |state| &state.image_id)),
                ready: state.is_some_and(|state| state.ready),
            }
        };
        let containers = spec.containers.iter().map(share_container).collect();
        Self {
            finalizers,
            gate: status.gate(&spec, GATE),
            service: status.gate(&spec, NOT_READY_GATE),
            resize,
            intent: intent(&metadata, &spec),
            trouble,
            containers,
            labels: StringMap::new(&metadata.labels, strings),
            annotations: StringMap::new(&metadata.annotations, strings),
            owner: owner.map(|owner| strings.share(&owner.uid)),
            node: spec.node().map(|node| strings.share(node)),
            created: metadata.creation_timestamp.map_or(0, Timestamp::as_second),
            phase: strings.share(&status.phase),
            ready_since: ready.map(|is| is.last_transition_time.map_or(0, Timestamp::as_second)),
            leaving_since: metadata.leaving_since(),
            meta,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn index(&self, add: &mut dyn FnMut(Index, Arc<str>)) {
        if let Some(owner) = &self.owner {
            add(Index::Owner, owner.clone());
        }
        if let Some(node) = &self.node {
            add(Index::Node, node.clone());
        }
    }
}
