//! The version that is served and stored.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::status::status;
use crate::object::resource;
use crate::schema;
use crate::template::{Patch, PodTemplate};

resource! {
    /// Runs one pod on each node that its template fits. Patches change the template for nodes with certain labels, so that
    /// one DaemonSet serves unlike nodes.
    pub struct DaemonSet: DAEMON_SET, NamespaceResourceScope {
        /// What to run, where it differs, and how updates proceed.
        pub spec: DaemonSetSpec,
        /// How far it has come. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<DaemonSetStatus>,
    }
}

/// What must hold of selector and template, in every version.
pub(super) fn selector_rules() -> Value {
    json!([{
        "rule": "!has(self.selector.matchLabels) || self.selector.matchLabels.all(key, \
                 has(self.template.metadata) && has(self.template.metadata.labels) && \
                 key in self.template.metadata.labels && \
                 self.template.metadata.labels[key] == self.selector.matchLabels[key])",
        "message": "spec.template.metadata.labels must contain every label of spec.selector.matchLabels"
    }])
}

/// What a DaemonSet runs, where it differs, and how updates proceed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = selector_rules()))]
pub struct DaemonSetSpec {
    /// Which pods are this DaemonSet's. Must match the labels of the template; can't be changed later.
    #[schemars(schema_with = "schema::fixed_selector")]
    pub selector: LabelSelector,
    /// The pod that each node gets, unless a patch changes it for that node.
    pub template: PodTemplate,
    /// Changes to the template for nodes with certain labels, at most 10. All that match a node apply: lower `priority`
    /// first, in list order within one priority, so the last one wins where two set the same field. A change to a
    /// patch restarts only pods whose template becomes different.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = super::MAX_PATCHES))]
    pub patches: Vec<DaemonSetPatch>,
    /// How pods are replaced when template or patches change. Default: rolling update, one node at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"type": "RollingUpdate"}))]
    pub update_strategy: Option<DaemonSetUpdateStrategy>,
    /// Seconds that a pod must be ready before it counts as available. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// How many pods may be created, deleted or updated in place at once, a number or a percentage of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count_or_percent", extend("default" = 250))]
    pub burst_replicas: Option<IntOrString>,
    /// How many old revisions to keep for rollback. Those that a pod still runs are kept in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 10))]
    pub revision_history_limit: Option<i32>,
    /// Hooks that delay the end of a pod until someone has let go of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// How pods are created on nodes that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
}

/// A change to the template for nodes with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetPatch {
    /// Which nodes get the patch, for example those with `disk-type: large`. Required; an empty selector `{}` matches
    /// every node.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// A strategic merge patch of the pod template: write only what differs, containers and environment variables
    /// merge by name. At most 1 KB as JSON. It may not change labels that the DaemonSet selects on.
    ///
    /// Example: `{spec: {containers: [{name: agent, env: [{name: CACHE, value: 2Ti}]}]}}`
    pub patch: Patch,
    /// Patches with a higher priority apply later, so they win. Default 0; may be negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// How pods are replaced when template or patches change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rolling_rules()))]
pub struct DaemonSetUpdateStrategy {
    /// When pods are replaced.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "RollingUpdate"))]
    pub kind: Option<UpdateStrategyType>,
    /// How a rolling update proceeds. Without effect if type is OnDelete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// What must fit together in a rolling update. What is left of one says nothing where type is OnDelete.
fn rolling_rules() -> Value {
    let rule = |rule: &str, message: &str| {
        let is_of_no_effect = "(has(self.type) && self.type == 'OnDelete') || !has(self.rollingUpdate)";
        json!({"rule": format!("{is_of_no_effect} || ({rule})"), "message": message, "fieldPath": ".rollingUpdate"})
    };
    json!([
        rule(
            "!has(self.rollingUpdate.maxSurge) || string(self.rollingUpdate.maxSurge) in ['0', '0%'] || \
             !has(self.rollingUpdate.maxUnavailable) || string(self.rollingUpdate.maxUnavailable) in ['0', '0%']",
            "only one of maxUnavailable and maxSurge may be above 0: set the other one to 0",
        ),
        rule(
            "!(has(self.rollingUpdate.maxUnavailable) && string(self.rollingUpdate.maxUnavailable) in ['0', '0%']) || \
             (has(self.rollingUpdate.maxSurge) && !(string(self.rollingUpdate.maxSurge) in ['0', '0%']))",
            "one of maxUnavailable and maxSurge must be above 0, or no pod could ever be updated",
        ),
        rule(
            "!(has(self.rollingUpdate.rollingUpdateType) && \
             self.rollingUpdate.rollingUpdateType == 'InPlaceIfPossible') || \
             !has(self.rollingUpdate.maxSurge) || string(self.rollingUpdate.maxSurge) in ['0', '0%']",
            "maxSurge does not go with rollingUpdateType InPlaceIfPossible: use maxUnavailable",
        ),
    ])
}

/// When pods are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Node after node, by itself. The default.
    #[default]
    RollingUpdate,
    /// Only where someone deletes the old pod.
    OnDelete,
}

