//! Who may write NodePools, applications in pools, and what is remembered of both: on nodes, in revisions and in statuses.

use serde_json::{Value, json};

use super::authors::{AuthorPolicy, author_policy, author_policy_of, revisions_of, statuses_of, validation};
use super::policies::{binding, policy};
use super::{Action, ServiceAccount, quoted};
use crate::kinds::{self, OwnKind};
use crate::pool::{NODE_POOL_LABEL, PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES};

/// What applications in pools are made of.
const WORKLOADS: [&str; 2] = ["deployments", "statefulsets"];

/// A NodePool decides what nodes have.
pub(super) fn node_pools() -> AuthorPolicy {
    let patches = "authorizer.group('').resource('nodes').check('patch').allowed()";
    let needs = "a NodePool decides what labels, annotations and taints nodes have, so whoever writes its spec needs permission to \
                 patch nodes";
    let validations = json!([of_the_sender(patches, needs)]);
    author_policy(&kinds::NODE_POOL, "dapple-nodepool-authors", json!([]), validations)
}

/// A kubelet may change labels of its own node, and would get pods that are not meant for it in another pool. By what the node
/// remembers of pools, dapple takes off taints and puts back labels that a kubelet itself may not change; nor may those who write
/// statuses of nodes only.
pub(super) fn own_pool() -> AuthorPolicy {
    // Through the status, labels and annotations can be written too.
    let rules = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["nodes", "nodes/status"]},
    ]);
    let is_node = "'system:nodes' in request.userInfo.?groups.orValue([])";
    let concerned = format!("{is_node} || has(request.subResource)");
    let conditions = json!([{"name": "by-a-node-or-through-the-status", "expression": concerned}]);
    let of = |object: &str, field: &str, key: &str| format!("{object}.metadata.?{field}[?{}]", quoted(key));
    let same = |field: &str, key: &str| format!("{} == {}", of("object", field, key), of("oldObject", field, key));
    let memory = [PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES];
    let unsaid = memory.map(|key| format!("!{}.hasValue()", of("object", "annotations", key))).join(" && ");
    let unchanged = memory.map(|key| same("annotations", key)).join(" && ");
    let variables = json!([
        {"name": "isNode", "expression": is_node},
        // A kubelet may register its node in a pool.
        {"name": "samePool", "expression": format!("request.operation == 'CREATE' || {}", same("labels", NODE_POOL_LABEL))},
        {"name": "sameMemory", "expression": format!("request.operation == 'CREATE' ? {unsaid} : {unchanged}")},
    ]);
    let patches = "variables.isNode || variables.samePool && variables.sameMemory || \
                   authorizer.group('').resource('nodes').name(request.name).check('patch').allowed()";
    let keys = memory.join(" and ");
    let refuse =
        |expression: &str, said: String| json!({"expression": expression, "message": said, "reason": "Forbidden"});
    let validations = json!([
        refuse(
            "!variables.isNode || variables.samePool",
            format!("a node may not change which pool it is in: its label {NODE_POOL_LABEL} is for others to change"),
        ),
        refuse(
            "!variables.isNode || variables.sameMemory",
            format!(
                "a node may not say what pools have put on it or replaced there: its annotations {keys} are for others to change"
            ),
        ),
        of_the_sender(
            patches,
            &format!(
                "whoever changes the label {NODE_POOL_LABEL} or the annotations {keys} of a node through its status needs permission \
                 to patch nodes"
            ),
        ),
    ]);
    let name = "dapple-pool-of-nodes";
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd: kinds::NODE_POOL.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// An application in pools, and what differs from pool to pool, decide which workloads there are, and what they run.
pub(super) fn applications(kind: &OwnKind, name: &str, fields: &[&str]) -> AuthorPolicy {
    let validations = WORKLOADS.map(|resource| {
        let needs = format!(
            "a {} decides what workloads run in pools, so whoever writes its {} needs permission to create {resource}",
            kind.at.kind,
            fields.join(" or ")
        );
        validation(&creates(resource), &needs)
    });
    author_policy_of(kind, name, fields, json!([]), json!(validations))
}

/// A revision says what runs in pools whose turn has not come, in those that join and where a workload is missing, and in all of
/// them after going back.
pub(super) fn revisions(kind: &OwnKind, name: &str, manager: &ServiceAccount) -> AuthorPolicy {
    let needs = remembered(kind, "a ControllerRevision", "one");
    revisions_of(kind, name, manager, &needs, &WORKLOADS.map(creates))
}

/// The status says which of its revisions pools have and start with, and at which one a rollout has stopped.
pub(super) fn statuses(kind: &OwnKind, name: &str, manager: &ServiceAccount) -> AuthorPolicy {
    let needs = remembered(kind, "the status", "it");
    statuses_of(kind, name, manager, &needs, &WORKLOADS.map(creates))
}

/// What writing something needs by which an application is remembered.
fn remembered(kind: &OwnKind, what: &str, it: &str) -> String {
    let (application, workloads) = (kind.at.kind, WORKLOADS.join(" and "));
    format!(
        "{what} of a {application} says what workloads run in pools, so whoever writes {it} needs permission to update that \
         {application} and to create {workloads}"
    )
}

/// Whether the sender may create workloads of a kind in the namespace.
fn creates(resource: &str) -> String {
    format!("authorizer.group('apps').resource('{resource}').namespace(request.namespace).check('create').allowed()")
}

/// That an expression is true of the sender, in the whole cluster.
fn of_the_sender(expression: &str, needs: &str) -> Value {
    let message = format!("{} + request.userInfo.username + ' lacks it'", quoted(&format!("{needs}: ")));
    json!({"expression": expression, "message": needs, "messageExpression": message, "reason": "Forbidden"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_remembers_of_pools_is_guarded_by_whatever_way_it_is_written() {
        let made = own_pool();
        let spec = &made.objects[0]["spec"];
        let rule = &spec["matchConstraints"]["resourceRules"][0];
        assert_eq!(rule["resources"], json!(["nodes", "nodes/status"]));
        assert_eq!(rule["operations"], json!(["CREATE", "UPDATE"]));
        let variables = spec["variables"].as_array().expect("a list");
        let says = |name: &str| {
            let variable = variables.iter().find(|variable| variable["name"] == name).expect(name);
            variable["expression"].as_str().expect("a text").to_owned()
        };
        assert!(says("samePool").contains(NODE_POOL_LABEL));
        // Neither in the beginning nor later.
        let memory = says("sameMemory");
        let (created, changed) = memory.split_once(" : ").expect("both");
        for key in [PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES] {
            assert!(created.contains(key) && changed.contains(key), "{memory}");
        }
        let expressions: Vec<&str> = spec["validations"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|validation| validation["expression"].as_str().expect("a text"))
            .collect();
        assert_eq!(
            expressions[..2],
            ["!variables.isNode || variables.samePool", "!variables.isNode || variables.sameMemory"]
        );
        assert!(expressions[2].starts_with("variables.isNode || variables.samePool && variables.sameMemory || "));
    }
}
