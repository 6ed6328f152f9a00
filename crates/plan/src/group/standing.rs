//! How the pods of an application stand, read off pods as the API server has them.

use std::collections::BTreeMap;

use dapple_api::group::NodeGroupSpec;
use dapple_api::kinds::{NATIVE_DAEMON_SET, NATIVE_JOB};
use serde_json::{Value, json};

use super::costs::SEAT;
use super::division::Division;
use super::edition::{EDITION, Edition};
use super::placing::{GATE, is_for_group, selector};
use super::repair::PodState;
use super::workload::Groups;
use crate::mutant::{Mutant, is_on};

/// Annotations by which people say that a pod must not be evicted, with their values.
pub const PROTECTED: [(&str, &str); 2] =
    [("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), ("karpenter.sh/do-not-disrupt", "true")];

/// The kinds that number their pods, and the label that tells the number.
const NUMBERED: [(&str, &str); 2] =
    [("StatefulSet", "apps.kubernetes.io/pod-index"), ("Job", "batch.kubernetes.io/job-completion-index")];

/// The label by which a kind numbers its pods. On pods of other kinds it means nothing, whoever put it there.
#[must_use]
pub fn number_label(kind: &str) -> Option<&'static str> {
    NUMBERED.iter().find(|(numbered, _)| *numbered == kind).map(|(_, label)| *label)
}

/// No pod has a number beyond this: seats are counted up to it, and whoever may label a pod can claim any.
const MOST_NUMBERED: usize = 1 << 20;

/// A pod's number by the label of its kind, from zero on. `start` is the number of the first.
#[must_use]
pub fn ordinal(label: &str, start: usize) -> Option<usize> {
    label.parse::<usize>().ok()?.checked_sub(start).filter(|ordinal| *ordinal < MOST_NUMBERED)
}

/// What pods are held against.
pub struct Around<'a> {
    /// How their policy divides them.
    pub division: &'a Division,
    /// The groups of the cluster, and their nodes.
    pub groups: &'a Groups,
    /// What the nodes of a group are selected by; none if there is no such group.
    pub selector_of: &'a dyn Fn(&str) -> Option<BTreeMap<String, String>>,
    /// The kind that controls them, empty if nothing does.
    pub owner_kind: &'a str,
    /// The number of the first, where their owner numbers them.
    pub start: usize,
}

/// A pod, as repair goes by it.
#[must_use]
pub fn state_of(pod: &Value, around: &Around<'_>) -> PodState {
    let listed = around.division.groups();
    let number_of = |group: &str| listed.iter().position(|known| known.eq_ignore_ascii_case(group));
    let label = |key: &str| pod["metadata"]["labels"][key].as_str();
    let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str();
    let said = label(GATE);
    let node = pod["spec"]["nodeName"].as_str().filter(|_| said.is_none());
    let is_on =
        |group: &str| node.is_some_and(|node| around.groups.get(group).is_some_and(|nodes| nodes.contains(node)));
    let selector = said.filter(|_| pod["spec"]["nodeName"].is_null() && !is_gated(pod)).and_then(around.selector_of);
    let number = number_label(around.owner_kind).and_then(label);
    PodState {
        name: pod["metadata"]["name"].as_str().unwrap_or_default().into(),
        group: said.and_then(number_of),
        near: (0..listed.len()).filter(|group| is_on(&listed[*group])).collect(),
        ordinal: number.and_then(|number| ordinal(number, around.start)),
        seat: annotation(SEAT).and_then(|seat| seat.parse().ok()),
        // For how long is the controllers' business.
        is_available: is_ready(pod),
        is_gated: is_gated(pod),
        is_protected: PROTECTED.iter().any(|(key, value)| annotation(key) == Some(value)),
        is_stale: selector.is_some_and(|selector| !is_for_group(&node_selector(pod), &selector)),
        // Volumes are not read here.
        reach: None,
    }
}

