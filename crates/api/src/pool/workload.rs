//! What YurtAppSet and YurtAppDaemon share: the template of the workloads they make, and reports on these.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// A report on one pool's workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSummary {
    /// The workload's name.
    #[serde(default)]
    pub workload_name: String,
    /// Status of the workload's Available condition: True, False, Unknown, or empty.
    #[serde(default)]
    pub available_condition: String,
    /// Pods of the workload.
    #[serde(default)]
    pub replicas: i32,
    /// Pods of the workload that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
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
    /// The newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// Which kind of workload each pool has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_type: Option<TemplateType>,
    /// The object that says how pools differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrider_ref: Option<String>,
    /// The workload of each pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workload_summary: Vec<WorkloadSummary>,
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
