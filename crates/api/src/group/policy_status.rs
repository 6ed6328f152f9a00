//! What policies say of themselves: what follows them, and how far that is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What dapple found out about a PropagationPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicyStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many applications ask for the policy and have it confirmed.
    #[serde(default)]
    pub application_count: i32,
    /// The first 20 of them, by API group, kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub applications: Vec<PolicyApplication>,
    /// How many pods they have, those that wait included.
    #[serde(default)]
    pub pods: i32,
    /// How many groups the policy lists.
    #[serde(default)]
    pub group_count: i32,
    /// The first 64 of them, in the policy's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub groups: Vec<GroupPods>,
    /// How many pods have no node: those that wait to be placed, and those that are placed and not scheduled. Pods of
    /// applications that ask for the policy and wait for it are among them.
    #[serde(default)]
    pub pending: i32,
    /// Why, the most frequent first, at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub pending_reasons: Vec<PendingPods>,
    /// How many pods are in another group than should have them.
    #[serde(default)]
    pub misplaced: i32,
    /// The last 5 pods that were evicted for it, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub last_moves: Vec<PodMove>,
    /// Whether it is in effect, whether its groups are there, whether all pods are where they belong, and whether it is suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What dapple found out about an OverridePolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverridePolicyStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many applications ask for the policy and have it confirmed.
    #[serde(default)]
    pub application_count: i32,
    /// The first 20 of them, by API group, kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub applications: Vec<PolicyApplication>,
    /// How many pods of theirs are in groups.
    #[serde(default)]
    pub pods: i32,
    /// How many of them have the edition of their group.
    #[serde(default)]
    pub updated: i32,
    /// How many groups there are for their pods.
    #[serde(default)]
    pub group_count: i32,
    /// The first 64 of them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub groups: Vec<GroupEdition>,
    /// Whether it is in effect, whether its groups are there, whether all pods have their edition, and whether it is suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// An application that follows a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyApplication {
    /// The API group of its kind; absent for the core group, as of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The pods of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupPods {
    /// The group.
    pub name: String,
    /// How many pods it should have, of all applications together.
    #[serde(default)]
    pub desired: i32,
    /// How many it has, scheduled or not.
    #[serde(default)]
    pub current: i32,
}

/// Pods without a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingPods {
    /// Why, one word in CamelCase.
    pub reason: String,
    /// How many.
    #[serde(default)]
    pub pods: i32,
}

/// A pod that was evicted, so that another is made where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMove {
    /// Name of the pod that was evicted.
    pub pod: String,
    /// The group that it was in; absent if that is none that the policy lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The group that should have it.
    pub to: String,
    /// When it was evicted.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
}

/// The edition of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupEdition {
    /// The group.
    pub name: String,
    /// The edition that its pods should have; absent if no rule is for the group, so that pods are as their template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edition: Option<String>,
    /// How many pods have it.
    #[serde(default)]
    pub updated: i32,
    /// How many have another one.
    #[serde(default)]
    pub outdated: i32,
    /// The edition that most of those have: new pods get it too, until the group's turn has come. Absent if there are none, or if
    /// most are as their template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_edition: Option<String>,
}