/// What a pod selects its nodes by.
fn node_selector(pod: &Value) -> BTreeMap<String, String> {
    let entries = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Whether a pod waits behind our gate.
#[must_use]
pub fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().into_iter().flatten().any(|gate| gate["name"] == GATE)
}

/// Whether a pod runs, or is yet to.
#[must_use]
pub fn is_live(pod: &Value) -> bool {
    let has_ended = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    pod["metadata"]["deletionTimestamp"].is_null() && !has_ended
}

/// Whether the Ready condition of a pod is True.
fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|known| known["type"] == "Ready" && known["status"] == "True")
}

/// Whether a workload rolls out, or scales: its pods are not what they will be.
#[must_use]
pub fn is_rolling_out(workload: &Value) -> bool {
    let number = |path: &str| workload.pointer(path).and_then(Value::as_i64);
    let is_observed = number("/status/observedGeneration") >= number("/metadata/generation");
    if workload["kind"] == NATIVE_JOB.at.kind {
        return !is_on(Mutant::JobsMoved);
    }
    if workload["kind"] == NATIVE_DAEMON_SET.at.kind {
        let desired = number("/status/desiredNumberScheduled");
        let has_all =
            [number("/status/currentNumberScheduled"), number("/status/updatedNumberScheduled")] == [desired; 2];
        return !(is_observed && (has_all || desired == Some(0)));
    }
    let replicas = number("/spec/replicas").unwrap_or(1);
    let is_whole = number("/status/replicas").unwrap_or(0) == replicas;
    // Those that have revisions say how many pods are of the newest.
    let has_revisions = ["Deployment", "StatefulSet"].iter().any(|kind| workload["kind"] == *kind);
    let is_updated = !has_revisions || number("/status/updatedReplicas").unwrap_or(0) == replicas;
    !(is_observed && is_whole && is_updated)
}

