//! NodeGroup: nodes that belong together, by name or by label.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::resource;
use crate::schema;

resource! {
    /// Nodes that belong together, such as those of one site. Policies name groups to say how many pods of an application
    /// run in each, and how these pods differ.
    pub struct NodeGroup: NODE_GROUP, ClusterResourceScope {
        /// Which nodes are in the group.
        pub spec: NodeGroupSpec,
        /// What dapple last saw. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<NodeGroupStatus>,
    }
}

/// Which nodes are in a group: those that `nodes` names and those that `matchLabels` matches, together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupSpec {
    /// Names of nodes in the group. A name without a node is kept and takes effect when such a node appears.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"), length(max = 5000), inner(length(min = 1, max = 253)))]
    pub nodes: Vec<String>,
    /// Labels that a node must all have, with these values, to be in the group, for example `location: hangzhou`.
    /// Nodes named in `nodes` need not have them. Absent or empty, no node is matched by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// What dapple last saw of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupStatus {
    /// Names of all nodes in the group, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contained_nodes: Vec<String>,
    /// How many nodes are in the group.
    #[serde(default)]
    pub node_count: i32,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Findings about the group, such as names in `nodes` that no node has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl NodeGroup {
    /// A group of this name, without status.
    pub fn new(name: impl Into<String>, spec: NodeGroupSpec) -> Self {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        Self { metadata, spec, ..Self::default() }
    }
}
