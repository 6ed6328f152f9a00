//! What the status of a policy says: what follows it, and how far that is.
//!
//! Equal facts give an equal status, so that nothing is written when nothing changed. Lists are bounded; beside each stands how
//! many there are in all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::group::{
    GroupEdition, GroupPods, OverridePolicySpec, OverridePolicyStatus, PendingPods, PodMove, PolicyApplication,
    PropagationPolicySpec, PropagationPolicyStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::division::Division;
use super::edition::{Edition, images_only};
use super::repair::{PodState, counts, misplaced};
use crate::condition::{Found, condition};

/// The condition of a policy that says whether everything that asks for it follows it.
pub const READY: &str = "Ready";
/// The condition of a policy that says whether the groups are there that it names.
pub const GROUPS_FOUND: &str = "GroupsFound";
/// The condition of a PropagationPolicy that says whether all pods are where they belong.
pub const DIVIDED: &str = "Divided";
/// The condition of an OverridePolicy that says whether all pods have the edition of their group.
pub const UPDATED: &str = "Updated";
/// The condition of a policy that says whether nothing that runs is changed by it.
pub const SUSPENDED: &str = "Suspended";

/// The most applications that a status lists.
const APPLICATIONS: usize = 20;
/// The most groups that a status lists.
const GROUPS: usize = 64;
/// The most reasons that a status lists.
const REASONS: usize = 8;
/// The most moves that a status lists.
pub const MOVES: usize = 5;
/// The most groups that a message names one by one.
const NAMED: usize = 5;

/// What holds for a policy of either kind.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// `metadata.generation` of the policy.
    pub generation: Option<i64>,
    /// Whether nothing that runs is to be changed by it.
    pub is_suspended: bool,
    /// The applications that ask for it and have it confirmed.
    pub applications: BTreeSet<PolicyApplication>,
    /// How many ask for it and do not.
    pub unconfirmed: usize,
    /// The groups that there are.
    pub groups: BTreeSet<Arc<str>>,
}

/// What the status of a PropagationPolicy is made from.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    /// What follows it.
    pub following: Following,
    /// The live pods that it divides: those of each owner revision, and those of nobody's together.
    pub owners: Vec<Vec<PodState>>,
    /// How many pods have no node, by reason.
    pub pending: BTreeMap<Arc<str>, usize>,
    /// Moves of its pods that are not in the status before, in any order.
    pub moves: Vec<PodMove>,
}

/// What the status of an OverridePolicy is made from.
#[derive(Debug, Clone, Default)]
pub struct Editioned {
    /// What follows it.
    pub following: Following,
    /// The groups that its pods may be in, in lower case.
    pub groups: BTreeSet<Arc<str>>,
    /// How many live pods there are by place and edition.
    pub pods: BTreeMap<(Place, Option<Arc<str>>), usize>,
    /// How many of its applications have no PropagationPolicy, so that their pods go anywhere.
    pub undivided: usize,
}

/// Where a pod is, as far as that says which edition it should have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The group that it counts for, in lower case.
    pub group: Arc<str>,
    /// All groups whose rules are for it, with commas between them: those of its node, if no policy divides its application.
    pub rules_of: Arc<str>,
    /// Whether it gets images alone: it was not made by the policy.
    pub is_images_only: bool,
}

/// The status of a PropagationPolicy, from the one before it.
#[must_use]
pub fn propagation_status(
    spec: &PropagationPolicySpec,
    facts: &Spread,
    before: &PropagationPolicyStatus,
    now: &Time,
) -> PropagationPolicyStatus {
    let following = &facts.following;
    let mut division = Division::of(spec);
    let names = division.as_ref().map(|division| division.groups().to_vec()).unwrap_or_default();
    let (mut tallies, mut astray) = (vec![(0, 0); names.len()], 0);
    if let Some(division) = &mut division {
        for pods in &facts.owners {
            astray += misplaced(division, pods).len();
            for (tally, (current, desired)) in tallies.iter_mut().zip(counts(division, pods)) {
                *tally = (tally.0 + current, tally.1 + desired);
            }
        }
    }
    let pending = facts.pending.values().sum();
    let ready = match &division {
        None => (READY, false, "NoStrategy", NO_STRATEGY.to_owned()),
        Some(_) => following.ready(),
    };
    let found =
        [ready, following.groups_found(&names), divided(pending, astray, &facts.pending), following.suspended()];
    PropagationPolicyStatus {
        observed_generation: following.generation,
        application_count: number(following.applications.len()),
        applications: following.listed(),
        pods: number(facts.owners.iter().map(Vec::len).sum()),
        group_count: number(names.len()),
        groups: group_pods(&names, &tallies),
        pending: number(pending),
        pending_reasons: reasons(&facts.pending),
        misplaced: number(astray),
        last_moves: last_moves(&facts.moves, &before.last_moves),
        conditions: following.conditions(found, &before.conditions, now),
    }
}

