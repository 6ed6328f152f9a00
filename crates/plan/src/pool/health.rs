//! How a workload is: how many of its pods are ready, and whether it is done with what was written last.

use dapple_edit::document::Document;
use serde_json::Value;

/// Numbers of pods, as the workload's own controller told them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many there should be.
    pub desired: i64,
    /// How many are ready.
    pub ready: i64,
    /// How many are of the newest template.
    pub updated: i64,
    /// How many are available.
    pub available: i64,
}

/// How a workload is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// The numbers.
    pub counts: Counts,
    /// Whether what was written last was seen, and all pods are of it and available, and no others are left.
    pub is_complete: bool,
    /// Whether all pods are available.
    pub is_available: bool,
    /// Whether its own controller says that it takes too long. Only one of Deployments does.
    pub is_late: bool,
}

/// How a workload is.
pub fn health(kind: Document, stored: &Value) -> Health {
    let (spec, status) = (&stored["spec"], &stored["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let desired = spec["replicas"].as_i64().unwrap_or(1);
    let counts = Counts {
        desired,
        ready: number("readyReplicas"),
        updated: number("updatedReplicas"),
        available: number("availableReplicas"),
    };
    let is_observed = number("observedGeneration") >= stored["metadata"]["generation"].as_i64().unwrap_or(i64::MAX);
    let is_held = match kind {
        Document::StatefulSet => spec["updateStrategy"]["type"] == "OnDelete",
        Document::Deployment | Document::PodTemplate => spec["paused"] == true,
    };
    let are_all = counts.updated >= desired && counts.available >= desired && number("replicas") <= counts.updated;
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut late = conditions.filter(|condition| {
        condition["type"] == "Progressing"
            && condition["status"] == "False"
            && condition["reason"] == "ProgressDeadlineExceeded"
    });
    Health {
        counts,
        is_complete: is_observed && (desired == 0 || is_held || are_all),
        is_available: counts.available >= desired,
        is_late: is_observed && late.next().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload(spec: Value, status: Value) -> Value {
        json!({"metadata": {"generation": 2}, "spec": spec, "status": status})
    }

    #[test]
    fn it_is_complete_once_all_pods_are_of_what_was_written_last() {
        let all = json!({"observedGeneration": 2, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        let with = |field: &str, value: i64| {
            let mut status = all.clone();
            status[field] = value.into();
            health(Document::Deployment, &workload(json!({"replicas": 2}), status))
        };
        assert!(with("replicas", 2).is_complete && with("replicas", 2).is_available);
        for (field, value) in
            [("observedGeneration", 1), ("replicas", 3), ("updatedReplicas", 1), ("availableReplicas", 1)]
        {
            assert!(!with(field, value).is_complete, "{field}");
        }
        assert!(!with("availableReplicas", 1).is_available);
    }

    #[test]
    fn what_changes_no_pods_is_complete_once_it_is_seen() {
        let seen = json!({"observedGeneration": 2});
        let is_complete = |kind, spec| health(kind, &workload(spec, seen.clone())).is_complete;
        assert!(is_complete(Document::Deployment, json!({"replicas": 0})));
        assert!(is_complete(Document::Deployment, json!({"paused": true})));
        assert!(is_complete(Document::StatefulSet, json!({"updateStrategy": {"type": "OnDelete"}})));
        assert!(!is_complete(Document::StatefulSet, json!({"replicas": 1})));
        assert!(!health(Document::Deployment, &json!({})).is_complete, "nothing is known");
    }

    #[test]
    fn a_deployment_says_itself_that_it_takes_too_long() {
        let late = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        assert!(health(Document::Deployment, &workload(json!({}), late)).is_late);
    }
}
