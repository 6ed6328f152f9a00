//! How a pod stands to a marker: whether it matches, how preferred it is, and what it has of the marks.
//!
//! Invariants:
//! - A pod's labels are seen as they are without the marker's own marks: no mark makes its own pod begin or stop to match.
//! - What is not known is told apart from what is known not to match.

use std::sync::Arc;

use dapple_edit::marker::{OwnerKeys, Place, Record, mark, wanted};

use super::clash::{Clash, clash};
use super::result::{Container, Doubt, Outcome};
use super::rule::{Asked, ProbeRequirement, Rule, Rules};
use crate::mutant::{Mutant, is_on};
use crate::node::Labels;

/// A pod that lives, as markers look at it.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    /// Its labels.
    pub labels: &'a dyn Labels,
    /// Its annotations: those of all keys that any marker sets, and those of ours.
    pub annotations: &'a dyn Labels,
    /// What it remembers of markers.
    pub record: &'a Record,
    /// What its owner selects on.
    pub owner: &'a OwnerKeys,
    /// Whether a PropagationPolicy divides it, with its like, among groups.
    pub is_divided: bool,
    /// Whether it is ready.
    pub is_ready: bool,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// The node that it is bound to.
    pub node: NodeOf<'a>,
    /// Its containers, and its init containers that run as long as these do.
    pub containers: &'a [Container],
}

/// The node of a pod.
#[derive(Clone, Copy)]
pub enum NodeOf<'a> {
    /// It is bound to none. One that it only waits for does not count.
    Unbound,
    /// It is bound to one that is not there.
    Gone,
    /// It is bound to one with these labels.
    There(&'a dyn Labels),
}

impl<'a> Pod<'a> {
    /// What it has at a key.
    #[must_use]
    pub fn value(&self, place: Place, key: &str) -> Option<&'a str> {
        match place {
            Place::Label => self.labels.get(key),
            Place::Annotation => self.annotations.get(key),
        }
    }
}

/// How a pod stands to a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether it matches.
    pub matching: Matching,
    /// What it has of the marks.
    pub marks: Marks,
    /// How preferred it is.
    pub rank: Rank,
    /// When it was made, in seconds since 1970.
    pub created: i64,
}

/// Whether a pod matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matching {
    /// It does.
    Yes,
    /// It does not.
    No(Miss),
    /// It would, and something stands against its getting the marks.
    Conflict(Clash),
    /// That is not known.
    Unknown {
        /// Why.
        why: Doubt,
        /// Whether it would match by what was last known; none if that was never known.
        before: Option<bool>,
    },
}

/// Why a pod does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Miss {
    /// Its labels.
    Labels,
    /// It has no node yet.
    Unbound,
    /// The labels of its node.
    NodeLabels,
    /// It has no container of this name.
    Container(Arc<str>),
    /// A container has no port of this name.
    Port(Arc<str>),
    /// The result of a probe in this container.
    Probe(Arc<str>),
}

/// What a pod has of the marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Not all of them, and none by this marker.
    Lacking,
    /// All of them, and not by us: they are never taken off.
    Foreign,
    /// Some by this marker.
    Own {
        /// Whether all is as the marker says now.
        are_complete: bool,
        /// When the last of them was set, in seconds since 1970.
        set_at: i64,
    },
}

/// How preferred a pod is: the lower, the more. The first preference is the highest digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Rank(u32);

/// How a pod stands to a marker. `rules` are all markers of the namespace, and `outcome` tells what is known of a probe.
#[must_use]
pub fn standing(
    rule: &Rule,
    pod: &Pod<'_>,
    rules: &Rules,
    outcome: &dyn Fn(&Container, &Asked) -> Outcome,
) -> Standing {
    let matching = match requirements(rule, pod, outcome) {
        Err(miss) => Matching::No(miss),
        Ok(unknown) => match (clash(rule, pod, rules), unknown) {
            (Some(clash), _) => Matching::Conflict(clash),
            (None, Some((why, before))) => Matching::Unknown { why, before },
            (None, None) => Matching::Yes,
        },
    };
    Standing { matching, marks: marks(rule, pod), rank: rank(rule, pod), created: pod.created }
}

/// Whether the probes of a marker are to be run on a pod: all else that it asks for holds.
#[must_use]
pub fn is_probed(rule: &Rule, pod: &Pod<'_>) -> bool {
    selected(rule, pod).is_ok()
}

