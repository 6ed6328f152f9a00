//! What is to be said of the nodes that a pool names: a node selector term, and tolerations.

use dapple_api::syntax;
use dapple_api::verdict::{Reason, Verdict};
use serde_json::Value;

use crate::check::{check_value, shape_at, tell};
use crate::schema::POD_TEMPLATE;

const TERMS: [&str; 5] =
    ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];

/// Checks a node selector term.
pub(super) fn check_term(term: &Value, field: &str, verdict: &mut Verdict) {
    if let Ok(shape) = shape_at(POD_TEMPLATE, TERMS.into_iter().chain(["0"])) {
        tell(check_value(shape, term), field, verdict);
    }
    let list = |name: &str| term[name].as_array().map_or(&[][..], Vec::as_slice);
    if term.is_object() && list("matchExpressions").is_empty() && list("matchFields").is_empty() {
        verdict.warn(field, "it is empty, so it does not say which nodes the pool has");
    }
    for (name, is_label) in [("matchExpressions", true), ("matchFields", false)] {
        for (index, expression) in list(name).iter().enumerate() {
            check_expression(expression, is_label, &format!("{field}.{name}[{index}]"), verdict);
        }
    }
}

fn check_expression(expression: &Value, is_label: bool, field: &str, verdict: &mut Verdict) {
    let text = |name: &str| expression[name].as_str().unwrap_or_default();
    if is_label {
        verdict.check(format!("{field}.key"), syntax::key(text("key")));
    } else if text("key") != "metadata.name" {
        verdict.refuse(format!("{field}.key"), Reason::NotSupported, "nodes have one such field: metadata.name");
    }
    let values = expression["values"].as_array().map_or(&[][..], Vec::as_slice);
    let operator = text("operator");
    let at = format!("{field}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            verdict.refuse(at, Reason::Required, format!("{operator} needs at least one"));
        }
        "In" | "NotIn" if is_label => {
            for (index, value) in values.iter().enumerate() {
                verdict.check(format!("{at}[{index}]"), syntax::label_value(value.as_str().unwrap_or_default()));
            }
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            verdict.refuse(at, Reason::Forbidden, format!("these must be left out for {operator}"));
        }
        "Gt" | "Lt" => {
            let is_number = |value: &Value| value.as_str().is_some_and(|text| text.parse::<i64>().is_ok());
            if !matches!(values, [value] if is_number(value)) {
                let text = format!("{operator} needs one whole number, written as text");
                verdict.refuse(at, Reason::Invalid, text);
            }
        }
        "Exists" | "DoesNotExist" => {}
        _ => {
            let text = format!("{operator:?} is no operator: use In, NotIn, Exists, DoesNotExist, Gt or Lt");
            verdict.refuse(format!("{field}.operator"), Reason::NotSupported, text);
        }
    }
}

/// Checks a toleration.
pub(super) fn check_toleration(toleration: &Value, field: &str, verdict: &mut Verdict) {
    if let Ok(shape) = shape_at(POD_TEMPLATE, ["spec", "tolerations", "0"]) {
        tell(check_value(shape, toleration), field, verdict);
    }
    let text = |name: &str| toleration[name].as_str().unwrap_or_default();
    let (key, operator, effect) = (text("key"), text("operator"), text("effect"));
    if !key.is_empty() {
        verdict.check(format!("{field}.key"), syntax::key(key));
    } else if operator != "Exists" {
        let text = "without a key, operator must be Exists: it tolerates every taint";
        verdict.refuse(format!("{field}.operator"), Reason::Invalid, text);
    }
    // Gt and Lt are newer than Exists and Equal; clusters that lack them say so.
    if !["", "Exists", "Equal", "Gt", "Lt"].contains(&operator) {
        let text = format!("{operator:?} is no operator: use Exists or Equal");
        verdict.refuse(format!("{field}.operator"), Reason::NotSupported, text);
    }
    if operator == "Exists" && !text("value").is_empty() {
        verdict.refuse(format!("{field}.value"), Reason::Forbidden, "this must be left out for Exists");
    }
    if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        let text = format!("{effect:?} is no effect: use NoSchedule, PreferNoSchedule or NoExecute");
        verdict.refuse(format!("{field}.effect"), Reason::NotSupported, text);
    }
    if toleration["tolerationSeconds"].is_number() && effect != "NoExecute" {
        let text = "only the effect NoExecute can be tolerated for a time: set it, or leave this out";
        verdict.refuse(format!("{field}.tolerationSeconds"), Reason::Invalid, text);
    }
}
