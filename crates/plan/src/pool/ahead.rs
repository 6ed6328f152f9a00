//! What would become of the pools of an application, and in which order: what the controller decides, run ahead without a write.
//!
//! It is assumed that all goes well: pools that are changed become available, and workloads that are deleted go. What other
//! webhooks make of a workload only the API server knows, so what differs is taken to be put right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dapple_api::pool::{ApplicationStatus, PoolState as Stands, Rules};
use dapple_edit::document::Document;
use jiff::Timestamp;

use super::application::{AskedPool, Decision, Existing, Facts, Seat, decide, is_held, is_stopped, state_of};
use super::learned::{Learned, Target};
use super::removal::Fate as Leaving;
use super::renderings::Renderings;
use super::revision::{Revision, Settled, settle};
use super::rollout::{self, Next, PoolState};
use super::said::Said;
use super::version::{Application, Version};
use super::workload::{declared_replicas, render};
use crate::fate::{Fate, Fates, HeldBy};

/// What there is of an application, and what it is to say.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The application.
    pub application: Application,
    /// What it says.
    pub version: Version,
    /// What its annotations say of rollouts.
    pub said: Said,
    /// What its status says.
    pub status: ApplicationStatus,
    /// Its revisions.
    pub revisions: Vec<Revision>,
    /// The pools that it should be in, by name.
    pub pools: Vec<AskedPool>,
    /// Its workloads.
    pub workloads: Vec<Existing>,
    /// What its pods would refer to, and does not exist.
    pub missing: BTreeSet<Target>,
}

/// What would become of an application's pools.
#[derive(Debug, Clone, PartialEq)]
pub struct Ahead {
    /// How many pools may be changed at once: until one is done, and from then on.
    pub at_once: (usize, usize),
    /// Each pool, by name.
    pub pools: Vec<PoolAhead>,
}

/// What would become of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolAhead {
    /// Its name.
    pub name: String,
    /// Its workload, if it has one.
    pub workload: Option<String>,
    /// What becomes of it.
    pub turn: Turn,
    /// In which wave, of those that take their turn.
    pub wave: Option<usize>,
    /// How many pods it should have.
    pub pods: i64,
    /// The first field of its workload that differs.
    pub field: Option<String>,
    /// What is to be said of it.
    pub message: String,
    /// What its pods would refer to, and does not exist.
    pub missing: Vec<Target>,
    /// Whether somebody else has changed its workload.
    pub is_drift: bool,
}

/// What becomes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Its workload is as it should be.
    LeftAlone,
    /// Its workload is made. That waits for no turn.
    Made,
    /// Its pods are made anew, all of them or some.
    Restarted,
    /// Its workload gets another template, and its pods keep what they have until somebody deletes them or has it go on.
    Noted,
    /// Some of its pods go.
    Shrunk,
    /// Its workload is changed, and no pod is made anew or goes. That waits for no turn.
    Changed,
    /// It is leaving, and its workload goes.
    Leaves,
    /// It stays as it is for now.
    HeldBack(HeldBy),
}

/// Why nothing can be foretold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unforetold {
    /// There is nothing to make workloads of.
    #[error("spec.workloadTemplate must have one of deploymentTemplate and statefulSetTemplate")]
    NoTemplate,
    /// Its workloads are of another kind.
    #[error("its template is of another kind than its workload {0}: nothing is done until it is put back")]
    OtherKind(String),
}

impl Seen {
    /// What pods of any of the pools would need, that somebody has to have made.
    pub fn targets(&self) -> BTreeSet<Target> {
        let rendered = self.pools.iter().map(|pool| render(&self.application, &self.version, &pool.name, &pool.taints));
        rendered.flatten().flat_map(|rendered| rendered.targets).collect()
    }

    /// What would become of the pools from now on.
    pub fn ahead(&self, now: Timestamp) -> Result<Ahead, Unforetold> {
        let kind = self.version.document().ok_or(Unforetold::NoTemplate)?;
        let is_other = |known: &&Existing| (known.object["kind"] == "StatefulSet") != (kind == Document::StatefulSet);
        if let Some(other) = self.workloads.iter().find(is_other) {
            return Err(Unforetold::OtherKind(other.name().to_owned()));
        }
        let (newest, refused) = (self.newest(), BTreeMap::new());
        let (version, renderings) = (Arc::new(self.version.clone()), Renderings::default());
        let learned = Learned { missing: self.missing.clone(), ..Learned::default() };
        let facts = Facts {
            application: &self.application,
            version: &version,
            renderings: &renderings,
            newest: &newest,
            revisions: &self.revisions,
            status: &self.status,
            pools: &self.pools,
            workloads: &self.workloads,
            refused: &refused,
            learned: &learned,
            rules: &self.said.rules,
            grace: self.said.grace,
            confirmed: &self.said.confirmed,
            resumed: self.said.resumed,
            is_suspended: self.said.is_suspended || self.said.wrong.is_some(),
            now,
        };
        let decision = decide(&facts);
        let mut states: Vec<PoolState> = decision.seats.iter().map(|seat| state_of(seat, &facts)).collect();
        let at_once = (facts.rules.budget(states.len(), false), facts.rules.budget(states.len(), true));
        let (waves, end) = if facts.is_suspended {
            (vec![None; states.len()], HeldBy::Pause)
        } else if is_stopped(&facts) {
            (vec![None; states.len()], HeldBy::Stop)
        } else {
            waves(&mut states, facts.rules, going(&decision))
        };
        let pools = decision.seats.iter().enumerate();
        let pools = pools.map(|(place, seat)| self.pool(seat, &decision, (place, waves[place], end)));
        Ok(Ahead { at_once, pools: pools.collect() })
    }