/// Why a PropagationPolicy divides nothing.
const NO_STRATEGY: &str = "It has no strategy: set propagationStrategy, or only one of staticWeightList and numRange.";

/// The status of an OverridePolicy, from the one before it.
#[must_use]
pub fn override_status(
    spec: &OverridePolicySpec,
    facts: &Editioned,
    before: &OverridePolicyStatus,
    now: &Time,
) -> OverridePolicyStatus {
    let following = &facts.following;
    let named = spec.override_rules.iter().flat_map(|rule| rule.target_node_group.iter().flatten());
    let named: BTreeSet<Arc<str>> = named.map(|name| Arc::from(name.to_ascii_lowercase())).collect();
    let named: Vec<Arc<str>> = named.into_iter().collect();
    let (mut groups, mut pods, mut updated) = (Vec::new(), 0, 0);
    let images = images_only(spec);
    let is_right = |place: &Place, stamp: Option<&str>| {
        let spec = if place.is_images_only { &images } else { spec };
        Edition::of("", spec, &place.rules_of).name.as_deref() == stamp
    };
    for group in &facts.groups {
        let edition = Edition::of("", spec, group).name;
        let of_group = facts.pods.iter().filter(|((place, _), _)| place.group == *group);
        let (right, others): (Vec<_>, Vec<_>) =
            of_group.partition(|((place, stamp), _)| is_right(place, stamp.as_deref()));
        // Of as many, the first by name: the status must not change from look to look.
        let most = others.iter().rev().max_by_key(|(_, count)| **count);
        let current_edition = most.and_then(|((_, stamp), _)| Some(stamp.as_deref()?.to_owned()));
        let count = |known: Vec<(_, &usize)>| known.into_iter().map(|(_, count)| count).sum::<usize>();
        let (right, other) = (count(right), count(others));
        (pods, updated) = (pods + right + other, updated + right);
        groups.push(GroupEdition {
            name: group.to_string(),
            edition,
            updated: number(right),
            outdated: number(other),
            current_edition,
        });
    }
    let group_count = number(groups.len());
    groups.truncate(GROUPS);
    let found = [
        following.ready(),
        following.groups_found(&named),
        is_updated(spec, facts.undivided, pods, updated),
        following.suspended(),
    ];
    OverridePolicyStatus {
        observed_generation: following.generation,
        application_count: number(following.applications.len()),
        applications: following.listed(),
        pods: number(pods),
        updated: number(updated),
        group_count,
        groups,
        conditions: following.conditions(found, &before.conditions, now),
    }
}

impl Following {
    fn listed(&self) -> Vec<PolicyApplication> {
        self.applications.iter().take(APPLICATIONS).cloned().collect()
    }

    fn conditions(&self, found: [Found; 4], before: &[Condition], now: &Time) -> Vec<Condition> {
        found.into_iter().map(|found| condition(found, self.generation, before, now)).collect()
    }

    fn ready(&self) -> Found {
        let (all, unconfirmed) = (self.applications.len() + self.unconfirmed, self.unconfirmed);
        match (all, unconfirmed) {
            (0, _) => (READY, true, "NoApplications", "No application asks for it.".to_owned()),
            (_, 0) => (READY, true, "Confirmed", format!("{} it.", follow(all))),
            (1, _) => {
                let text = "The application that asks for it does not follow it yet: its Events say why.";
                (READY, false, "NotConfirmed", text.to_owned())
            }
            _ => {
                let text = format!(
                    "Of {all} applications that ask for it, {unconfirmed} do not follow it yet: their Events say why."
                );
                (READY, false, "NotConfirmed", text)
            }
        }
    }

    fn groups_found(&self, named: &[Arc<str>]) -> Found {
        let missing: Vec<&str> = named.iter().filter(|name| !self.groups.contains(*name)).map(|name| &**name).collect();
        if missing.is_empty() {
            return (GROUPS_FOUND, true, "GroupsFound", "All groups that it names are there.".to_owned());
        }
        let more = missing.len().saturating_sub(NAMED);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let first = missing[..missing.len().min(NAMED)].join(", ");
        let plural = if missing.len() == 1 { "" } else { "s" };
        let text = format!("No such NodeGroup{plural}: {first}{rest}. Create what is missing, or correct the names.");
        (GROUPS_FOUND, false, "GroupsMissing", text)
    }

