//! A Pod as dapple keeps it: whose it is, where it runs, which images, and how it is doing. These are facts, as the API
//! server tells them: what follows from them for a family is found out in `dapple-plan`.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_plan::inplace;
use dapple_plan::marker::result::{self, Run};
use dapple_plan::mutant::{Mutant, is_on};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Cached, Hashes, Index, Interner, Meta, StringMap};
use crate::observed::{KindInfo, KindWire, Wire};

/// Annotations of these prefixes are read by dapple. Of all others only hashes are kept, since some hold kilobytes.
const KEPT_ANNOTATIONS: [&str; 7] = [
    "dapple.dev/",
    "apps.kruise.io/",
    "kruise.io/",
    "lifecycle.apps.kruise.io/",
    "controller.kubernetes.io/pod-deletion-cost",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
];

/// Conditions that every pod has. What matters of them is kept in fields of its own.
const COMMON_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// A cached Pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace, name, UID and version.
    pub meta: Meta,
    /// Labels.
    pub labels: StringMap,
    /// The annotations that dapple reads.
    pub annotations: StringMap,
    /// All other annotations: any of them may be a mark.
    pub other_annotations: Hashes,
    /// UID of the controlling owner.
    pub owner: Option<Arc<str>>,
    /// Where the controlling owner is: API version, kind and name, with blanks between them.
    pub owner_object: Option<Arc<str>>,
    /// The node it is bound to, or the one that it waits for: `is_bound` says which.
    pub node: Option<Arc<str>>,
    /// Whether the scheduler has bound it.
    pub is_bound: bool,
    /// Labels that its node must have.
    pub node_selector: StringMap,
    /// What keeps the scheduler from looking at it.
    pub scheduling_gates: Box<[Arc<str>]>,
    /// Names of the claims of its volumes.
    pub claims: Box<[Arc<str>]>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Its address, if it has one.
    pub ip: Option<Arc<str>>,
    /// `status.phase`.
    pub phase: Arc<str>,
    /// Since when its Ready condition is True, in seconds; `None` while it is not.
    pub ready_since: Option<i64>,
    /// When its deletion was asked for, in seconds, if it was.
    pub leaving_since: Option<i64>,
    /// Finalizers.
    pub finalizers: Box<[Arc<str>]>,
    /// Its readiness gates.
    pub readiness_gates: Box<[ReadinessGate]>,
    /// Conditions besides those of readiness gates and those that Kubernetes gives every pod.
    pub conditions: Box<[Condition]>,
    /// Why it does not come up: the first reason that a container, or the scheduler, gives.
    pub trouble: Option<Arc<str>>,
    /// Containers, in the spec's order.
    pub containers: Box<[Container]>,
    /// What probes run in: its containers, and its init containers that run as long as these do.
    pub probed: Box<[result::Container]>,
    /// What it asks for besides its containers, as JSON: by init containers and as overhead; empty if nothing.
    pub requests_besides: Arc<str>,
}

/// A readiness gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessGate {
    /// The type of the condition that it goes by.
    pub condition_type: Arc<str>,
    /// What that condition says; `Unknown` if the pod does not have it.
    pub status: ConditionStatus,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Type.
    pub condition_type: Arc<str>,
    /// What it says.
    pub status: ConditionStatus,
    /// Why, in a word.
    pub reason: Arc<str>,
    /// Since when, in seconds since 1970.
    pub since: i64,
}

/// What a condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody has said.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ConditionStatus {
    /// As in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
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
    /// The resources that were asked for, as JSON; empty if none were. They are read where they matter, which is seldom.
    pub resources: Arc<str>,
    /// The resources in the status, as JSON; empty before it says any.
    pub status_resources: Arc<str>,
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
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: Option<String>,
    node_selector: BTreeMap<String, String>,
    scheduling_gates: Vec<SchedulingGate>,
    volumes: Vec<VolumeWire>,
    affinity: Affinity,
    containers: Vec<ContainerWire>,
    init_containers: Vec<InitContainerWire>,
    overhead: Option<Box<RawValue>>,
    readiness_gates: Vec<ReadinessGateWire>,
}

/// A volume, as far as it has a claim: one that is named, or one that is made for the pod alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeWire {
    name: String,
    persistent_volume_claim: Option<ClaimWire>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimWire {
    claim_name: String,
}

impl VolumeWire {
    fn claim(&self, pod: &str) -> Option<String> {
        let named = self.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
        named.or_else(|| self.ephemeral.is_some().then(|| format!("{pod}-{}", self.name)))
    }
}

