//! NodePodProbe: the probes to run on one node, and their results.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::resource;
use crate::schema;
use crate::template::Probe;

resource! {
    /// The probes to run on the node of the same name, and their results. The manager writes what to run, the prober of the
    /// node what came of it; people write PodMarkers.
    pub struct NodePodProbe: NODE_POD_PROBE, ClusterResourceScope {
        /// The probes to run.
        #[serde(default)]
        pub spec: NodePodProbeSpec,
        /// Their results. Written by the prober.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<NodePodProbeStatus>,
    }
}

/// The probes to run on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePodProbeSpec {
    /// The pods to probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_probes: Vec<PodProbe>,
    /// How many probes are asked for beside these: more than a node runs. Their results are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<i64>,
}

/// The probes of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProbe {
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's UID: a later pod of the same name is another one.
    pub uid: String,
    /// The pod's address, for probes over the network.
    #[serde(default, rename = "IP", skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ContainerProbe>,
}

/// One probe of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerProbe {
    /// The probe's name: the hash of the container's name and the definition. So equal probes are one, and one that is
    /// changed is another.
    pub name: String,
    /// The container to probe.
    pub container_name: String,
    /// Which run of the container to probe, as in the pod's status.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// When that run began: what is to be waited before the first probe counts from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub started_at: Option<Time>,
    /// The probe, with defaults filled in, and numbers for ports.
    pub probe: Probe,
}

/// The results of a node's probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePodProbeStatus {
    /// Results by pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_probe_statuses: Vec<PodProbeStatus>,
    /// What is to be said of all of them: that probes run more seldom than they ask for, since they are too many for a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The results of one pod's probes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProbeStatus {
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's UID.
    pub uid: String,
    /// Results by probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probe_states: Vec<ContainerProbeState>,
}

/// The result of one probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerProbeState {
    /// The probe's name.
    pub name: String,
    /// Which run of the container the result is of.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The result. It is written when it changes, and not each time that the probe runs.
    pub state: ProbeState,
    /// When the result last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,
    /// Why it failed, or why there is no result. Never what a command printed or a server answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ProbeState {
    /// The probe succeeded.
    Succeeded,
    /// The probe failed.
    Failed,
    /// The probe has not run yet, or could not.
    #[default]
    Unknown,
}
