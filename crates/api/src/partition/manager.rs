//! What the manager may change of objects that are others': what is its own, and nothing else. Rights by kind cannot say
//! that: whoever may patch a Deployment may say what it runs.

use serde_json::{Value, json};

use super::authors::AuthorPolicy;
use super::policies::{binding, policy};
use super::{Action, ServiceAccount, quoted};
use crate::group::{BINDING_OVERRIDE_LABEL, BINDING_PROPAGATION_LABEL, NODE_LABEL_PREFIX};
use crate::kinds::{
    DAEMON_SET, KindInfo, NATIVE, NODE, NODE_GROUP, OwnKind, PROPAGATION_POLICY, YURT_APP_DAEMON, YURT_APP_SET,
};
use crate::pool::{GROUP, POOL_NAME_LABEL, PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES, RESERVED_DOMAINS, RESERVED_KEYS};

/// Of nodes: the labels of groups that name nodes, and what the node remembers to be a pool's, before the change or after it. So
/// nothing is changed on a node that is not noted there, and nothing that Kubernetes or the kubelet keep.
pub(super) fn nodes(manager: &ServiceAccount) -> AuthorPolicy {
    let of = |object: &str, field: &str| format!("{object}.metadata.?{field}.orValue({{}})");
    let remembered = |object: &str| {
        let annotation = quoted(PREVIOUS_ATTRIBUTES);
        format!("{object}.metadata.?annotations[?{annotation}].orValue('')")
    };
    let taints = |object: &str| format!("{object}.spec.?taints.orValue([])");
    let variables = json!([
        {"name": "labelsBefore", "expression": of("oldObject", "labels")},
        {"name": "labelsAfter", "expression": of("object", "labels")},
        {"name": "annotationsBefore", "expression": of("oldObject", "annotations")},
        {"name": "annotationsAfter", "expression": of("object", "annotations")},
        {"name": "taintsBefore", "expression": taints("oldObject")},
        {"name": "taintsAfter", "expression": taints("object")},
        {"name": "remembered", "expression": format!("{} + {}", remembered("oldObject"), remembered("object"))},
    ]);
    let is_pools = |key: &str| format!("!({}) && variables.remembered.contains('\"' + {key} + '\"')", is_kept(key));
    let of_map = |one: &str, other: &str, is_own: &str| {
        format!(
            "variables.{one}.all(key, {is_own} || key in variables.{other} && variables.{one}[key] == variables.{other}[key] || {})",
            is_pools("key")
        )
    };
    let of_taints = |one: &str, other: &str| {
        format!(
            "variables.{one}.all(taint, variables.{other}.exists(known, known == taint) || {})",
            is_pools("taint.key")
        )
    };
    let is_group = format!("key.startsWith({})", quoted(NODE_LABEL_PREFIX));
    let is_memory = format!("key in [{}, {}]", quoted(PREVIOUS_ATTRIBUTES), quoted(REPLACED_ATTRIBUTES));
    let fields = ["unschedulable", "podCIDR", "podCIDRs", "providerID", "configSource", "externalID"];
    let same = fields.map(|field| format!("object.spec.?{field} == oldObject.spec.?{field}"));
    let kept = ["finalizers", "ownerReferences"]
        .map(|field| format!("object.metadata.?{field} == oldObject.metadata.?{field}"));
    let expression = [
        of_map("labelsBefore", "labelsAfter", &is_group),
        of_map("labelsAfter", "labelsBefore", &is_group),
        of_map("annotationsBefore", "annotationsAfter", &is_memory),
        of_map("annotationsAfter", "annotationsBefore", &is_memory),
        of_taints("taintsBefore", "taintsAfter"),
        of_taints("taintsAfter", "taintsBefore"),
        same.join(" && "),
        kept.join(" && "),
    ]
    .join(" && ");
    let said = format!(
        "of nodes, dapple's manager changes labels that begin with {NODE_LABEL_PREFIX}, and what the node remembers to be a \
         pool's, and nothing else"
    );
    let validations = json!([{"expression": expression, "message": said, "reason": "Forbidden"}]);
    let name = "dapple-manager-of-nodes";
    let policy = policy(name, json!([rule(NODE)]), json!([by_manager(manager)]), variables, validations);
    AuthorPolicy { crd: NODE_GROUP.crd(), objects: [policy, binding(name, Action::Deny)] }
}

/// Whether a key is kept by Kubernetes, the kubelet or dapple, as [`crate::pool::is_reserved`] has it.
fn is_kept(key: &str) -> String {
    let names = RESERVED_KEYS.map(quoted).join(", ");
    let domains = RESERVED_DOMAINS.map(|domain| format!("{key}.startsWith({})", quoted(&format!("{domain}/"))));
    format!("{key} in [{names}] || {} || {key}.contains('.dapple.dev/')", domains.join(" || "))
}

fn by_manager(manager: &ServiceAccount) -> Value {
    json!({"name": "by-the-manager", "expression": format!("request.userInfo.username == {}", quoted(&manager.user()))})
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
    let conditions = json!([&[by_manager(manager)], further].concat());
    let policy = policy(name, rules, conditions, variables, validations);
    AuthorPolicy { crd: kind.crd(), objects: [policy, binding(name, Action::Deny)] }
}
