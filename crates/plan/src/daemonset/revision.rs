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
use super::rollback::CHANGE_CAUSE;

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
pub enum Step {
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
pub fn settle(object: &str, spec: &DaemonSetSpec, revisions: &[Revision], collisions: i32) -> Step {
    let wanted = meaning_of(&data_of(spec));
    let newest = revisions.iter().map(|revision| revision.number).max().unwrap_or(0);
    // Where somebody left the highest number that there is, two have it: of those, what the DaemonSet says is meant.
    let next = newest.saturating_add(1).min(HIGHEST_NUMBER);
    // Of several that say the same, the newest: another product may have left doubles.
    let mut same: Vec<&Revision> = revisions.iter().filter(|revision| meaning_of(&revision.data) == wanted).collect();
    same.sort_by_key(|revision| (revision.number, revision.name.clone()));
    match same.last() {
        Some(found) if found.number == newest => Step::Keep { name: found.name.clone() },
        Some(found) => Step::Renumber { name: found.name.clone(), number: next },
        None => {
            let hash = template_hash(spec, revisions);
            let name = name_of(object, (&hash, &wanted), revisions, collisions);
            let (replaces, data) = (None, data_of(spec));
            Step::Create(Revision { name, replaces, number: next, hash, form: NEWEST_FORM, began: 0, data })
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
mod tests {
    use super::*;

    fn spec(image: &str, patches: Value) -> DaemonSetSpec {
        serde_json::from_value(json!({
            "selector": {"matchLabels": {"app": "a"}}, "patches": patches,
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "agent", "image": image}]}},
        }))
        .unwrap()
    }

    /// As OpenKruise writes it.
    fn foreign(name: &str, number: i64, image: &str) -> Revision {
        let template = json!({"$patch": "replace", "metadata": {"creationTimestamp": null, "labels": {"app": "a"}},
            "spec": {"containers": [{"image": image, "name": "agent", "resources": {}}]}});
        Revision {
            name: name.to_owned(),
            replaces: None,
            number,
            hash: format!("hash-of-{image}"),
            form: 1,
            began: 0,
            data: json!({"spec": {"template": template}}),
        }
    }

