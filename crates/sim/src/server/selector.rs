//! Which objects a list or a watch is about: label and field selectors.

use dapple_api::selector::Selector as Labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

use super::failure::Failure;
use super::kinds::Kind;
use super::request::{Query, Target};

/// What is asked for.
#[derive(Debug)]
pub(super) struct Selector {
    namespace: String,
    labels: Option<Labels>,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    pointer: String,
    value: String,
    is_equal: bool,
}

/// The fields that can be selected by, besides name and namespace.
fn fields_of(kind: &Kind) -> &'static [&'static str] {
    match kind.qualified.as_str() {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "replicasets.apps" => &["status.replicas"],
        "events" | "events.events.k8s.io" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        _ => &[],
    }
}

impl Selector {
    pub(super) fn read(target: &Target<'_>, query: &Query) -> Result<Self, Failure> {
        let labels = (!query.labels.is_empty()).then(|| labels(&query.labels)).transpose();
        let labels = labels.map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))?;
        let mut fields = fields(target.kind, query)?;
        if !target.name.is_empty() {
            fields.push(Field { pointer: "/metadata/name".into(), value: target.name.into(), is_equal: true });
        }
        Ok(Self { namespace: target.namespace.to_owned(), labels, fields })
    }

    /// Whether everything in the namespace is asked for.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty()
    }

    /// Whether a key can be meant at all.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.namespace.is_empty() || key.strip_prefix(self.namespace.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let of_object = |key: &str| object["metadata"]["labels"][key].as_str();
        self.labels.as_ref().is_none_or(|labels| labels.matches(of_object))
            && self.fields.iter().all(|field| (text(object.pointer(&field.pointer)) == field.value) == field.is_equal)
    }
}

/// A field as selectors see it. What is not there is empty, or false.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(true)) => "true".to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn fields(kind: &Kind, query: &Query) -> Result<Vec<Field>, Failure> {
    let mut fields = Vec::new();
    for term in query.fields.split(',').filter(|term| !term.is_empty()) {
        let (name, value, is_equal) = if let Some((name, value)) = term.split_once("!=") {
            (name, value, false)
        } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (name, value, true)
        } else {
            let why = format!("invalid selector: '{}'; can't understand '{term}'", query.fields);
            return Err(Failure::bad_request(why));
        };
        let is_known = name == "metadata.name"
            || (name == "metadata.namespace" && kind.is_namespaced)
            || fields_of(kind).contains(&name);
        if !is_known {
            let of = if kind.is_custom() { format!("field label not supported: {name}") } else { unknown(kind, name) };
            return Err(Failure::bad_request(of));
        }
        let name = if name == "source" { "source.component" } else { name };
        // Where nothing is written, it is false.
        let value =
            if ["spec.unschedulable", "spec.hostNetwork"].contains(&name) && value == "false" { "" } else { value };
        fields.push(Field { pointer: format!("/{}", name.replace('.', "/")), value: value.to_owned(), is_equal });
    }
    Ok(fields)
}

/// How the real server says that a built-in kind cannot be selected by a field: some kinds have words of their own.
fn unknown(kind: &Kind, name: &str) -> String {
    match kind.qualified.as_str() {
        "pods" | "nodes" | "namespaces" | "events" => format!("field label not supported: {name}"),
        _ => format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
    }
}

/// Reads a label selector as the query has it.
fn labels(text: &str) -> Result<Labels, String> {
    let mut requirements = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = end_of_term(rest);
        let (term, following) = rest.split_at(end);
        requirements.push(requirement(term.trim())?);
        rest = following.strip_prefix(',').unwrap_or(following).trim_start();
    }
    let selector = LabelSelector { match_expressions: Some(requirements), match_labels: None };
    Labels::new(&selector).map_err(|error| error.to_string())
}

/// Where the first term ends: at a comma that is not between parentheses.
fn end_of_term(text: &str) -> usize {
    let mut depth = 0_i32;
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return index,
            _ => {}
        }
    }
    text.len()
}

fn requirement(term: &str) -> Result<LabelSelectorRequirement, String> {
    let make = |key: &str, operator: &str, values: Option<Vec<String>>| LabelSelectorRequirement {
        key: key.trim().to_owned(),
        operator: operator.to_owned(),
        values,
    };
    let one = |value: &str| Some(vec![value.trim().to_owned()]);
    if let Some(open) = term.find('(') {
        let list = term[open..].trim_start_matches('(').trim_end_matches(')');
        let values = list.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = term[..open].split_whitespace();
        return match (words.next(), words.next()) {
            (Some(key), Some("in")) => Ok(make(key, "In", Some(values))),
            (Some(key), Some("notin")) => Ok(make(key, "NotIn", Some(values))),
            _ => Err(format!("found {term:?}, expected: in, notin, =, ==, !=, gt, lt")),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(make(key, "NotIn", one(value)));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(make(key, "In", one(value)));
    }
    match term.strip_prefix('!') {
        Some(key) => Ok(make(key, "DoesNotExist", None)),
        None => Ok(make(term, "Exists", None)),
    }
}
