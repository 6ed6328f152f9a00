//! What the manager may change of objects that are others': labels of its own, and nothing else. Rights by kind cannot say
//! that: whoever may patch a Deployment may say what it runs.

use serde_json::{Value, json};

use super::authors::AuthorPolicy;
use super::policies::{binding, policy};
use super::{Action, ServiceAccount, quoted};
use crate::group::{BINDING_OVERRIDE_LABEL, BINDING_PROPAGATION_LABEL, NODE_LABEL_PREFIX};
use crate::kinds::{
    DAEMON_SET, KindInfo, NATIVE, NODE, NODE_GROUP, OwnKind, PROPAGATION_POLICY, YURT_APP_DAEMON, YURT_APP_SET,
};
use crate::pool::{GROUP, POOL_NAME_LABEL};

/// Of nodes: the labels of groups that name nodes.
pub(super) fn node_labels(manager: &ServiceAccount) -> AuthorPolicy {
    let rules = json!([rule(NODE)]);
    let is_own = format!("key.startsWith({})", quoted(NODE_LABEL_PREFIX));
    let said =
        format!("of nodes, dapple's manager changes labels that begin with {NODE_LABEL_PREFIX} and nothing else");
    only_labels(&NODE_GROUP, "dapple-manager-of-nodes", manager, (rules, &[]), &is_own, &said)
}

/// Of workloads: the labels by which policies are confirmed.
pub(super) fn binding_labels(manager: &ServiceAccount) -> AuthorPolicy {
    let rules: Vec<Value> = NATIVE.iter().map(|native| native.at).chain([DAEMON_SET.at]).map(rule).collect();
    let labels = [BINDING_PROPAGATION_LABEL, BINDING_OVERRIDE_LABEL];
    let is_own = format!("key in [{}]", labels.map(quoted).join(", "));
    let said = format!("of workloads, dapple's manager changes the labels {} and nothing else", labels.join(" and "));
    // Those of pools are the manager's whole.
    let of_application = format!(
        "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && \
         owner.apiVersion.startsWith({}) && owner.kind in [{}])",
        quoted(&format!("{GROUP}/")),
        [YURT_APP_SET, YURT_APP_DAEMON].map(|kind| quoted(kind.at.kind)).join(", ")
    );
    let of_pool = format!("{} in oldObject.metadata.?labels.orValue({{}})", quoted(POOL_NAME_LABEL));
    let others = json!({"name": "of-no-pool", "expression": format!("!({of_pool} && {of_application})")});
    only_labels(&PROPAGATION_POLICY, "dapple-manager-of-workloads", manager, (json!(rules), &[others]), &is_own, &said)
}

fn rule(kind: KindInfo) -> Value {
    let KindInfo { group, version, plural, .. } = kind;
    json!({"apiGroups": [group], "apiVersions": [version], "operations": ["UPDATE"], "resources": [plural]})
}

/// A policy by which the manager changes only labels of which `is_own` is true.
fn only_labels(
    kind: &OwnKind,
    name: &str,
    manager: &ServiceAccount,
    (rules, further): (Value, &[Value]),
    is_own: &str,
    said: &str,
) -> AuthorPolicy {
    let by_manager = format!("request.userInfo.username == {}", quoted(&manager.user()));
    let labels = |object: &str| format!("{object}.metadata.?labels.orValue({{}})");
    let variables = json!([
        {"name": "before", "expression": labels("oldObject")},
        {"name": "after", "expression": labels("object")},
    ]);
    let kept = |one: &str, other: &str| {
        format!(
            "variables.{one}.all(key, {is_own} || key in variables.{other} && variables.{one}[key] == variables.{other}[key])"
        )
    };
    let same = ["?spec", "metadata.?annotations", "metadata.?finalizers", "metadata.?ownerReferences"]
        .map(|field| format!("object.{field} == oldObject.{field}"));
    let expression = [kept("before", "after"), kept("after", "before"), same.join(" && ")].join(" && ");
    let validations = json!([{"expression": expression, "message": said, "reason": "Forbidden"}]);
    let by_manager = json!({"name": "by-the-manager", "expression": by_manager});
    let conditions = json!([&[by_manager], further].concat());
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd: kind.crd(), objects: [policy, binding(name, Action::Deny)] }
}
