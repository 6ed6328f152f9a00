//! The policies that keep DaemonSets in the system tenant, and tenants as whoever may decides.

use serde_json::{Value, json};

use super::{
    Action, DAEMONSET_POLICY, LABEL_ANNOTATION, NAMESPACE_POLICY, PERMISSION, REFUSAL, ROLE, SYSTEM_TENANT,
    ServiceAccount, Tenancy, quoted,
};
use crate::crd::{MANAGED_BY, MANAGED_BY_LABEL};
use crate::daemonset::V1BETA1_ANNOTATION;
use crate::daemonset::v1alpha1::PROGRESSIVE_CREATE_ANNOTATION;

/// The API group and version of policies and bindings.
const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Accounts of the cluster's own controllers in kube-system that write DaemonSets or Namespaces on somebody's behalf.
/// None of them creates any.
pub(super) const CONTROLLERS: [&str; 4] = [
    "generic-garbage-collector",
    "namespace-controller",
    "daemon-set-controller",
    "storage-version-migrator-controller",
];
/// All of them at once, where the controller manager does not give each an account of its own.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The policies on DaemonSets and on namespaces' tenants, then their bindings. Applied in this order, nothing is bound
/// that is not there yet.
pub fn tenancy_policies(tenancy: &Tenancy) -> Vec<Value> {
    let bind = |name| binding(name, tenancy.action);
    vec![daemonsets(tenancy), namespaces(tenancy), bind(DAEMONSET_POLICY), bind(NAMESPACE_POLICY)]
}

/// Kind and name of everything that [`tenancy_policies`] makes, whatever the tenancy; bindings first, as they are removed.
pub fn policies_of() -> [(&'static str, &'static str); 4] {
    let (policy, binding) = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding");
    [(binding, DAEMONSET_POLICY), (binding, NAMESPACE_POLICY), (policy, DAEMONSET_POLICY), (policy, NAMESPACE_POLICY)]
}

/// A policy of dapple's. Its parts are told by the caller; that it fails closed is not for the caller to say.
pub(super) fn policy(name: &str, rules: Value, conditions: Value, variables: Value, validations: Value) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": conditions,
            "variables": variables,
            "validations": validations,
        },
    })
}

/// The binding that puts a policy of the same name into effect everywhere.
pub(super) fn binding(name: &str, action: Action) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
        "spec": {"policyName": name, "validationActions": action.validation_actions()},
    })
}

/// DaemonSets exist in the system tenant only, and are written by whoever has the permission.
fn daemonsets(tenancy: &Tenancy) -> Value {
    let writes = ["CREATE", "UPDATE", "DELETE"];
    let rules = json!([
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": writes, "resources": ["daemonsets"]},
        // Through the status, owners and finalizers can be written too; of custom resources they cannot.
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["daemonsets/status"]},
        {"apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "operations": writes, "resources": ["daemonsets"]},
    ]);
    let changed = ["labels", "annotations", "ownerReferences", "finalizers"]
        .map(|field| format!("object.metadata.?{field} != oldObject.metadata.?{field}"));
    let conditions = json!([
        not_by_controllers(tenancy),
        {"name": "more-than-status", "expression": format!("!has(request.subResource) || {}", changed.join(" || "))},
    ]);
    let (system, key) = (quoted(SYSTEM_TENANT), quoted(tenancy.label.key()));
    let variables = json!([
        {"name": "tenant", "expression": format!("namespaceObject.metadata.?labels[?{key}].orValue({system})")},
        {"name": "deed", "expression": "request.operation.lowerAscii()"},
    ]);
    // What v1alpha1 has no field for is part of the spec as well.
    let same = [V1BETA1_ANNOTATION, PROGRESSIVE_CREATE_ANNOTATION].map(|name| {
        let name = quoted(name);
        format!("object.metadata.?annotations[?{name}] == oldObject.metadata.?annotations[?{name}]")
    });
    // Whoever may clean up can delete what is in the wrong place, and take finalizers off it.
    let place = format!(
        "request.operation == 'DELETE' || variables.tenant == {system} || \
         request.operation == 'UPDATE' && object.spec == oldObject.spec && {}",
        same.join(" && ")
    );
    let wrong_place = [
        quoted(&format!("{REFUSAL}: namespace ")),
        "request.namespace".to_owned(),
        quoted(" belongs to tenant "),
        "variables.tenant".to_owned(),
        quoted(&format!(
            " (label {}); use one of the system tenant. What is here already can be deleted, and its spec cannot be changed",
            tenancy.label
        )),
    ];
    let no_permission = [
        quoted(&format!("{REFUSAL}: ")),
        "request.userInfo.username".to_owned(),
        quoted(" may not "),
        "variables.deed".to_owned(),
        quoted(&format!(" one without permission to {}; {}", said_permission(), remedy())),
        "request.userInfo.username".to_owned(),
        quoted("'`"),
    ];
    let validations = json!([
        {"expression": place, "message": REFUSAL, "messageExpression": wrong_place.join(" + "), "reason": "Forbidden"},
        {"expression": allowed(), "message": REFUSAL, "messageExpression": no_permission.join(" + "),
            "reason": "Forbidden"},
    ]);
    labelled(policy(DAEMONSET_POLICY, rules, conditions, variables, validations), tenancy)
}

