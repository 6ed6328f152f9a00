//! What a DaemonSet must be, but for its patches, which the override engine looks at.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::defaults::is_zero;
use super::{
    DaemonSet, DaemonSetSpec, LifecycleHook, MAX_PATCH_BYTES, MAX_PATCHES, RollingUpdate, RollingUpdateType,
    UpdateStrategyType,
};
use crate::selector::{self, Selector};
use crate::verdict::{Reason, Verdict};
use crate::{metadata, syntax};

/// Everything that is to be said of a DaemonSet without applying its patches. `old` is what it was before, if it was.
pub fn validate(set: &DaemonSet, old: Option<&DaemonSet>) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&set.metadata, &mut verdict);
    let spec = &set.spec;
    check_selector(spec, old.map(|old| &old.spec), &mut verdict);
    check_template(&spec.template.0, "spec.template", &mut verdict);
    check_patches(spec, &mut verdict);
    check_rolling_update(spec, &mut verdict);
    for (field, number) in
        [("minReadySeconds", spec.min_ready_seconds), ("revisionHistoryLimit", spec.revision_history_limit)]
    {
        if let Some(number) = number.filter(|number| *number < 0) {
            verdict.refuse(
                format!("spec.{field}"),
                Reason::Invalid,
                format!("this must be 0 or more, and it is {number}"),
            );
        }
    }
    if let Some(burst) = &spec.burst_replicas {
        verdict.check("spec.burstReplicas", syntax::count_or_percent(burst));
    }
    let hooks = spec.lifecycle.iter().flat_map(|known| {
        [("preDelete", known.pre_delete.as_ref()), ("inPlaceUpdate", known.in_place_update.as_ref())]
    });
    for (name, hook) in hooks {
        if let Some(hook) = hook {
            check_hook(hook, &format!("spec.lifecycle.{name}"), &mut verdict);
        }
    }
    verdict
}

fn check_selector(spec: &DaemonSetSpec, old: Option<&DaemonSetSpec>, verdict: &mut Verdict) {
    let field = "spec.selector";
    selector::check(&spec.selector, field, verdict);
    let (labels, expressions) = (&spec.selector.match_labels, &spec.selector.match_expressions);
    if labels.iter().flatten().next().is_none() && expressions.iter().flatten().next().is_none() {
        verdict.refuse(field, Reason::Invalid, "the selector must not be empty: it would select every pod");
    }
    if old.is_some_and(|old| old.selector != spec.selector) {
        let text = "the selector cannot be changed: delete the DaemonSet with --cascade=orphan and create it anew";
        verdict.refuse(field, Reason::Forbidden, text);
    }
    let labels = &spec.template.0["metadata"]["labels"];
    if Selector::new(&spec.selector).is_ok_and(|selector| !selector.matches(|key| labels[key].as_str())) {
        let text = "these must be such that spec.selector selects them";
        verdict.refuse("spec.template.metadata.labels", Reason::Invalid, text);
    }
}

/// What the pods of a DaemonSet may not be, whoever says so.
pub fn check_template(template: &Value, field: &str, verdict: &mut Verdict) {
    let spec = &template["spec"];
    if let Some(policy) = spec["restartPolicy"].as_str().filter(|policy| !["", "Always"].contains(policy)) {
        let text = format!("this must be Always for the pods of a DaemonSet, and it is {policy:?}");
        verdict.refuse(format!("{field}.spec.restartPolicy"), Reason::NotSupported, text);
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        let text = "the pods of a DaemonSet run for ever: leave it out";
        verdict.refuse(format!("{field}.spec.activeDeadlineSeconds"), Reason::Forbidden, text);
    }
}

fn check_patches(spec: &DaemonSetSpec, verdict: &mut Verdict) {
    verdict.at_most("spec.patches", spec.patches.len(), MAX_PATCHES);
    for (index, patch) in spec.patches.iter().enumerate() {
        let field = format!("spec.patches[{index}]");
        selector::check(&patch.selector, &format!("{field}.selector"), verdict);
        let bytes = patch.patch.0.to_string().len();
        if bytes > MAX_PATCH_BYTES {
            let text = format!("this has {bytes} bytes of JSON; a patch may have {MAX_PATCH_BYTES}");
            verdict.refuse(format!("{field}.patch"), Reason::TooLong, text);
        }
    }
    let own: Vec<&str> = spec.patches.iter().flat_map(|patch| selected_keys(&patch.selector)).filter(is_own).collect();
    if !own.is_empty() {
        let mut own = own;
        own.sort_unstable();
        own.dedup();
        let text = format!(
            "a node can set {} of its own labels ({}); where that matters, select on labels of \
             node-restriction.kubernetes.io/",
            if own.len() == 1 { "this one" } else { "these" },
            own.join(", ")
        );
        verdict.warn("spec.patches", text);
    }
}

