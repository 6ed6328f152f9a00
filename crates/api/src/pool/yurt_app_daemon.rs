//! YurtAppDaemon: one application in every pool that has certain labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workload::{ApplicationStatus, WorkloadTemplate, selects_own_template};
use crate::object::resource;
use crate::schema;

resource! {
    /// Runs one application in every pool that has certain labels: each gets a Deployment or StatefulSet of its own.
    pub struct YurtAppDaemon: YURT_APP_DAEMON, NamespaceResourceScope {
        /// What to run, and in which pools.
        pub spec: YurtAppDaemonSpec,
        /// How far it has come. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<YurtAppDaemonStatus>,
    }
}

/// What to run, and in which pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = selects_own_template)]
pub struct YurtAppDaemonSpec {
    /// Which workloads are this application's. Must match the labels of the template; can't be changed later.
    #[schemars(schema_with = "schema::fixed_selector")]
    pub selector: LabelSelector,
    /// The workload that each pool gets.
    pub workload_template: WorkloadTemplate,
    /// Labels of the pools that the application runs in. Absent: no pool; an empty selector `{}` matches every pool.
    #[serde(default, rename = "nodepoolSelector", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_pool_selector: Option<LabelSelector>,
    /// How many old revisions to keep for rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 10))]
    pub revision_history_limit: Option<i32>,
}

/// How far an application has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct YurtAppDaemonStatus {
    /// What a YurtAppSet's has too.
    #[serde(flatten)]
    pub common: ApplicationStatus,
    /// Findings, such as a workload that could not be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl YurtAppDaemonSpec {
    /// How many old revisions to keep: 10 by default.
    pub fn revision_history_limit(&self) -> i32 {
        self.revision_history_limit.unwrap_or(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_kept_by_default() {
        assert_eq!(YurtAppDaemonSpec::default().revision_history_limit(), 10);
    }
}