    fn suspended(&self) -> Found {
        if self.is_suspended {
            let text = "It has the annotation dapple.dev/suspend: new pods are placed, and none that runs is changed.";
            return (SUSPENDED, true, "Suspended", text.to_owned());
        }
        (SUSPENDED, false, "NotSuspended", "Pods are kept as it says.".to_owned())
    }
}

/// So many applications follow.
fn follow(applications: usize) -> String {
    if applications == 1 { "1 application follows".to_owned() } else { format!("{applications} applications follow") }
}

/// So many pods are, or have, something.
fn pods_do(pods: usize, one: &str, more: &str) -> String {
    if pods == 1 { format!("1 pod {one}") } else { format!("{pods} pods {more}") }
}

fn divided(pending: usize, astray: usize, why: &BTreeMap<Arc<str>, usize>) -> Found {
    let mut texts = Vec::new();
    if astray > 0 {
        texts.push(pods_do(
            astray,
            "is in another group than should have it",
            "are in other groups than should have them",
        ));
    }
    if pending > 0 {
        let named: Vec<String> = reasons(why).iter().map(|known| format!("{} {}", known.pods, known.reason)).collect();
        let text = pods_do(pending, "has no node yet", "have no node yet");
        texts.push(format!("{text} ({})", named.join(", ")));
    }
    let reason = match (astray, pending) {
        (0, 0) => return (DIVIDED, true, "AsDesired", "All pods are where they belong.".to_owned()),
        (0, _) => "PodsPending",
        _ => "PodsMisplaced",
    };
    (DIVIDED, false, reason, format!("{}.", texts.join(", and ")))
}

fn is_updated(spec: &OverridePolicySpec, undivided: usize, pods: usize, updated: usize) -> Found {
    if updated < pods {
        let text = pods_do(
            pods - updated,
            "has another edition than its group should have",
            "have another edition than their group should have",
        );
        return (UPDATED, false, "PodsOutdated", format!("Of {pods} in groups, {text}."));
    }
    let changes_more = spec.override_rules.iter().any(|rule| {
        let overriders = rule.overriders();
        !(overriders.command_overrider.is_empty()
            && overriders.args_overrider.is_empty()
            && overriders.plaintext.is_empty())
    });
    if undivided > 0 && changes_more {
        let text = format!(
            "{} it without a PropagationPolicy: which group a pod comes into is known too late for rules that change \
             more than images.",
            follow(undivided)
        );
        return (UPDATED, false, "ImagesOnly", text);
    }
    (UPDATED, true, "AllUpdated", "All pods in groups have the edition of their group.".to_owned())
}

fn group_pods(names: &[Arc<str>], tallies: &[(usize, usize)]) -> Vec<GroupPods> {
    let told = |(name, (current, desired)): (&Arc<str>, &(usize, usize))| GroupPods {
        name: name.to_string(),
        desired: number(*desired),
        current: number(*current),
    };
    names.iter().zip(tallies).take(GROUPS).map(told).collect()
}

fn reasons(pending: &BTreeMap<Arc<str>, usize>) -> Vec<PendingPods> {
    let mut all: Vec<(&Arc<str>, &usize)> = pending.iter().filter(|(_, pods)| **pods > 0).collect();
    all.sort_by_key(|(_, pods)| Reverse(**pods));
    let told = |(reason, pods): (&Arc<str>, &usize)| PendingPods { reason: reason.to_string(), pods: number(*pods) };
    all.into_iter().take(REASONS).map(told).collect()
}

/// Moves of both lists, each once, the newest first. What was told before outlives the process that did it.
fn last_moves(new: &[PodMove], before: &[PodMove]) -> Vec<PodMove> {
    let mut all: Vec<PodMove> = before.to_vec();
    let is_known =
        |all: &[PodMove], new: &PodMove| all.iter().any(|known| known.pod == new.pod && known.time == new.time);
    for moved in new {
        if !is_known(&all, moved) {
            all.push(moved.clone());
        }
    }
    all.sort_by_key(|moved| (Reverse(moved.time.0), moved.pod.clone()));
    all.truncate(MOVES);
    all
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
