//! Why pods of a pool are not available, as they say themselves: the Secrets, images and volumes that they wait for are not asked for.

use dapple_edit::document::Document;
use jiff::Timestamp;
use serde_json::Value;

use super::application::{SETTLED, Seat};

/// The label of a StatefulSet's pods that names the revision which they were made from.
const REVISION: &str = "controller-revision-hash";
/// Containers wait for these reasons before they wait for anything else.
const BEGINNING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// A pod that is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwell {
    /// Its name.
    pub pod: String,
    /// Why, as it says itself; empty if it does not.
    pub reason: String,
    /// Whether Kubernetes waits for it before it changes any other, and does not replace it: it is of an older revision.
    pub is_stuck: bool,
}

/// Whether the pods of a pool are to be asked why they are not available: after so long it does not pass by itself.
pub fn are_asked(seat: &Seat, now: Timestamp) -> bool {
    let is_lasting = seat.since.is_none_or(|since| now.as_second() - since.as_second() >= SETTLED);
    let waits_for_pods = seat.workload.is_some() && seat.is_asked && !seat.difference.is_some();
    waits_for_pods && !seat.health.is_available && is_lasting
}

/// Of a workload's pods the one that is to be told of: one that holds up the others, else the first that is not ready.
pub fn unwell(kind: Document, workload: &Value, pods: &[Value]) -> Option<Unwell> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<&Value> = pods.iter().filter(|pod| is_unwell(pod)).collect();
    found.sort_by_key(|pod| name(pod));
    let stuck = found.iter().find(|pod| is_stuck(kind, workload, pod));
    let pod: &Value = stuck.or(found.first())?;
    Some(Unwell { pod: name(pod), reason: reason(pod), is_stuck: stuck.is_some() })
}

fn is_unwell(pod: &Value) -> bool {
    // Kubernetes replaces pods that have ended.
    let has_ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
    let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
    let is_ready = condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True");
    !has_ended && !is_going && !is_ready
}

/// Whether a StatefulSet goes on with nothing before this pod is ready, and cannot make it anew from its newest revision.
fn is_stuck(kind: Document, workload: &Value, pod: &Value) -> bool {
    let (spec, status) = (&workload["spec"], &workload["status"]);
    let is_seen = status["observedGeneration"].as_i64() >= workload["metadata"]["generation"].as_i64();
    let is_one_by_one = spec["podManagementPolicy"] != "Parallel" && spec["updateStrategy"]["type"] != "OnDelete";
    let is_older =
        status["updateRevision"].as_str().is_some_and(|newest| pod["metadata"]["labels"][REVISION] != newest);
    // Those below the partition are made from the older revision again.
    let partition = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let ordinal = name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<i64>().ok());
    kind == Document::StatefulSet
        && is_seen
        && is_one_by_one
        && is_older
        && ordinal.is_none_or(|ordinal| ordinal >= partition)
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Why a pod is not ready: what a container waits for, that it has no node, or what Kubernetes says of it as a whole.
fn reason(pod: &Value) -> String {
    let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
    let containers = lists.flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let waiting: Vec<&Value> =
        containers.map(|container| &container["state"]["waiting"]).filter(|waiting| waiting.is_object()).collect();
    let is_beginning = |waiting: &Value| BEGINNING.iter().any(|reason| waiting["reason"] == *reason);
    let telling = waiting.iter().copied().find(|waiting| !is_beginning(waiting));
    let unscheduled = || condition(pod, "PodScheduled").filter(|condition| condition["status"] == "False");
    let found = telling.or_else(unscheduled).or(waiting.first().copied()).or_else(|| condition(pod, "Ready"));
    let text = |field: &str| found.and_then(|found| found[field].as_str()).unwrap_or_default();
    match (text("reason"), text("message")) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, revision: &str, status: Value) -> Value {
        json!({"metadata": {"name": name, "labels": {REVISION: revision}}, "status": status})
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}},
                {"state": {"waiting": {"reason": reason, "message": message}}}]})
    }

    fn ready() -> Value {
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    }

    fn of(kind: Document, spec: Value, pods: &[Value]) -> Option<(String, String, bool)> {
        let status = json!({"observedGeneration": 2, "updateRevision": "new"});
        let workload = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        unwell(kind, &workload, pods).map(|found| (found.pod, found.reason, found.is_stuck))
    }

    #[test]
    fn what_a_pod_waits_for_is_told_as_it_says_itself() {
        let of = |pods: &[Value]| of(Document::Deployment, json!({}), pods);
        assert_eq!(of(&[pod("a", "", ready())]), None);
        let secret = waiting("CreateContainerConfigError", "secret \"key\" not found");
        let told = of(&[pod("b", "", secret), pod("a", "", ready())]);
        assert_eq!(told, Some(("b".into(), "CreateContainerConfigError: secret \"key\" not found".into(), false)));
        let unscheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available"}]});
        assert_eq!(of(&[pod("a", "", unscheduled)]).unwrap().1, "Unschedulable: 0/3 nodes are available");
        let beginning = json!({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]});
        assert_eq!(of(&[pod("a", "", beginning)]).unwrap().1, "ContainerCreating");
        let unready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False",
            "reason": "ContainersNotReady", "message": "containers with unready status: [c]"}]});
        assert_eq!(of(&[pod("a", "", unready)]).unwrap().1, "ContainersNotReady: containers with unready status: [c]");
        assert_eq!(of(&[pod("a", "", json!({}))]).unwrap().1, "", "it says nothing");
        let mut going = pod("a", "", json!({}));
        going["metadata"]["deletionTimestamp"] = json!("2026-11-18T20:00:00Z");
        assert_eq!(of(&[going, pod("b", "", json!({"phase": "Failed"}))]), None, "these go by themselves");
    }

    #[test]
    fn the_pod_that_a_stateful_set_waits_for_and_does_not_replace_is_found() {
        let broken = waiting("ImagePullBackOff", "");
        let pods = [pod("web-0", "new", broken.clone()), pod("web-1", "old", broken.clone())];
        let is_stuck = |kind, spec: Value| of(kind, spec, &pods).map(|(pod, _, is_stuck)| (pod, is_stuck));
        let set = Document::StatefulSet;
        assert_eq!(is_stuck(set, json!({})), Some(("web-1".into(), true)));
        assert_eq!(is_stuck(Document::Deployment, json!({})), Some(("web-0".into(), false)));
        assert_eq!(is_stuck(set, json!({"podManagementPolicy": "Parallel"})), Some(("web-0".into(), false)));
        assert_eq!(is_stuck(set, json!({"updateStrategy": {"type": "OnDelete"}})), Some(("web-0".into(), false)));
        let partitioned = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}});
        assert_eq!(is_stuck(set, partitioned), Some(("web-0".into(), false)), "it would be made as it was");
        assert!(!of(set, json!({}), &pods[..1]).unwrap().2, "it is of the newest revision itself");
    }
}
