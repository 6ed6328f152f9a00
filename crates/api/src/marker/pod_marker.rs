//! PodMarker: sets labels and annotations on some of the pods of a namespace, and keeps them there.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::resource;
use crate::schema;
use crate::template::Probe;

resource! {
    /// Marks pods of its namespace with labels and annotations: as many as wanted, those that meet the requirements, the
    /// preferred ones first. Set `spec.strategy.replicas` to 0 to remove the marks; deleting the marker leaves them.
    pub struct PodMarker: POD_MARKER, NamespaceResourceScope {
        /// Which pods to mark, how many, and with what.
        pub spec: PodMarkerSpec,
        /// How far it has come. Written by dapple.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<PodMarkerStatus>,
    }
}

/// Which pods to mark, how many, and with what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMarkerSpec {
    /// How many pods to mark, and what happens where a pod has another value already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PodMarkerStrategy>,
    /// What a pod must meet to be marked. Absent: nothing, so every pod of the namespace may be marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_requirements: Option<MatchRequirements>,
    /// Which pods to mark first, at most 31. The first entry decides, the second among pods that are equal by the first,
    /// and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 31))]
    pub match_preferences: Vec<MatchPreference>,
    /// The labels and annotations to set.
    pub mark_items: MarkItems,
}

/// How many pods to mark, and what happens where a pod has another value already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.conflictPolicy) || !has(self.confilctPolicy) || self.conflictPolicy == self.confilctPolicy",
    "message": "conflictPolicy and confilctPolicy are two spellings of one field: remove confilctPolicy"
}]))]
pub struct PodMarkerStrategy {
    /// How many pods to mark: a number, or a percentage of those that match (rounded up). Absent: all that match. 0
    /// removes the marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count_or_percent")]
    pub replicas: Option<IntOrString>,
    /// What to do with pods that have a key of `markItems` with another value. Default Ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_policy: Option<ConflictPolicy>,
    /// Another spelling of `conflictPolicy`, which older manifests have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confilct_policy: Option<ConflictPolicy>,
}

/// What to do with pods that have a key of `markItems` with another value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConflictPolicy {
    /// Such pods don't match, and stay as they are. The default.
    #[default]
    Ignore,
    /// The value is replaced, and put back when the mark is removed.
    Overwrite,
}

/// What a pod must meet to be marked: all that is given here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchRequirements {
    /// The pod's labels, as they are without this marker's marks. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// The labels of the pod's node. Pods without a node don't match. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Probes that must all have the expected result, run on the pod's node. Whoever writes an exec probe needs
    /// permission to `create pods/exec` here, whoever writes another one to `create pods/portforward`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pod_probes: Vec<PodProbeRequirement>,
}

/// A probe and the result it must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProbeRequirement {
    /// The containers to probe. The result must be as expected in all of them.
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub containers: Vec<ContainerName>,
    /// The probe: exec, httpGet, tcpSocket or grpc, with times and thresholds as in a container's readinessProbe. Only
    /// the pod itself can be probed, so `host` is refused.
    #[schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "[has(self.exec), has(self.httpGet), has(self.tcpSocket), has(self.grpc)].exists_one(set, set)",
            "message": "probe must have exactly one of exec, httpGet, tcpSocket and grpc"
        },
        {
            "rule": "(!has(self.httpGet) || !has(self.httpGet.host) || size(self.httpGet.host) == 0) && \
                     (!has(self.tcpSocket) || !has(self.tcpSocket.host) || size(self.tcpSocket.host) == 0)",
            "message": "probe host must be left out: only the pod itself can be probed"
        }
    ]))]
    pub probe: Probe,
    /// The result that the probe must have. Default succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<ProbeExpectation>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerName {
    /// The container's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// The result that a probe must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProbeExpectation {
    /// The probe must succeed. The default.
    #[default]
    Succeeded,
    /// The probe must fail.
    Failed,
}

/// What makes a pod preferred: all that is given here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.podReady) || has(self.podSelector) || has(self.nodeSelector)",
    "message": "a preference must have podReady, podSelector or nodeSelector"
}]))]
pub struct MatchPreference {
    /// Prefer pods that are ready (true) or not ready (false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_ready: Option<bool>,
    /// Prefer pods with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// Prefer pods on nodes with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
}

