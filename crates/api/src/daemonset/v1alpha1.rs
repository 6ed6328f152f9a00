//! The older version: served once there is a webhook that calls [`convert`](super::convert()).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::v1beta1::{Lifecycle, UpdateStrategyType, VariantStatus};
use crate::object::{ApiVersion, Kind, resource};
use crate::schema;
use crate::template::PodTemplate;

/// Annotation that says here what `scaleStrategy.partitionedScaling` says in v1beta1.
pub const PROGRESSIVE_CREATE_ANNOTATION: &str = "daemonset.kruise.io/progressive-create-pod";

/// Runs one pod on each node that its template fits. Use v1beta1 for patches by node label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSet {
    /// Always `apps.kruise.io/v1alpha1`.
    #[serde(default)]
    pub api_version: ApiVersion<Self>,
    /// Always `DaemonSet`.
    #[serde(default)]
    pub kind: Kind<Self>,
    /// Name, labels and what else every object has.
    #[serde(default)]
    #[schemars(schema_with = "schema::metadata")]
    pub metadata: ObjectMeta,
    /// What to run, and how updates proceed.
    pub spec: DaemonSetSpec,
    /// How far it has come. Written by dapple.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DaemonSetStatus>,
}

resource!(DaemonSet, DAEMON_SET, "v1alpha1", NamespaceResourceScope);

/// What a DaemonSet runs, and how updates proceed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = super::v1beta1::selector_rules()))]
pub struct DaemonSetSpec {
    /// Which pods are this DaemonSet's. Must match the labels of the template; can't be changed later.
    #[schemars(schema_with = "schema::fixed_selector")]
    pub selector: LabelSelector,
    /// The pod that each node gets.
    pub template: PodTemplate,
    /// How pods are replaced when the template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<DaemonSetUpdateStrategy>,
    /// Seconds that a pod must be ready before it counts as available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many pods may be created, deleted or updated in place at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub burst_replicas: Option<IntOrString>,
    /// How many old revisions to keep for rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// Hooks that delay the end of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
}

/// How pods are replaced when the template changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetUpdateStrategy {
    /// When pods are replaced.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<UpdateStrategyType>,
    /// How a rolling update proceeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// How a rolling update proceeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How a pod gets its new template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update_type: Option<RollingUpdateType>,
    /// How many nodes may be without an available pod during an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// How many nodes may run old and new pod side by side during an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_surge: Option<IntOrString>,
    /// Update only nodes with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// How many nodes to hold back on the old revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub partition: Option<IntOrString>,
    /// Stops updates while true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// How a pod gets its new template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RollingUpdateType {
    /// The old pod is deleted and a new one created.
    #[default]
    Standard,
    /// The new pod is created before the old one is deleted: in v1beta1, Standard with maxSurge 1 and maxUnavailable 0.
    Surging,
    /// The pod stays and is changed, where the difference allows it.
    InPlaceIfPossible,
}

/// How far a DaemonSet has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetStatus {
    /// Nodes that should run a pod and do.
    #[serde(default)]
    pub current_number_scheduled: i32,
    /// Nodes that run a pod and should not.
    #[serde(default)]
    pub number_misscheduled: i32,
    /// Nodes that should run a pod.
    #[serde(default)]
    pub desired_number_scheduled: i32,
    /// Nodes that should run a pod and have a ready one.
    #[serde(default)]
    pub number_ready: i32,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes whose pod has the newest revision.
    #[serde(default)]
    pub updated_number_scheduled: i32,
    /// Nodes whose pod is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_available: Option<i32>,
    /// Nodes that should run a pod and have none available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_unavailable: Option<i32>,
    /// Changes where the name of a new revision is taken already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The name of the ControllerRevision that nodes held back get: the last one whose rollout was complete. A name and no
    /// hash, since revisions that differ in patches alone share the hash.
    // OpenKruise has no such field. It is one here, since writes of the spec can lose an annotation, but no status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The number of `currentRevision` when it was complete: pods of revisions numbered after it were left by an
    /// unfinished rollout. As `currentRevision`, ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision_number: Option<i64>,
    /// The newest revision: the `controller-revision-hash` of its pods on nodes that no patch is for. It is
    /// `updateRevision` in v1beta1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set_hash: Option<String>,
    /// `Progressing`, `Available`, `Degraded` and `Paused`, with what is being waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The counts of each variant: nodes that match the same patches get the same pod. As `currentRevision`, ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantStatus>,
}
