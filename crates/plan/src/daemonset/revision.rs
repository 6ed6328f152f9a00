//! Revisions of a DaemonSet: what it was, so that nodes can be held back at it and people can go back to it.
//!
//! A revision holds the template and the patches, as a patch of the DaemonSet that puts both back. Two are the same if
//! they mean the same: a revision that another product left is adopted, however it wrote it, and nothing restarts.

use std::collections::BTreeMap;

use dapple_api::daemonset::{DaemonSetPatch, DaemonSetSpec};
use dapple_edit::document::Document;
use dapple_edit::meaning::{NEWEST_FORM, hash_in_form, meaning};
use dapple_edit::render::{canonical, hash};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{HASH_LABEL, owner};
use crate::cause::CHANGE_CAUSE;

/// The annotation that notes the form of the hashes that pods of a revision carry.
pub const FORM_ANNOTATION: &str = "dapple.dev/hash-form";

/// The annotation that notes since when a revision is the newest again.
pub const SINCE_ANNOTATION: &str = "dapple.dev/newest-since";

/// The annotation that names the revision that another was made for, since nobody could change it.
pub const REPLACES_ANNOTATION: &str = "dapple.dev/replaces";

/// How long the name of an object may be.
const LONGEST_NAME: usize = 253;

/// Nobody counts further.
const HIGHEST_NUMBER: i64 = 1 << 53;

/// A revision that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Its name.
    pub name: String,
    /// The name of the one that it was made for: what names that means this.
    pub replaces: Option<String>,
    /// Its number: the newest has the highest.
    pub number: i64,
    /// What pods of its template carry, if no patch is for their node.
    pub hash: String,
    /// The form of the hashes that pods of patched nodes carry. It stays, so that a newer dapple knows them again.
    pub form: u8,
    /// Since when it is the newest, or was when it last became so, in seconds; 0 for one that is yet to be made.
    pub began: i64,
    /// What it holds.
    pub data: Value,
}

/// The form that a revision notes. Where it notes none, another product wrote it, or a dapple that knew of one form only.
/// One from a newer dapple may note a form that is unknown here: its renderings are named by the newest that is known, and
/// pods that it made for patched nodes are then of no known rendering.
pub fn form_of(annotation: Option<&str>) -> u8 {
    let noted = annotation.and_then(|form| form.parse::<u64>().ok());
    noted.map_or(1, |form| u8::try_from(form).unwrap_or(u8::MAX).max(1))
}

impl Revision {
    /// Whether this name stands for it.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.replaces.as_deref() == Some(name)
    }
}

/// Since when a revision is the newest: since it was made, or since the time that was noted when an old one returned, or
/// when it was made in place of one that nobody could change. A time that is yet to come is not believed.
pub fn began(created: Option<Timestamp>, noted: Option<&str>, now: Timestamp) -> i64 {
    let created = created.map_or(0, Timestamp::as_second);
    let noted = noted.and_then(|time| time.parse::<Timestamp>().ok()).map(Timestamp::as_second);
    noted.filter(|noted| *noted <= now.as_second()).unwrap_or(created)
}

/// What is to be done so that the newest revision is what the DaemonSet says.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// Nothing: this one is it.
    Keep {
        /// Its name.
        name: String,
    },
    /// An older one says the same: it becomes the newest, as after a rollback.
    Renumber {
        /// Its name.
        name: String,
        /// Its new number.
        number: i64,
    },
    /// None says so: make one.
    Create(Revision),
}

/// What a revision holds of a DaemonSet.
pub fn data_of(spec: &DaemonSetSpec) -> Value {
    let mut template = spec.template.0.clone();
    if let Some(map) = template.as_object_mut() {
        // As Kubernetes and OpenKruise write it: going back replaces the template, it does not merge.
        map.insert("$patch".to_owned(), json!("replace"));
    }
    json!({"spec": {"template": template, "patches": spec.patches}})
}

/// The template and patches that a revision holds; nothing if it is no revision of a DaemonSet.
pub fn spec_of(data: &Value) -> Option<(Value, Vec<DaemonSetPatch>)> {
    let mut template = data.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    let patches = match data.pointer("/spec/patches") {
        None | Some(Value::Null) => Vec::new(),
        Some(patches) => serde_json::from_value(patches.clone()).ok()?,
    };
    Some((template, patches))
}

