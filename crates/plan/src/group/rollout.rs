//! Which pod of an application gets the edition of its group next, after its OverridePolicy has changed.
//!
//! Groups come one after another, and in each the first pod alone. Invariants, whatever the facts are:
//! - No group is begun before all pods of the groups before it have their edition and are available. A pod that is down may get its
//!   edition sooner: it may be what makes it well, and where it is down all others wait for it.
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
    /// Whether it is to be moved: it is left as it is, since another comes in its place that has its edition.
    pub is_to_move: bool,
    /// Whether it helps to change it before the turn of its group: where it runs, or since a new pod of the group has another edition.
    pub helps_early: bool,
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
        let is_left = pod.is_left || pod.is_to_move;
        !is_left && self.wanted.get(pod.group).is_some_and(|wanted| *wanted != pod.edition)
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
        self.pods.iter().filter(|pod| !pod.is_available && !pod.is_to_move && !self.is_outdated(pod))
    }

    /// How many may be away when a pod of a group is changed.
    fn most_away_in(&self, group: usize) -> usize {
        // The first of a group shows whether its edition is any good.
        let shows = |pod: &PodEdition| pod.is_available && !pod.is_to_move && !self.is_outdated(pod);
        let has_begun = self.pods.iter().any(|pod| pod.group == group && shows(pod));
        if has_begun || is_on(Mutant::FirstNotAlone) { self.most_away } else { 1 }
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
        let groups = outdated.clone().map(|(_, pod)| pod.group);
        let group = if is_on(Mutant::OrderForgotten) { groups.max() } else { groups.min() };
        let Some(group) = group else { return Next::Rest };
        let all_down = self.others_down + self.pods.iter().filter(|pod| !pod.is_available).count();
        let most_away = self.most_away_in(group);
        let mut own: Vec<(usize, &PodEdition)> = outdated.filter(|(_, pod)| pod.group == group).collect();
        own.sort_by_key(|(_, pod)| (pod.is_available, pod.name.clone()));
        let away = [self.away_from_down(), all_down];
        let may_go = |pod: &PodEdition| is_within(away[usize::from(pod.is_available)], most_away);
        match own.into_iter().find(|(_, pod)| may_go(pod)) {
            Some((number, _)) => Next::Change(number),
            None => self.next_down(|_| true).unwrap_or(Next::Wait),
        }
    }

    /// How many are away that a pod has to wait for which is down itself: those that should be well and are not. Pods that are to be
    /// moved wait for it themselves.
    fn away_from_down(&self) -> usize {
        self.others_down + self.updated_down().count()
    }

    /// The pod that is down and gets its edition next, whatever its group's turn. `is_meant` says which are asked about, by their
    /// places. None if there is none that it helps.
    #[must_use]
    pub fn next_down(&self, is_meant: impl Fn(usize) -> bool) -> Option<Next> {
        let down =
            self.pods.iter().enumerate().filter(|(number, pod)| {
                !pod.is_available && pod.helps_early && self.is_outdated(pod) && is_meant(*number)
            });
        let mut first_of: BTreeMap<usize, (&str, usize)> = BTreeMap::new();
        for (number, pod) in down {
            let found = (&*pod.name, number);
            first_of.entry(pod.group).and_modify(|first| *first = found.min(*first)).or_insert(found);
        }
        let away = self.away_from_down();
        let next = first_of.iter().find(|(group, _)| is_within(away, self.most_away_in(**group)));
        let next = next.map(|(_, (_, number))| Next::Change(*number));
        next.or((!first_of.is_empty()).then_some(Next::Wait))
    }
}

/// Whether another pod may be changed while so many are away.
fn is_within(away: usize, most_away: usize) -> bool {
    away < most_away || is_on(Mutant::EditionWithoutBudget)
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