/// A namespace gets, changes and loses its tenant by whoever has the permission.
fn namespaces(tenancy: &Tenancy) -> Value {
    // Through these two subresources, labels can be written too.
    let resources = ["namespaces", "namespaces/status", "namespaces/finalize"];
    let rules = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": resources},
    ]);
    let key = quoted(tenancy.label.key());
    let tenant_changes = format!(
        "request.operation == 'CREATE' ? object.metadata.?labels[?{key}].hasValue() : \
         object.metadata.?labels[?{key}] != oldObject.metadata.?labels[?{key}]"
    );
    let conditions = json!([not_by_controllers(tenancy), {"name": "tenant-changes", "expression": tenant_changes}]);
    let message = format!("only who may {} changes a namespace's tenant", said_permission());
    let expression = [
        quoted(&format!("{message}: ")),
        "request.userInfo.username".to_owned(),
        quoted(" may not set, change or remove label "),
        key,
        quoted(" of namespace "),
        "object.metadata.?name.orValue('')".to_owned(),
        quoted(&format!("; {}", remedy())),
        "request.userInfo.username".to_owned(),
        quoted("'`"),
    ];
    let validations = json!([
        {"expression": allowed(), "message": message, "messageExpression": expression.join(" + "), "reason": "Forbidden"},
    ]);
    labelled(policy(NAMESPACE_POLICY, rules, conditions, json!([]), validations), tenancy)
}

/// Leaves the cluster's own controllers alone: what they do was decided by somebody who was asked.
fn not_by_controllers(tenancy: &Tenancy) -> Value {
    not_by(&CONTROLLERS, &tenancy.manager)
}

/// Leaves these accounts of kube-system alone, and dapple's manager.
pub(super) fn not_by(accounts: &[&str], manager: &ServiceAccount) -> Value {
    let accounts = accounts.iter().map(|name| format!("system:serviceaccount:kube-system:{name}"));
    let users = accounts.chain([CONTROLLER_MANAGER.to_owned(), manager.user()]);
    let users: Vec<String> = users.map(|user| quoted(&user)).collect();
    let expression = format!("!(request.userInfo.username in [{}])", users.join(", "));
    json!({"name": "not-by-controllers", "expression": expression})
}

/// Whether the sender has the permission. Asked without a namespace: who has all rights in one namespace has it not.
fn allowed() -> String {
    let [group, resource, verb] = [PERMISSION.group, PERMISSION.resource, PERMISSION.verb].map(quoted);
    format!("authorizer.group({group}).resource({resource}).check({verb}).allowed()")
}

fn said_permission() -> String {
    format!("{} {}.{}", PERMISSION.verb, PERMISSION.resource, PERMISSION.group)
}

/// How to get the permission, up to the user's name.
fn remedy() -> String {
    format!("a cluster admin grants it: `kubectl create clusterrolebinding NAME --clusterrole={ROLE} --user='")
}

fn labelled(mut policy: Value, tenancy: &Tenancy) -> Value {
    policy["metadata"]["annotations"] = json!({LABEL_ANNOTATION: tenancy.label.key()});
    policy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::is_ours;
    use crate::partition::{ServiceAccount, TenantLabel};

    fn tenancy(action: Action) -> Tenancy {
        let manager = ServiceAccount { namespace: "dapple-system".into(), name: "dapple-manager".into() };
        Tenancy { label: "example.com/team".parse::<TenantLabel>().expect("a key"), action, manager }
    }

    #[test]
    fn every_object_is_ours_named_and_removed_in_turn() {
        let made = tenancy_policies(&tenancy(Action::Deny));
        assert!(made.iter().all(is_ours));
        let mut names: Vec<_> = made.iter().map(|is| (is["kind"].as_str(), is["metadata"]["name"].as_str())).collect();
        let mut removed: Vec<_> = policies_of().map(|(kind, name)| (Some(kind), Some(name))).to_vec();
        assert_eq!(removed[0].0, Some("ValidatingAdmissionPolicyBinding"), "nothing stays bound to what is gone");
        names.sort_unstable();
        removed.sort_unstable();
        assert_eq!(names, removed);
    }

    #[test]
    fn policies_fail_closed_and_have_no_parameters() {
        for policy in
            tenancy_policies(&tenancy(Action::Warn)).iter().filter(|is| is["kind"] == "ValidatingAdmissionPolicy")
        {
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            assert!(policy["spec"].get("paramKind").is_none());
            assert_eq!(policy["metadata"]["annotations"][LABEL_ANNOTATION], "example.com/team");
        }
    }

    #[test]
    fn every_refusal_of_a_daemonset_begins_with_the_same_words() {
        let policy = daemonsets(&tenancy(Action::Deny));
        for validation in policy["spec"]["validations"].as_array().expect("a list") {
            let expression = validation["messageExpression"].as_str().expect("a text");
            assert!(expression.starts_with(&format!("\"{REFUSAL}")), "{expression}");
            assert_eq!(validation["message"], REFUSAL);
        }
    }

    #[test]
    fn the_action_is_the_bindings_alone() {
        let of = |action| tenancy_policies(&tenancy(action));
        let (audit, deny) = (of(Action::Audit), of(Action::Deny));
        assert_eq!(audit[..2], deny[..2]);
        assert_eq!(deny[2]["spec"]["validationActions"], json!(["Deny"]));
        assert_eq!(of(Action::Warn)[3]["spec"]["validationActions"], json!(["Audit", "Warn"]));
    }
}
