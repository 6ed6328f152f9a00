//! What is put back of a write to a pool's workload that somebody else does: fields that the application says.
//!
//! Invariants:
//! - Something is put back only where what is known here is what the workload was made of: its hash is what the workload has in
//!   `dapple.dev/rendered`, and the write leaves that alone. So a view that lags behind turns no rollout back, and a pool that
//!   waits for its turn is held at what it has.
//! - What is put back is as it was before the write: it restarts nothing. Only a new workload gets the rendering itself.
//! - What a write leaves alone, brings to what the application says, or changes where the application says nothing, passes.
//! - Nothing relies on it. The controller puts right what has passed, and its own writes always pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::{ApplicationStatus, POOL_REVISION_LABEL, RENDERED};
use dapple_edit::document::Document;
use dapple_edit::path::{Path, Step};
use dapple_edit::render::changes;
use serde_json::{Value, json};

use super::application::AskedPool;
use super::renderings::Renderings;
use super::report::named;
use super::revision::Revision;
use super::stored::{Beside, RESTARTED_AT, keys, pointer, spec_of, template_of, text_at, wanted};
use super::version::{Application, Version};
use super::workload::{Rendered, declared_replicas, origins, put};
use crate::operations::replace;

/// What may be put back.
const PARTS: [&str; 3] = ["/metadata/labels", "/metadata/annotations", "/spec"];
const TEMPLATE: [&str; 2] = ["spec", "template"];

/// A write to a workload.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// What it is.
    pub kind: Document,
    /// As it was; none if it is new.
    pub old: Option<&'a Value>,
    /// As it is to be.
    pub new: &'a Value,
    /// Whether it is known not to be the manager's.
    pub is_by_another: bool,
}

/// What is known of the workload's application.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The application.
    pub application: &'a Application,
    /// What it says now.
    pub version: &'a Arc<Version>,
    /// What pools got of it, as far as that was asked for before.
    pub renderings: &'a Renderings,
    /// What its status says.
    pub status: &'a ApplicationStatus,
    /// The workload's pool, which the application should be in.
    pub pool: &'a AskedPool,
    /// The application's revision of this name, if there is one.
    pub revision: &'a dyn Fn(&str) -> Option<Revision>,
}

/// What becomes of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PutBack {
    /// The operations of a JSON patch of what is written; none if it passes as it is.
    pub operations: Vec<Value>,
    /// What whoever writes is told.
    pub warnings: Vec<String>,
}

/// What becomes of a write.
pub fn put_back(known: &Known<'_>, write: Write<'_>) -> PutBack {
    let found = match write.old {
        Some(old) => changed(known, write, old),
        None => created(known, write),
    };
    found.unwrap_or_default()
}

/// What becomes of a change.
fn changed(known: &Known<'_>, write: Write<'_>, old: &Value) -> Option<PutBack> {
    let Write { kind, new, is_by_another, .. } = write;
    if PARTS.iter().all(|part| old.pointer(part) == new.pointer(part)) {
        return None;
    }
    let (version, rendered) = made_of(known, old, noted(old, new)?).filter(|(_, made)| made.document == kind)?;
    // The number of pods is for others to say.
    let said = |workload: &Value| wanted(&rendered, workload, Beside { is_autoscaled: true, own: None });
    let asked = said(new);
    // Of the manager's own writes all that differed before may be put right.
    let right = (!is_by_another).then(|| said(old));
    let mut result = new.clone();
    if old.pointer("/spec/template") != new.pointer("/spec/template") {
        let part = |one: &Value| template_of(one, kind);
        if is_stray(&part(old), &part(new), &part(&asked), right.as_ref().map(part).as_ref()) {
            put(&mut result, &TEMPLATE, template_before(old, new));
        }
    }
    let fields = changed_fields(old, new);
    if !fields.is_empty() {
        let part = |one: &Value| spec_of(one, kind);
        let (before, after, asked, right) = (part(old), part(new), part(&asked), right.as_ref().map(part));
        for key in fields {
            let right = right.as_ref().map(|right| right.get(key));
            if is_stray(before.get(key), after.get(key), asked.get(key), right) {
                set(&mut result, &["spec", key], old["spec"].get(key));
            }
        }
    }
    for part in ["labels", "annotations"] {
        for (key, _) in asked["metadata"][part].as_object().into_iter().flatten() {
            let value = |one: &Value| one["metadata"][part].get(key).cloned();
            if is_stray(value(old), value(new), value(&asked), right.as_ref().map(value)) {
                set(&mut result, &["metadata", part, key], value(old).as_ref());
            }
        }
    }
    Some(told(known, &version, write, &result))
}

/// Whether a write takes a part away from what it should be. `right` is what it should have been before the write, where only what
/// was so is to be kept.
fn is_stray<T: PartialEq>(before: T, after: T, asked: T, right: Option<T>) -> bool {
    before != after && after != asked && right.is_none_or(|right| before == right)
}

/// The template as it was, with a restart that the write asks for: that is none of the application's fields.
fn template_before(old: &Value, new: &Value) -> Value {
    let mut template = old["spec"]["template"].clone();
    let restart = ["metadata", "annotations", RESTARTED_AT];
    if let Some(asked_for) = new["spec"]["template"].pointer(&pointer(&restart)) {
        put(&mut template, &restart, asked_for.clone());
    }
    template
}