/// How a rolling update proceeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How a pod gets its new template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Standard"))]
    pub rolling_update_type: Option<RollingUpdateType>,
    /// How many nodes may be without an available pod during an update, a number or a percentage (rounded up). Default
    /// 1, or 0 where maxSurge is above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// How many nodes may run old and new pod side by side during an update, a number or a percentage (rounded up). The
    /// old pod is deleted once the new one is available. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// Update only nodes with these labels, for example a canary rack. Other nodes keep the revision they have. Default:
    /// all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// How many nodes to hold back on the old revision, a number or a percentage (rounded down). A pod that is
    /// recreated on such a node gets the old revision again. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count_or_percent")]
    pub partition: Option<IntOrString>,
    /// Stops updates while true. Pods that are missing are still created. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// How a pod gets its new template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RollingUpdateType {
    /// The old pod is deleted and a new one created. The default.
    #[default]
    Standard,
    /// The pod stays and is changed, where the difference allows it (images, labels, annotations, cpu and memory);
    /// otherwise as Standard.
    InPlaceIfPossible,
}

/// Hooks in the life of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Before a pod is deleted: it is deleted only once the hook no longer holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_delete: Option<LifecycleHook>,
    /// Before a pod is updated in place: it is changed only once the hook no longer holds it, and is back in service
    /// only once the hook holds it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<LifecycleHook>,
}

/// What holds a pod: it is held while it has one of these labels or finalizers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.labelsHandler) || has(self.finalizersHandler)",
    "message": "set labelsHandler or finalizersHandler, or the hook holds nothing"
}]))]
pub struct LifecycleHook {
    /// Labels that hold the pod while it has one of them, with this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels_handler: Option<BTreeMap<String, String>>,
    /// Finalizers that hold the pod while it has one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizers_handler: Option<Vec<String>>,
    /// Whether the pod is set not ready while it is held, so that it gets no more traffic. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_pod_not_ready: Option<bool>,
}

/// How pods are created on nodes that have none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Whether the partition holds back creation too: the nodes that it holds back get no first pod. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitioned_scaling: Option<bool>,
}

status! {
    /// Nodes whose pod has been ready for minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_available: Option<i32>,
    /// The number of `currentRevision` when it was complete: pods of revisions numbered after it were left by an
    /// unfinished rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision_number: Option<i64>,
    /// The newest revision: the `controller-revision-hash` of its pods on nodes that no patch is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The counts of each variant: nodes that match the same patches get the same pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantStatus>,
}

/// How far one variant has come: the nodes that the same patches and rules are for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantStatus {
    /// What its pods carry as `controller-revision-hash` at the newest revision; empty if its patches do not apply.
    pub hash: String,
    /// The places of its patches in `spec.patches`; none for the template as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<i32>,
    /// The places of its rules in `spec.overrideRules` of the OverridePolicy that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<i32>,
    /// Whether there has been a pod of it. One that is lost comes back then, though a dry run may be refused by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<bool>,
    /// Nodes that should run a pod.
    #[serde(default)]
    pub desired: i32,
    /// Nodes whose pod has the newest revision.
    #[serde(default)]
    pub updated: i32,
    /// Nodes with a ready pod.
    #[serde(default)]
    pub ready: i32,
    /// Nodes whose pod has been ready for minReadySeconds.
    #[serde(default)]
    pub available: i32,
}
