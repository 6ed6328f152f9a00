//! The editions of an application's pods of one revision, by group.
//!
//! A group has the edition of its policy's newest version. It keeps that of an earlier one where the newest is no good, and while
//! its turn has not come (see [`super::rollout`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::group::OverridePolicySpec;
use dapple_edit::authored::authored;
use serde_json::Value;

use super::edition::{Change, Correction, Edition};
use super::rollout::EditionName;
use super::running::{is_had_in_place, with_images};
use super::seating::Suits;

/// What a policy makes of pods, by group.
#[derive(Debug, Clone, Default)]
pub struct Editions {
    /// What pods are made of; none for pods that nothing owns, which are their own: what others have put in is left alone.
    pub template: Option<Arc<Value>>,
    base: Edition,
    by_group: BTreeMap<Arc<str>, Versions>,
    /// Groups that have no edition that is any good, and why.
    pub unrendered: BTreeMap<Arc<str>, String>,
    /// Groups whose newest edition is no good, and why. They have an earlier one.
    pub passed_over: BTreeMap<Arc<str>, String>,
}

/// What the versions of a policy make of the pods of one group, the newest first.
#[derive(Debug, Clone, Default)]
struct Versions {
    all: Arc<[Edition]>,
    /// The one that counts.
    at: usize,
}

impl Versions {
    fn edition(&self) -> Option<&Edition> {
        self.all.get(self.at)
    }
}

impl Editions {
    /// What a policy makes of a template for these groups. `policy` is how people name it, `specs` what it says and has said,
    /// the newest first.
    #[must_use]
    pub fn of(
        policy: &str,
        specs: &[Arc<OverridePolicySpec>],
        groups: &[Arc<str>],
        template: Option<Arc<Value>>,
    ) -> Self {
        let versions = |group: &Arc<str>| {
            let all = specs.iter().map(|spec| Edition::of(policy, spec, group)).collect();
            (group.clone(), Versions { all, at: 0 })
        };
        let by_group = groups.iter().map(versions).collect();
        let mut editions = Self { template: template.clone(), by_group, ..Self::default() };
        for (group, template) in groups.iter().zip(template.iter().cycle()) {
            while let Err(text) = editions.of_group(group).render(template) {
                if !editions.pass_over(group, text) {
                    break;
                }
            }
        }
        editions
    }

    /// The same editions for an application that asks for none any more: pods of all groups are to be as their template.
    #[must_use]
    pub fn released(mut self) -> Self {
        self.by_group.values_mut().for_each(|versions| versions.at = versions.all.len());
        self
    }

    /// The edition that counts for a group is no good: from here on the one before it counts. Returns whether there is one.
    pub fn pass_over(&mut self, group: &Arc<str>, why: String) -> bool {
        let Some(versions) = self.by_group.get_mut(group) else { return false };
        if versions.at + 1 < versions.all.len() {
            versions.at += 1;
            self.passed_over.entry(group.clone()).or_insert(why);
            return true;
        }
        versions.at = 0;
        let first = self.passed_over.remove(group);
        self.unrendered.insert(group.clone(), first.unwrap_or(why));
        false
    }

    /// The turn of a group has not come: it keeps the edition of this name, if that is one of an earlier version.
    pub fn hold(&mut self, group: &str, name: &EditionName) {
        let Some(versions) = self.by_group.get_mut(group) else { return };
        let mut earlier = versions.at + 1..versions.all.len();
        if let Some(kept) = earlier.find(|at| versions.all[*at].name.as_deref() == name.as_deref()) {
            versions.at = kept;
        }
    }

    /// The names of a group's editions by versions before the one that counts, the newest first.
    #[must_use]
    pub fn earlier(&self, group: &str) -> Vec<EditionName> {
        let versions =
            self.by_group.get(group).map(|versions| &versions.all[(versions.at + 1).min(versions.all.len())..]);
        versions.into_iter().flatten().map(|edition| edition.name.as_deref().map(Arc::from)).collect()
    }

    /// The edition of a group: without rules for it, none but the template.
    #[must_use]
    pub fn of_group(&self, group: &str) -> &Edition {
        self.by_group.get(group).and_then(Versions::edition).unwrap_or(&self.base)
    }

    /// The edition of this name; none if it is not one of these.
    fn named(&self, name: Option<&str>) -> Option<&Edition> {
        match name {
            None => Some(&self.base),
            Some(_) => {
                let mut all = self.by_group.values().flat_map(|versions| versions.all.iter());
                all.find(|edition| edition.name.as_deref() == name)
            }
        }
    }

    /// Whether one of these has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.named(Some(name)).is_some()
    }

    /// How a pod that names this edition suits each of some groups.
    #[must_use]
    pub fn suits(&self, groups: &[Arc<str>], name: Option<&str>) -> Vec<Suits> {
        let from = self.named(name);
        let suits = |group: &Arc<str>| {
            let to = self.of_group(group);
            match (from, &self.template) {
                _ if to.name.as_deref() == name => Suits::AsItIs,
                (Some(from), Some(template)) if (Change { template, from, to }).is_correction() => Suits::Corrected,
                // What a pod that is its own template was before rules changed it is not known; but none have yet.
                (Some(from), None) if from.name.is_none() => Suits::Corrected,
                _ => Suits::Never,
            }
        };
        groups.iter().map(suits).collect()
    }

    /// How a pod that waits and names this edition gets that of a group.
    pub fn correct(&self, pod: &Value, name: Option<&str>, group: &str) -> Result<Correction, String> {
        let Some(from) = self.named(name) else { return Ok(Correction::NewPod) };
        Change { template: &self.template_of(pod), from, to: self.of_group(group) }.correction(pod)
    }

    /// Whether a running pod that names this edition can be given that of a group where it runs, as far as the template tells.
    #[must_use]
    pub fn is_had_in_place(&self, name: Option<&str>, group: &str) -> bool {
        let renderings = self
            .named(name)
            .zip(self.template.as_deref())
            .map(|(from, template)| [from, self.of_group(group)].map(|edition| edition.render(template)));
        matches!(renderings, Some([Ok(from), Ok(to)]) if is_had_in_place(&from, &to))
    }

    /// A pod that names this edition, as that of a group has it. None if nobody knows what the one that it names made of it.
    pub fn carried(&self, pod: &Value, name: Option<&str>, group: &str) -> Result<Option<Value>, String> {
        let Some(from) = self.named(name) else { return Ok(None) };
        Change { template: &self.template_of(pod), from, to: self.of_group(group) }.carried(pod).map(Some)
    }

    /// A pod that names an edition of which nobody knows what it made, as far as that of a group says what it should be: the fields
    /// that the rules are about, and all images. Where it may not be replaced by another, that is the best it can get.
    pub fn approached(&self, pod: &Value, group: &str) -> Result<Value, String> {
        let (template, to) = (self.template_of(pod), self.of_group(group));
        let carried = Change { template: &template, from: &self.base, to }.carried(pod)?;
        Ok(with_images(carried, &to.render(&template)?))
    }

    /// A new pod as the edition of a group has it.
    pub fn make(&self, pod: &Value, group: &str) -> Result<Value, String> {
        Change { template: &self.template_of(pod), from: &self.base, to: self.of_group(group) }.carried(pod)
    }

    /// What a pod is made of.
    fn template_of<'p>(&'p self, pod: &'p Value) -> Cow<'p, Value> {
        self.template.as_deref().map_or_else(|| authored(pod), Cow::Borrowed)
    }
}

#[cfg(test)]
#[path = "editions_tests.rs"]
mod tests;
