//! Who may write objects that make dapple change pods: nobody gets through dapple what they may not do themselves.

use serde_json::{Value, json};

use super::manager::{binding_labels, nodes};
use super::policies::{binding, not_by, policy};
use super::{Action, ServiceAccount, pools, quoted};
use crate::kinds::{self, KindInfo, OwnKind};

/// A policy with its binding, and the kind it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthorPolicy {
    /// The CRD of the kind. The policy is for dapple's own kinds, not for another product's of the same name.
    pub crd: String,
    /// The policy, then its binding.
    pub objects: [Value; 2],
}

/// The policies on who may write what makes dapple change pods and nodes: PodMarkers, OverridePolicies, what the manager
/// remembers of DaemonSets and OverridePolicies, NodePools and their applications, what nodes remember of pools; and those on what
/// the manager itself may write. They always deny, and need no tenants.
pub fn author_policies(manager: &ServiceAccount) -> [AuthorPolicy; 12] {
    [
        pod_markers(),
        override_policies(),
        revisions(manager),
        override_revisions(manager),
        statuses(manager),
        nodes(manager),
        binding_labels(manager),
        pools::node_pools(),
        pools::own_pool(),
        pools::applications(&kinds::YURT_APP_SET, "dapple-yurtappset-authors", &["spec"]),
        pools::applications(&kinds::YURT_APP_DAEMON, "dapple-yurtappdaemon-authors", &["spec"]),
        pools::applications(&kinds::REPLACEMENT, "dapple-replacement-authors", &["subject", "replacements"]),
    ]
}

/// Accounts in kube-system that write ControllerRevisions: those of the workloads that have some, and those that let go of
/// what an object leaves.
const REVISION_WRITERS: [&str; 5] = [
    "daemon-set-controller",
    "statefulset-controller",
    "generic-garbage-collector",
    "namespace-controller",
    "storage-version-migrator-controller",
];

/// Whether the sender may change a DaemonSet: the one whose name an expression gives, or any in the namespace.
fn may_update(name: Option<&str>) -> String {
    let one = name.map(|name| format!(".name({name})")).unwrap_or_default();
    let check = |verb: &str| {
        format!(
            "authorizer.group('apps.kruise.io').resource('daemonsets').namespace(request.namespace){one}.check('{verb}').allowed()"
        )
    };
    format!("({} || {})", check("update"), check("patch"))
}

fn owners(object: &str) -> String {
    format!("{object}.metadata.?ownerReferences.orValue([])")
}

/// The names of those owners that an expression is true of, before a change and after it.
fn names_of_owners(is_meant: &str) -> String {
    let (after, before) = (owners("object"), owners("oldObject"));
    format!(
        "({after} + (request.operation == 'UPDATE' ? {before} : [])).filter(owner, {is_meant}).map(owner, owner.name)"
    )
}

