//! What the labels of an application or a pod say of its policies: whether they are asked for, and confirmed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dapple_api::group::{
    BINDING_OVERRIDE_LABEL, BINDING_PROPAGATION_LABEL, OverridePolicySpec, PropagationPolicySpec,
    REQUIRED_OVERRIDE_LABEL, REQUIRED_PROPAGATION_LABEL,
};
use dapple_api::kinds::{KindInfo, OVERRIDE_POLICY, PROPAGATION_POLICY};
use dapple_edit::authored::authored;
use dapple_edit::document::Document;
use dapple_edit::edit::Edit;
use dapple_edit::group::edits;
use dapple_edit::render::render_unnamed;
use serde_json::Value;

use super::division::Division;
use super::edition::{EDITION, Edition};
use crate::mutant::{Mutant, is_on};
use crate::native::{selector, template};
use crate::node::Labels;
use crate::variant::unselected_label;

/// A kind of policy, with the pair of labels by which it is asked for and confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pair {
    /// PropagationPolicies.
    Propagation,
    /// OverridePolicies.
    Override,
}

impl Pair {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Propagation, Self::Override];

    /// The four labels by which policies are asked for and confirmed.
    pub fn labels() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().flat_map(|pair| [pair.required(), pair.binding()])
    }

    /// The kind of the policies.
    #[must_use]
    pub fn kind(self) -> KindInfo {
        match self {
            Self::Propagation => PROPAGATION_POLICY.at,
            Self::Override => OVERRIDE_POLICY.at,
        }
    }

    /// The label by which a policy is asked for.
    #[must_use]
    pub fn required(self) -> &'static str {
        match self {
            Self::Propagation => REQUIRED_PROPAGATION_LABEL,
            Self::Override => REQUIRED_OVERRIDE_LABEL,
        }
    }

    /// The label by which a policy is confirmed.
    #[must_use]
    pub fn binding(self) -> &'static str {
        match self {
            Self::Propagation => BINDING_PROPAGATION_LABEL,
            Self::Override => BINDING_OVERRIDE_LABEL,
        }
    }

    /// How it stands with such a policy, by the labels of an application or a pod.
    #[must_use]
    pub fn situation<'l>(self, labels: &'l dyn Labels) -> Situation<'l> {
        match (labels.get(self.required()), labels.get(self.binding())) {
            (Some(policy), None) => Situation::Asked(policy),
            (Some(policy), Some(bound)) if policy != bound => Situation::Differs { policy, bound },
            (Some(policy), Some(_)) => Situation::Bound(policy),
            (None, _) => Situation::None,
        }
    }
}

/// How it stands with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation<'l> {
    /// It is asked for, and not confirmed.
    Asked(&'l str),
    /// One is asked for, and another was confirmed.
    Differs {
        /// The one that is asked for.
        policy: &'l str,
        /// The one that was confirmed.
        bound: &'l str,
    },
    /// It is asked for, and confirmed.
    Bound(&'l str),
    /// None is asked for. A confirmation that is left over counts for nothing.
    None,
}

impl Situation<'_> {
    /// Whether a pod has to wait until the policy is confirmed.
    #[must_use]
    pub fn holds_back(self) -> bool {
        matches!(self, Self::Asked(_) | Self::Differs { .. })
    }
}

/// What the checks say of a policy that an application asks for, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// There is no such policy in the application's namespace.
    Missing,
    /// It does not apply to the application's template, for this reason.
    Unrendered(String),
    /// It can be confirmed.
    Passed,
}

/// Whether a PropagationPolicy says how pods are divided.
#[must_use]
pub fn check_propagation(spec: &PropagationPolicySpec) -> Check {
    match Division::of(spec) {
        Some(_) => Check::Passed,
        None => Check::Unrendered(
            "it has no strategy: set propagationStrategy, or only one of staticWeightList and numRange".to_owned(),
        ),
    }
}

/// Whether an OverridePolicy applies to an application, for every group that its rules name and for all others, whether such
/// groups are there or not. `policy` is how people name it, `template_field` the field that has the pod template, empty for
/// a pod. One that was made by the policy has shown that it applies, and once more it need not: what a rule takes out is gone.
#[must_use]
pub fn check_override(policy: &str, spec: &OverridePolicySpec, application: &Value, template_field: &str) -> Check {
    let Some(template) = template(template_field, application).filter(|template| template.is_object()) else {
        return Check::Unrendered(format!("it has no pod template at {template_field}"));
    };
    let selector = selector(application);
    let is_pod = template_field.is_empty();
    if let Some(name) = application["metadata"]["annotations"][EDITION].as_str().filter(|_| is_pod)
        && kinds_of_groups(spec).any(|group| Edition::of(policy, spec, &group).name.as_deref() == Some(name))
    {
        return Check::Passed;
    }
    let base = if is_pod { authored(template) } else { Cow::Borrowed(template) };
    let template = &*base;
    for group in kinds_of_groups(spec) {
        let edits = edits(policy, spec, &[&group]);
        let edits: Vec<&Edit> = edits.iter().collect();
        let rendered = match render_unnamed(Document::PodTemplate, template, &edits) {
            Ok(rendered) => rendered,
            Err(error) => return Check::Unrendered(error.to_string()),
        };
        if let Some(key) = selector.as_ref().and_then(|selector| unselected_label(selector, template, &rendered)) {
            return Check::Unrendered(format!("it changes the label {key} of pods, which its selector needs"));
        }
    }
    Check::Passed
}

