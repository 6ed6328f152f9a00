//! What is done next about an application: which workloads are made, changed, put right and deleted, and how its pools are.
//!
//! Invariants:
//! - All that is decided follows from what is in the cluster: workloads with their notes, revisions, and the status. What a write
//!   depends on is stored before it: which rollout changed a pool is in the same write, and [`Decision::must_be_stored_first`] says
//!   when the status has to be written before anything else.
//! - Every write that makes pods anew or takes some away has passed [`rollout::next`], whatever its cause is.
//! - What is wrong with one pool holds up no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::{ApplicationStatus, DECLARED_REPLICAS, POOL_REVISION_LABEL, Rules, Stopped, Taint};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::learned::Learned;
use super::removal::{Confirmed, Fate};
use super::renderings::Renderings;
use super::revision::Revision;
use super::rollout::{self, Next, PoolState};
use super::version::{Application, Version};
use super::workload::{Rendered, declared_replicas};
use crate::mutant::{Mutant, is_on};

mod left;
mod seat;
mod standing;
mod written;

use left::{leave, notes};
pub use seat::Seat;
use seat::seats;
use standing::is_writable;
pub(super) use standing::{is_held, state_of};
use written::{change, creation};

/// A pool must have been as it is for so many seconds to be done.
pub(super) const SETTLED: i64 = 10;
/// After so many seconds without progress a StatefulSet is late: it has no deadline of its own.
const DEADLINE: i64 = 600;

/// A pool that the application should be in.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedPool {
    /// Its name.
    pub name: String,
    /// The taints of its nodes, of a YurtAppDaemon's.
    pub taints: Vec<Taint>,
}

/// A workload that the application controls.
#[derive(Debug, Clone)]
pub struct Existing {
    /// The pool that it was made for.
    pub pool: String,
    /// The workload, as it is stored.
    pub object: Arc<Value>,
    /// Whether a HorizontalPodAutoscaler sets the number of its pods.
    pub is_autoscaled: bool,
    /// Whether the API server, asked, would store what is there: another webhook made the difference.
    pub is_others_doing: bool,
    /// Whether nothing is done with it: its NodePool cannot be read, or is gone while nodes carry its label. It counts as before.
    pub is_left_alone: bool,
    /// Whether a write of ours may have changed it, or may yet, and that is not seen: it counts as changed.
    pub is_in_doubt: bool,
}

impl Existing {
    /// A workload of which nothing else is known.
    pub fn new(pool: String, object: Arc<Value>) -> Self {
        Self { pool, object, is_autoscaled: false, is_others_doing: false, is_left_alone: false, is_in_doubt: false }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["labels"].get(key)?.as_str()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["annotations"].get(key)?.as_str()
    }

    fn created(&self) -> Option<Timestamp> {
        self.object["metadata"]["creationTimestamp"].as_str()?.parse().ok()
    }

    fn is_going(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    /// Whether another number of pods was declared since it was last written: then it must be known whether an autoscaler has the
    /// say.
    pub fn is_declared_anew(&self, rendered: &Rendered) -> bool {
        let noted = self.annotation(DECLARED_REPLICAS).and_then(|text| text.parse::<i64>().ok());
        noted.is_some_and(|noted| noted != declared_replicas(&rendered.workload))
    }
}

/// What is known of an application.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The application.
    pub application: &'a Application,
    /// What it says now.
    pub version: &'a Arc<Version>,
    /// What pools got of it, as far as that was asked for a moment ago. Whether it is known changes nothing but the cost.
    pub renderings: &'a Renderings,
    /// The revision that holds that.
    pub newest: &'a Revision,
    /// All that there are.
    pub revisions: &'a [Revision],
    /// What its status says.
    pub status: &'a ApplicationStatus,
    /// The pools that it should be in, by name.
    pub pools: &'a [AskedPool],
    /// Its workloads.
    pub workloads: &'a [Existing],
    /// Pools whose last write was refused, with the reason, for as long as that counts.
    pub refused: &'a BTreeMap<String, String>,
    /// What the API server has told besides.
    pub learned: &'a Learned,
    /// How pools are rolled out.
    pub rules: &'a Rules,
    /// How long a workload outlives its pool; nothing if that cannot be understood.
    pub grace: Option<i64>,
    /// Removals that somebody confirmed.
    pub confirmed: &'a Confirmed,
    /// When somebody had a rollout go on.
    pub resumed: Option<Timestamp>,
    /// Whether nothing is to be written.
    pub is_suspended: bool,
    /// The time.
    pub now: Timestamp,
}

impl Facts<'_> {
    /// When somebody had a rollout go on. A time that is yet to come is not believed: it would be later than all that is to come.
    fn resumed(&self) -> Option<Timestamp> {
        self.resumed.filter(|resumed| *resumed <= self.now)
    }
}

/// A write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Makes a pool's workload.
    Create {
        /// The pool.
        pool: String,
        /// The workload.
        workload: Value,
    },
    /// Changes a pool's workload by a merge patch that names its UID and version.
    Patch {
        /// The pool.
        pool: String,
        /// The workload's name.
        name: String,
        /// The patch.
        patch: Value,
        /// The field that differs, if somebody else has changed it.
        repaired: Option<String>,
    },
    /// Deletes a pool's workload, at this very version.
    Delete {
        /// The pool.
        pool: String,
        /// The workload's name.
        name: String,
        /// Its UID.
        uid: String,
        /// Its version.
        version: String,
    },
}

/// What is done about an application, and how it is.
#[derive(Debug)]
pub struct Decision {
    /// What is written.
    pub actions: Vec<Action>,
    /// How each pool is, by name.
    pub seats: Vec<Seat>,
    /// What comes next of the rollout.
    pub next: Next,
    /// The status, without conditions.
    pub status: ApplicationStatus,
    /// Whether the status has to be stored before any of the writes is done.
    pub must_be_stored_first: bool,
    /// When to look again, if nothing else happens.
    pub wake: Option<Timestamp>,
}

