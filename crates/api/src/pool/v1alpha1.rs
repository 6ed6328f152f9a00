//! YurtAppSet in the version that is served and stored, and the older NodePool, which is served beside the newer one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::node_pool::{NodePoolSpec, NodePoolStatus};
use super::workload::{ApplicationStatus, WorkloadTemplate, selects_own_template};
use crate::object::resource;
use crate::schema;
use crate::template::{NodeSelectorTerm, Patch, Toleration};

resource! {
    /// Runs one application in several pools: each pool gets a Deployment or StatefulSet of its own.
    pub struct YurtAppSet: YURT_APP_SET, NamespaceResourceScope {
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
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.workloadTemplate.deploymentTemplate) || \
                 !has(self.workloadTemplate.deploymentTemplate.spec.replicas)",
        "message": "deploymentTemplate.spec.replicas must be left out: give each pool its own in topology.pools"
    },
    {
        "rule": "!has(self.workloadTemplate.statefulSetTemplate) || \
                 !has(self.workloadTemplate.statefulSetTemplate.spec.replicas)",
        "message": "statefulSetTemplate.spec.replicas must be left out: give each pool its own in topology.pools"
    }
]), transform = selects_own_template)]
pub struct YurtAppSetSpec {
    /// Which workloads are this application's. Must match the labels of the template; can't be changed later.
    #[schemars(schema_with = "schema::fixed_selector")]
    pub selector: LabelSelector,
    /// The workload that each pool gets.
    pub workload_template: WorkloadTemplate,
    /// The pools, and what is particular to each.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub topology: Topology,
    /// How many old revisions to keep for rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 10))]
    pub revision_history_limit: Option<i32>,
}

/// The pools of an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// The pools that the application runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pools: Vec<Pool>,
}

/// One pool of an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.nodeSelectorTerm) == has(oldSelf.nodeSelectorTerm) && \
                 (!has(self.nodeSelectorTerm) || self.nodeSelectorTerm == oldSelf.nodeSelectorTerm)",
        "message": "nodeSelectorTerm of a pool cannot be changed: remove the pool, then add it anew"
    },
    {
        "rule": "has(self.tolerations) == has(oldSelf.tolerations) && \
                 (!has(self.tolerations) || self.tolerations == oldSelf.tolerations)",
        "message": "tolerations of a pool cannot be changed: remove the pool, then add it anew"
    }
]))]
pub struct Pool {
    /// The pool's name: a part of the names of what it gets.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Which nodes the pool's pods may run on, for example those whose label `apps.openyurt.io/nodepool` is `beijing`.
    /// Can't be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector_term: Option<NodeSelectorTerm>,
    /// Taints that the pool's pods tolerate. Can't be changed later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// How many pods run in the pool. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// A strategic merge patch of the pool's workload: write only what differs.
    ///
    /// Example: `{spec: {template: {spec: {containers: [{name: nginx, image: "nginx:1.19.3"}]}}}}`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
}

/// How far an application has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct YurtAppSetStatus {
    /// What a YurtAppDaemon's has too.
    #[serde(flatten)]
    pub common: ApplicationStatus,
    /// Pods wanted in each pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_replicas: BTreeMap<String, i32>,
    /// Pods of all pools that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods of all pools.
    #[serde(default)]
    pub replicas: i32,
    /// Findings, such as pools that don't exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl YurtAppSetSpec {
    /// How many old revisions to keep: 10 by default.
    pub fn revision_history_limit(&self) -> i32 {
        self.revision_history_limit.unwrap_or(10)
    }
}

impl Pool {
    /// How many pods run in the pool: 1 by default, as in the workload that it gets.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }
}

resource! {
    /// Nodes of one site. Use v1beta1.
    pub struct NodePool: NODE_POOL, "v1alpha1", ClusterResourceScope {
        /// What the pool's nodes have in common.
        #[serde(default)]
        pub spec: OldNodePoolSpec,
        /// What dapple last saw. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<NodePoolStatus>,
    }
}

/// What the nodes of a pool have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OldNodePoolSpec {
    /// Which nodes are in the pool: always those whose label `apps.openyurt.io/nodepool` names it, so v1beta1 leaves
    /// it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// What v1beta1 has too.
    #[serde(flatten)]
    pub common: NodePoolSpec,
}

/// A NodePool of this version as it is stored: in v1beta1, and without its selector, which nobody goes by.
#[must_use]
pub fn as_stored(pool: &Value) -> Value {
    let mut stored = pool.clone();
    if let Some(spec) = stored.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("selector");
    }
    if let Some(fields) = stored.as_object_mut() {
        fields.insert("apiVersion".to_owned(), crate::kinds::NODE_POOL.at.api_version().into());
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_pool_is_stored_without_its_selector() {
        let pool = serde_json::json!({"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "NodePool",
            "metadata": {"name": "a"}, "spec": {"type": "Edge", "selector": {"matchLabels": {"a": "b"}}}});
        let stored = serde_json::json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "NodePool",
            "metadata": {"name": "a"}, "spec": {"type": "Edge"}});
        assert_eq!(as_stored(&pool), stored);
        assert_eq!(as_stored(&Value::Null), Value::Null);
    }

    #[test]
    fn defaults_hold_without_the_api_server() {
        let json = r#"{"selector": {}, "workloadTemplate": {}, "topology": {"pools": [{"name": "beijing"}]}}"#;
        let spec: YurtAppSetSpec = serde_json::from_str(json).expect("parses");
        assert_eq!(spec.revision_history_limit(), 10);
        assert_eq!(spec.topology.pools[0].replicas(), 1);
    }
}
