//! Which volumes a pod has, and on which nodes they can be used.

use serde_json::Value;

/// The names of the PersistentVolumeClaims that may be there before a pod that uses them. Those that are made for it alone are not:
/// until it is there, they say nothing of where it can go.
#[must_use]
pub fn earlier_claims(new_pod: &Value) -> Vec<&str> {
    let volumes = new_pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()).collect()
}

/// The node selector terms by which a PersistentVolume says on which nodes it can be used; none if on all.
#[must_use]
pub fn terms_of(volume: &Value) -> Option<Vec<Value>> {
    let required = &volume["spec"]["nodeAffinity"]["required"];
    required["nodeSelectorTerms"].as_array().cloned()
}

/// Whether claims of a class are bound only when a pod that uses them has a node. Others are bound wherever, and no scheduler looks
/// at a pod before that.
#[must_use]
pub fn waits_for_consumer(class: &Value) -> bool {
    class["volumeBindingMode"] == "WaitForFirstConsumer"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_that_is_made_for_the_pod_is_not_there_before_it() {
        let pod = json!({"metadata": {"name": "web-0"}, "spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "config", "configMap": {"name": "c"}}]}});
        assert_eq!(earlier_claims(&pod), ["data-web-0"]);
        assert_eq!(earlier_claims(&json!({})), Vec::<&str>::new());
    }

    #[test]
    fn a_volume_without_affinity_can_be_used_everywhere() {
        assert_eq!(terms_of(&json!({"spec": {}})), None);
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]});
        let bound = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
        assert_eq!(terms_of(&bound), Some(vec![term]));
    }

    #[test]
    fn claims_are_bound_at_once_unless_their_class_says_otherwise() {
        assert!(waits_for_consumer(&json!({"volumeBindingMode": "WaitForFirstConsumer"})));
        assert!(!waits_for_consumer(&json!({"volumeBindingMode": "Immediate"})));
        assert!(!waits_for_consumer(&json!({})));
    }
}
