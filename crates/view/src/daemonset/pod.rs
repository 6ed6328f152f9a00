//! As much of a pod as a rollout is told with.

use dapple_plan::daemonset::pod::{HASH_LABEL, REVISION_ANNOTATION};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// A pod of a DaemonSet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Its node, or the one that it waits for.
    pub node: String,
    /// What it was rendered from.
    pub hash: String,
    /// The revision that it names.
    pub revision: Option<String>,
    /// Since when it is ready; nothing while it is not.
    pub ready_since: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Whether it is on its way out.
    pub is_terminating: bool,
    /// Why it is not ready, as Kubernetes calls it.
    pub waiting: Option<String>,
}

impl PodFacts {
    /// What a pod of the API says.
    pub fn of(pod: &Pod) -> Self {
        let value = |map: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).cloned()
        };
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.into_iter().find(|known| known.type_ == "Ready" && known.status == "True");
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: node_of(pod).unwrap_or_default(),
            hash: value(&pod.metadata.labels, HASH_LABEL).unwrap_or_default(),
            revision: value(&pod.metadata.annotations, REVISION_ANNOTATION),
            // One that is ready since nobody knows when has been so from its beginning.
            ready_since: ready.and_then(|known| known.last_transition_time.as_ref().map(|time| time.0).or(created)),
            created,
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            waiting: waiting(pod),
        }
    }
}

/// The pod's node, or the one that it waits for: DaemonSets' pods name theirs before the scheduler has seen them.
fn node_of(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let terms = || {
        let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let fields = required.node_selector_terms.first()?.match_fields.as_ref()?;
        fields.iter().find(|field| field.key == "metadata.name")?.values.as_ref()?.first().cloned()
    };
    spec.node_name.clone().filter(|name| !name.is_empty()).or_else(terms)
}

/// Why a pod is not ready: what a container waits for, or that no node takes it, or its phase.
fn waiting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = || {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    };
    let reasons: Vec<String> = all().filter_map(reason).collect();
    // Containers that wait for another one say nothing of their own.
    let first = reasons.iter().find(|reason| *reason != "PodInitializing").or(reasons.first());
    if let Some(found) = first {
        return Some(found.clone());
    }
    let condition = |kind: &str| status.conditions.iter().flatten().find(|known| known.type_ == kind);
    let unbound = condition("PodScheduled").filter(|known| known.status == "False");
    if let Some(unbound) = unbound {
        let reason = unbound.reason.clone().unwrap_or_else(|| "Unschedulable".to_owned());
        return Some(match &unbound.message {
            Some(message) => format!("{reason}: {message}"),
            None => reason,
        });
    }
    if condition("Ready").is_some_and(|known| known.status == "True") {
        return None;
    }
    status.reason.clone().or_else(|| status.phase.clone().filter(|phase| phase != "Running"))
}

/// Why a container does not run.
fn reason(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
    waiting.or_else(|| ended.and_then(|ended| ended.reason.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(status: Value) -> PodFacts {
        let pod = json!({
            "metadata": {"name": "a-1", "creationTimestamp": "2026-11-15T10:00:00Z",
                "labels": {"controller-revision-hash": "h"}, "annotations": {"dapple.dev/revision": "a-r"}},
            "spec": {"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}},
            "status": status,
        });
        PodFacts::of(&serde_json::from_value(pod).unwrap())
    }

    fn container(state: Value) -> Value {
        json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    #[test]
    fn a_pod_says_where_it_is_and_what_it_is_of() {
        let found = facts(json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-15T10:01:00Z"}]}));
        assert_eq!((found.name.as_str(), found.node.as_str(), found.hash.as_str()), ("a-1", "n1", "h"));
        assert_eq!(found.revision.as_deref(), Some("a-r"));
        assert_eq!(found.ready_since, Some("2026-11-15T10:01:00Z".parse().unwrap()));
        assert_eq!(found.waiting, None);
        assert_eq!(PodFacts::of(&Pod::default()), PodFacts::default());
    }

    #[test]
    fn the_reason_is_the_one_that_helps() {
        let waits = |reason: &str| container(json!({"waiting": {"reason": reason}}));
        let ended = |code: i32| container(json!({"terminated": {"reason": "Error", "exitCode": code}}));
        for (status, reason) in [
            (json!({"containerStatuses": [waits("ImagePullBackOff")]}), Some("ImagePullBackOff")),
            (
                json!({"initContainerStatuses": [ended(0), waits("CrashLoopBackOff")],
                    "containerStatuses": [waits("PodInitializing")]}),
                Some("CrashLoopBackOff"),
            ),
            (json!({"containerStatuses": [waits("PodInitializing")]}), Some("PodInitializing")),
            (json!({"containerStatuses": [ended(1)]}), Some("Error")),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/3 nodes are available"}]}),
                Some("Unschedulable: 0/3 nodes are available"),
            ),
            (json!({"phase": "Pending"}), Some("Pending")),
            (json!({"phase": "Failed", "reason": "Evicted"}), Some("Evicted")),
            (json!({"phase": "Running"}), None),
        ] {
            assert_eq!(facts(status.clone()).waiting.as_deref(), reason, "{status}");
        }
    }
}
