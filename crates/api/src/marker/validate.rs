//! What a PodMarker must be.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{ConflictPolicy, MarkItems, PodMarker, PodMarkerSpec, PodProbeRequirement, Reserved, reserved};
use crate::selector::{self, Selector};
use crate::verdict::{Reason, Verdict};
use crate::{metadata, syntax};

/// What a probe can do.
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];

/// Times and thresholds of a probe: whole numbers of at least 0.
const PROBE_NUMBERS: [&str; 5] =
    ["initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"];

/// Everything that is to be said of a PodMarker but the types of a probe's fields.
pub fn validate(marker: &PodMarker) -> Verdict {
    let mut verdict = Verdict::default();
    metadata::check(&marker.metadata, &mut verdict);
    let spec = &marker.spec;
    check_strategy(spec, &mut verdict);
    if let Some(requirements) = &spec.match_requirements {
        let field = "spec.matchRequirements";
        check_selectors(&requirements.pod_selector, &requirements.node_selector, field, &mut verdict);
        verdict.at_most(&format!("{field}.podProbes"), requirements.pod_probes.len(), 16);
        for (index, probe) in requirements.pod_probes.iter().enumerate() {
            check_probe(probe, &format!("{field}.podProbes[{index}]"), &mut verdict);
        }
    }
    verdict.at_most("spec.matchPreferences", spec.match_preferences.len(), 31);
    for (index, preference) in spec.match_preferences.iter().enumerate() {
        let field = format!("spec.matchPreferences[{index}]");
        if preference.pod_ready.is_none() && preference.pod_selector.is_none() && preference.node_selector.is_none() {
            let text = "a preference must have podReady, podSelector or nodeSelector";
            verdict.refuse(&field, Reason::Required, text);
        }
        check_selectors(&preference.pod_selector, &preference.node_selector, &field, &mut verdict);
    }
    check_items(&spec.mark_items, &mut verdict);
    warn_of_what_is_hardly_meant(spec, &mut verdict);
    verdict
}

fn check_strategy(spec: &PodMarkerSpec, verdict: &mut Verdict) {
    let Some(strategy) = &spec.strategy else { return };
    if let Some(replicas) = &strategy.replicas {
        verdict.check("spec.strategy.replicas", syntax::count_or_percent(replicas));
    }
    if let (Some(right), Some(other)) = (strategy.conflict_policy, strategy.confilct_policy)
        && right != other
    {
        let text = "conflictPolicy and confilctPolicy are two spellings of one field: remove confilctPolicy";
        verdict.refuse("spec.strategy", Reason::Invalid, text);
    }
}

fn check_selectors(pods: &Option<LabelSelector>, nodes: &Option<LabelSelector>, field: &str, verdict: &mut Verdict) {
    for (name, selector) in [("podSelector", pods), ("nodeSelector", nodes)] {
        if let Some(selector) = selector {
            selector::check(selector, &format!("{field}.{name}"), verdict);
        }
    }
}

fn check_probe(requirement: &PodProbeRequirement, field: &str, verdict: &mut Verdict) {
    let containers = format!("{field}.containers");
    if requirement.containers.is_empty() {
        verdict.refuse(&containers, Reason::Required, "name at least one container to probe");
    }
    verdict.at_most(&containers, requirement.containers.len(), 32);
    let mut known = BTreeSet::new();
    for (index, container) in requirement.containers.iter().enumerate() {
        let name = format!("{containers}[{index}].name");
        if !known.insert(&container.name) {
            verdict.refuse(&name, Reason::Duplicate, format!("{:?} is named already: once is enough", container.name));
        }
        verdict.check(name, syntax::dns_label(&container.name));
    }
    check_handler(&requirement.probe.0, &format!("{field}.probe"), verdict);
}

