//! Whom a controller deletes first when there are too many pods: upstream's `ActivePodsWithRanks`.

use std::sync::Arc;

use dapple_plan::group::costs::DELETION_COST;
use jiff::Timestamp;
use serde_json::Value;

use crate::object::{is_ready, list, text};

/// A pod, and how many of the same owner are on its node.
pub(super) struct Ranked {
    pub(super) pod: Arc<Value>,
    pub(super) rank: usize,
}

/// Takes out so many of these, those that go first. Upstream's order is not one that holds for any three pods, so nothing is sorted.
pub(super) fn first(mut pods: Vec<Ranked>, count: usize, now: Timestamp) -> Vec<Arc<Value>> {
    let mut taken = Vec::new();
    for _ in 0..count.min(pods.len()) {
        let mut least = 0;
        for other in 1..pods.len() {
            if is_less(&pods[other], &pods[least], now) {
                least = other;
            }
        }
        taken.push(pods.remove(least).pod);
    }
    taken
}

/// Whether a pod goes before another.
fn is_less(one: &Ranked, two: &Ranked, now: Timestamp) -> bool {
    let keys = |ranked: &Ranked| {
        let pod = &ranked.pod;
        let is_assigned = !text(&pod["spec"]["nodeName"]).is_empty();
        (is_assigned, phase(pod), is_ready(pod), cost(pod), std::cmp::Reverse(ranked.rank))
    };
    if keys(one) != keys(two) {
        return keys(one) < keys(two);
    }
    if is_ready(&one.pod) && ready_since(&one.pod) != ready_since(&two.pod) {
        return is_younger(one, two, ready_since, now);
    }
    if restarts(&one.pod) != restarts(&two.pod) {
        return restarts(&one.pod) > restarts(&two.pod);
    }
    created(&one.pod) != created(&two.pod) && is_younger(one, two, created, now)
}

/// Whether a pod is younger than another: by the logarithm of its age, so that it does not always go by order of creation, then by UID.
fn is_younger(one: &Ranked, two: &Ranked, since: impl Fn(&Value) -> Option<Timestamp>, now: Timestamp) -> bool {
    let (Some(first), Some(second)) = (since(&one.pod), since(&two.pod)) else { return since(&one.pod).is_none() };
    let bucket = |at: Timestamp| {
        let age = u128::try_from(now.duration_since(at).as_nanos()).ok();
        age.and_then(u128::checked_ilog2)
    };
    match bucket(first).cmp(&bucket(second)) {
        std::cmp::Ordering::Equal => text(&one.pod["metadata"]["uid"]) < text(&two.pod["metadata"]["uid"]),
        order => order.is_lt(),
    }
}

fn phase(pod: &Value) -> u8 {
    match text(&pod["status"]["phase"]) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn cost(pod: &Value) -> i32 {
    text(&pod["metadata"]["annotations"][DELETION_COST]).parse().unwrap_or(0)
}

fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = list(&pod["status"]["conditions"]).iter().find(|known| known["type"] == "Ready")?;
    text(&ready["lastTransitionTime"]).parse().ok()
}

fn created(pod: &Value) -> Option<Timestamp> {
    text(&pod["metadata"]["creationTimestamp"]).parse().ok()
}

fn restarts(pod: &Value) -> i64 {
    let counts = list(&pod["status"]["containerStatuses"]).iter().filter_map(|known| known["restartCount"].as_i64());
    counts.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "containerStatuses": [{"restartCount": 0}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}})
    }

    fn order(pods: Vec<(Value, usize)>) -> Vec<String> {
        let now = "2026-01-01T01:00:00Z".parse().unwrap_or_default();
        let count = pods.len();
        let ranked = pods.into_iter().map(|(pod, rank)| Ranked { pod: Arc::new(pod), rank }).collect();
        let names = first(ranked, count, now).into_iter().map(|pod| text(&pod["metadata"]["name"]).to_owned());
        names.collect()
    }

    #[test]
    fn pods_go_in_the_order_of_upstream() {
        let mut unassigned = pod("i-unassigned");
        unassigned["spec"] = json!({});
        unassigned["status"] = json!({"phase": "Pending"});
        let mut pending = pod("h-pending");
        pending["status"] = json!({"phase": "Pending"});
        let mut unready = pod("g-unready");
        unready["status"]["conditions"][0]["status"] = json!("False");
        let mut cheap = pod("f-cheap");
        cheap["metadata"]["annotations"] = json!({DELETION_COST: "-2"});
        let doubled = pod("e-doubled");
        let mut young = pod("d-young");
        young["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:59:00Z");
        let mut restarted = pod("c-restarted");
        restarted["status"]["containerStatuses"] = json!([{"restartCount": 3}]);
        let mut newer = pod("b-newer");
        newer["metadata"]["creationTimestamp"] = json!("2026-01-01T00:50:00Z");
        let last = pod("a-last");
        let mut all: Vec<(Value, usize)> = [last, newer, restarted, young].into_iter().map(|pod| (pod, 1)).collect();
        all.push((doubled, 2));
        all.extend([cheap, unready, pending, unassigned].into_iter().map(|pod| (pod, 1)));
        let wanted = [
            "i-unassigned",
            "h-pending",
            "g-unready",
            "f-cheap",
            "e-doubled",
            "d-young",
            "c-restarted",
            "b-newer",
            "a-last",
        ];
        assert_eq!(order(all), wanted);
    }

    #[test]
    fn about_the_same_age_is_no_reason() {
        let (mut one, two) = (pod("a"), pod("b"));
        one["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:50Z");
        assert_eq!(order(vec![(two, 1), (one, 1)]), ["a", "b"], "by UID");
    }
}
