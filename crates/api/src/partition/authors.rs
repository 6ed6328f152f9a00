//! Who may write objects that make dapple change pods: nobody gets through dapple what they may not do themselves.

use serde_json::{Value, json};

use super::policies::{binding, policy};
use super::{Action, quoted};
use crate::{group, marker};

/// A policy with its binding, and the kind it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthorPolicy {
    /// The CRD of the kind. The policy is for dapple's own kinds, not for another product's of the same name.
    pub crd: &'static str,
    /// The policy, then its binding.
    pub objects: [Value; 2],
}

/// The policies on who may write PodMarkers and OverridePolicies. They always deny, and need no tenants.
pub fn author_policies() -> [AuthorPolicy; 2] {
    [pod_markers(), override_policies()]
}

/// A marker changes pods, and its exec probes run commands in them.
fn pod_markers() -> AuthorPolicy {
    let variables = json!([{
        "name": "runsCommands",
        "expression": "object.spec.?matchRequirements.?podProbes.orValue([]).exists(each, has(each.probe.exec))",
    }]);
    let marks = "authorizer.group('').resource('pods').namespace(request.namespace).check('patch').allowed()";
    let runs = "!variables.runsCommands || \
                authorizer.group('').resource('pods').subresource('exec').namespace(request.namespace).check('create').allowed()";
    let validations = json!([
        validation(marks, "a PodMarker changes pods, so whoever writes its spec needs permission to patch pods"),
        validation(
            runs,
            "an exec probe of a PodMarker runs a command in pods, so whoever writes its spec needs permission to create pods/exec",
        ),
    ]);
    author_policy(
        "podmarkers.apps.kruise.io",
        marker::GROUP,
        "podmarkers",
        "dapple-podmarker-authors",
        variables,
        validations,
    )
}

/// An OverridePolicy decides what pods are made of.
fn override_policies() -> AuthorPolicy {
    let creates = "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()";
    let needs = "an OverridePolicy decides what pods run, so whoever writes its spec needs permission to create pods";
    let validations = json!([validation(creates, needs)]);
    let crd = "overridepolicies.groupmanagement.kubeedge.io";
    author_policy(crd, group::GROUP, "overridepolicies", "dapple-overridepolicy-authors", json!([]), validations)
}

fn author_policy(
    crd: &'static str,
    group: &str,
    resource: &str,
    name: &str,
    variables: Value,
    validations: Value,
) -> AuthorPolicy {
    let rules = json!([
        {"apiGroups": [group], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]},
    ]);
    // Labels, annotations and finalizers are anybody's who may write the object.
    let changed = "request.operation == 'CREATE' || object.?spec != oldObject.?spec";
    let conditions = json!([{"name": "spec-changes", "expression": changed}]);
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd, objects: [policy, binding(name, Action::Deny)] }
}

fn validation(expression: &str, needs: &str) -> Value {
    let begin = quoted(&format!("{needs} in namespace "));
    let message = format!("{begin} + request.namespace + ': ' + request.userInfo.username + ' lacks it'");
    json!({"expression": expression, "message": needs, "messageExpression": message, "reason": "Forbidden"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::{crds, is_ours};

    #[test]
    fn each_is_ours_and_about_a_kind_of_ours() {
        for AuthorPolicy { crd, objects } in author_policies() {
            assert!(objects.iter().all(is_ours));
            assert!(crds().iter().any(|is| is["metadata"]["name"] == crd), "{crd}");
            let rule = &objects[0]["spec"]["matchConstraints"]["resourceRules"][0];
            let [resource, group] = ["resources", "apiGroups"].map(|field| rule[field][0].as_str().expect("a text"));
            assert_eq!(format!("{resource}.{group}"), crd);
            assert_eq!(objects[1]["spec"]["validationActions"], json!(["Deny"]));
        }
    }
}