#[derive(Debug, Clone, Deserialize)]
struct SchedulingGate {
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadinessGateWire {
    condition_type: String,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerWire {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default)]
    ports: Vec<PortWire>,
    resources: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortWire {
    name: Option<String>,
    container_port: u16,
}

/// An init container, as far as it asks for resources, or runs as long as the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitContainerWire {
    #[serde(default)]
    name: String,
    #[serde(default)]
    ports: Vec<PortWire>,
    restart_policy: Option<String>,
    resources: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    phase: String,
    conditions: Vec<ConditionWire>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionWire {
    #[serde(rename = "type")]
    condition_type: String,
    status: ConditionStatus,
    #[serde(default)]
    reason: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default, rename = "imageID")]
    image_id: String,
    #[serde(default, rename = "containerID")]
    container_id: String,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    state: ContainerState,
    #[serde(default)]
    last_state: ContainerState,
    resources: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ContainerState {
    waiting: Option<Waiting>,
    running: Option<Running>,
    terminated: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Running {
    started_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
struct Waiting {
    #[serde(default)]
    reason: String,
}

impl ContainerStatus {
    /// Whether it runs, as the kubelet says.
    fn run(&self) -> Run {
        let is_known = !self.container_id.is_empty();
        match &self.state {
            ContainerState { running: Some(Running { started_at }), .. } if is_known => {
                Run::Runs { id: Arc::from(self.container_id.as_str()), since: seconds(*started_at) }
            }
            ContainerState { terminated: Some(_), .. } => Run::Stopped,
            _ if self.last_state.terminated.is_some() => Run::Stopped,
            _ => Run::NotYet,
        }
    }
}

impl PodStatus {
    fn condition(&self, condition_type: &str) -> Option<&ConditionWire> {
        self.conditions.iter().find(|known| known.condition_type == condition_type)
    }

    fn trouble(&self) -> Option<&str> {
        let waiting =
            self.container_statuses.iter().find_map(|status| Some(status.state.waiting.as_ref()?.reason.as_str()));
        let unplaced = || {
            self.condition("PodScheduled").filter(|is| is.status == ConditionStatus::False).map(|is| is.reason.as_str())
        };
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

    /// As much of it as asks for resources besides its containers.
    fn requests_besides(&self) -> String {
        let asks =
            |container: &InitContainerWire| container.resources.as_deref().is_some_and(|some| some.get() != "{}");
        if self.overhead.is_none() && !self.init_containers.iter().any(asks) {
            return String::new();
        }
        let container = |container: &InitContainerWire| json!({"restartPolicy": container.restart_policy, "resources": container.resources});
        let containers: Vec<Value> = self.init_containers.iter().map(container).collect();
        json!({"initContainers": containers, "overhead": self.overhead}).to_string()
    }
}

impl PodWire {
    fn share_gates(&self, strings: &mut Interner) -> Box<[ReadinessGate]> {
        let share = |gate: &ReadinessGateWire| ReadinessGate {
            condition_type: strings.share(&gate.condition_type),
            status: self.status.condition(&gate.condition_type).map(|known| known.status).unwrap_or_default(),
        };
        self.spec.readiness_gates.iter().map(share).collect()
    }

    fn share_conditions(&self, strings: &mut Interner) -> Box<[Condition]> {
        let is_gate = |known: &ConditionWire| {
            self.spec.readiness_gates.iter().any(|gate| gate.condition_type == known.condition_type)
        };
        let conditions = self.status.conditions.iter();
        let own = conditions.filter(|known| !COMMON_CONDITIONS.contains(&&*known.condition_type) && !is_gate(known));
        let share = |known: &ConditionWire| Condition {
            condition_type: strings.share(&known.condition_type),
            status: known.status,
            reason: strings.share(&known.reason),
            since: seconds(known.last_transition_time),
        };
        own.map(share).collect()
    }

    fn share_containers(&self, strings: &mut Interner) -> Box<[Container]> {
        let share = |container: &ContainerWire| {
            let state = self.status.container_statuses.iter().find(|state| state.name == container.name);
            Container {
                name: strings.share(&container.name),
                image: strings.share(&container.image),
                status_image: strings.share(state.map_or("", |state| &state.image)),
                image_id: strings.share(state.map_or("", |state| &state.image_id)),
                ready: state.is_some_and(|state| state.ready),
                resources: strings.share(raw(container.resources.as_deref())),
                status_resources: strings.share(raw(state.and_then(|state| state.resources.as_deref()))),
            }
        };
        self.spec.containers.iter().map(share).collect()
    }

    fn share_probed(&self, strings: &mut Interner) -> Box<[result::Container]> {
        let (spec, status) = (&self.spec, &self.status);
        let containers = spec.containers.iter().map(|of| (&of.name, &of.ports, &status.container_statuses));
        let sidecars = spec.init_containers.iter().filter(|of| of.restart_policy.as_deref() == Some("Always"));
        let sidecars = sidecars.map(|of| (&of.name, &of.ports, &status.init_container_statuses));
        let share = |(name, ports, statuses): (&String, &Vec<PortWire>, &Vec<ContainerStatus>)| {
            let named =
                ports.iter().filter_map(|port| Some((strings.share(port.name.as_deref()?), port.container_port)));
            result::Container {
                ports: named.collect(),
                name: strings.share(name),
                run: statuses.iter().find(|of| of.name == *name).map_or(Run::NotYet, ContainerStatus::run),
            }
        };
        containers.chain(sidecars).map(share).collect()
    }
}

fn raw(json: Option<&RawValue>) -> &str {
    json.map_or("", RawValue::get)
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

impl Wire for PodWire {}

impl KindWire for PodWire {
    const KIND: KindInfo = dapple_api::kinds::POD;
}

impl Cached for Pod {
    type Wire = PodWire;

    fn slim(meta: Meta, mut wire: PodWire, strings: &mut Interner) -> Self {
        let is_kept = |key: &str| KEPT_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix));
        let (kept, others): (BTreeMap<String, String>, BTreeMap<String, String>) =
            std::mem::take(&mut wire.metadata.annotations).into_iter().partition(|(key, _)| is_kept(key));
        let (gates, conditions) = (wire.share_gates(strings), wire.share_conditions(strings));
        let (containers, probed) = (wire.share_containers(strings), wire.share_probed(strings));
        let PodWire { metadata, spec, status } = wire;
        let ready = status.condition("Ready").filter(|known| known.status == ConditionStatus::True);
        let owner = metadata.owner_references.iter().find(|owner| owner.controller);
        let trouble = status.trouble().filter(|_| ready.is_none()).map(|why| strings.share(why));
        Self {
            finalizers: metadata.finalizers.iter().map(|name| strings.share(name)).collect(),
            readiness_gates: gates,
            conditions,
            trouble,
            containers,
            probed,
            requests_besides: strings.share(&spec.requests_besides()),
            labels: StringMap::new(&metadata.labels, strings),
            annotations: StringMap::new(&kept, strings),
            other_annotations: Hashes::of(&others),
            owner: owner.map(|owner| strings.share(&owner.uid)),
            owner_object: owner
                .map(|owner| strings.share(&format!("{} {} {}", owner.api_version, owner.kind, owner.name))),
            node: spec.node().map(|node| strings.share(node)),
            is_bound: spec.node_name.is_some(),
            node_selector: StringMap::new(&spec.node_selector, strings),
            claims: spec
                .volumes
                .iter()
                .filter_map(|volume| volume.claim(&meta.key.name))
                .map(|claim| strings.share(&claim))
                .collect(),
            scheduling_gates: spec.scheduling_gates.iter().map(|gate| strings.share(&gate.name)).collect(),
            created: seconds(metadata.creation_timestamp),
            ip: status.pod_ip.as_deref().filter(|ip| !ip.is_empty()).map(Arc::from),
            phase: strings.share(&status.phase),
            ready_since: ready.map(|known| seconds(known.last_transition_time)),
            leaving_since: metadata.leaving_since(),
            meta,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Pod {
    /// By the UID of the controlling owner.
    pub const BY_OWNER: Index<Self> =
        Index { name: "owner", values: |pod, add| pod.owner.iter().cloned().for_each(add) };
    /// By the node that it is bound to.
    pub const BY_NODE: Index<Self> =
        Index { name: "node", values: |pod, add| pod.node.iter().filter(|_| pod.is_bound).cloned().for_each(add) };
    /// Those that no owner controls, by namespace.
    pub const ORPHANS: Index<Self> = Index {
        name: "orphans",
        values: |pod, add| {
            if pod.owner.is_none() || is_on(Mutant::ForeignAdopted) {
                add(pod.meta.key.namespace.clone());
            }
        },
    };

    /// As much of its spec as says what it asks for.
    pub fn asking_spec(&self) -> Value {
        let read = |json: &str| serde_json::from_str::<Value>(json).unwrap_or_default();
        let mut spec = read(&self.requests_besides);
        spec["containers"] =
            self.containers.iter().map(|container| json!({"resources": read(&container.resources)})).collect();
        spec
    }

    /// What the condition of a readiness gate says; nothing if it has no such gate.
    pub fn gate(&self, condition_type: &str) -> Option<ConditionStatus> {
        let mut gates = self.readiness_gates.iter();
        gates.find(|gate| *gate.condition_type == *condition_type).map(|gate| gate.status)
    }

    /// Its containers as they run.
    pub fn running(&self) -> Vec<inplace::Running<'_>> {
        let containers = self.containers.iter();
        containers
            .map(|known| inplace::Running {
                name: &known.name,
                image: &known.image,
                status_image: &known.status_image,
                image_id: &known.image_id,
            })
            .collect()
    }

    /// A condition, if it is not one that Kubernetes gives every pod.
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|known| *known.condition_type == *condition_type)
    }
}