/// The labels and annotations to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.labels) && size(self.labels) > 0) || (has(self.annotations) && size(self.annotations) > 0)",
        "message": "markItems must have at least one label or annotation"
    },
    {
        "rule": "!has(self.annotations) || self.annotations.all(key, \
                 key != 'kruise.io/marked-by-podmarker' && !key.startsWith('dapple.dev/'))",
        "message": "markItems.annotations must not have kruise.io/marked-by-podmarker or keys of dapple.dev: \
                    dapple keeps its records there"
    },
    {
        "rule": "!has(self.labels) || self.labels.all(key, !key.startsWith('dapple.dev/'))",
        "message": "markItems.labels must not have keys of dapple.dev: dapple keeps its records there"
    },
    {
        "rule": "!has(self.labels) || self.labels.all(key, \
                 !(key in ['pod-template-hash', 'controller-revision-hash', 'pod-template-generation', \
                 'controller-uid', 'job-name']) && !key.startsWith('kubernetes.io/config.') && \
                 !key.startsWith('statefulset.kubernetes.io/') && !key.startsWith('apps.kubernetes.io/') && \
                 !key.startsWith('batch.kubernetes.io/') && !key.startsWith('apps.kruise.io/') && \
                 !key.startsWith('lifecycle.apps.kruise.io/'))",
        "message": "markItems.labels must not have keys by which controllers know their pods, such as pod-template-hash"
    },
    {
        "rule": "!has(self.annotations) || self.annotations.all(key, \
                 !(key in ['pod-template-hash', 'controller-revision-hash', 'pod-template-generation', \
                 'controller-uid', 'job-name']) && !key.startsWith('kubernetes.io/config.') && \
                 !key.startsWith('statefulset.kubernetes.io/') && !key.startsWith('apps.kubernetes.io/') && \
                 !key.startsWith('batch.kubernetes.io/') && !key.startsWith('apps.kruise.io/') && \
                 !key.startsWith('lifecycle.apps.kruise.io/'))",
        "message": "markItems.annotations must not have keys by which controllers know their pods, such as job-name"
    }
]))]
pub struct MarkItems {
    /// Labels to set, for example `upgradeStrategy: inPlace`. Pods are never marked with those that their owner selects
    /// on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "additionalProperties" = {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
        }
    ))]
    pub labels: BTreeMap<String, String>,
    /// Annotations to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

/// How far a marker has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMarkerStatus {
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that should be marked.
    #[serde(default)]
    pub desired: i32,
    /// Pods that have all the marks.
    #[serde(default)]
    pub succeeded: i32,
    /// Pods that could not be marked.
    #[serde(default)]
    pub failed: i32,
    /// Pods that match.
    #[serde(default)]
    pub matched: i32,
    /// Pods that would match, but for values that the marker leaves alone: those of older markers, for example.
    #[serde(default)]
    pub conflicting: i32,
    /// Pods of which it is not known whether they match.
    #[serde(default)]
    pub unknown: i32,
    /// Pods whose marks are to be set, changed or taken off, and that wait for their turn.
    #[serde(default)]
    pub waiting: i32,
    /// The change of the spec that is being carried out: how fast marks move otherwise does not hold for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrying_out: Option<SpecChange>,
    /// Findings, such as another marker that sets the same key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A change of the spec that is being carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpecChange {
    /// The `metadata.generation` that it came with.
    pub generation: i64,
    /// Pods that it has yet to come to.
    pub pods: i32,
}

impl PodMarkerSpec {
    /// How many pods to mark; none given means all that match.
    pub fn replicas(&self) -> Option<&IntOrString> {
        self.strategy.as_ref()?.replicas.as_ref()
    }

    /// What to do with pods that have another value already: ignore them, by default.
    pub fn conflict_policy(&self) -> ConflictPolicy {
        self.strategy.as_ref().map(PodMarkerStrategy::conflict_policy).unwrap_or_default()
    }
}

impl PodMarkerStrategy {
    /// The policy in either spelling; the right one wins.
    pub fn conflict_policy(&self) -> ConflictPolicy {
        self.conflict_policy.or(self.confilct_policy).unwrap_or_default()
    }
}

impl PodProbeRequirement {
    /// The result that the probe must have: success, by default.
    pub fn expectation(&self) -> ProbeExpectation {
        self.expectation.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_conflict_policy_are_read() {
        let policy = |json: &str| {
            let spec = format!(r#"{{"strategy": {json}, "markItems": {{}}}}"#);
            serde_json::from_str::<PodMarkerSpec>(&spec).expect("parses").conflict_policy()
        };
        assert_eq!(policy("{}"), ConflictPolicy::Ignore);
        assert_eq!(policy(r#"{"confilctPolicy": "Overwrite"}"#), ConflictPolicy::Overwrite);
        assert_eq!(policy(r#"{"conflictPolicy": "Overwrite"}"#), ConflictPolicy::Overwrite);
        let both = r#"{"conflictPolicy": "Ignore", "confilctPolicy": "Overwrite"}"#;
        assert_eq!(policy(both), ConflictPolicy::Ignore);
    }

    #[test]
    fn an_empty_spec_marks_all_and_ignores_conflicts() {
        let spec = PodMarkerSpec::default();
        assert_eq!(spec.replicas(), None);
        assert_eq!(spec.conflict_policy(), ConflictPolicy::Ignore);
        assert_eq!(PodProbeRequirement::default().expectation(), ProbeExpectation::Succeeded);
    }
}
