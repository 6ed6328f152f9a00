//! What is stored of a pool's workload, held against what the pool should have.
//!
//! Rendering starts from the template; of what is there, only this stays: the number of pods until another one is declared, a
//! restart that somebody asked for unless the application asks for a later one, a pause that somebody set, and labels and
//! annotations of the workload itself that no template ever had. The label that names the revision is in no comparison and never
//! changes alone, or each revision would restart all.

use std::collections::BTreeMap;

use dapple_api::pool::{CHANGED, DECLARED_REPLICAS, LEAVING_SINCE, POOL_REVISION_LABEL, REMOVAL_HELD, RENDERED};
use dapple_edit::differing::first_difference;
use dapple_edit::document::Document;
use dapple_edit::meaning::meaning;
use dapple_edit::path::{Path, Step};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::workload::{Rendered, declared_replicas, put};
use crate::mutant::{Mutant, is_on};

/// The annotation of a template by which people have its pods made anew.
pub(super) const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Annotations of a workload that say nothing of what it should be.
const NOTES: [&str; 4] = [RENDERED, CHANGED, LEAVING_SINCE, REMOVAL_HELD];

/// What decides beside the workload itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// Whether a HorizontalPodAutoscaler sets the number of pods.
    pub is_autoscaled: bool,
    /// What the pool got of the workload's own revision without its taints; none if that is not known. It tells what was once put
    /// there by the application, and may go.
    pub own: Option<&'a Value>,
}

/// How a stored workload differs from what it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// The pods would be made anew.
    pub template: bool,
    /// There would be fewer pods.
    pub fewer: bool,
    /// Its own controller would make pods anew that it leaves alone as it is: a pause ends, OnDelete does, a partition is lowered, or
    /// pods are numbered from another number.
    pub released: bool,
    /// Anything else: more pods, a strategy, labels of the workload.
    pub other: bool,
    /// The first field that differs.
    pub field: Option<Path>,
    /// Fields that Kubernetes does not change: the workload can't become what it should be.
    pub fixed: Vec<String>,
}

impl Difference {
    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        self.concerns_pods() || self.other
    }

    /// Whether pods would be made anew or taken away: that needs a place in the budget.
    pub fn concerns_pods(&self) -> bool {
        self.template || self.fewer || self.released
    }
}

/// What should be stored: the rendering, with what is kept of what is there.
pub fn wanted(rendered: &Rendered, stored: &Value, beside: Beside<'_>) -> Value {
    let mut wanted = Value::clone(&rendered.workload);
    let declared = declared_replicas(&wanted);
    let noted = text_at(stored, "annotations", DECLARED_REPLICAS).and_then(|text| text.parse::<i64>().ok());
    let is_declared_anew = noted.is_some_and(|noted| noted != declared);
    if (!is_declared_anew || beside.is_autoscaled) && !is_on(Mutant::ScalingUndone) {
        put(&mut wanted, &["spec", "replicas"], declared_replicas(stored).into());
    }
    if let Some(noted) = noted.filter(|_| beside.is_autoscaled) {
        // Declared, and not done yet: it is once nobody else sets the number.
        put(&mut wanted, &["metadata", "annotations", DECLARED_REPLICAS], noted.to_string().into());
    }
    let restart = restart_of(stored).filter(|_| !is_on(Mutant::RestartUndone));
    if let Some(restart) = restart.filter(|there| !is_later(restart_of(&wanted), there)) {
        put(&mut wanted, &["spec", "template", "metadata", "annotations", RESTARTED_AT], restart.clone());
    }
    let is_paused = |workload: &Value| workload["spec"]["paused"] == true;
    if is_paused(stored) && !beside.own.is_some_and(is_paused) && !is_on(Mutant::PauseUndone) {
        put(&mut wanted, &["spec", "paused"], true.into());
    }
    keep_spare_tolerations(stored, &mut wanted, beside.own);
    wanted
}

/// When somebody had the pods of a workload made anew, as written.
fn restart_of(workload: &Value) -> Option<&Value> {
    workload.pointer(&pointer(&["spec", "template", "metadata", "annotations", RESTARTED_AT]))
}

/// Whether the application has its pods made anew later than somebody had those of one pool: then both have it so.
fn is_later(declared: Option<&Value>, there: &Value) -> bool {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let Some(declared) = declared.and_then(time) else { return false };
    time(there).is_none_or(|there| there < declared)
}

