//! Which pod of an application gets the edition of its group next, after its OverridePolicy has changed.
//!
//! Groups come one after another, and in each the first pod alone. Invariants, whatever the facts are:
//! - No group is begun before all pods of the groups before it have their edition and are available.
//! - An available pod is changed only while fewer pods of the application than allowed are unavailable, whatever made them so; the
//!   first of a group only while none is.
//! - While a pod that has its edition is unavailable, no more are changed than allowed: an edition that does harm takes one pod.
//!
//! All of it is read from the pods, so that a new leader decides the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mutant::{Mutant, is_on};

/// The name of an edition; none for pods that are as their template.
pub type EditionName = Option<Arc<str>>;

/// A pod of an application that lives and is where it belongs, as far as its edition goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEdition {
    /// Its name.
    pub name: Arc<str>,
    /// Its group, by its place in the order.
    pub group: usize,
    /// The edition that it names.
    pub edition: EditionName,
    /// Whether it is available.
    pub is_available: bool,
    /// Whether it is left as it is: somebody has said that it must not be disturbed, or nothing can change it.
    pub is_left: bool,
}

/// An application, and the editions that its pods should have.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The edition of each group, in the order in which groups come.
    pub wanted: Vec<EditionName>,
    /// Its pods.
    pub pods: Vec<PodEdition>,
    /// How many others are unavailable: missing, misplaced, yet to be placed, or leaving a node that is not well.
    pub others_down: usize,
    /// So many of its pods may be away at once.
    pub most_away: usize,
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: every pod has its edition.
    Rest,
    /// Nothing yet: too many pods are unavailable.
    Wait,
    /// The pod at this place gets its edition.
    Change(usize),
}

impl Facts {
    fn is_outdated(&self, pod: &PodEdition) -> bool {
        !pod.is_left && self.wanted.get(pod.group).is_some_and(|wanted| *wanted != pod.edition)
    }

    /// Whether every pod has its edition, but for those that are left as they are.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outdated() == 0
    }

    /// How many pods lack their edition.
    #[must_use]
    pub fn outdated(&self) -> usize {
        self.pods.iter().filter(|pod| self.is_outdated(pod)).count()
    }

    /// Pods that have their edition and are unavailable.
    pub fn updated_down(&self) -> impl Iterator<Item = &PodEdition> {
        self.pods.iter().filter(|pod| !pod.is_available && !self.is_outdated(pod))
    }

    /// The group whose turn it is, by its place in the order: the first that is not done. New pods of it and of those before it get
    /// the new edition, those of the others the old one. As many as there are groups if all are done.
    #[must_use]
    pub fn turn(&self) -> usize {
        if self.is_done() {
            return self.wanted.len();
        }
        let is_open = |pod: &&PodEdition| self.is_outdated(pod) || !pod.is_available;
        self.pods.iter().filter(is_open).map(|pod| pod.group).min().unwrap_or(self.wanted.len())
    }

    /// The earlier editions that new pods get in groups whose turn has not come: what most pods there have; without pods, what
    /// the version before says. `earlier` has, of each group, its editions by earlier versions of the policy, the newest first:
    /// without one, a group has nothing to keep. While the policy is suspended, no group's turn comes.
    #[must_use]
    pub fn held(&self, earlier: &[Vec<EditionName>], is_suspended: bool) -> Vec<Option<EditionName>> {
        let first = if is_suspended && !self.is_done() { 0 } else { self.turn().saturating_add(1) };
        let held = |group: usize| {
            let known = earlier.get(group).filter(|known| group >= first && !known.is_empty())?;
            let mut counts: BTreeMap<&EditionName, usize> = BTreeMap::new();
            let own = self.pods.iter().filter(|pod| pod.group == group);
            own.clone().for_each(|pod| *counts.entry(&pod.edition).or_default() += 1);
            let most = known.iter().filter(|name| counts.contains_key(name)).max_by_key(|name| counts[name]);
            most.or_else(|| known.first().filter(|_| own.count() == 0)).cloned()
        };
        (0..self.wanted.len()).map(held).collect()
    }

    /// What is done next.
    #[must_use]
    pub fn next(&self) -> Next {
        let outdated = self.pods.iter().enumerate().filter(|(_, pod)| self.is_outdated(pod));
        let Some(group) = outdated.clone().map(|(_, pod)| pod.group).min() else { return Next::Rest };
        // Pods that should be well and are not: those of groups that are done, and those that were changed.
        let updated_down = self.updated_down().count();
        let all_down = self.others_down + self.pods.iter().filter(|pod| !pod.is_available).count();
        let has_begun = self.pods.iter().any(|pod| pod.group == group && !self.is_outdated(pod) && pod.is_available);
        // The first of a group shows whether its edition is any good.
        let most_away = if has_begun { self.most_away } else { 1 };
        let mut own: Vec<(usize, &PodEdition)> = outdated.filter(|(_, pod)| pod.group == group).collect();
        own.sort_by_key(|(_, pod)| (pod.is_available, pod.name.clone()));
        let may_go = |pod: &PodEdition| {
            let away = if pod.is_available { all_down } else { self.others_down + updated_down };
            away < most_away || is_on(Mutant::EditionWithoutBudget)
        };
        match own.into_iter().find(|(_, pod)| may_go(pod)) {
            Some((number, _)) => Next::Change(number),
            None => Next::Wait,
        }
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