/// A label of a pod, as it is without the marker's own marks.
pub(super) fn label<'a>(rule: &Rule, pod: &Pod<'a>, key: &str) -> Option<&'a str> {
    if is_on(Mutant::OwnMarksSeen) {
        return pod.value(Place::Label, key);
    }
    pod.record.without(&|marker: &str| marker == rule.name(), Place::Label, key, pod.value(Place::Label, key))
}

fn selected(rule: &Rule, pod: &Pod<'_>) -> Result<(), Miss> {
    if !rule.pods.matches(|key| label(rule, pod, key)) {
        return Err(Miss::Labels);
    }
    match (&rule.nodes, pod.node) {
        (Some(_), NodeOf::Unbound) => Err(Miss::Unbound),
        (Some(nodes), NodeOf::There(labels)) if !nodes.matches(|key| labels.get(key)) => Err(Miss::NodeLabels),
        _ => Ok(()),
    }
}

/// Why it is not known whether all requirements hold, and whether they did when it was last known; nothing if they hold.
type Unknown = Option<(Doubt, Option<bool>)>;

fn requirements(rule: &Rule, pod: &Pod<'_>, outcome: &dyn Fn(&Container, &Asked) -> Outcome) -> Result<Unknown, Miss> {
    selected(rule, pod)?;
    let is_gone = matches!(pod.node, NodeOf::Gone);
    // What its labels were, nobody can tell.
    let nodes_matched = rule.nodes.is_none().then_some(true);
    let mut unknown: Unknown = is_gone.then_some((Doubt::NodeGone, nodes_matched));
    for requirement in &rule.probes {
        for asked in &requirement.asked {
            let container = container(requirement, asked, pod)?;
            let (why, succeeded) = match (outcome(container, asked), is_gone) {
                (Outcome::Succeeded, false) if requirement.must_succeed => continue,
                (Outcome::Failed, false) if !requirement.must_succeed => continue,
                (Outcome::Succeeded | Outcome::Failed, false) => return Err(Miss::Probe(asked.container.clone())),
                (Outcome::Succeeded, true) => (Doubt::NodeGone, Some(true)),
                (Outcome::Failed, true) => (Doubt::NodeGone, Some(false)),
                (Outcome::Unknown { why, before }, _) => (why, before),
            };
            let before = succeeded.map(|succeeded| succeeded == requirement.must_succeed);
            unknown = Some(unknown.map_or((why, before), |(first, others)| (first, both(others, before))));
        }
    }
    Ok(unknown)
}

/// Whether two things held, if that is known: that one of them did not is enough.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn container<'a>(requirement: &ProbeRequirement, asked: &Asked, pod: &Pod<'a>) -> Result<&'a Container, Miss> {
    let container = pod.containers.iter().find(|container| container.name == asked.container);
    let container = container.ok_or_else(|| Miss::Container(asked.container.clone()))?;
    match &requirement.port {
        Some(port) if container.ports.iter().all(|(name, _)| name != port) => Err(Miss::Port(port.clone())),
        _ => Ok(container),
    }
}

fn marks(rule: &Rule, pod: &Pod<'_>) -> Marks {
    let value = |place: Place, key: &str| pod.value(place, key);
    if let Some(set_at) = pod.record.set_at(rule.name()) {
        let are_complete = mark(pod.record, &value, rule.name(), &rule.items, pod.owner, set_at).is_empty();
        return Marks::Own { are_complete, set_at };
    }
    // What another marker has set is to be shared, so that it stays when that one leaves.
    let is_foreign = |(place, key, wanted): (Place, &str, &str)| {
        value(place, key) == Some(wanted) && !pod.record.is_set(place, key, wanted)
    };
    if wanted(&rule.items).all(is_foreign) { Marks::Foreign } else { Marks::Lacking }
}

fn rank(rule: &Rule, pod: &Pod<'_>) -> Rank {
    let held = rule.preferences.iter().map(|preference| {
        preference.is_ready.is_none_or(|wanted| wanted == pod.is_ready)
            && preference.pods.as_ref().is_none_or(|pods| pods.matches(|key| label(rule, pod, key)))
            && preference.nodes.as_ref().is_none_or(|nodes| match pod.node {
                NodeOf::There(labels) => nodes.matches(|key| labels.get(key)),
                NodeOf::Unbound | NodeOf::Gone => false,
            })
    });
    Rank(held.fold(0, |rank, holds| (rank << 1) | u32::from(!holds)))
}

#[cfg(test)]
impl Rank {
    pub(super) const fn of(rank: u32) -> Self {
        Self(rank)
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
mod tests;