fn selected_keys(
    selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
) -> impl Iterator<Item = &str> {
    let labels = selector.match_labels.iter().flat_map(|labels| labels.keys().map(String::as_str));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| expression.key.as_str());
    labels.chain(expressions)
}

/// Labels of Kubernetes' own that a kubelet may set on its node.
const KUBELETS_LABELS: [&str; 9] = [
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];

/// Whether a node may set this label on itself, with Kubernetes' NodeRestriction.
fn is_own(key: &&str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if KUBELETS_LABELS.contains(key) || is_of("kubelet.kubernetes.io") || is_of("node.kubernetes.io") {
        return true;
    }
    !is_of("kubernetes.io") && !is_of("k8s.io")
}

fn check_rolling_update(spec: &DaemonSetSpec, verdict: &mut Verdict) {
    let (update, field) = (spec.written_rolling_update(), "spec.updateStrategy.rollingUpdate");
    let amounts = [
        ("maxUnavailable", &update.max_unavailable),
        ("maxSurge", &update.max_surge),
        ("partition", &update.partition),
    ];
    for (name, amount) in amounts {
        if let Some(amount) = amount {
            verdict.check(format!("{field}.{name}"), syntax::count_or_percent(amount));
        }
    }
    if let Some(selector) = &update.selector {
        selector::check(selector, &format!("{field}.selector"), verdict);
    }
    // As OpenKruise has it: what is left of a rolling update says nothing where there is none.
    if spec.update_strategy_type() == UpdateStrategyType::RollingUpdate {
        check_together(update, field, verdict);
    }
}

/// What must fit together in a rolling update.
fn check_together(update: &RollingUpdate, field: &str, verdict: &mut Verdict) {
    let is_above = |amount: &Option<IntOrString>| amount.as_ref().is_some_and(|amount| !is_zero(amount));
    let is_none = |amount: &Option<IntOrString>| amount.as_ref().is_some_and(is_zero);
    if is_above(&update.max_surge) && is_above(&update.max_unavailable) {
        let text = "only one of maxUnavailable and maxSurge may be above 0: set the other one to 0";
        verdict.refuse(field, Reason::Invalid, text);
    }
    if is_none(&update.max_unavailable) && !is_above(&update.max_surge) {
        let text = "one of maxUnavailable and maxSurge must be above 0, or no pod could ever be updated";
        verdict.refuse(field, Reason::Invalid, text);
    }
    if update.rolling_update_type() == RollingUpdateType::InPlaceIfPossible && is_above(&update.max_surge) {
        let text = "maxSurge does not go with rollingUpdateType InPlaceIfPossible: use maxUnavailable";
        verdict.refuse(format!("{field}.maxSurge"), Reason::Forbidden, text);
    }
}

fn check_hook(hook: &LifecycleHook, field: &str, verdict: &mut Verdict) {
    let labels = hook.labels_handler.iter().flatten().next();
    let finalizers = hook.finalizers_handler.iter().flatten().next();
    if labels.is_none() && finalizers.is_none() {
        verdict.refuse(field, Reason::Required, "set labelsHandler or finalizersHandler, or the hook holds nothing");
    }
    if let Some(labels) = &hook.labels_handler {
        syntax::labels(labels, &format!("{field}.labelsHandler"), verdict);
    }
    for (index, finalizer) in hook.finalizers_handler.iter().flatten().enumerate() {
        let field = format!("{field}.finalizersHandler[{index}]");
        if finalizer.contains('/') {
            verdict.check(field, syntax::key(finalizer));
        } else {
            verdict.refuse(
                field,
                Reason::Invalid,
                "the name of a finalizer of a pod needs a domain, such as example.com/x",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_a_node_may_set_are_told_apart() {
        for own in [
            "disk-type",
            "example.com/disk",
            "kubernetes.io/hostname",
            "node.kubernetes.io/x",
            "a.kubelet.kubernetes.io/x",
        ] {
            assert!(is_own(&own), "{own}");
        }
        for others in ["node-restriction.kubernetes.io/disk", "node-role.kubernetes.io/gpu", "x.k8s.io/y"] {
            assert!(!is_own(&others), "{others}");
        }
    }
}