/// A new pod of a template as it is once it is placed in a group. `labels` are those of its application by which policies are asked
/// for and confirmed.
pub fn placed(
    template: &Value,
    labels: &BTreeMap<String, String>,
    (group, spec): (&str, &NodeGroupSpec),
    edition: &Edition,
) -> Result<Value, String> {
    let rendered = edition.render(template)?;
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": rendered["metadata"], "spec": rendered["spec"]});
    for (key, value) in labels {
        if pod["metadata"]["labels"][key].is_null() {
            pod["metadata"]["labels"][key] = value.as_str().into();
        }
    }
    pod["metadata"]["labels"][GATE] = group.into();
    if let Some(name) = &edition.name {
        pod["metadata"]["annotations"][EDITION] = name.as_str().into();
    }
    for (key, value) in selector(group, spec) {
        pod["spec"]["nodeSelector"][key] = value.into();
    }
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_whose_pods_change_rolls_out() {
        let workload = |kind: &str, observed: i64, all: i64, updated: i64| {
            json!({"kind": kind, "metadata": {"generation": 2}, "spec": {"replicas": 3},
                "status": {"observedGeneration": observed, "replicas": all, "updatedReplicas": updated}})
        };
        assert!(!is_rolling_out(&workload("Deployment", 2, 3, 3)));
        assert!(is_rolling_out(&workload("Deployment", 1, 3, 3)));
        assert!(is_rolling_out(&workload("Deployment", 2, 4, 3)));
        assert!(is_rolling_out(&workload("StatefulSet", 2, 3, 2)));
        assert!(!is_rolling_out(&workload("ReplicaSet", 2, 3, 0)));
        let daemons = |updated: i64| {
            json!({"kind": "DaemonSet", "metadata": {"generation": 2}, "status": {"observedGeneration": 2,
                "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": updated}})
        };
        assert!(is_rolling_out(&daemons(2)) && !is_rolling_out(&daemons(3)));
    }

    #[test]
    fn a_pod_stands_where_it_says_or_on_its_node() {
        let spec = json!({"staticWeightList": [{"nodeGroupNames": ["a", "b"], "weight": 1}]});
        let division = Division::of(&serde_json::from_value(spec).expect("a policy")).expect("a division");
        let groups = Groups::from([("b".to_owned(), ["n1".to_owned()].into())]);
        let selector_of = |group: &str| (group == "a").then(|| BTreeMap::from([("place".to_owned(), "a".to_owned())]));
        let around = Around {
            division: &division,
            groups: &groups,
            selector_of: &selector_of,
            owner_kind: "StatefulSet",
            start: 3,
        };
        let mut pod = json!({"metadata": {"name": "p", "labels": {"apps.kubernetes.io/pod-index": "5"},
            "annotations": {SEAT: "7", "karpenter.sh/do-not-disrupt": "true"}},
            "spec": {"nodeName": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let state = state_of(&pod, &around);
        assert_eq!((state.group, state.near, state.ordinal, state.seat), (None, vec![1], Some(2), Some(7)));
        assert!(state.is_available && state.is_protected && !state.is_gated && is_live(&pod));
        pod["metadata"]["labels"][GATE] = "A".into();
        pod["spec"]["schedulingGates"] = json!([{"name": GATE}]);
        let state = state_of(&pod, &around);
        assert_eq!((state.group, state.near, state.is_gated), (Some(0), Vec::new(), true));
        assert!(!state.is_stale);
        // It is placed, and has no node yet.
        pod["metadata"]["labels"][GATE] = "a".into();
        for field in ["schedulingGates", "nodeName"] {
            pod["spec"][field] = Value::Null;
        }
        let is_stale = |selector: Value| {
            pod["spec"]["nodeSelector"] = selector;
            state_of(&pod, &around).is_stale
        };
        let found = [json!(null), json!({"place": "b"}), json!({"place": "a", "disk": "ssd"})].map(is_stale);
        assert_eq!(found, [true, true, false]);
        pod["spec"]["nodeSelector"] = json!({"place": "b"});
        pod["metadata"]["labels"][GATE] = "b".into();
        assert!(!state_of(&pod, &around).is_stale, "that group is not there");
    }

    #[test]
    fn a_number_that_no_pod_has_counts_for_nothing() {
        assert_eq!((ordinal("7", 0), ordinal("7", 5), ordinal("7", 8)), (Some(7), Some(2), None));
        for claimed in ["99999999999", "18446744073709551615", "18446744073709551616", "-1", "", "seven"] {
            assert_eq!(ordinal(claimed, 0), None, "{claimed}");
        }
    }

    #[test]
    fn a_placed_pod_has_all_that_placing_writes() {
        let policy = json!({"overrideRules": [{"targetNodeGroup": ["a"], "imageOverrider": [
            {"component": "Registry", "operator": "replace", "value": "a.example"}]}]});
        let policy = serde_json::from_value(policy).expect("a policy");
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}});
        let asked = BTreeMap::from([("asks".to_owned(), "spread".to_owned())]);
        let group =
            NodeGroupSpec { match_labels: BTreeMap::from([("place".into(), "a".into())]), ..Default::default() };
        let edition = Edition::of("", &policy, "a");
        let pod = placed(&template, &asked, ("a", &group), &edition).expect("it renders");
        assert_eq!(pod["metadata"]["labels"], json!({"app": "web", "asks": "spread", GATE: "a"}));
        assert_eq!(pod["metadata"]["annotations"], json!({EDITION: edition.name}));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"place": "a"}));
        assert_eq!(pod["spec"]["containers"][0]["image"], "a.example/web:1");
        let plain = placed(&template, &asked, ("b", &NodeGroupSpec::default()), &Edition::of("", &policy, "b"));
        let plain = plain.expect("it renders");
        assert!(
            plain["metadata"]["annotations"].is_null() && plain["spec"]["nodeSelector"]["group.dapple.dev/b"] == "true"
        );
    }
}
