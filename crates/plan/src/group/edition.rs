//! Editions: what the rules of an OverridePolicy make of the pods of one group.
//!
//! An edition is named by a hash of the rules that are for its group, in their order, and by nothing else: groups with the same
//! rules share it, and a workload's own rollout does not change it. A pod says by an annotation which one it was made by; a pod
//! that says none is as its template.
//!
//! Invariant: what is carried over to a pod is the difference that the rules make on its owner's template. What others have put
//! into the pod stays.

use std::mem::take;

use dapple_api::group::{OverridePolicySpec, Overriders};
use dapple_edit::carry::carry;
use dapple_edit::document::Document;
use dapple_edit::edit::Edit;
use dapple_edit::group::edits;
use dapple_edit::render::{hash, render_unnamed};
use serde_json::{Map, Value, json};

/// Annotation of a pod that names its edition.
pub const EDITION: &str = "dapple.dev/edition";

/// What rules make of the pods of a group. Without rules, pods are as their template.
#[derive(Debug, Clone, Default)]
pub struct Edition {
    /// Its name; none if there are no rules for the group.
    pub name: Option<String>,
    edits: Vec<Edit>,
}

impl Edition {
    /// What a policy makes of the pods of a group, or of several with commas between them: each rule counts once. `policy` is how
    /// people name it.
    #[must_use]
    pub fn of(policy: &str, spec: &OverridePolicySpec, groups: &str) -> Self {
        let groups: Vec<&str> = groups.split(',').filter(|group| !group.is_empty()).collect();
        let rules: Vec<Value> = spec
            .override_rules
            .iter()
            .filter(|rule| groups.iter().any(|group| rule.targets(group)))
            .map(|rule| json!(rule.overriders()))
            .filter(|overriders| overriders.as_object().is_some_and(|some| !some.is_empty()))
            .collect();
        if rules.is_empty() {
            return Self::default();
        }
        Self { name: Some(hash(&json!(rules))), edits: edits(policy, spec, &groups) }
    }

    /// A template as this edition has it.
    pub fn render(&self, template: &Value) -> Result<Value, String> {
        let edits: Vec<&Edit> = self.edits.iter().collect();
        render_unnamed(Document::PodTemplate, template, &edits).map_err(|error| error.to_string())
    }
}

/// What a policy says of images. Nothing else can be changed of pods that were not made by it.
#[must_use]
pub fn images_only(spec: &OverridePolicySpec) -> OverridePolicySpec {
    let mut only = spec.clone();
    for rule in &mut only.override_rules {
        for overriders in rule.overriders.iter_mut().chain([&mut rule.direct]) {
            *overriders =
                Overriders { image_overrider: take(&mut overriders.image_overrider), ..Overriders::default() };
        }
    }
    only
}

/// A pod's owner's template, and what two editions make of it: the one that the pod says, and the one that it should have.
pub struct Change<'t> {
    /// The template.
    pub template: &'t Value,
    /// What the pod was made by.
    pub from: &'t Edition,
    /// What it should be made by.
    pub to: &'t Edition,
}

/// How a pod that waits behind the gate gets another edition.
#[derive(Debug, Clone, PartialEq)]
pub enum Correction {
    /// By a strategic merge patch, empty if only its name differs.
    Patch(Map<String, Value>),
    /// Not at all: Kubernetes allows no such change of a pod.
    NewPod,
}

impl Change<'_> {
    /// The pod with the other edition, its name included.
    pub fn carried(&self, pod: &Value) -> Result<Value, String> {
        let (from, to) = (self.from.render(self.template)?, self.to.render(self.template)?);
        let mut carried = carry(&from, &to, pod).map_err(|error| error.to_string())?;
        if let Some(name) = &self.to.name {
            // Kubernetes lets nothing but an object be there.
            carried["metadata"]["annotations"][EDITION] = json!(name);
        } else if let Some(annotations) = carried["metadata"]["annotations"].as_object_mut() {
            annotations.remove(EDITION);
        }
        Ok(carried)
    }

    /// How a pod that waits gets the other edition.
    pub fn correction(&self, pod: &Value) -> Result<Correction, String> {
        Ok(correction(pod, &self.carried(pod)?))
    }

    /// Whether pods that wait can get the other edition, as far as the template tells.
    #[must_use]
    pub fn is_correction(&self) -> bool {
        let renderings = [self.from, self.to].map(|edition| edition.render(self.template));
        let [Ok(from), Ok(to)] = renderings else { return false };
        correction(&from, &to) != Correction::NewPod
    }
}

