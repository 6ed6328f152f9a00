//! What the status of a PodMarker says: how many pods are what, and what stands in the way.
//!
//! Equal facts give an equal status, so that nothing is written when nothing changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::marker::{PodMarkerStatus, SpecChange};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::choice::Numbers;
use super::clash::Cause;
use super::result::Doubt;
use super::rule::Replicas;
use crate::condition::{Found, condition};

/// The condition that says whether as many pods are marked as should be, and none is to be changed.
pub const MARKED: &str = "Marked";
/// The condition that says whether something stands against marking pods that would match.
pub const CONFLICT: &str = "Conflict";
/// The condition that says whether changes are held back.
pub const HELD: &str = "Held";
/// The condition that says whether it is known of all pods whether they match.
pub const PROBES_KNOWN: &str = "ProbesKnown";

/// The status is written at most this often.
pub const PACE: Duration = Duration::from_secs(1);

/// The most markers that a message names.
const NAMED: usize = 5;

/// What the status of a marker is made from.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// `metadata.generation` of the marker.
    pub generation: Option<i64>,
    /// Whether nothing is to be changed by it.
    pub is_suspended: bool,
    /// Why it cannot be used, if it cannot.
    pub unusable: Option<String>,
    /// How many pods are asked for.
    pub replicas: Replicas,
    /// How many pods are what.
    pub numbers: Numbers,
    /// How many could not be changed when that was last tried.
    pub failed: usize,
    /// What stands against pods that would match.
    pub causes: &'a BTreeMap<Cause, usize>,
    /// Younger markers that look for other pods since this one is older, with how many pods each.
    pub outdone: &'a BTreeMap<Arc<str>, usize>,
    /// Why it is not known of pods whether they match.
    pub doubts: &'a BTreeMap<Doubt, usize>,
    /// What is held back.
    pub held: Held,
    /// The change of the spec that is being carried out.
    pub carrying_out: Option<SpecChange>,
}

/// What is held back, and by what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// How many pods may be changed in a minute, where that keeps some waiting.
    pub allowance: Option<usize>,
    /// Pods that rest.
    pub resting: usize,
    /// Seats that are kept for pods that are made anew.
    pub seats: usize,
    /// Whether nothing is sent for a while, since too many patches were refused.
    pub is_stopped: bool,
}

/// The status of a marker, from the one before it.
#[must_use]
pub fn status(facts: &Facts<'_>, before: &PodMarkerStatus, now: &Time) -> PodMarkerStatus {
    let found = [facts.marked(), facts.conflict(), facts.held(), facts.probes_known()];
    let Numbers { desired, succeeded, matched, conflicting, unknown, waiting } = facts.numbers;
    PodMarkerStatus {
        observed_generation: facts.generation,
        desired: number(desired),
        succeeded: number(succeeded),
        failed: number(facts.failed),
        matched: number(matched),
        conflicting: number(conflicting),
        unknown: number(unknown),
        waiting: number(waiting),
        carrying_out: facts.carrying_out.clone(),
        conditions: found
            .into_iter()
            .map(|found| condition(found, facts.generation, &before.conditions, now))
            .collect(),
    }
}

/// How long a status that says something new has to wait, after the last was written so long ago; nothing if it says nothing new.
#[must_use]
pub fn waits(wanted: &PodMarkerStatus, before: &PodMarkerStatus, since: Option<Duration>) -> Option<Duration> {
    let wait = since.map_or(Duration::ZERO, |since| PACE.saturating_sub(since));
    (wanted != before).then_some(wait)
}