/// The fields of the spec that a write changes, beside the template and the number of pods.
fn changed_fields<'a>(old: &'a Value, new: &'a Value) -> Vec<&'a String> {
    let (Some(before), Some(after)) = (old["spec"].as_object(), new["spec"].as_object()) else { return Vec::new() };
    let is_apart = |key: &String| key == "template" || key == "replicas";
    keys(before, after).filter(|key| !is_apart(key) && before.get(*key) != after.get(*key)).collect()
}

/// What becomes of a new workload. One that says what it was made of is the controller's, or comes back from a backup: the
/// controller sees to it.
fn created(known: &Known<'_>, write: Write<'_>) -> Option<PutBack> {
    let Write { kind, new, .. } = write;
    if text_at(new, "annotations", RENDERED).is_some() {
        return None;
    }
    let (status, pool) = (known.status, known.pool);
    let had = status.pools.iter().find(|had| had.name == pool.name).map(|had| had.revision.as_str());
    let names = [text_at(new, "labels", POOL_REVISION_LABEL), had];
    let of_all = [status.current_revision.as_deref(), status.update_revision.as_deref()];
    let revision = names.into_iter().chain(of_all).flatten().find_map(known.revision)?;
    let version = known.renderings.version_for(&revision, known.version)?;
    let rendered = rendered(known, &version).filter(|made| made.document == kind)?;
    let mut made = Value::clone(&rendered.workload);
    for at in [&["metadata", "labels"][..], &["spec", "template", "metadata", "labels"]] {
        put(&mut made, &[at, &[POOL_REVISION_LABEL]].concat(), json!(revision.name));
    }
    let mut result = new.clone();
    if template_of(new, kind) != template_of(&made, kind) {
        put(&mut result, &TEMPLATE, made["spec"]["template"].clone());
    }
    let (there, asked) = (spec_of(new, kind), spec_of(&made, kind));
    for key in keys(&there, &asked).filter(|key| there.get(*key) != asked.get(*key)) {
        set(&mut result, &["spec", key], made["spec"].get(key));
    }
    if declared_replicas(new) != declared_replicas(&made) {
        put(&mut result, &["spec", "replicas"], declared_replicas(&made).into());
    }
    for part in ["labels", "annotations"] {
        for (key, value) in made["metadata"][part].as_object().into_iter().flatten() {
            put(&mut result, &["metadata", part, key], value.clone());
        }
    }
    Some(told(known, &version, write, &result))
}

/// The name of the rendering that a workload has, as it says itself. None where the write says another: it is the controller's.
fn noted<'a>(old: &'a Value, new: &'a Value) -> Option<&'a str> {
    let before = text_at(old, "annotations", RENDERED)?;
    text_at(new, "annotations", RENDERED).is_none_or(|after| after == before).then_some(before)
}

/// What a workload was made of, by the name of its rendering: what the application says now, or, where the pool's turn to get that
/// has not come, what the workload's own revision says. None if it was made of something else.
fn made_of(known: &Known<'_>, workload: &Value, name: &str) -> Option<(Arc<Version>, Rendered)> {
    let made = |version: &Arc<Version>| rendered(known, version).filter(|made| *made.hash == *name);
    if let Some(rendered) = made(known.version) {
        return Some((known.version.clone(), rendered));
    }
    let revision = (known.revision)(text_at(workload, "labels", POOL_REVISION_LABEL)?)?;
    let version = known.renderings.version_for(&revision, known.version)?;
    let rendered = made(&version)?;
    Some((version, rendered))
}

fn rendered(known: &Known<'_>, version: &Arc<Version>) -> Option<Rendered> {
    known.renderings.render(known.application, version, &known.pool.name, &known.pool.taints).ok()
}

/// Puts a value into a document, or takes what is there out.
fn set(document: &mut Value, path: &[&str], value: Option<&Value>) {
    if let Some(value) = value {
        put(document, path, value.clone());
    } else if let Some((field, above)) = path.split_last()
        && let Some(map) = document.pointer_mut(&pointer(above)).and_then(Value::as_object_mut)
    {
        map.remove(*field);
    }
}

/// The answer: operations that make of the write what it becomes, and which object says each field that they change.
fn told(known: &Known<'_>, version: &Version, write: Write<'_>, result: &Value) -> PutBack {
    let operations = replace(write.new, result, &PARTS);
    if operations.is_empty() {
        return PutBack::default();
    }
    let set_by = origins(known.application, version, &known.pool.name, &known.pool.taints);
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let all = changes(write.kind, write.new, result).into_iter().map(|change| change.path);
    for path in all.filter(|path| is_news(path, write.old.is_none())) {
        let is_it = |known: &Path| known.is_below(&path) || path.is_below(known);
        let by = set_by.iter().find(|origin| is_it(&origin.path));
        let object = by.map_or_else(|| known.application.object(), |origin| origin.set_by.to_string());
        fields.entry(object).or_default().push(path.to_string());
    }
    let warnings = fields
        .into_iter()
        .map(|(object, fields)| format!("edit {object} instead; put back here: {}", named(&fields)))
        .collect();
    PutBack { operations, warnings }
}

/// Whether somebody is to be told that a field was put back. The name of a revision is nobody's, and notes on a new workload are
/// no news.
fn is_news(path: &Path, is_new: bool) -> bool {
    let is = |step: Option<&Step>, name: &str| matches!(step, Some(Step::Field(field)) if field == name);
    let is_noted = is_new && is(path.steps().first(), "metadata");
    !is(path.steps().last(), POOL_REVISION_LABEL) && !is_noted
}

#[cfg(test)]
#[path = "put_back_tests.rs"]
mod tests;