    /// The revision that holds what is said, as it would be made.
    fn newest(&self) -> Revision {
        let collisions = self.status.collision_count.unwrap_or_default();
        let known = |name: &str| self.revisions.iter().find(|revision| revision.name == name).cloned();
        let none = || Revision { name: String::new(), number: 0, data: serde_json::Value::Null };
        match settle(&self.application, &self.version, &self.revisions, collisions) {
            Settled::Create(revision) => revision,
            Settled::Keep(name) => known(&name).unwrap_or_else(none),
            Settled::Renumber { name, number } => Revision { number, ..known(&name).unwrap_or_else(none) },
        }
    }

    fn pool(&self, seat: &Seat, decision: &Decision, (place, wave, end): (usize, Option<usize>, HeldBy)) -> PoolAhead {
        let told = &decision.status.pools[place];
        let existing = seat.workload.and_then(|place| self.workloads.get(place));
        let targets = seat.rendered.iter().flatten().flat_map(|rendered| &rendered.targets);
        let wanted = || seat.rendered.iter().flatten().next().map(|rendered| declared_replicas(&rendered.workload));
        PoolAhead {
            name: seat.pool.clone(),
            workload: existing.map(|existing| existing.name().to_owned()),
            turn: turn(seat, told.state, (wave, end)),
            wave,
            pods: seat.wanted.as_deref().map(declared_replicas).or_else(wanted).unwrap_or(told.desired),
            field: seat.difference.field.as_ref().map(ToString::to_string),
            message: told.message.clone(),
            missing: targets.filter(|target| self.missing.contains(*target)).cloned().collect(),
            is_drift: seat.is_drift,
        }
    }
}

/// What becomes of a pool that has its turn in this wave, or in none, since this keeps all that wait.
fn turn(seat: &Seat, stands: Stands, (wave, end): (Option<usize>, HeldBy)) -> Turn {
    let difference = &seat.difference;
    match stands {
        Stands::Leaving => match seat.fate {
            Some(Leaving::Held) | None => Turn::HeldBack(HeldBy::Removal),
            Some(_) if end == HeldBy::Pause => Turn::HeldBack(HeldBy::Pause),
            Some(_) => Turn::Leaves,
        },
        Stands::Failed => Turn::HeldBack(HeldBy::Rendering),
        _ if !seat.missing.is_empty() => Turn::HeldBack(HeldBy::Target),
        _ if end == HeldBy::Pause && (seat.workload.is_none() || difference.is_some()) => Turn::HeldBack(end),
        _ if seat.workload.is_none() => Turn::Made,
        _ if difference.concerns_pods() && wave.is_none() => Turn::HeldBack(end),
        _ if difference.released => Turn::Restarted,
        _ if difference.template && seat.wanted.as_deref().is_some_and(is_held) => Turn::Noted,
        _ if difference.template => Turn::Restarted,
        _ if difference.fewer => Turn::Shrunk,
        _ if difference.is_some() => Turn::Changed,
        _ => Turn::LeftAlone,
    }
}

/// How many pools take from the budget since their workloads go.
fn going(decision: &Decision) -> usize {
    decision.seats.iter().filter(|seat| matches!(seat.fate, Some(Leaving::Delete | Leaving::Going))).count()
}

/// In which wave each pool has its turn, and what keeps those that have none.
fn waves(states: &mut [PoolState], rules: &Rules, mut going: usize) -> (Vec<Option<usize>>, HeldBy) {
    let mut waves = vec![None; states.len()];
    let mut number = 0;
    loop {
        match rollout::next(states, rules, going) {
            Next::Change(places) => {
                number += 1;
                for place in places {
                    waves[place] = Some(number);
                    arrive(&mut states[place]);
                }
            }
            Next::Wait(places) if going > 0 || places.iter().any(|place| !states[*place].is_overdue) => {
                for place in places.into_iter().filter(|place| !states[*place].is_overdue).collect::<Vec<_>>() {
                    arrive(&mut states[place]);
                }
            }
            Next::Rest | Next::Wait(_) => return (waves, HeldBy::Budget),
            Next::Stopped(_) => return (waves, HeldBy::Stop),
        }
        going = 0;
    }
}

/// A pool comes to where it is going, and is well.
fn arrive(state: &mut PoolState) {
    (state.is_changed, state.is_done, state.is_available) = (true, true, true);
    (state.is_due, state.is_broken, state.is_overdue) = (false, false, false);
}

impl Ahead {
    /// What becomes of pods: each with its name, its node and the pool that it was made for.
    pub fn fates(&self, pods: impl IntoIterator<Item = (String, String, String)>) -> Fates {
        let turns: BTreeMap<&str, Turn> = self.pools.iter().map(|pool| (pool.name.as_str(), pool.turn)).collect();
        let fate = |pool: &str| match turns.get(pool) {
            Some(Turn::Restarted) => Fate::Recreated,
            Some(Turn::Noted) => Fate::Waits,
            Some(Turn::Leaves) => Fate::Removed,
            Some(Turn::HeldBack(by)) => Fate::HeldBack(*by),
            // Which of a workload's pods go is decided by its own controller.
            Some(Turn::LeftAlone | Turn::Made | Turn::Shrunk | Turn::Changed) | None => Fate::LeftAlone,
        };
        let pods = pods.into_iter().map(|(name, node, pool)| (name, (node, fate(&pool))));
        Fates { pods: pods.collect(), ..Fates::default() }
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