impl Decision {
    /// Whether something is waited for that nothing tells of when it comes: what pods would refer to, or the last node of a pool
    /// whose NodePool is gone.
    pub fn is_to_be_polled(&self) -> bool {
        self.seats.iter().any(|seat| !seat.missing.is_empty() || seat.is_left_alone)
    }
}

/// What is done next.
pub fn decide(facts: &Facts<'_>) -> Decision {
    facts.renderings.begin();
    let mut seats = seats(facts);
    let states: Vec<PoolState> = seats.iter().map(|seat| state_of(seat, facts)).collect();
    let deleted = leave(&mut seats, &states, facts);
    let is_stopped = is_stopped(facts);
    let reserved = seats.iter().filter(|seat| matches!(seat.fate, Some(Fate::Delete | Fate::Going))).count();
    let next = rollout::next(&states, facts.rules, reserved);
    let mut actions = Vec::new();
    let mut status = facts.status.clone();
    status.current_revision = current_revision(&seats, facts);
    if let Next::Stopped(_) = next
        && !is_stopped
    {
        status.stopped = Some(Stopped { revision: facts.newest.number, since: Time(facts.now) });
    } else if !is_stopped {
        status.stopped = None;
    }
    if !facts.is_suspended {
        let turns: &[usize] = match &next {
            Next::Change(places) if !is_stopped => places,
            _ => &[],
        };
        let mut changes: BTreeMap<usize, Action> = BTreeMap::new();
        for (place, seat) in seats.iter_mut().enumerate() {
            let is_free = seat.difference.is_some() && !seat.difference.concerns_pods();
            if is_writable(seat, facts) && (turns.contains(&place) || is_free) {
                changes.extend(change(seat, facts).map(|action| (place, action)));
            }
        }
        actions.extend(deleted);
        // One version of a workload is written once: a change has what is to be noted beside it.
        let others = seats.iter().enumerate().filter(|(place, _)| !changes.contains_key(place));
        actions.extend(others.filter_map(|(_, seat)| notes(seat, facts)));
        actions.extend(seats.iter().filter_map(|seat| creation(seat, facts, status.current_revision.as_deref())));
        actions.extend(changes.into_values());
    }
    super::report::tell(&seats, facts, (&next, is_stopped), &mut status);
    let memory = |status: &ApplicationStatus| {
        let repairs = status.pools.iter().filter(|pool| !pool.repairs.is_empty());
        let repairs: Vec<_> = repairs.map(|pool| (pool.name.clone(), pool.repairs.clone())).collect();
        (status.current_revision.clone(), status.stopped.clone(), repairs)
    };
    let must_be_stored_first = memory(&status) != memory(facts.status);
    // Whose clock is a little ahead has it go on a little later.
    let resumed = facts.resumed.filter(|resumed| *resumed > facts.now && is_stopped);
    let wake = seats.iter().filter_map(|seat| wake(seat, facts)).chain(resumed).min();
    Decision { actions, seats, next, status, must_be_stored_first, wake }
}

/// Whether the rollout was stopped, and nobody has had it go on since.
pub(super) fn is_stopped(facts: &Facts<'_>) -> bool {
    let stopped = facts.status.stopped.as_ref().filter(|_| !is_on(Mutant::PoolStopUnremembered));
    stopped.is_some_and(|stopped| {
        stopped.revision == facts.newest.number && facts.resumed().is_none_or(|resumed| resumed <= stopped.since.0)
    })
}

/// The last revision that was rolled out whole.
fn current_revision(seats: &[Seat], facts: &Facts<'_>) -> Option<String> {
    // What another webhook makes of a pool's workload is what the pool is to have.
    let is_others_doing = |seat: &Seat| seat.workload.is_some_and(|place| facts.workloads[place].is_others_doing);
    let is_whole = |seat: &Seat| {
        let is_as_asked = !seat.difference.concerns_pods() || is_others_doing(seat);
        seat.is_done && is_as_asked && matches!(seat.rendered, Some(Ok(_)))
    };
    let mut asked = seats.iter().filter(|seat| seat.is_asked).peekable();
    if asked.peek().is_some() && asked.all(is_whole) {
        return Some(facts.newest.name.clone());
    }
    let is_there = |name: &&str| facts.revisions.iter().any(|revision| revision.name == **name);
    if let Some(known) = facts.status.current_revision.as_deref().filter(is_there) {
        return Some(known.to_owned());
    }
    // Nobody says: the one that most pools have, apart from the newest.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let had = facts.workloads.iter().filter_map(|workload| workload.label(POOL_REVISION_LABEL));
    for name in had.filter(|name| *name != facts.newest.name && is_there(name)) {
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned())
}

/// When to look at a pool again, if nothing else happens.
fn wake(seat: &Seat, facts: &Facts<'_>) -> Option<Timestamp> {
    let after = |from: Timestamp, seconds: i64| Timestamp::from_second(from.as_second() + seconds).ok();
    let of_fate = match seat.fate {
        Some(Fate::Grace(until)) => Some(until),
        _ => None,
    };
    // It may be done by then, or is asked what is wrong with it.
    let settled = seat.since.and_then(|since| after(since, SETTLED));
    let late = seat.since.filter(|_| !seat.health.is_complete).and_then(|since| after(since, DEADLINE));
    let all = [of_fate, settled, late, seat.repair_pause];
    all.into_iter().flatten().filter(|time| *time > facts.now).min()
}

#[cfg(test)]
#[path = "application_tests.rs"]
mod tests;
