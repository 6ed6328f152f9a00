//! The newer YurtAppSet: declared, not served until conversion exists.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workload::WorkloadTemplate;
use crate::object::resource;
use crate::schema;

resource! {
    /// Runs one application in several pools: each pool gets a Deployment or StatefulSet of its own.
    pub struct YurtAppSet: YURT_APP_SET, "v1beta1", NamespaceResourceScope {
        /// What to run, and in which pools.
        pub spec: YurtAppSetSpec,
        /// How far it has come. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<YurtAppSetStatus>,
    }
}

/// What to run, and in which pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct YurtAppSetSpec {
    /// The workload that each pool gets, and how it differs.
    pub workload: Workload,
    /// Names of the pools that the application runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Labels of further pools that the application runs in.
    #[serde(default, rename = "nodepoolSelector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_pool_selector: Option<LabelSelector>,
    /// How many old revisions to keep for rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
}

/// The workload that each pool gets, and how it differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// The workload that each pool gets.
    pub workload_template: WorkloadTemplate,
    /// What is different in some pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workload_tweaks: Vec<WorkloadTweak>,
}

/// What is different in some pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTweak {
    /// Names of the pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Labels of further pools.
    #[serde(default, rename = "nodepoolSelector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_pool_selector: Option<LabelSelector>,
    /// The differences.
    pub tweaks: Tweaks,
}

/// Differences from the template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tweaks {
    /// How many pods run in each of the pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Images of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_images: Vec<ContainerImage>,
    /// Changes to any field, one JSON patch operation each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<TweakPatch>,
}

/// The image of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerImage {
    /// The container's name.
    pub name: String,
    /// Its image.
    pub target_image: String,
}

/// One JSON patch operation on the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TweakPatch {
    /// JSON pointer to the field.
    pub path: String,
    /// What to do with the field.
    pub operation: TweakOperation,
    /// The value for add and replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// What to do with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TweakOperation {
    /// Set the field, or insert into a list.
    Add,
    /// Set the field, which must be there.
    Replace,
    /// Remove the field, which must be there.
    Remove,
}

/// How far an application has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct YurtAppSetStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Changes where the name of a new revision is taken already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// Workloads that are ready.
    #[serde(default)]
    pub ready_workloads: i32,
    /// Workloads of the newest revision.
    #[serde(default)]
    pub updated_workloads: i32,
    /// Workloads of all pools.
    #[serde(default)]
    pub total_workloads: i32,
    /// Findings, such as pools that don't exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