    fn created(step: Step) -> Revision {
        match step {
            Step::Create(revision) => revision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_another_product_left_is_adopted() {
        let revisions = [foreign("a-old", 1, "agent:1"), foreign("a-new", 2, "agent:2")];
        let step = |image: &str| settle("a", &spec(image, json!([])), &revisions, 0);
        assert_eq!(step("agent:2"), Step::Keep { name: "a-new".to_owned() });
        assert_eq!(step("agent:1"), Step::Renumber { name: "a-old".to_owned(), number: 3 }, "a rollback");
        let new = created(step("agent:3"));
        assert_eq!(new.number, 3);
        assert!(new.name.starts_with("a-"), "{}", new.name);
    }

    #[test]
    fn a_patch_makes_a_revision_and_its_name_is_its_own() {
        let patch =
            |priority: Value| json!([{"selector": {}, "patch": {"spec": {"priority": 1}}, "priority": priority}]);
        let plain = created(settle("a", &spec("agent:1", json!([])), &[], 0));
        let patched = created(settle("a", &spec("agent:1", patch(json!(0))), std::slice::from_ref(&plain), 0));
        assert_ne!(plain.name, patched.name);
        // Priority 0 is the default: saying so is nothing new.
        let said = settle("a", &spec("agent:1", patch(Value::Null)), std::slice::from_ref(&patched), 0);
        assert_eq!(said, Step::Keep { name: patched.name.clone() });
        let collided = created(settle("a", &spec("agent:1", json!([])), &[], 1));
        assert_ne!(collided.name, plain.name);
    }

    #[test]
    fn pods_that_no_patch_is_for_keep_their_hash() {
        let patch = json!([{"selector": {}, "patch": {"spec": {"priority": 1}}}]);
        let left = [foreign("a-old", 1, "agent:1"), foreign("a-new", 2, "agent:2")];
        assert_eq!(created(settle("a", &spec("agent:2", patch.clone()), &left, 0)).hash, "hash-of-agent:2");
        let first = created(settle("a", &spec("agent:3", json!([])), &[], 0));
        let patched = created(settle("a", &spec("agent:3", patch), std::slice::from_ref(&first), 0));
        assert_eq!(first.hash, patched.hash);
        assert_ne!(first.name, patched.name);
    }

    #[test]
    fn a_revision_is_called_by_its_hash_where_that_is_free() {
        let patch = |value: i64| json!([{"selector": {}, "patch": {"spec": {"priority": value}}}]);
        let first = created(settle("a", &spec("agent:1", json!([])), &[], 0));
        assert_eq!(first.name, format!("a-{}", first.hash));
        let second = created(settle("a", &spec("agent:1", patch(1)), std::slice::from_ref(&first), 0));
        let both = [first.clone(), second.clone()];
        let third = created(settle("a", &spec("agent:1", patch(2)), &both, 0));
        assert_eq!((&second.hash, &third.hash), (&first.hash, &first.hash), "they differ in patches alone");
        let names: std::collections::BTreeSet<&str> = [&first, &second, &third].map(|known| known.name.as_str()).into();
        assert_eq!(names.len(), 3, "{names:?}");
        let name_after = |name: &str, hash: String| {
            let left = [Revision { hash: hash.clone(), ..foreign(name, 1, "agent:2") }];
            let patched = created(settle("a", &spec("agent:2", patch(1)), &left, 0));
            assert_eq!(patched.hash, hash, "pods keep it");
            patched.name
        };
        assert_eq!(name_after("a-renamed", "6b5cc6bb78".to_owned()), "a-6b5cc6bb78");
        for (name, hash) in [("a-6b5cc6bb78", "6b5cc6bb78".to_owned()), ("x", "A_b".to_owned()), ("x", "b".repeat(253))]
        {
            let made = name_after(name, hash);
            assert!(made != name && made.len() == "a-".len() + 16, "{made}");
        }
    }

    #[test]
    fn names_are_never_too_long() {
        for set in ["a".repeat(253), format!("{}-.{}", "a".repeat(235), "b".repeat(16)), "a.".repeat(126)] {
            for collisions in [0, 1] {
                let made = created(settle(&set, &spec("agent:1", json!([])), &[], collisions));
                let (start, end) = made.name.rsplit_once('-').unwrap();
                assert!(made.name.len() <= 253 && end.len() == 16, "{}", made.name);
                assert!(set.starts_with(start) && start.ends_with(|last: char| last.is_alphanumeric()), "{start}");
            }
        }
    }

    #[test]
    fn going_back_brings_template_and_patches() {
        let before =
            spec("agent:1", json!([{"selector": {"matchLabels": {"x": "y"}}, "patch": {"spec": {}}, "priority": 3}]));
        let (template, patches) = spec_of(&data_of(&before)).unwrap();
        assert_eq!(template, before.template.0);
        assert_eq!(patches, before.patches);
        assert_eq!(spec_of(&foreign("a", 1, "agent:1").data).unwrap().1, []);
        assert_eq!(spec_of(&json!({"spec": {"template": 7}})), None);
    }

    #[test]
    fn what_nobody_can_change_is_replaced_by_what_means_the_same() {
        let old = json!({
            "metadata": {"name": "a-1", "uid": "u1", "labels": {"x": "y"}, "annotations": {CHANGE_CAUSE: "why"},
                "resourceVersion": "7", "finalizers": ["f"]},
            "revision": 5, "data": {"spec": {"template": {}}},
        });
        let new = replacement(&old, ("a", "u"), 60);
        assert_eq!(
            new["metadata"]["annotations"],
            json!({
                REPLACES_ANNOTATION: "a-1", SINCE_ANNOTATION: "1970-01-01T00:01:00Z", CHANGE_CAUSE: "why",
            })
        );
        assert_eq!((&new["revision"], &new["data"]), (&old["revision"], &old["data"]));
        assert_eq!(new["metadata"]["labels"], old["metadata"]["labels"]);
        assert_eq!(new["metadata"]["ownerReferences"][0]["uid"], "u");
        assert!(new["metadata"]["resourceVersion"].is_null() && new["metadata"]["finalizers"].is_null(), "{new}");
        assert_ne!(new["metadata"]["name"], "a-1");
        assert_eq!(new, replacement(&old, ("a", "u"), 60), "safe to repeat");
        // While both are there, the name is the older one's.
        let next = Revision { replaces: Some("a-1".to_owned()), ..foreign("a-x", 1, "agent:1") };
        let both = [next.clone(), foreign("a-1", 1, "agent:1")];
        assert_eq!(find(&both, "a-1").map(|found| found.name.as_str()), Some("a-1"));
        let next = [next];
        assert_eq!(current(Some("a-1"), "a-2", &next, [].into_iter()), Current::Known(&next[0]));
        // What the status names and nobody has is gone, whatever pods have.
        assert_eq!(current(Some("a-3"), "a-2", &next, [(Some("a-x"), "")].into_iter()), Current::Gone);
        assert_eq!(current(None, "a-2", &next, [(Some("a-x"), "")].into_iter()), Current::Known(&next[0]));
        assert_eq!(current(None, "a-2", &next, [(Some("a-2"), "")].into_iter()), Current::Newest);
    }

    #[test]
    fn only_what_nobody_needs_is_surplus() {
        let revisions: Vec<Revision> = (1..=5).map(|number| foreign(&format!("a-{number}"), number, "x:1")).collect();
        let names = |limit: usize, needed: &[&str]| -> Vec<String> {
            let spare = surplus(&revisions, limit, |revision| needed.contains(&revision.name.as_str()));
            spare.into_iter().map(|revision| revision.name.clone()).collect()
        };
        assert_eq!(names(2, &["a-1", "a-5"]), ["a-2"]);
        assert_eq!(names(10, &[]), Vec::<String>::new());
        assert_eq!(names(0, &["a-5"]), ["a-1", "a-2", "a-3", "a-4"]);
    }

    #[test]
    fn one_that_cannot_be_read_is_like_no_other() {
        let broken = Revision {
            name: "a-x".to_owned(),
            replaces: None,
            number: 9,
            hash: String::new(),
            form: 1,
            began: 0,
            data: json!({"spec": {"template": "?"}}),
        };
        assert_eq!(created(settle("a", &spec("agent:1", json!([])), std::slice::from_ref(&broken), 0)).number, 10);
        let last = Revision { number: HIGHEST_NUMBER, ..broken };
        let new = created(settle("a", &spec("agent:1", json!([])), std::slice::from_ref(&last), 0));
        assert_eq!(new.number, HIGHEST_NUMBER);
        assert_eq!([-1, 0, HIGHEST_NUMBER, HIGHEST_NUMBER + 1].map(number_of), [0, 0, HIGHEST_NUMBER, 0]);
        let name = new.name.clone();
        assert_eq!(settle("a", &spec("agent:1", json!([])), &[new, last], 0), Step::Keep { name });
    }

    #[test]
    fn a_revision_notes_its_form_of_hash() {
        let spec = spec("agent:1", json!([]));
        let new = created(settle("a", &spec, &[], 0));
        let noted = |cause: Option<&str>| object(&new, ("a", "u"), &spec, cause)["metadata"]["annotations"].clone();
        assert_eq!(noted(None), json!({FORM_ANNOTATION: "2"}));
        assert_eq!(noted(Some("why")), json!({FORM_ANNOTATION: "2", CHANGE_CAUSE: "why"}));
        for (annotation, form) in [
            (None, 1),
            (Some("2"), 2),
            (Some("3"), 3),
            (Some("0"), 1),
            (Some("1000"), u8::MAX),
            (Some("-1"), 1),
            (Some("two"), 1),
        ] {
            assert_eq!(form_of(annotation), form, "{annotation:?}");
        }
    }

    #[test]
    fn a_revision_is_the_newest_since_it_was_made_or_returned() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let began = |noted: Option<&str>| began(Some(at(1000)), noted, at(3000));
        assert_eq!(began(None), 1000);
        assert_eq!(began(Some(&at(2000).to_string())), 2000);
        assert_eq!(began(Some(&at(3000).to_string())), 3000);
        assert_eq!(began(Some(&at(900).to_string())), 900, "made for one that nobody could change");
        assert_eq!(began(Some(&at(3001).to_string())), 1000, "not yet");
        assert_eq!(began(Some("yesterday")), 1000);
    }
}
