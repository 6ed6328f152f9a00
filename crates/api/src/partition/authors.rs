//! Who may write objects that make dapple change pods: nobody gets through dapple what they may not do themselves.

use serde_json::{Value, json};

use super::manager::{binding_labels, nodes};
use super::policies::{binding, not_by, policy};
use super::probers::{leases, results, what_to_probe};
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

/// The policies on who may write what makes dapple change pods and nodes: PodMarkers, OverridePolicies, NodePools and their
/// applications, what the manager remembers of DaemonSets, OverridePolicies, applications, and on nodes, what is probed and what came
/// of it; and those on what the manager itself may write. They always deny, and need no tenants.
pub fn author_policies(manager: &ServiceAccount) -> [AuthorPolicy; 19] {
    [
        pod_markers(),
        what_to_probe(manager),
        results(),
        leases(),
        override_policies(),
        revisions(manager),
        override_revisions(manager),
        statuses(manager),
        nodes(manager),
        binding_labels(manager),
        pools::node_pools(),
        pools::own_pool(),
        pools::applications(&kinds::YURT_APP_SET, "dapple-yurtappset-authors", &["spec"]),
        pools::revisions(&kinds::YURT_APP_SET, "dapple-yurtappset-revision-authors", manager),
        pools::statuses(&kinds::YURT_APP_SET, "dapple-yurtappset-status-authors", manager),
        pools::applications(&kinds::YURT_APP_DAEMON, "dapple-yurtappdaemon-authors", &["spec"]),
        pools::revisions(&kinds::YURT_APP_DAEMON, "dapple-yurtappdaemon-revision-authors", manager),
        pools::statuses(&kinds::YURT_APP_DAEMON, "dapple-yurtappdaemon-status-authors", manager),
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

/// Whether the sender may create pods in the namespace.
const CREATES_PODS: &str =
    "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()";

/// Whether the sender may change an object of a kind: the one whose name an expression gives, or any in the namespace. It asks
/// twice, and the API server lets no expression ask three times.
fn may_update(kind: KindInfo, name: Option<&str>) -> String {
    let KindInfo { group, plural, .. } = kind;
    let one = name.map(|name| format!(".name({name})")).unwrap_or_default();
    let check = |verb: &str| {
        format!(
            "authorizer.group('{group}').resource('{plural}').namespace(request.namespace){one}.check('{verb}').allowed()"
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
    let named = format!("variables.sets.all(set, {})", may_update(kinds::DAEMON_SET.at, Some("set")));
    let any = format!("variables.sets.size() > 0 || {}", may_update(kinds::DAEMON_SET.at, None));
    let needs = "a ControllerRevision says what pods of a DaemonSet run, so whoever writes one that a DaemonSet of \
                 apps.kruise.io owns, or that nobody owns, needs permission to update that DaemonSet";
    let validations = json!([validation(&named, needs), validation(&any, needs)]);
    let name = "dapple-revision-authors";
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd: kinds::DAEMON_SET.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// A revision of an OverridePolicy says what pods of groups run whose turn has not come, and of those that the newest does not suit.
fn override_revisions(manager: &ServiceAccount) -> AuthorPolicy {
    let needs = "a ControllerRevision of an OverridePolicy says what pods run, so whoever writes one needs permission to update \
                 that OverridePolicy and to create pods";
    let further = [CREATES_PODS.to_owned()];
    revisions_of(&kinds::OVERRIDE_POLICY, "dapple-override-revision-authors", manager, needs, &further)
}

/// The status says what nodes are held back at.
fn statuses(manager: &ServiceAccount) -> AuthorPolicy {
    let needs = "the status of a DaemonSet says what nodes that are held back run, so whoever writes it needs permission to \
                 update the DaemonSet";
    statuses_of(&kinds::DAEMON_SET, "dapple-daemonset-status-authors", manager, needs, &[])
}

/// A policy on who may write revisions that objects of a kind own: whoever may update these, and of whom all of `further` is true.
pub(super) fn revisions_of(
    kind: &OwnKind,
    name: &str,
    manager: &ServiceAccount,
    needs: &str,
    further: &[String],
) -> AuthorPolicy {
    let KindInfo { group, kind: owner, .. } = kind.at;
    let rules = json!([
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["controllerrevisions"]},
    ]);
    let is_ours = format!("owner.apiVersion.startsWith('{group}/') && owner.kind == '{owner}'");
    let concerns = |object: &str| format!("{}.exists(owner, {is_ours})", owners(object));
    let about_ours = format!("{} || request.operation == 'UPDATE' && {}", concerns("object"), concerns("oldObject"));
    let conditions =
        json!([not_by(&REVISION_WRITERS, manager), {"name": "of-such-an-owner", "expression": about_ours}]);
    let variables = json!([{"name": "owners", "expression": names_of_owners(&is_ours)}]);
    let named = format!("variables.owners.all(owner, {})", may_update(kind.at, Some("owner")));
    let policy = policy(name, rules, conditions, variables, all_of(&named, further, needs));
    AuthorPolicy { crd: kind.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// A policy on who may write statuses of a kind: whoever may update the object, and of whom all of `further` is true.
pub(super) fn statuses_of(
    kind: &OwnKind,
    name: &str,
    manager: &ServiceAccount,
    needs: &str,
    further: &[String],
) -> AuthorPolicy {
    let KindInfo { group, plural, .. } = kind.at;
    let resource = format!("{plural}/status");
    let rules = json!([
        {"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]},
    ]);
    let named = may_update(kind.at, Some("object.metadata.name"));
    let policy = policy(name, rules, json!([not_by(&[], manager)]), json!([]), all_of(&named, further, needs));
    AuthorPolicy { crd: kind.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// Validations that say the same of each of these, as no expression may ask for many rights.
fn all_of(first: &str, further: &[String], needs: &str) -> Value {
    let expressions = std::iter::once(first).chain(further.iter().map(String::as_str));
    expressions.map(|expression| validation(expression, needs)).collect()
}

/// A marker changes pods, its exec probes run commands in them, and all others reach their ports whatever their NetworkPolicy says.
fn pod_markers() -> AuthorPolicy {
    let any_probe = |is_meant: &str| {
        format!("object.spec.?matchRequirements.?podProbes.orValue([]).exists(each, {is_meant}has(each.probe.exec))")
    };
    let variables = json!([
        {"name": "runsCommands", "expression": any_probe("")},
        {"name": "reachesPorts", "expression": any_probe("!")},
    ]);
    let marks = "authorizer.group('').resource('pods').namespace(request.namespace).check('patch').allowed()";
    let runs = "!variables.runsCommands || \
                authorizer.group('').resource('pods').subresource('exec').namespace(request.namespace).check('create').allowed()";
    let reaches = "!variables.reachesPorts || authorizer.group('').resource('pods').subresource('portforward')\
                   .namespace(request.namespace).check('create').allowed()";
    let validations = json!([
        validation(marks, "a PodMarker changes pods, so whoever writes its spec needs permission to patch pods"),
        validation(
            runs,
            "an exec probe of a PodMarker runs a command in pods, so whoever writes its spec needs permission to create pods/exec",
        ),
        validation(
            reaches,
            "a probe of a PodMarker over the network reaches pods past their NetworkPolicy, so whoever writes its spec needs \
             permission to create pods/portforward",
        ),
    ]);
    author_policy(&kinds::POD_MARKER, "dapple-podmarker-authors", variables, validations)
}

/// An OverridePolicy decides what pods are made of.
fn override_policies() -> AuthorPolicy {
    let needs = "an OverridePolicy decides what pods run, so whoever writes its spec needs permission to create pods";
    let validations = json!([validation(CREATES_PODS, needs)]);
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::crd::{crds, is_ours};

    fn manager() -> ServiceAccount {
        ServiceAccount { namespace: "dapple-system".to_owned(), name: "dapple-manager".to_owned() }
    }

    fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
        list.as_array().expect("a list").iter().map(|item| item[field].as_str().expect("a text")).collect()
    }

    #[test]
    fn each_is_ours_and_about_a_kind_of_ours() {
        let mut names = BTreeSet::new();
        for AuthorPolicy { crd, objects } in author_policies(&manager()) {
            assert!(objects.iter().all(is_ours));
            assert!(crds().iter().any(|is| is["metadata"]["name"] == crd), "{crd}");
            let rule = &objects[0]["spec"]["matchConstraints"]["resourceRules"][0];
            let [resource, group] = ["resources", "apiGroups"].map(|field| rule[field][0].as_str().expect("a text"));
            // Revisions are everybody's; those of ours are told by their owners. Nodes and workloads are others'.
            let expected = match resource {
                "controllerrevisions" => "controllerrevisions.apps",
                "nodes" => "nodes.",
                "daemonsets" => "daemonsets.apps",
                "leases" => "leases.coordination.k8s.io",
                _ => &crd,
            };
            assert_eq!(format!("{}.{group}", resource.trim_end_matches("/status")), expected);
            assert_eq!(objects[1]["spec"]["validationActions"], json!(["Deny"]));
            assert_eq!(objects[1]["spec"]["policyName"], objects[0]["metadata"]["name"]);
            assert!(names.insert(objects[0]["metadata"]["name"].to_string()), "each has a name of its own: {crd}");
        }
    }

    #[test]
    fn no_expression_asks_for_more_rights_than_the_api_server_lets_it() {
        for AuthorPolicy { objects, .. } in author_policies(&manager()) {
            for expression in texts(&objects[0]["spec"]["validations"], "expression") {
                assert!(expression.matches(".check(").count() <= 2, "{expression}");
            }
        }
    }

    /// Kinds whose controllers go by revisions that they made before.
    #[test]
    fn what_the_manager_remembers_of_a_kind_is_for_those_who_may_update_it() {
        let all = author_policies(&manager());
        let spec_of = |is_it: &dyn Fn(&Value) -> bool| {
            all.iter().map(|policy| &policy.objects[0]["spec"]).find(|spec| is_it(spec)).expect("a policy")
        };
        let nothing: &[&str] = &[];
        for (kind, creates) in [
            (&kinds::DAEMON_SET, nothing),
            (&kinds::OVERRIDE_POLICY, &["pods"]),
            (&kinds::YURT_APP_SET, &["deployments", "statefulsets"]),
            (&kinds::YURT_APP_DAEMON, &["deployments", "statefulsets"]),
        ] {
            let KindInfo { kind: name, plural, .. } = kind.at;
            let rule = |spec: &Value| spec["matchConstraints"]["resourceRules"][0].clone();
            let of_revisions = spec_of(&|spec| {
                let conditions = spec["matchConditions"].as_array().expect("a list");
                rule(spec)["resources"] == json!(["controllerrevisions"])
                    && conditions.iter().any(|is| is["expression"].to_string().contains(&format!("'{name}'")))
            });
            assert_eq!(rule(of_revisions)["operations"], json!(["CREATE", "UPDATE"]), "{name}");
            let mut guarded = vec![of_revisions];
            // There is no policy on the status of OverridePolicies.
            if kind.at != kinds::OVERRIDE_POLICY.at {
                guarded.push(spec_of(&|spec| rule(spec)["resources"] == json!([format!("{plural}/status")])));
            }
            for spec in guarded {
                let asked = texts(&spec["validations"], "expression");
                let asks = |resource: &str, verb: &str| {
                    let (resource, verb) = (format!("resource('{resource}')"), format!("check('{verb}')"));
                    asked.iter().any(|expression| expression.contains(&resource) && expression.contains(&verb))
                };
                assert!(asks(plural, "update") && asks(plural, "patch"), "{name}: {asked:?}");
                assert!(creates.iter().all(|resource| asks(resource, "create")), "{name}: {asked:?}");
            }
        }
    }
}
