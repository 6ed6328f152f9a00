//! What is to be said of an object before it is taken: the one question that webhooks and `dapple plan` ask.

use dapple_api::kinds::{self, Name};
use dapple_api::reading::read;
use dapple_api::verdict::Verdict;
use dapple_api::{group, pool};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is to be said of an object of any kind that users write for dapple; `None` for other kinds, and for versions
/// that dapple does not serve. `old` is what the object was before an update.
pub fn judge(object: &Value, old: Option<&Value>) -> Option<Verdict> {
    let (own, _) = kinds::of(object).filter(|(own, version)| own.at.version == *version)?;
    let verdict = match own.name {
        Name::DaemonSet => crate::daemonset::judge(object, old),
        Name::PodMarker => with(object, crate::marker::validate),
        Name::NodeGroup => with(object, group::validate_node_group),
        Name::PropagationPolicy => with(object, group::validate_propagation_policy),
        Name::OverridePolicy => {
            let mut verdict = with(object, crate::group::validate_override_policy);
            crate::group::refuse_unknown_fields(object, &mut verdict);
            verdict
        }
        Name::NodePool => with_old(object, old, pool::validate_node_pool),
        Name::YurtAppSet => with_old(object, old, crate::pool::validate_yurt_app_set),
        Name::YurtAppDaemon => with_old(object, old, crate::pool::validate_yurt_app_daemon),
        Name::Replacement => with(object, crate::pool::validate_replacement),
        // Nobody but dapple writes it.
        Name::NodePodProbe => return None,
    };
    Some(verdict)
}

/// As [`judge`], of a change: what was wrong before is told, and refuses nothing.
pub fn judge_change(object: &Value, old: Option<&Value>) -> Option<Verdict> {
    let mut verdict = judge(object, old)?;
    if let Some(before) = old.and_then(|old| judge(old, None)) {
        verdict.excuse(&before);
    }
    Some(verdict)
}

fn with<T: DeserializeOwned>(object: &Value, validate: fn(&T) -> Verdict) -> Verdict {
    with_old(object, None, |object, _| validate(object))
}

fn with_old<T: DeserializeOwned>(
    object: &Value,
    old: Option<&Value>,
    validate: impl Fn(&T, Option<&T>) -> Verdict,
) -> Verdict {
    // One that cannot be read any more has nothing to compare with, and must not be in the way of its correction.
    let old = old.and_then(|old| read::<T>(old).ok());
    match read::<T>(object) {
        Ok(object) => validate(&object, old.as_ref()),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dapple_api::verdict::Reason;
    use serde_json::json;

    #[test]
    fn other_kinds_are_none_of_our_business() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Pod"}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet"}),
            json!({"apiVersion": "apps.openyurt.io/v1beta1", "kind": "YurtAppSet"}),
            json!({"kind": "NodeGroup"}),
            json!(null),
        ] {
            assert_eq!(judge(&object, None), None, "{object}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_one_error_with_its_field() {
        let told = |mut object: Value| {
            object["apiVersion"] = json!("groupmanagement.kubeedge.io/v1alpha1");
            let verdict = judge(&object, None).expect("a kind of ours");
            assert_eq!(verdict.errors.len(), 1, "{verdict:?}");
            (verdict.errors[0].to_string(), verdict.errors[0].reason)
        };
        let group = |spec: Value| json!({"kind": "NodeGroup", "metadata": {"name": "a"}, "spec": spec});
        assert_eq!(
            told(json!({"kind": "NodeGroup", "metadata": {"name": "a"}})),
            ("spec: this is required".to_owned(), Reason::Required)
        );
        let (text, reason) = told(group(json!({"nodes": [1]})));
        assert!(text.starts_with("spec.nodes[0]: ") && reason == Reason::Invalid, "{text}");
        let policy =
            json!({"kind": "PropagationPolicy", "metadata": {"name": "a"}, "spec": {"propagationStrategy": "x"}});
        let (text, reason) = told(policy);
        assert_eq!(text, "spec.propagationStrategy: \"x\" is not possible here: write StaticWeight or NumRange");
        assert_eq!(reason, Reason::NotSupported);
        let rule = json!({"imageOverrider": [{"component": "Tag", "operator": "drop"}]});
        let policy =
            json!({"kind": "OverridePolicy", "metadata": {"name": "a"}, "spec": {"overrideRules": [{}, rule]}});
        let expected = "spec.overrideRules[1].imageOverrider[0].operator: \"drop\" is not possible here: write add, \
                        replace or remove";
        assert_eq!(told(policy), (expected.to_owned(), Reason::NotSupported));
    }
}
