//! When a pool's taints with the effect NoExecute may be put on nodes: Kubernetes deletes every pod that does not tolerate them,
//! without regard to PodDisruptionBudgets.

use dapple_api::pool::{GROUP, NodePoolSpec, TaintEffect};
use serde_json::Value;

use crate::fit::{Fit, Taint};

/// The taints of a pool by which Kubernetes deletes pods.
pub fn executing(spec: &NodePoolSpec) -> impl Iterator<Item = Taint> {
    let executing = spec.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute);
    executing.map(|taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: "NoExecute".to_owned(),
    })
}

/// Why the taints of a pool may not be put on its nodes yet, if a workload of a YurtAppDaemon does not tolerate them, or has pods
/// that do not. These are the Deployments and StatefulSets of the pool.
#[must_use]
pub fn hindrance(workloads: &[Value], taints: &[Taint]) -> Option<String> {
    workloads.iter().filter(|workload| is_of_daemon(workload)).find_map(|workload| {
        let named = || {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &workload["metadata"];
            format!("{} {}/{}", text(&workload["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
        };
        let fit = Fit::of(&lasting(&workload["spec"]["template"]));
        match taints.iter().find(|taint| fit.is_repelled_by(taint)) {
            Some(taint) => Some(format!("{} does not tolerate {}:NoExecute", named(), taint.key)),
            None => (!is_rolled_out(workload)).then(|| format!("{} is not rolled out", named())),
        }
    })
}

fn is_of_daemon(workload: &Value) -> bool {
    let owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut owners = owners.filter(|owner| owner["controller"] == true && owner["kind"] == "YurtAppDaemon");
    owners.any(|owner| {
        let group = owner["apiVersion"].as_str().unwrap_or_default().split('/').next();
        group == Some(GROUP)
    })
}

/// A template with only those tolerations that hold for ever: others only put off a pod's deletion.
fn lasting(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(tolerations) = template["spec"]["tolerations"].as_array_mut() {
        tolerations.retain(|known| known["tolerationSeconds"].is_null());
    }
    template
}

/// Whether all pods of a workload are there, of its template, and available.
fn is_rolled_out(workload: &Value) -> bool {
    let (status, wanted) = (&workload["status"], workload["spec"]["replicas"].as_i64().unwrap_or(1));
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let is_seen = status["observedGeneration"].as_i64() >= workload["metadata"]["generation"].as_i64();
    is_seen
        && ["updatedReplicas", "availableReplicas"].iter().all(|field| count(field) >= wanted)
        && count("replicas") <= wanted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(tolerations: &Value, updated: i64) -> Value {
        json!({"kind": "Deployment",
            "metadata": {"name": "w", "namespace": "n", "generation": 2, "ownerReferences": [
                {"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppDaemon", "name": "d", "controller": true}]},
            "spec": {"replicas": 2, "template": {"spec": {"tolerations": tolerations}}},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": updated, "availableReplicas": 2}})
    }

    #[test]
    fn workloads_of_daemons_tolerate_it_and_are_rolled_out_first() {
        let taints = [Taint { key: "drain".to_owned(), value: "now".to_owned(), effect: "NoExecute".to_owned() }];
        let of = |tolerations: Value, updated| hindrance(&[workload(&tolerations, updated)], &taints);
        let tolerant = || json!([{"key": "drain", "operator": "Exists"}]);
        assert_eq!(of(tolerant(), 2), None);
        assert_eq!(of(tolerant(), 1).unwrap(), "Deployment n/w is not rolled out");
        let for_a_while = json!([{"key": "drain", "operator": "Exists", "tolerationSeconds": 60}]);
        for tolerations in [Value::Null, for_a_while, json!([{"key": "other", "operator": "Exists"}])] {
            assert_eq!(of(tolerations, 2).unwrap(), "Deployment n/w does not tolerate drain:NoExecute");
        }
        // What is nobody's, or another's, is not waited for.
        let mut others = workload(&Value::Null, 0);
        others["metadata"]["ownerReferences"][0]["kind"] = json!("YurtAppSet");
        assert_eq!(hindrance(&[others], &taints), None);
    }
}
