//! The older version: served once there is a webhook that calls [`convert`](super::convert()).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::status;
use super::v1beta1::{Lifecycle, UpdateStrategyType, VariantStatus};
use crate::object::resource;
use crate::schema;
use crate::template::PodTemplate;

/// Annotation that says here what `scaleStrategy.partitionedScaling` says in v1beta1.
pub const PROGRESSIVE_CREATE_ANNOTATION: &str = "daemonset.kruise.io/progressive-create-pod";

resource! {
    /// Runs one pod on each node that its template fits. Use v1beta1 for patches by node label.
    pub struct DaemonSet: DAEMON_SET, "v1alpha1", NamespaceResourceScope {
        /// What to run, and how updates proceed.
        pub spec: DaemonSetSpec,
        /// How far it has come. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<DaemonSetStatus>,
    }
}

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

status! {
    /// Nodes whose pod is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_available: Option<i32>,
    /// The number of `currentRevision` when it was complete: pods of revisions numbered after it were left by an
    /// unfinished rollout. As `currentRevision`, ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision_number: Option<i64>,
    /// The newest revision: the `controller-revision-hash` of its pods on nodes that no patch is for. It is
    /// `updateRevision` in v1beta1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set_hash: Option<String>,
    /// The counts of each variant: nodes that match the same patches get the same pod. As `currentRevision`, ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantStatus>,
}