/// A toleration of a taint that the pool no longer has changes no place of a pod: it goes with the next other change. One that
/// the application itself had goes at once.
fn keep_spare_tolerations(stored: &Value, wanted: &mut Value, own: Option<&Value>) {
    const AT: &str = "/spec/template/spec/tolerations";
    let list = |workload: &Value| workload.pointer(AT).and_then(Value::as_array).cloned().unwrap_or_default();
    let (there, asked) = (list(stored), list(wanted));
    let Some(own) = own.map(list) else { return };
    let of_taint = |toleration: &Value| {
        let has = |field: &str| toleration[field].as_str().is_some_and(|text| !text.is_empty());
        has("key") && has("effect") && toleration["operator"] == "Exists" && toleration["tolerationSeconds"].is_null()
    };
    let is_spare = |known: &Value| !asked.contains(known) && of_taint(known) && !own.contains(known);
    if !there.iter().any(is_spare) {
        return;
    }
    let rest: Vec<&Value> = there.iter().filter(|known| !is_spare(known)).collect();
    let mut with_spare = wanted.clone();
    put(&mut with_spare, &["spec", "template", "spec", "tolerations"], json!(there));
    let is_else_the_same = rest.len() == asked.len()
        && rest.iter().all(|known| asked.contains(known))
        && template_of(&with_spare, Document::Deployment) == template_of(stored, Document::Deployment);
    if is_else_the_same {
        *wanted = with_spare;
    }
}

/// How what is stored differs from what should be.
pub fn difference(kind: Document, stored: &Value, wanted: &Value) -> Difference {
    let templates = (template_of(stored, kind), template_of(wanted, kind));
    let template = templates.0 != templates.1;
    let (there, asked) = (spec_of(stored, kind), spec_of(wanted, kind));
    let mut differing: Vec<String> =
        keys(&there, &asked).filter(|key| there.get(*key) != asked.get(*key)).cloned().collect();
    let fixed = differing.iter().filter(|key| !kind.is_changeable(key)).map(|key| format!("spec.{key}")).collect();
    let (live, number) = (declared_replicas(stored), declared_replicas(wanted));
    if live != number {
        differing.push("replicas".to_owned());
    }
    let of_metadata = ["labels", "annotations"].iter().find_map(|part| {
        let asked = wanted["metadata"][*part].as_object().into_iter().flatten();
        let mut differing = asked.filter(|(key, value)| {
            key.as_str() != POOL_REVISION_LABEL
                && !NOTES.contains(&key.as_str())
                && stored["metadata"][*part].get(*key) != Some(*value)
        });
        differing.next().map(|(key, _)| place(&["metadata", *part, key.as_str()]))
    });
    let other = differing.iter().any(|key| key != "replicas") || number > live || of_metadata.is_some();
    let field = match differing.first() {
        _ if template => Some(in_spec(kind, "template", templates)),
        Some(key) => {
            let at = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
            Some(in_spec(kind, key, (at(&there), at(&asked))))
        }
        None => of_metadata,
    };
    Difference { template, fewer: number < live, released: is_released(kind, stored, wanted), other, field, fixed }
}

/// Whether a workload's own controller would make pods anew, or others in their place, though the template stays as it is.
fn is_released(kind: Document, stored: &Value, wanted: &Value) -> bool {
    let (there, asked) = (&stored["spec"], &wanted["spec"]);
    // Pods below it keep what they have.
    let partition = |spec: &Value| match spec["updateStrategy"]["type"].as_str() {
        Some("OnDelete") => i64::MAX,
        _ => spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or_default(),
    };
    let start = |spec: &Value| spec["ordinals"]["start"].as_i64().unwrap_or_default();
    match kind {
        Document::StatefulSet => partition(asked) < partition(there) || start(asked) != start(there),
        Document::Deployment | Document::PodTemplate => there["paused"] == true && asked["paused"] != true,
    }
}

/// Whether the API server, asked what it would make of the rendering, has what is stored: then another webhook made the
/// difference, and writing would never end.
pub fn is_as_stored(kind: Document, stored: &Value, answer: &Value) -> bool {
    template_of(stored, kind) == template_of(answer, kind)
        && spec_of(stored, kind) == spec_of(answer, kind)
        && declared_replicas(stored) == declared_replicas(answer)
        && ["labels", "annotations"].iter().all(|part| notes_aside(stored, part) == notes_aside(answer, part))
}

