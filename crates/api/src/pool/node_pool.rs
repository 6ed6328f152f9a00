//! NodePool: nodes of one site, and what they have in common.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::resource;
use crate::schema;

resource! {
    /// Nodes of one site. A node is in the pool that its label `apps.openyurt.io/nodepool` names, and gets the labels,
    /// annotations and taints given here.
    pub struct NodePool: NODE_POOL, ClusterResourceScope {
        /// What the pool's nodes have in common.
        #[serde(default)]
        pub spec: NodePoolSpec,
        /// What dapple last saw. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<NodePoolStatus>,
    }
}

/// What the nodes of a pool have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Where the nodes are.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Edge"))]
    pub kind: Option<NodePoolType>,
    /// Whether pods in this pool use the network of their node. Kept for OpenYurt; dapple does nothing by it. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Labels that every node of the pool gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that every node of the pool gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Taints that every node of the pool gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// Where the nodes of a pool are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodePoolType {
    /// At an edge site. The default.
    #[default]
    Edge,
    /// In the cloud.
    Cloud,
}

/// Keeps pods off a node unless they tolerate it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// The taint's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What happens to pods that don't tolerate it.
    pub effect: TaintEffect,
    /// When the taint was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub time_added: Option<Time>,
}

/// What happens to pods that don't tolerate a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// They don't get onto the node.
    NoSchedule,
    /// They get onto the node only if there is no other.
    PreferNoSchedule,
    /// They don't get onto the node, and those that are there are evicted.
    NoExecute,
}

/// What dapple last saw of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Nodes that are ready.
    #[serde(default)]
    pub ready_node_num: i32,
    /// Nodes that are not ready.
    #[serde(default)]
    pub unready_node_num: i32,
    /// Names of the pool's nodes, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Nodes that left the pool in the last ten minutes, with the time: when many leave at once, nothing is undone on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_nodes: Vec<LeftNode>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Findings about the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A node that has left its pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftNode {
    /// Its name.
    pub name: String,
    /// When that was seen.
    #[schemars(schema_with = "schema::time")]
    pub time: Time,
}

impl NodePoolSpec {
    /// Where the nodes are: at an edge site, by default.
    pub fn pool_type(&self) -> NodePoolType {
        self.kind.unwrap_or_default()
    }

    /// Whether pods in this pool use the network of their node: not by default.
    pub fn host_network(&self) -> bool {
        self.host_network.unwrap_or(false)
    }
}

/// Keys that Kubernetes, the kubelet or dapple keep.
pub const RESERVED_KEYS: [&str; 5] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    super::NODE_POOL_LABEL,
    super::PREVIOUS_ATTRIBUTES,
];

/// Domains of keys that Kubernetes, the kubelet or dapple keep.
pub const RESERVED_DOMAINS: [&str; 3] = ["node.kubernetes.io", "node.cloudprovider.kubernetes.io", "dapple.dev"];

/// Whether a label, annotation or taint is kept by Kubernetes, the kubelet or dapple: no pool may give it to nodes.
#[must_use]
pub fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    RESERVED_KEYS.contains(&key) || RESERVED_DOMAINS.contains(&domain) || domain.ends_with(".dapple.dev")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_others_are_reserved() {
        for key in [
            "kubernetes.io/os",
            "node.kubernetes.io/not-ready",
            "node.cloudprovider.kubernetes.io/shutdown",
            "dapple.dev/suspend",
            "group.dapple.dev/east",
            "apps.openyurt.io/nodepool",
            "nodepool.openyurt.io/previous-attributes",
        ] {
            assert!(is_reserved(key), "{key}");
        }
        for key in ["zone", "topology.kubernetes.io/zone", "notdapple.dev/x", "node-role.kubernetes.io/edge"] {
            assert!(!is_reserved(key), "{key}");
        }
    }

    #[test]
    fn an_empty_pool_is_at_the_edge() {
        let pool: NodePool = serde_json::from_str(r#"{"metadata": {"name": "beijing"}}"#).expect("parses");
        assert_eq!(pool.spec.pool_type(), NodePoolType::Edge);
        assert!(!pool.spec.host_network());
    }
}
