//! What is to be said of an OverridePolicy: each overrider is held against what a pod can have.

use dapple_api::group::{
    CommandArgsOverrider, ImageComponent, ImageOverrider, OverridePolicy, OverriderOperator, Overriders,
    PlaintextOperator, PlaintextOverrider, RuleWithNodeGroup, group_name,
};
use dapple_api::verdict::{Reason, Verdict};
use dapple_api::{metadata, syntax};
use json_patch::jsonptr::PointerBuf;
use serde_json::Value;

use super::component;
use crate::check::{Mistake, check_value, shape_at, tell};
use crate::image::{Component, Image, ImageError, Operation};
use crate::overruled::{Rule, warn_overruled};
use crate::plain::pointer;
use crate::schema::POD_TEMPLATE;

/// The most rules, and the most overriders of one kind in a rule.
const MAX_OVERRIDERS: usize = 64;

/// The most characters of an image's value and of a path.
const MAX_TEXT: usize = 1024;

/// What no rule can change, and why.
const FIXED: [(&[&str], &str); 10] = [
    (&["metadata", "name"], "a pod gets its name from its owner"),
    (&["metadata", "generateName"], "a pod gets its name from its owner"),
    (&["metadata", "namespace"], "a pod is in the namespace of its owner"),
    (&["metadata", "uid"], "the API server gives it"),
    (&["metadata", "resourceVersion"], "the API server gives it"),
    (&["metadata", "creationTimestamp"], "the API server gives it"),
    (&["metadata", "ownerReferences"], "they say whose pod it is"),
    (&["metadata", "labels", "pod-template-hash"], "the pod's owner selects on it"),
    (&["metadata", "labels", "controller-revision-hash"], "the pod's owner selects on it"),
    (&["spec", "nodeName"], "the scheduler sets it, on a node of the pod's group: use nodeSelector or affinity"),
];

/// What a pod cannot be without.
const NEEDED: [&[&str]; 2] = [&["spec"], &["spec", "containers"]];

/// Everything that is to be said of an OverridePolicy.
pub fn validate_override_policy(policy: &OverridePolicy) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&policy.metadata, &mut verdict);
    let rules = &policy.spec.override_rules;
    verdict.at_most("spec.overrideRules", rules.len(), MAX_OVERRIDERS);
    for (index, rule) in rules.iter().enumerate() {
        check_rule(rule, &format!("spec.overrideRules[{index}]"), &mut verdict);
    }
    let rules: Vec<Rule> = rules.iter().enumerate().map(|(index, rule)| compared(rule, index)).collect();
    warn_overruled("spec.overrideRules", &rules, &mut verdict);
    verdict
}

/// What a rule sets and changes, for comparing it with others. Words are added and removed and never set.
fn compared(rule: &RuleWithNodeGroup, index: usize) -> Rule {
    let field = format!("spec.overrideRules[{index}]");
    let targets = rule.target_node_group.as_ref();
    let targets = targets.map(|names| names.iter().map(|name| name.to_lowercase()).collect());
    let mut compared = Rule { targets, ..Rule::default() };
    let mut note = |field: String, what: String, is_set: bool| {
        compared.sets.extend(is_set.then(|| what.clone()));
        compared.changes.push((field, vec![what]));
    };
    for (field, overriders) in rule
        .overriders
        .iter()
        .map(|nested| (format!("{field}.overriders"), nested))
        .chain([(field.clone(), &rule.direct)])
    {
        for (number, image) in overriders.image_overrider.iter().enumerate() {
            let path = image.predicate.as_ref().map(|predicate| predicate.path.trim_start_matches('/'));
            let what = format!("{:?} of {path:?}", image.component);
            note(format!("{field}.imageOverrider[{number}]"), what, image.operator == OverriderOperator::Replace);
        }
        for (number, plain) in overriders.plaintext.iter().enumerate() {
            // What adds the field, or takes it away, is perhaps what the later one needs.
            if matches!(plain.operator, PlaintextOperator::Replace | PlaintextOperator::Update) {
                note(format!("{field}.plaintext[{number}]"), plain.path.trim_start_matches('/').to_owned(), true);
            }
        }
    }
    compared
}