/// One name for all groups that the same rules target.
fn kinds_of_groups(spec: &OverridePolicySpec) -> impl Iterator<Item = String> {
    let named = spec.override_rules.iter().flat_map(|rule| rule.target_node_group.iter().flatten());
    // No group has an empty name: this one stands for those that no rule names.
    let names: BTreeSet<String> = named.map(|name| name.to_ascii_lowercase()).chain([String::new()]).collect();
    let rules = |name: &str| spec.override_rules.iter().map(|rule| rule.targets(name)).collect::<Vec<_>>();
    let by_rules: BTreeMap<Vec<bool>, String> = names.into_iter().map(|name| (rules(&name), name)).collect();
    by_rules.into_values()
}

/// What is done about the label by which a policy is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation<'l> {
    /// It names this policy from now on.
    Set(&'l str),
    /// It is taken off.
    Remove,
    /// It stays as it is, or is not there.
    Keep,
}

impl Pair {
    /// What is done about the label of an application, by the check of the policy that it asks for. A policy that was confirmed
    /// and is edited into one that does not apply stays confirmed: what runs by it goes on, and groups keep what they have.
    #[must_use]
    pub fn confirm<'l>(self, labels: &'l dyn Labels, check: &Check) -> Confirmation<'l> {
        match (self.situation(labels), check) {
            (Situation::None, _) if labels.get(self.binding()).is_some() => Confirmation::Remove,
            (Situation::Bound(_), Check::Missing) if is_on(Mutant::GoneStaysBound) => Confirmation::Keep,
            (Situation::Bound(_) | Situation::Differs { .. }, Check::Missing) => Confirmation::Remove,
            (Situation::Asked(policy) | Situation::Differs { policy, .. }, Check::Passed) => Confirmation::Set(policy),
            _ => Confirmation::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pair: Pair, required: Option<&str>, binding: Option<&str>) -> BTreeMap<String, String> {
        let with = |key: &str, value: Option<&str>| value.map(|value| (key.to_owned(), value.to_owned()));
        [with(pair.required(), required), with(pair.binding(), binding)].into_iter().flatten().collect()
    }

    #[test]
    fn the_four_situations_of_either_pair() {
        for pair in Pair::ALL {
            let holds = |required, binding| pair.situation(&labels(pair, required, binding)).holds_back();
            assert!(holds(Some("a"), None), "1: asked for");
            assert!(holds(Some("a"), Some("b")), "2: another one is confirmed");
            assert!(!holds(Some("a"), Some("a")), "3: confirmed");
            assert!(!holds(None, None), "4: none is asked for");
            assert!(!holds(None, Some("b")), "what is left over counts for nothing");
            assert!(holds(Some(""), None), "a label without a name asks for what cannot be there");
            assert_eq!(pair.situation(&labels(pair, Some("a"), Some("a"))), Situation::Bound("a"));
        }
    }

    #[test]
    fn a_policy_is_confirmed_once_it_passes_and_as_long_as_it_is_asked_for() {
        let pair = Pair::Override;
        let unrendered = Check::Unrendered("no such container".to_owned());
        let confirm = |required, binding, check: &Check| {
            let labels = labels(pair, required, binding);
            format!("{:?}", pair.confirm(&labels, check))
        };
        let (set, remove, keep) = ("Set(\"a\")", "Remove", "Keep");
        assert_eq!(confirm(Some("a"), None, &Check::Passed), set);
        assert_eq!(confirm(Some("a"), Some("b"), &Check::Passed), set);
        assert_eq!(confirm(Some("a"), None, &Check::Missing), keep);
        assert_eq!(confirm(Some("a"), None, &unrendered), keep);
        assert_eq!(confirm(Some("a"), Some("a"), &unrendered), keep, "it was edited since");
        assert_eq!(confirm(Some("a"), Some("a"), &Check::Missing), remove, "it was deleted");
        assert_eq!(confirm(Some("a"), Some("b"), &Check::Missing), remove);
        assert_eq!(confirm(None, Some("b"), &Check::Passed), remove, "none is asked for any more");
        assert_eq!(confirm(None, None, &Check::Missing), keep);
    }

    fn rules(rules: Value) -> OverridePolicySpec {
        serde_json::from_value(json!({"overrideRules": rules})).expect("a policy")
    }

    fn application() -> Value {
        json!({"kind": "Deployment", "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web", "tier": "1"}},
            "spec": {"containers": [{"name": "c", "image": "web:1", "args": ["a"]}]}}}})
    }

    fn check(of: Value) -> String {
        match check_override("OverridePolicy a/o", &rules(of), &application(), "spec.template") {
            Check::Unrendered(why) => why,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_policy_is_held_against_the_template_for_every_kind_of_group() {
        let good = json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "2"}]});
        let bad = |group: Value| {
            json!({"targetNodeGroup": group, "plaintext": [
            {"path": "/spec/nothing/0", "operator": "remove"}]})
        };
        assert_eq!(check(json!([good])), "Passed");
        assert!(check(json!([good, bad(json!(["north"]))])).contains("overrideRules[1]"), "{}", check(json!([good])));
        assert!(check(json!([bad(Value::Null)])).contains("/spec/nothing"), "of groups that no rule names");
        assert_eq!(check(json!([bad(json!([]))])), "Passed", "it is for no group");
        let pod = application()["spec"]["template"].clone();
        assert_eq!(check_override("o", &rules(json!([good])), &pod, ""), Check::Passed);
        let none = check_override("o", &rules(json!([])), &pod, "spec.template");
        assert_eq!(none, Check::Unrendered("it has no pod template at spec.template".to_owned()));
    }

    #[test]
    fn a_pod_that_was_made_by_a_policy_is_not_held_against_it_once_more() {
        let rule = |group: &str, working: &str| {
            json!({"targetNodeGroup": [group], "plaintext": [{"path": "/spec/containers/0/args", "operator": "remove"},
                {"path": "/spec/containers/0/workingDir", "operator": "add", "value": working}]})
        };
        let spec = rules(json!([rule("north", "/n"), rule("south", "/s")]));
        let check = |pod: &Value| check_override("o", &spec, pod, "");
        let mut pod = application()["spec"]["template"].clone();
        assert_eq!(check(&pod), Check::Passed);
        pod["spec"]["containers"][0].as_object_mut().expect("a container").remove("args");
        assert!(matches!(check(&pod), Check::Unrendered(_)), "nothing is there to be taken out");
        pod["metadata"]["annotations"][EDITION] = json!("another");
        assert!(matches!(check(&pod), Check::Unrendered(_)), "it was made by something else");
        for group in ["north", "south"] {
            pod["metadata"]["annotations"][EDITION] = json!(Edition::of("o", &spec, group).name);
            assert_eq!(check(&pod), Check::Passed);
        }
        // Of workloads, the annotation says nothing.
        let workload = json!({"metadata": pod["metadata"], "spec": {"template": {"spec": pod["spec"]}}});
        assert!(matches!(check_override("o", &spec, &workload, "spec.template"), Check::Unrendered(_)));
    }

    #[test]
    fn a_label_that_the_selector_needs_is_not_changed() {
        let label = |key: &str| {
            json!([{"plaintext": [
            {"path": format!("/metadata/labels/{key}"), "operator": "replace", "value": "other"}]}])
        };
        assert_eq!(check(label("tier")), "Passed");
        assert!(check(label("app")).contains("changes the label app of pods"), "{}", check(label("app")));
        let whole = json!([{"plaintext": [{"path": "/metadata/labels", "operator": "remove"}]}]);
        assert!(check(whole).contains("changes the label app"));
        let mut controller = application();
        controller["spec"]["selector"] = json!({"app": "web"});
        let refused = check_override("o", &rules(label("app")), &controller, "spec.template");
        assert!(matches!(refused, Check::Unrendered(_)), "of a ReplicationController: {refused:?}");
        let mut expressive = application();
        expressive["spec"]["selector"] = json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web"]}, {"key": "old", "operator": "DoesNotExist"}]});
        for (key, operator) in [("app", "remove"), ("app", "replace"), ("old", "add")] {
            let rule = json!([{"plaintext": [
                {"path": format!("/metadata/labels/{key}"), "operator": operator, "value": "other"}]}]);
            let refused = check_override("o", &rules(rule), &expressive, "spec.template");
            let Check::Unrendered(why) = refused else { panic!("{operator} {key}: {refused:?}") };
            assert!(why.contains(&format!("changes the label {key} of pods")), "{why}");
        }
    }
}