/// The lists of containers whose images may change on a pod.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// What of a gated pod may change: images, labels, annotations, tolerations that are added, entries of its nodeSelector that are
/// added. The patch for a change of these, if there is no other.
fn correction(pod: &Value, wanted: &Value) -> Correction {
    let (mut patch, mut reached) = (json!({}), pod.clone());
    for field in ["labels", "annotations"] {
        let (before, after) = (&pod["metadata"][field], &wanted["metadata"][field]);
        if before != after {
            patch["metadata"][field] = changed_entries(before, after);
            reached["metadata"][field] = after.clone();
        }
    }
    for list in CONTAINERS {
        let images = changed_images(&pod["spec"][list], &wanted["spec"][list], &mut reached["spec"][list]);
        if !images.is_empty() {
            patch["spec"][list] = json!(images);
        }
    }
    let (before, after) = (&pod["spec"]["nodeSelector"], &wanted["spec"]["nodeSelector"]);
    if before != after && has_all_entries(after, before) {
        patch["spec"]["nodeSelector"] = changed_entries(before, after);
        reached["spec"]["nodeSelector"] = after.clone();
    }
    let (before, after) = (&pod["spec"]["tolerations"], &wanted["spec"]["tolerations"]);
    if before != after && has_all_items(after, before) {
        patch["spec"]["tolerations"] = after.clone();
        reached["spec"]["tolerations"] = after.clone();
    }
    match patch {
        Value::Object(patch) if pruned(&reached) == pruned(wanted) => Correction::Patch(patch),
        _ => Correction::NewPod,
    }
}

/// Without what indexing has left there: fields that are null.
fn pruned(value: &Value) -> Value {
    let mut value = value.clone();
    for part in ["metadata", "spec"] {
        if let Some(fields) = value[part].as_object_mut() {
            fields.retain(|_, field| !field.is_null());
        }
    }
    value
}

fn changed_entries(before: &Value, after: &Value) -> Value {
    let empty = Map::new();
    let [before, after] = [before, after].map(|map| map.as_object().unwrap_or(&empty));
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    gone.chain(changed.map(|(key, value)| (key.clone(), value.clone()))).collect::<Map<String, Value>>().into()
}

/// The containers whose image changes, with the new one, and in `reached` the list with these images.
fn changed_images(before: &Value, after: &Value, reached: &mut Value) -> Vec<Value> {
    let mut images = Vec::new();
    for container in reached.as_array_mut().into_iter().flatten() {
        let name = container["name"].clone();
        let find = |list: &Value| list.as_array().into_iter().flatten().find(|known| known["name"] == name).cloned();
        let (Some(old), Some(new)) = (find(before), find(after)) else { continue };
        if old["image"] != new["image"] && new["image"].is_string() {
            images.push(json!({"name": name, "image": new["image"]}));
            container["image"] = new["image"].clone();
        }
    }
    images
}

fn has_all_entries(outer: &Value, inner: &Value) -> bool {
    let inner = inner.as_object().into_iter().flatten();
    inner.into_iter().all(|(key, value)| outer.get(key) == Some(value))
}

fn has_all_items(outer: &Value, inner: &Value) -> bool {
    let outer = outer.as_array().map(Vec::as_slice).unwrap_or_default();
    inner.as_array().into_iter().flatten().all(|item| outer.contains(item))
}

#[cfg(test)]
#[path = "edition_tests.rs"]
mod tests;
