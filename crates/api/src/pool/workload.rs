//! What YurtAppSet and YurtAppDaemon share: the template of the workloads they make, and reports on these.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::template::{DeploymentSpec, StatefulSetSpec, TemplateMetadata};

/// The workload that each pool gets: a Deployment or a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.deploymentTemplate) != has(self.statefulSetTemplate)",
    "message": "workloadTemplate must have one of deploymentTemplate and statefulSetTemplate"
}]))]
pub struct WorkloadTemplate {
    /// Each pool gets a Deployment like this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_template: Option<DeploymentTemplate>,
    /// Each pool gets a StatefulSet like this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stateful_set_template: Option<StatefulSetTemplate>,
}

/// A Deployment to make in each pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentTemplate {
    /// Labels and annotations of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of the Deployment.
    pub spec: DeploymentSpec,
}

/// A StatefulSet to make in each pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatefulSetTemplate {
    /// Labels and annotations of the StatefulSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of the StatefulSet.
    pub spec: StatefulSetSpec,
}

/// Which kind of workload each pool gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TemplateType {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
}

/// How one pool is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// The pool's name.
    pub name: String,
    /// The name of its workload, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// How many pods it should have.
    #[serde(default)]
    pub desired: i64,
    /// How many are ready.
    #[serde(default)]
    pub ready: i64,
    /// How many are of the newest template.
    #[serde(default)]
    pub updated: i64,
    /// How many are available.
    #[serde(default)]
    pub available: i64,
    /// The revision that last changed what the pool gets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// How far it is.
    #[serde(default)]
    pub state: PoolState,
    /// Why it is not done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 200))]
    pub message: String,
    /// Since when these numbers are as they are, of a pool that is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<Time>,
    /// Whether its workload was still at work on what was written last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// Whether its pods were not all available before the change that it is not done with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_unavailable: bool,
    /// The last change that it was done with: when that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completed: Option<Time>,
    /// When what somebody else had changed of its workload was last put right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::times")]
    pub repairs: Vec<Time>,
}

/// How far a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PoolState {
    /// All its pods are as they should be, and available.
    Done,
    /// Its turn to be changed has not come.
    #[default]
    Waiting,
    /// It was changed, and is not done yet.
    Changing,
    /// It was changed, and is not done in time.
    Late,
    /// It was done, and its pods are not all available.
    Unavailable,
    /// It is leaving the application.
    Leaving,
    /// It cannot be given what it should have.
    Failed,
}

impl PoolState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Done, Self::Waiting, Self::Changing, Self::Late, Self::Unavailable, Self::Leaving, Self::Failed];
}

/// What the statuses of all applications have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Changes where the name of a new revision is taken already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The last revision that was rolled out whole. Pools that join before the next one is start with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// Which kind of workload each pool has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_type: Option<TemplateType>,
    /// The object that says how pools differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrider_ref: Option<String>,
    /// How many pools the application has, those that are leaving included.
    #[serde(default)]
    pub pool_count: i32,
    /// How many of them have all their pods available.
    #[serde(default)]
    pub available_pools: i32,
    /// How many of them are as they should be.
    #[serde(default)]
    pub updated_pools: i32,
    /// How each pool is, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
    /// The rollout that was stopped, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// A rollout that was stopped, since pools were not done in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// The number of the revision that was being rolled out.
    pub revision: i64,
    /// Since when.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
}

impl WorkloadTemplate {
    /// Which kind of workload it makes. `None` where it has neither or both, which the API server refuses.
    pub fn template_type(&self) -> Option<TemplateType> {
        match (&self.deployment_template, &self.stateful_set_template) {
            (Some(_), None) => Some(TemplateType::Deployment),
            (None, Some(_)) => Some(TemplateType::StatefulSet),
            _ => None,
        }
    }
}

/// Adds the rules that a selector must match the labels of the workload template beside it.
pub(super) fn selects_own_template(schema: &mut schemars::Schema) {
    let rule = |template: &str| {
        let labels = format!("self.workloadTemplate.{template}.metadata.labels");
        serde_json::json!({
            "rule": format!(
                "!has(self.selector.matchLabels) || !has(self.workloadTemplate.{template}) || \
                 self.selector.matchLabels.all(key, has(self.workloadTemplate.{template}.metadata) && \
                 has({labels}) && key in {labels} && {labels}[key] == self.selector.matchLabels[key])"
            ),
            "message": format!("{template}.metadata.labels must contain every label of spec.selector.matchLabels"),
        })
    };
    let rules = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| serde_json::json!([]));
    if let Some(rules) = rules.as_array_mut() {
        rules.extend(["deploymentTemplate", "statefulSetTemplate"].map(rule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_that_is_set_decides() {
        let mut template = WorkloadTemplate::default();
        assert_eq!(template.template_type(), None);
        template.deployment_template = Some(DeploymentTemplate::default());
        assert_eq!(template.template_type(), Some(TemplateType::Deployment));
        template.stateful_set_template = Some(StatefulSetTemplate::default());
        assert_eq!(template.template_type(), None);
        template.deployment_template = None;
        assert_eq!(template.template_type(), Some(TemplateType::StatefulSet));
    }
}