/// The merge patch that makes what is stored what it should be, for this very version of it. `revision` is what the pool gets
/// now; `notes` are annotations to be remembered with the write, and those to be dropped.
pub fn patch(
    (kind, stored): (Document, &Value),
    wanted: &Value,
    revision: &str,
    (own, notes): (Option<&Value>, &BTreeMap<&str, Option<String>>),
) -> Value {
    let mut spec = Map::new();
    let (there, asked) = (spec_of(stored, kind), spec_of(wanted, kind));
    for key in keys(&there, &asked).filter(|key| there.get(*key) != asked.get(*key)) {
        spec.insert(key.clone(), merge_patch(&stored["spec"][key], &wanted["spec"][key]));
    }
    if declared_replicas(stored) != declared_replicas(wanted) {
        spec.insert("replicas".to_owned(), declared_replicas(wanted).into());
    }
    if template_of(stored, kind) != template_of(wanted, kind) {
        let mut template = wanted["spec"]["template"].clone();
        put(&mut template, &["metadata", "labels", POOL_REVISION_LABEL], revision.into());
        spec.insert("template".to_owned(), merge_patch(&stored["spec"]["template"], &template));
    }
    let mut metadata = json!({
        "uid": stored["metadata"]["uid"], "resourceVersion": stored["metadata"]["resourceVersion"],
        "labels": {POOL_REVISION_LABEL: revision},
    });
    for part in ["labels", "annotations"] {
        let asked = wanted["metadata"][part].as_object();
        for (key, value) in asked.into_iter().flatten() {
            put(&mut metadata, &[part, key], value.clone());
        }
        // What the application once said and does not say any more.
        let once = own.and_then(|own| own["metadata"][part].as_object()).into_iter().flatten();
        for (key, _) in once.filter(|(key, _)| asked.is_none_or(|asked| !asked.contains_key(*key))) {
            if stored["metadata"][part].get(key).is_some() {
                put(&mut metadata, &[part, key], Value::Null);
            }
        }
    }
    for (key, value) in notes {
        put(&mut metadata, &["annotations", key], json!(value));
    }
    let mut patch = json!({"metadata": metadata});
    if !spec.is_empty() {
        put(&mut patch, &["spec"], Value::Object(spec));
    }
    patch
}

/// The merge patch (RFC 7386) that makes one value the other. What has become a default goes, and Kubernetes fills it in again.
pub fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
        patch.insert(key.clone(), merge_patch(before.get(key).unwrap_or(&Value::Null), value));
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// What a workload's template means, without the revision that it names.
pub(super) fn template_of(workload: &Value, kind: Document) -> Value {
    let mut template = kind.template(workload).cloned().unwrap_or_default();
    let labels = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels.filter(|_| !is_on(Mutant::RevisionRestartsPools)) {
        labels.remove(POOL_REVISION_LABEL);
    }
    meaning(Document::PodTemplate, &template)
}

/// What a workload's spec means, without its template and the number of its pods.
pub(super) fn spec_of(workload: &Value, kind: Document) -> Map<String, Value> {
    let mut spec = workload["spec"].as_object().cloned().unwrap_or_default();
    spec.remove("template");
    spec.remove("replicas");
    match meaning(kind, &json!({"spec": spec})) {
        Value::Object(mut map) => map.remove("spec").and_then(|spec| spec.as_object().cloned()).unwrap_or_default(),
        _ => Map::new(),
    }
}

fn notes_aside(workload: &Value, part: &str) -> Map<String, Value> {
    let mut map = workload["metadata"][part].as_object().cloned().unwrap_or_default();
    for note in NOTES.into_iter().chain([POOL_REVISION_LABEL]) {
        map.remove(note);
    }
    map
}

pub(super) fn text_at<'a>(workload: &'a Value, part: &str, key: &str) -> Option<&'a str> {
    workload["metadata"][part].get(key)?.as_str()
}

pub(super) fn pointer(path: &[&str]) -> String {
    path.iter().map(|field| format!("/{}", field.replace('~', "~0").replace('/', "~1"))).collect()
}

pub(super) fn keys<'a>(one: &'a Map<String, Value>, other: &'a Map<String, Value>) -> impl Iterator<Item = &'a String> {
    one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)))
}

/// The first place in a field of the spec at which two workloads differ.
fn in_spec(kind: Document, field: &str, (one, other): (Value, Value)) -> Path {
    let (one, other) = (json!({"spec": {field: one}}), json!({"spec": {field: other}}));
    first_difference(kind, &one, &other).unwrap_or_else(|| place(&["spec", field]))
}

fn place(fields: &[&str]) -> Path {
    Path::of(&fields.iter().map(|field| Step::Field((*field).to_owned())).collect::<Vec<_>>())
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