fn check_rule(rule: &RuleWithNodeGroup, field: &str, verdict: &mut Verdict) {
    let has_direct = rule.direct != Overriders::default();
    if rule.overriders.is_some() && has_direct {
        let text = "write overriders either under `overriders` or directly in the rule, not both";
        verdict.refuse(field, Reason::Invalid, text);
    }
    if rule.overriders.is_none() && !has_direct {
        let text = "a rule needs an imageOverrider, commandOverrider, argsOverrider or plaintext";
        verdict.refuse(field, Reason::Required, text);
    }
    if rule.overriders.as_ref().is_some_and(|nested| *nested == Overriders::default()) && !has_direct {
        verdict.warn(&format!("{field}.overriders"), "there is nothing in it, so the rule changes nothing");
    }
    if let Some(names) = &rule.target_node_group {
        let field = format!("{field}.targetNodeGroup");
        verdict.at_most(&field, names.len(), 256);
        if names.is_empty() {
            verdict.warn(&field, "the list is empty, so the rule is for no group: leave it out to mean all");
        }
        for (index, name) in names.iter().enumerate() {
            let field = format!("{field}[{index}]");
            if names[..index].iter().any(|known| known.eq_ignore_ascii_case(name)) {
                let text = format!("{name:?} is named already, and case does not count: a rule applies once");
                verdict.refuse(&field, Reason::Duplicate, text);
            }
            verdict.check(field, group_name(name));
        }
    }
    if let Some(nested) = &rule.overriders {
        check_overriders(nested, &format!("{field}.overriders"), verdict);
    }
    check_overriders(&rule.direct, field, verdict);
}

fn check_overriders(overriders: &Overriders, field: &str, verdict: &mut Verdict) {
    let at = |name: &str| format!("{field}.{name}");
    for (name, count) in [
        ("imageOverrider", overriders.image_overrider.len()),
        ("commandOverrider", overriders.command_overrider.len()),
        ("argsOverrider", overriders.args_overrider.len()),
        ("plaintext", overriders.plaintext.len()),
    ] {
        verdict.at_most(&at(name), count, MAX_OVERRIDERS);
    }
    for (index, image) in overriders.image_overrider.iter().enumerate() {
        check_image(image, &at(&format!("imageOverrider[{index}]")), verdict);
    }
    for (index, words) in overriders.command_overrider.iter().enumerate() {
        check_words(words, &at(&format!("commandOverrider[{index}]")), verdict);
    }
    for (index, words) in overriders.args_overrider.iter().enumerate() {
        check_words(words, &at(&format!("argsOverrider[{index}]")), verdict);
    }
    for (index, plain) in overriders.plaintext.iter().enumerate() {
        check_plain(plain, &at(&format!("plaintext[{index}]")), verdict);
    }
}

fn check_image(overrider: &ImageOverrider, field: &str, verdict: &mut Verdict) {
    if let Some(predicate) = &overrider.predicate {
        check_predicate(&predicate.path, &format!("{field}.predicate.path"), verdict);
    }
    let at = format!("{field}.value");
    let value = overrider.value.as_deref().filter(|value| !value.is_empty());
    if value.is_some_and(|value| value.chars().count() > MAX_TEXT) {
        verdict.refuse(at, Reason::TooLong, format!("a part of an image has {MAX_TEXT} characters at most"));
        return;
    }
    match (overrider.operator, value) {
        (OverriderOperator::Remove, value) => {
            if overrider.component == ImageComponent::Repository {
                let text = "the repository cannot be removed, since nothing would be left to pull: replace it";
                verdict.refuse(format!("{field}.operator"), Reason::Invalid, text);
            }
            if value.is_some() {
                verdict.warn(&at, "remove takes the whole part away, so the value does not count");
            }
        }
        (OverriderOperator::Add | OverriderOperator::Replace, None) => {
            verdict.refuse(at, Reason::Required, "value is required for the operators add and replace");
        }
        (operator, Some(value)) => {
            let works = check_part(component(overrider.component), operator == OverriderOperator::Add, value);
            verdict.check(at, works.map_err(|error| error.to_string()));
        }
    }
}

/// Whether a value can be put in the place of a part of an image or, if `appended`, behind one.
fn check_part(component: Component, appended: bool, value: &str) -> Result<(), ImageError> {
    /// Images of which at least one has the part that something fit can be put behind.
    const SAMPLES: [&str; 4] = ["image", "registry.example/image:v1", "localhost/image:v1", "localhost:5000/image:v1"];
    let changed = |image: &str, operation| image.parse::<Image>()?.change(component, operation);
    let replaced = changed("registry.example/image", Operation::Replace(value));
    let fits_behind = appended && SAMPLES.iter().any(|image| changed(image, Operation::Add(value)).is_ok());
    if fits_behind { Ok(()) } else { replaced }
}

fn check_predicate(path: &str, field: &str, verdict: &mut Verdict) {
    let Some(steps) = read_path(path, field, verdict) else { return };
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let is_image = match steps.as_slice() {
        ["spec", "containers" | "initContainers", _, "image"] => shape_at(POD_TEMPLATE, steps.clone()).is_ok(),
        _ => false,
    };
    if !is_image || steps.contains(&"-") {
        let text = format!(
            "{path:?} is not the image of a container: write /spec/containers/0/image or /spec/initContainers/0/image, \
             as it is in a pod"
        );
        verdict.refuse(field, Reason::Invalid, text);
    }
}