/// Checks what the probe does. Values of wrong types are left to whoever knows them all.
fn check_handler(probe: &Value, field: &str, verdict: &mut Verdict) {
    let set = |name: &str| probe.get(name).filter(|value| !value.is_null());
    let handlers: Vec<(&str, &Value)> = HANDLERS.into_iter().filter_map(|name| Some((name, set(name)?))).collect();
    if handlers.len() != 1 {
        let text = "probe must have exactly one of exec, httpGet, tcpSocket and grpc";
        verdict.refuse(field, Reason::Invalid, text);
    }
    for (name, handler) in handlers {
        let field = format!("{field}.{name}");
        if handler["host"].as_str().is_some_and(|host| !host.is_empty()) {
            let text = "probe host must be left out: only the pod itself can be probed";
            verdict.refuse(format!("{field}.host"), Reason::Forbidden, text);
        }
        match name {
            "exec" => {
                if handler["command"].as_array().is_none_or(Vec::is_empty) {
                    let text = "an exec probe needs a command";
                    verdict.refuse(format!("{field}.command"), Reason::Required, text);
                }
            }
            "grpc" => check_port(&handler["port"], false, &field, verdict),
            _ => check_port(&handler["port"], true, &field, verdict),
        }
        if let Some(scheme) = handler["scheme"].as_str().filter(|scheme| !["HTTP", "HTTPS"].contains(scheme)) {
            let text = format!("{scheme:?} is not possible: use HTTP or HTTPS");
            verdict.refuse(format!("{field}.scheme"), Reason::NotSupported, text);
        }
    }
    for name in PROBE_NUMBERS {
        if let Some(number) = set(name).and_then(Value::as_i64).filter(|number| *number < 0) {
            let text = format!("this must be at least 0, and it is {number}");
            verdict.refuse(format!("{field}.{name}"), Reason::Invalid, text);
        }
    }
}

fn check_port(port: &Value, may_have_name: bool, handler: &str, verdict: &mut Verdict) {
    let field = format!("{handler}.port");
    match port {
        Value::Null => verdict.refuse(field, Reason::Required, "a probe of this kind needs a port"),
        Value::String(name) if may_have_name => verdict.check(field, syntax::port(&IntOrString::String(name.clone()))),
        Value::Number(number) => {
            if let Some(number) = number.as_i64() {
                verdict.check(field, syntax::port_number(number));
            }
        }
        _ => {}
    }
}

fn check_items(items: &MarkItems, verdict: &mut Verdict) {
    if items.labels.is_empty() && items.annotations.is_empty() {
        let text = "markItems must have at least one label or annotation";
        verdict.refuse("spec.markItems", Reason::Required, text);
    }
    let (labels, annotations) = ("spec.markItems.labels", "spec.markItems.annotations");
    verdict.at_most(labels, items.labels.len(), 64);
    verdict.at_most(annotations, items.annotations.len(), 64);
    syntax::labels(&items.labels, labels, verdict);
    syntax::annotations(&items.annotations, annotations, verdict);
    for (field, keys) in [(labels, &items.labels), (annotations, &items.annotations)] {
        for key in keys.keys() {
            let why = match reserved(key) {
                Some(Reserved::ForDapple) => "dapple keeps its records there",
                Some(Reserved::ForControllers) => "controllers know their pods by it",
                None => continue,
            };
            let text = format!("{key:?} must not be set by a marker: {why}");
            verdict.refuse(syntax::entry(field, key), Reason::Forbidden, text);
        }
    }
}

/// A marker without podSelector is about every pod, marks that no pod gets or every matching pod has need no marker.
fn warn_of_what_is_hardly_meant(spec: &PodMarkerSpec, verdict: &mut Verdict) {
    let selector = spec.match_requirements.as_ref().and_then(|requirements| requirements.pod_selector.as_ref());
    let Some(selector) = selector else {
        let text = "without it, every pod of the namespace matches: write {} to say that this is meant";
        return verdict.warn("spec.matchRequirements.podSelector", text);
    };
    let Ok(selector) = Selector::new(selector) else { return };
    for (key, value) in &spec.mark_items.labels {
        let about = selector.about(key);
        let asks_for_another = !about.matches(|_| Some(value)) && !about.matches(|_| None);
        let text = if asks_for_another && spec.conflict_policy() == ConflictPolicy::Ignore {
            "podSelector asks for another value of this label, and conflictPolicy is Ignore: no pod is ever marked"
        } else if about == Selector::exactly(key, value) {
            "podSelector asks for this label already, so there is nothing to mark"
        } else {
            continue;
        };
        verdict.warn(&syntax::entry("spec.markItems.labels", key), text);
    }
}