/// A revision says what pods of a DaemonSet run: those on nodes that are held back, and all of them after an undo.
fn revisions(manager: &ServiceAccount) -> AuthorPolicy {
    let rules = json!([
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["controllerrevisions"]},
    ]);
    let is_ours = "owner.apiVersion.startsWith('apps.kruise.io/') && owner.kind == 'DaemonSet'";
    // One that nobody owns is taken in by a set that selects it.
    let concerns = |object: &str| {
        let owners = owners(object);
        format!("({owners}.exists(owner, {is_ours}) || !{owners}.exists(owner, owner.?controller.orValue(false)))")
    };
    let about_ours = format!("{} || request.operation == 'UPDATE' && {}", concerns("object"), concerns("oldObject"));
    let conditions =
        json!([not_by(&REVISION_WRITERS, manager), {"name": "of-a-daemonset-of-dapple", "expression": about_ours}]);
    let variables = json!([{"name": "sets", "expression": names_of_owners(is_ours)}]);
    let named = format!("variables.sets.all(set, {})", may_update(Some("set")));
    let any = format!("variables.sets.size() > 0 || {}", may_update(None));
    let needs = "a ControllerRevision says what pods of a DaemonSet run, so whoever writes one that a DaemonSet of \
                 apps.kruise.io owns, or that nobody owns, needs permission to update that DaemonSet";
    let validations = json!([validation(&named, needs), validation(&any, needs)]);
    let name = "dapple-revision-authors";
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd: kinds::DAEMON_SET.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// A revision of an OverridePolicy says what pods of groups run whose turn has not come, and of those that the newest does not suit.
fn override_revisions(manager: &ServiceAccount) -> AuthorPolicy {
    let KindInfo { group, kind, plural, .. } = kinds::OVERRIDE_POLICY.at;
    let rules = json!([
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["controllerrevisions"]},
    ]);
    let is_ours = format!("owner.apiVersion.startsWith('{group}/') && owner.kind == '{kind}'");
    let concerns = |object: &str| format!("{}.exists(owner, {is_ours})", owners(object));
    let about_ours = format!("{} || request.operation == 'UPDATE' && {}", concerns("object"), concerns("oldObject"));
    let conditions =
        json!([not_by(&REVISION_WRITERS, manager), {"name": "of-an-overridepolicy", "expression": about_ours}]);
    let may_update = format!(
        "authorizer.group('{group}').resource('{plural}').namespace(request.namespace).name(policy).check('update').allowed()"
    );
    let creates = "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()";
    let needs = "a ControllerRevision of an OverridePolicy says what pods run, so whoever writes one needs permission to update \
                 that OverridePolicy and to create pods";
    let allowed = format!("variables.policies.all(policy, {may_update}) && {creates}");
    let validations = json!([validation(&allowed, needs)]);
    let name = "dapple-override-revision-authors";
    let policy = policy(
        name,
        rules,
        conditions,
        json!([{"name": "policies", "expression": names_of_owners(&is_ours)}]),
        validations,
    );
    AuthorPolicy { crd: kinds::OVERRIDE_POLICY.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// The status says what nodes are held back at.
fn statuses(manager: &ServiceAccount) -> AuthorPolicy {
    let rules = json!([
        {"apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["daemonsets/status"]},
    ]);
    let needs = "the status of a DaemonSet says what nodes that are held back run, so whoever writes it needs permission to \
                 update the DaemonSet";
    let validations = json!([validation(&may_update(Some("object.metadata.name")), needs)]);
    let name = "dapple-daemonset-status-authors";
    let policy = policy(name, rules, json!([not_by(&[], manager)]), json!([]), validations);
    AuthorPolicy { crd: kinds::DAEMON_SET.crd(), objects: [policy, binding(name, Action::Deny)] }
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
    author_policy(&kinds::POD_MARKER, "dapple-podmarker-authors", variables, validations)
}

/// An OverridePolicy decides what pods are made of.
fn override_policies() -> AuthorPolicy {
    let creates = "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()";
    let needs = "an OverridePolicy decides what pods run, so whoever writes its spec needs permission to create pods";
    let validations = json!([validation(creates, needs)]);
    author_policy(&kinds::OVERRIDE_POLICY, "dapple-overridepolicy-authors", json!([]), validations)
}

/// A policy on who may write the spec.
pub(super) fn author_policy(kind: &OwnKind, name: &str, variables: Value, validations: Value) -> AuthorPolicy {
    author_policy_of(kind, name, &["spec"], variables, validations)
}

/// A policy on who may write these fields.
pub(super) fn author_policy_of(
    kind: &OwnKind,
    name: &str,
    fields: &[&str],
    variables: Value,
    validations: Value,
) -> AuthorPolicy {
    let KindInfo { group, version, plural, .. } = kind.at;
    let rules = json!([
        {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [plural]},
    ]);
    // Labels, annotations and finalizers are anybody's who may write the object.
    let changed: Vec<String> = fields.iter().map(|field| format!("object.?{field} != oldObject.?{field}")).collect();
    let changed = format!("request.operation == 'CREATE' || {}", changed.join(" || "));
    let conditions = json!([{"name": "spec-changes", "expression": changed}]);
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd: kind.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// That an expression is true of the sender, in the namespace.
pub(super) fn validation(expression: &str, needs: &str) -> Value {
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
        let manager = ServiceAccount { namespace: "dapple-system".to_owned(), name: "dapple-manager".to_owned() };
        for AuthorPolicy { crd, objects } in author_policies(&manager) {
            assert!(objects.iter().all(is_ours));
            assert!(crds().iter().any(|is| is["metadata"]["name"] == crd), "{crd}");
            let rule = &objects[0]["spec"]["matchConstraints"]["resourceRules"][0];
            let [resource, group] = ["resources", "apiGroups"].map(|field| rule[field][0].as_str().expect("a text"));
            // Revisions are everybody's; those of DaemonSets are told by their owners. Nodes and workloads are others'.
            let expected = match resource {
                "controllerrevisions" => "controllerrevisions.apps",
                "nodes" => "nodes.",
                "daemonsets" => "daemonsets.apps",
                _ => &crd,
            };
            assert_eq!(format!("{}.{group}", resource.trim_end_matches("/status")), expected);
            assert_eq!(objects[1]["spec"]["validationActions"], json!(["Deny"]));
        }
    }
}