/// Decides which revision is the newest. `collisions` is how often a name was taken by something else.
pub fn settle(object: &str, spec: &DaemonSetSpec, revisions: &[Revision], collisions: i32) -> Settled {
    let wanted = meaning_of(&data_of(spec));
    let newest = revisions.iter().map(|revision| revision.number).max().unwrap_or(0);
    // Where somebody left the highest number that there is, two have it: of those, what the DaemonSet says is meant.
    let next = newest.saturating_add(1).min(HIGHEST_NUMBER);
    // Of several that say the same, the newest: another product may have left doubles.
    let mut same: Vec<&Revision> = revisions.iter().filter(|revision| meaning_of(&revision.data) == wanted).collect();
    same.sort_by_key(|revision| (revision.number, revision.name.clone()));
    match same.last() {
        Some(found) if found.number == newest => Settled::Keep { name: found.name.clone() },
        Some(found) => Settled::Renumber { name: found.name.clone(), number: next },
        None => {
            let hash = template_hash(spec, revisions);
            let name = name_of(object, (&hash, &wanted), revisions, collisions);
            let (replaces, data) = (None, data_of(spec));
            Settled::Create(Revision { name, replaces, number: next, hash, form: NEWEST_FORM, began: 0, data })
        }
    }
}

/// The name of a new revision: the DaemonSet's and the hash, as Kubernetes and OpenKruise have it. Where that is taken, by
/// something else or by one that differs in its patches alone, a name of its own.
fn name_of(set: &str, (hash_of_pods, wanted): (&str, &Value), revisions: &[Revision], collisions: i32) -> String {
    let plain = named(set, hash_of_pods);
    let is_taken = collisions > 0 || revisions.iter().any(|known| known.name == plain);
    // A hash that pods keep from another product's revision is a label's value: not every one can be in a name.
    let can_be_in_a_name = |hash: &str| {
        let mut bytes = hash.bytes();
        (1..=63).contains(&hash.len()) && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if is_taken || !can_be_in_a_name(hash_of_pods) { named(set, &hash(&json!([wanted, collisions]))) } else { plain }
}

/// A name that begins as the DaemonSet's.
fn named(set: &str, ending: &str) -> String {
    let kept: String = set.chars().take(LONGEST_NAME.saturating_sub(1 + ending.len())).collect();
    format!("{}-{ending}", kept.trim_end_matches(['-', '.']))
}

/// A ControllerRevision that says the same as one that nobody can change, under a name of its own. The older one's name
/// goes on to stand for what it says: pods and the status have it.
pub fn replacement(old: &Value, (set, uid): (&str, &str), began: i64) -> Value {
    let (name, old_uid) = (&old["metadata"]["name"], &old["metadata"]["uid"]);
    let mut annotations = old["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(REPLACES_ANNOTATION.to_owned(), name.clone());
    if let Ok(began) = Timestamp::from_second(began) {
        // It is no newer than what it stands for: what the rollout has touched stays touched.
        annotations.insert(SINCE_ANNOTATION.to_owned(), began.to_string().into());
    }
    json!({
        "metadata": {
            "name": named(set, &hash(&json!([name, old_uid]))), "labels": old["metadata"]["labels"],
            "annotations": annotations, "ownerReferences": [owner(set, uid)],
        },
        "revision": old["revision"], "data": old["data"],
    })
}

/// The ControllerRevision of a DaemonSet of this name and UID, made for this cause if somebody gave one.
pub fn object(revision: &Revision, (set, uid): (&str, &str), spec: &DaemonSetSpec, cause: Option<&str>) -> Value {
    let mut annotations = json!({FORM_ANNOTATION: revision.form.to_string()});
    if let Some(cause) = cause {
        annotations[CHANGE_CAUSE] = cause.into();
    }
    let mut labels = spec.selector.match_labels.clone().unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), revision.hash.clone());
    json!({
        "metadata": {
            "name": revision.name, "labels": labels, "annotations": annotations, "ownerReferences": [owner(set, uid)],
        },
        "revision": revision.number, "data": revision.data,
    })
}