impl Facts<'_> {
    fn marked(&self) -> Found {
        let Numbers { desired, succeeded, matched, waiting, .. } = self.numbers;
        if let Some(why) = &self.unusable {
            return (MARKED, false, "CannotBeUsed", format!("{why}. Nothing is changed until it is corrected."));
        }
        if self.is_suspended {
            let text = "It has the annotation dapple.dev/suspend: nothing is changed.";
            return (MARKED, false, "Suspended", text.to_owned());
        }
        if self.failed > 0 {
            let text = format!("The API server refused to change {}.", pods(self.failed));
            return (MARKED, false, "PodsRefused", text);
        }
        if waiting > 0 || succeeded < desired {
            let text =
                format!("Of {} that should be marked, {succeeded} are; changes that wait: {waiting}.", pods(desired));
            return (MARKED, false, "InProgress", text);
        }
        let (reason, text) = match self.replicas {
            replicas if replicas.is_zero() => ("Cleaned", "No pod has marks of it.".to_owned()),
            Replicas::Count(asked) if matched < asked => {
                ("FewMatch", format!("Of {} asked for, {matched} match: all of them are marked.", pods(asked)))
            }
            _ => ("AllMarked", format!("As many are marked as should be: {}.", pods(succeeded))),
        };
        (MARKED, true, reason, text)
    }

    fn conflict(&self) -> Found {
        let of = |cause: &Cause| self.causes.get(cause).copied().unwrap_or(0);
        let older = self.causes.iter().filter_map(|(cause, count)| match cause {
            Cause::Marker(name) => Some((name, *count)),
            _ => None,
        });
        let mut all: Vec<(&'static str, String)> = Vec::new();
        let older: Vec<(&Arc<str>, usize)> = older.collect();
        if !older.is_empty() {
            let text = format!("older markers set other values: {}", listed(&older));
            all.push(("OlderMarker", text));
        }
        let younger: Vec<(&Arc<str>, usize)> = self.outdone.iter().map(|(name, count)| (name, *count)).collect();
        if !younger.is_empty() {
            let text = format!("younger markers that set other values look for other pods: {}", listed(&younger));
            all.push(("YoungerMarker", text));
        }
        for (cause, reason, text) in [
            (Cause::Value, "OtherValues", "with other values, where conflictPolicy is Ignore"),
            (Cause::OwnersLabel, "OwnersLabels", "with an owner that selects on a label of markItems"),
            (Cause::UnreadOwner, "OwnersUnread", "with other values and an owner that could not be read"),
            (Cause::Policy, "DividedPods", "that a PropagationPolicy divides, which says what deleting them costs"),
        ] {
            let count = of(&cause);
            if count > 0 {
                all.push((reason, format!("{} {text}", pods(count))));
            }
        }
        let reason = all.first().map(|(reason, _)| *reason);
        let texts: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
        match reason {
            Some(reason) => (CONFLICT, true, reason, format!("These pods are left alone: {}.", texts.join("; "))),
            None => (CONFLICT, false, "NoConflict", "Nothing stands against marking pods that match.".to_owned()),
        }
    }

    fn held(&self) -> Found {
        let Held { allowance, resting, seats, is_stopped } = self.held;
        let mut all: Vec<(&'static str, String)> = Vec::new();
        if is_stopped {
            all.push((
                "Refused",
                "the API server refused five patches in a row, so none is sent for a while".to_owned(),
            ));
        }
        if let Some(limit) = allowance {
            all.push(("Allowance", format!("no more may be changed in a minute than {}", pods(limit))));
        }
        if resting > 0 {
            let text = format!("after four changes in ten minutes a pod rests for ten: {}", pods(resting));
            all.push(("PodsRest", text));
        }
        if seats > 0 {
            let text = "of marked pods that ended, a successor gets the mark within five minutes, then any pod";
            all.push(("SeatsKept", text.to_owned()));
        }
        let reason = all.first().map(|(reason, _)| *reason);
        let texts: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
        match reason {
            Some(reason) => (HELD, true, reason, format!("Some changes wait: {}.", texts.join("; "))),
            None => (HELD, false, "NotHeld", "Nothing is held back.".to_owned()),
        }
    }

    fn probes_known(&self) -> Found {
        let unknown = self.numbers.unknown;
        if unknown == 0 {
            return (PROBES_KNOWN, true, "AllKnown", "It is known of all pods whether they match.".to_owned());
        }
        let why: Vec<String> = self.doubts.iter().map(|(doubt, count)| format!("{count} {}", why(*doubt))).collect();
        let text = format!(
            "It is not known of {} whether they match, so their marks stay as they are: {}.",
            pods(unknown),
            why.join(", ")
        );
        (PROBES_KNOWN, false, "PodsUnknown", text)
    }
}

fn why(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::NotRun => "where a probe has not run yet",
        Doubt::Error => "where a probe could not be run",
        Doubt::Beyond => "with more probes than a node runs",
        Doubt::Silent => "on nodes whose prober is not heard",
        Doubt::NodeUnknown => "on nodes that do not answer",
        Doubt::NodeGone => "on nodes that are not there",
    }
}

/// Markers with how many pods each, the first of them.
fn listed(markers: &[(&Arc<str>, usize)]) -> String {
    let named: Vec<String> =
        markers.iter().take(NAMED).map(|(name, count)| format!("{name} ({})", pods(*count))).collect();
    let more = markers.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