fn check_words(overrider: &CommandArgsOverrider, field: &str, verdict: &mut Verdict) {
    verdict.check(format!("{field}.containerName"), syntax::dns_label(&overrider.container_name));
    let value = format!("{field}.value");
    verdict.at_most(&value, overrider.value.len(), 256);
    if overrider.operator == OverriderOperator::Replace {
        let text = "operator replace is not possible for command and args: remove the old items, then add the new ones";
        verdict.refuse(format!("{field}.operator"), Reason::NotSupported, text);
    } else if overrider.value.is_empty() {
        verdict.warn(&value, "there are no items, so nothing changes");
    }
}

fn check_plain(overrider: &PlaintextOverrider, field: &str, verdict: &mut Verdict) {
    let operator = overrider.operator.canonical();
    let at = format!("{field}.value");
    match (operator, &overrider.value) {
        (OverriderOperator::Remove, Some(_)) => {
            verdict.warn(&at, "remove takes the field away, so the value does not count");
        }
        (OverriderOperator::Add | OverriderOperator::Replace, None) => {
            verdict.refuse(&at, Reason::Required, "value is required for the operators add and replace");
        }
        _ => {}
    }
    let path = format!("{field}.path");
    let Some(steps) = read_path(&overrider.path, &path, verdict) else { return };
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let value = overrider.value.as_ref().filter(|_| operator != OverriderOperator::Remove);
    if !check_place(&steps, operator, value, &path, verdict) {
        return;
    }
    match shape_at(POD_TEMPLATE, steps.iter().copied()) {
        Err(unknown @ Mistake::UnknownField { .. }) => verdict.warn(&path, unknown),
        Err(mistake) => verdict.refuse(path, Reason::Invalid, mistake.to_string()),
        Ok(shape) => {
            if let Some(value) = value {
                tell(check_value(shape, value), &at, verdict);
                check_labels(&steps, value, &path, &at, verdict);
            }
        }
    }
}

/// Checks that the place is one that can be changed in this way at all.
fn check_place(
    steps: &[&str],
    operator: OverriderOperator,
    value: Option<&Value>,
    field: &str,
    verdict: &mut Verdict,
) -> bool {
    let mut refuse = |text: String| {
        verdict.refuse(field, Reason::Forbidden, text);
        false
    };
    if !matches!(steps.first(), Some(&"metadata" | &"spec")) {
        return refuse("only what is below /metadata and /spec of a pod can be changed".to_owned());
    }
    if let ["spec", "template", rest @ ..] = steps {
        return refuse(format!("paths are those of a pod: leave out /spec/template, as in /{}", rest.join("/")));
    }
    for (fixed, why) in FIXED {
        let sets_it = || {
            let inside = fixed.strip_prefix(steps)?;
            inside.iter().try_fold(value?, |at, step| at.get(step))
        };
        if steps.starts_with(fixed) || sets_it().is_some() {
            return refuse(format!("/{} cannot be changed: {why}", fixed.join("/")));
        }
    }
    if matches!(steps, ["metadata"] | ["metadata", "labels"]) {
        // A pod without the labels that its owner selects on is replaced by another, again and again.
        let text = "labels cannot be changed as a whole, since the pod's owner selects on some: name one, as in \
                    /metadata/labels/tier";
        return refuse(text.to_owned());
    }
    if operator == OverriderOperator::Remove && NEEDED.contains(&steps) {
        return refuse(format!("/{} cannot be removed: no pod is without it", steps.join("/")));
    }
    if operator != OverriderOperator::Add && steps.contains(&"-") {
        return refuse("- stands for an item that is yet to come: only add can have it".to_owned());
    }
    true
}

/// Checks a label or annotations that are set.
fn check_labels(steps: &[&str], value: &Value, path: &str, at: &str, verdict: &mut Verdict) {
    match (steps, value) {
        (["metadata", "labels", key], Value::String(value)) => {
            verdict.check(path, syntax::key(key));
            verdict.check(at, syntax::label_value(value));
        }
        (["metadata", "annotations", key], _) => verdict.check(path, syntax::annotation_key(key)),
        (["metadata", "annotations"], Value::Object(all)) => {
            for key in all.keys() {
                verdict.check(at, syntax::annotation_key(key));
            }
        }
        _ => {}
    }
}

/// The steps of a path, if it is one.
fn read_path(path: &str, field: &str, verdict: &mut Verdict) -> Option<Vec<String>> {
    if path.is_empty() {
        let text = "name a field of a pod, such as /spec/terminationGracePeriodSeconds";
        verdict.refuse(field, Reason::Required, text);
        return None;
    }
    if path.chars().count() > MAX_TEXT {
        verdict.refuse(field, Reason::TooLong, format!("a path has {MAX_TEXT} characters at most"));
        return None;
    }
    let steps = |pointer: PointerBuf| pointer.tokens().map(|step| step.decoded().into_owned()).collect();
    match pointer(path) {
        Ok(pointer) => Some(steps(pointer)),
        Err(error) => {
            verdict.refuse(field, Reason::Invalid, error.to_string());
            None
        }
    }
}