/// What pods of this template carry: what those of an earlier revision with the same template do, so that a change of
/// patches restarts nobody whom no patch is for; else a hash of what the template means.
fn template_hash(spec: &DaemonSetSpec, revisions: &[Revision]) -> String {
    let wanted = meaning(Document::PodTemplate, &spec.template.0);
    let is_same = |revision: &&Revision| {
        spec_of(&revision.data).is_some_and(|(template, _)| meaning(Document::PodTemplate, &template) == wanted)
    };
    // Of several, as the newest: another product may have left doubles.
    let newest = revisions.iter().filter(is_same).max_by_key(|revision| (revision.number, &revision.name));
    let new = || hash_in_form(NEWEST_FORM, Document::PodTemplate, &spec.template.0);
    newest.map_or_else(new, |revision| revision.hash.clone())
}

/// The revision that nodes are held back at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Current<'a> {
    /// This one.
    Known(&'a Revision),
    /// None but the newest.
    Newest,
    /// One that somebody deleted: nobody knows what nodes that are held back should have. They keep what they run until
    /// somebody decides.
    Gone,
}

/// The revision that nodes are held back at: the one that the status names. A DaemonSet that another product left says
/// none: then the one that most of its pods have, apart from the newest. `pods` are the names and hashes that pods have of
/// their revisions.
pub fn current<'a>(
    named: Option<&str>,
    update: &str,
    revisions: &'a [Revision],
    pods: impl Iterator<Item = (Option<&'a str>, &'a str)>,
) -> Current<'a> {
    if let Some(name) = named {
        return find(revisions, name).map_or(Current::Gone, Current::Known);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, hash) in pods {
        let by_hash = || revisions.iter().find(|revision| revision.hash == hash);
        let found = name.map_or_else(by_hash, |name| find(revisions, name));
        if let Some(found) = found.filter(|found| found.name != update) {
            *counts.entry(&found.name).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let found = most.and_then(|(most, _)| revisions.iter().find(|revision| revision.name == most));
    found.map_or(Current::Newest, Current::Known)
}

/// The revision that a name stands for: its own before that of one that it was made for.
pub fn find<'a>(revisions: &'a [Revision], name: &str) -> Option<&'a Revision> {
    let by_name = revisions.iter().find(|revision| revision.name == name);
    by_name.or_else(|| revisions.iter().find(|revision| revision.is_called(name)))
}

/// Revisions that may go: the oldest beyond the limit, but none that is still needed.
pub fn surplus(revisions: &[Revision], limit: usize, is_needed: impl Fn(&Revision) -> bool) -> Vec<&Revision> {
    let mut spare: Vec<&Revision> = revisions.iter().filter(|revision| !is_needed(revision)).collect();
    spare.sort_by_key(|revision| (revision.number, revision.name.clone()));
    spare.truncate(spare.len().saturating_sub(limit));
    spare
}

/// Whether two revisions have templates of one meaning. Their patches may differ.
pub fn has_same_template(one: &Value, other: &Value) -> bool {
    let template = |data: &Value| spec_of(data).map(|(template, _)| template);
    match (template(one), template(other)) {
        // Revisions that differ in patches alone are common, and what a template means costs more than to compare it.
        (Some(one), Some(other)) => {
            one == other || meaning(Document::PodTemplate, &one) == meaning(Document::PodTemplate, &other)
        }
        (None, None) => true,
        _ => false,
    }
}

/// The hash of a revision's template, whatever its label says; none if it cannot be read.
pub fn hash_of(data: &Value) -> Option<String> {
    spec_of(data).map(|(template, _)| hash_in_form(NEWEST_FORM, Document::PodTemplate, &template))
}

/// The number of a revision. One that no counting can have come to is none: what comes after it would have no number left.
pub fn number_of(written: i64) -> i64 {
    if (0..=HIGHEST_NUMBER).contains(&written) { written } else { 0 }
}

/// Whether a revision says what a DaemonSet does.
pub fn says_the_same(data: &Value, spec: &DaemonSetSpec) -> bool {
    meaning_of(data) == meaning_of(&data_of(spec))
}

/// What a revision says, whoever wrote it.
pub(super) fn meaning_of(data: &Value) -> Value {
    let Some((template, patches)) = spec_of(data) else { return json!({"unreadable": canonical(data)}) };
    let patches: Vec<Value> = patches
        .iter()
        .map(|patch| json!({"selector": patch.selector, "patch": patch.patch, "priority": patch.priority()}))
        .collect();
    json!({"template": meaning(Document::PodTemplate, &template), "patches": patches})
}

#[cfg(test)]
#[path = "revision_tests.rs"]
mod tests;
