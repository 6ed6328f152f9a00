//! Who may say what is probed, what came of it, and that a prober is there.

use serde_json::{Value, json};

use super::authors::AuthorPolicy;
use super::policies::{binding, policy};
use super::{Action, ServiceAccount, quoted};
use crate::kinds::{KindInfo, NODE_POD_PROBE};
use crate::marker::PROBER_NAMESPACE;

/// By which the API server tells on which node the pod runs that a token is of.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// The probers' account.
pub fn prober_account() -> ServiceAccount {
    ServiceAccount { namespace: PROBER_NAMESPACE.to_owned(), name: "dapple-prober".to_owned() }
}

fn of(name: &str, rules: Value, conditions: Value, validations: Value) -> AuthorPolicy {
    let policy = policy(name, rules, conditions, json!([]), validations);
    AuthorPolicy { crd: NODE_POD_PROBE.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// What is probed: the manager says so alone, since commands are run by it in any container of the node.
pub(super) fn what_to_probe(manager: &ServiceAccount) -> AuthorPolicy {
    let KindInfo { group, version, plural, .. } = NODE_POD_PROBE.at;
    let rules = json!([
        {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE", "UPDATE"], "resources": [plural]},
    ]);
    let changed = "request.operation == 'CREATE' || object.?spec != oldObject.?spec";
    let conditions = json!([{"name": "spec-changes", "expression": changed}]);
    let by_manager = format!("request.userInfo.username == {}", quoted(&manager.user()));
    let said = "a NodePodProbe has commands run in any container of its node, so only dapple's manager writes its spec: write a \
                PodMarker instead";
    let validations = json!([{"expression": by_manager, "message": said, "reason": "Forbidden"}]);
    of("dapple-nodepodprobe-authors", rules, conditions, validations)
}

/// Whether the sender is the prober of the node that the object is named after. A token that names no node is of none.
fn own_node(what: &str) -> Value {
    let claim = format!("request.userInfo.?extra[?{}][?0].orValue('')", quoted(NODE_CLAIM));
    let user = quoted(&prober_account().user());
    let expression =
        format!("request.userInfo.username == {user} && {claim} != '' && {claim} == object.metadata.?name.orValue('')");
    let said = format!("{what} is written by the prober of its node alone");
    json!([{"expression": expression, "message": said, "reason": "Forbidden"}])
}

/// What came of probes says which pods are marked.
pub(super) fn results() -> AuthorPolicy {
    let KindInfo { group, version, plural, .. } = NODE_POD_PROBE.at;
    let status = format!("{plural}/status");
    let rules = json!([
        {"apiGroups": [group], "apiVersions": [version], "operations": ["UPDATE"], "resources": [status]},
    ]);
    of("dapple-prober-results", rules, json!([]), own_node("the status of a NodePodProbe"))
}

/// That a prober is there says whether its results count.
pub(super) fn leases() -> AuthorPolicy {
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["leases"]},
    ]);
    let here = format!("request.namespace == {}", quoted(PROBER_NAMESPACE));
    let conditions = json!([{"name": "of-probers", "expression": here}]);
    of("dapple-prober-leases", rules, conditions, own_node("a Lease of probers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_on_probers_fail_closed() {
        let manager = ServiceAccount { namespace: "dapple-system".to_owned(), name: "dapple-manager".to_owned() };
        for AuthorPolicy { objects: [policy, binding], .. } in [what_to_probe(&manager), results(), leases()] {
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
            assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        }
    }

    #[test]
    fn a_prober_is_told_by_its_account_and_the_node_in_its_token() {
        let expression = own_node("x")[0]["expression"].as_str().expect("a text").to_owned();
        assert!(expression.contains("\"system:serviceaccount:dapple-probers:dapple-prober\""), "{expression}");
        assert!(expression.contains("\"authentication.kubernetes.io/node-name\""), "{expression}");
    }
}
