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

use dapple_api::pool::{
    ApplicationStatus, DECLARED_REPLICAS, LEAVING_SINCE, POOL_REVISION_LABEL, PoolStatus, RENDERED, Rules, Stopped,
    Taint,
};
use dapple_edit::document::Document;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::change::Changed;
use super::health::{Health, health};
use super::learned::{Learned, Target};
use super::naming::named;
use super::removal::{self, Confirmed, Fate, Leaver, Terms};
use super::renderings::{Compared, Renderings};
use super::repair;
use super::revision::Revision;
use super::rollout::{self, Next, PoolState};
use super::stored::{Beside, Difference, difference, patch, wanted};
use super::version::{Application, Version};
use super::workload::{Rendered, Unrendered, declared_replicas, name};
use crate::mutant::{Mutant, is_on};

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

/// One pool of an application.
#[derive(Debug)]
pub struct Seat {
    /// Its name.
    pub pool: String,
    /// Whether the application should be in it.
    pub is_asked: bool,
    /// Its workload, by its place in the facts.
    pub workload: Option<usize>,
    /// Whether nothing is done with that.
    pub is_left_alone: bool,
    /// Other workloads for the same pool, which are left alone.
    pub doubles: Vec<String>,
    /// What it should get, or why that cannot be.
    pub rendered: Option<Result<Rendered, Unrendered>>,
    /// What should be stored; none where that is known to be what is.
    pub wanted: Option<Arc<Value>>,
    /// What the workload's own revision said, where that was asked for.
    pub own: Option<Arc<Value>>,
    /// How what is stored differs.
    pub difference: Difference,
    /// What its pods would refer to and does not exist: until it does, the pool stays as it is.
    pub missing: Vec<Target>,
    /// How its workload is.
    pub health: Health,
    /// What it remembers.
    pub changed: Option<Changed>,
    /// Since when its numbers are as they are; none if for long.
    pub since: Option<Timestamp>,
    /// Whether it was changed, and has not been done since.
    pub is_in_change: bool,
    /// Whether it is done with what was written last.
    pub is_done: bool,
    /// Whether it should have been done by now.
    pub is_late: bool,
    /// When it was put right.
    pub repairs: Vec<Timestamp>,
    /// Until when it is not put right any more.
    pub repair_pause: Option<Timestamp>,
    /// Whether somebody else has changed what it once had.
    pub is_drift: bool,
    /// What becomes of it, if it is leaving.
    pub fate: Option<Fate>,
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
        actions.extend(deleted);
        actions.extend(seats.iter().filter_map(|seat| notes(seat, facts)));
        actions.extend(seats.iter().filter_map(|seat| creation(seat, facts, status.current_revision.as_deref())));
        let turns: &[usize] = match &next {
            Next::Change(places) if !is_stopped => places,
            _ => &[],
        };
        for (place, seat) in seats.iter_mut().enumerate() {
            let is_free = seat.difference.is_some() && !seat.difference.concerns_pods();
            if is_writable(seat, facts) && (turns.contains(&place) || is_free) {
                actions.extend(change(seat, facts));
            }
        }
    }
    super::report::tell(&seats, facts, (&next, is_stopped), &mut status);
    let memory = |status: &ApplicationStatus| {
        let repairs = status.pools.iter().filter(|pool| !pool.repairs.is_empty());
        let repairs: Vec<_> = repairs.map(|pool| (pool.name.clone(), pool.repairs.clone())).collect();
        (status.current_revision.clone(), status.stopped.clone(), repairs)
    };
    let must_be_stored_first = memory(&status) != memory(facts.status);
    let wake = seats.iter().filter_map(|seat| wake(seat, facts)).min();
    Decision { actions, seats, next, status, must_be_stored_first, wake }
}

/// Every pool that the application should be in, or has a workload for.
fn seats(facts: &Facts<'_>) -> Vec<Seat> {
    let asked: BTreeMap<&str, &AskedPool> = facts.pools.iter().map(|pool| (pool.name.as_str(), pool)).collect();
    let mut told: BTreeMap<&str, &PoolStatus> = BTreeMap::new();
    facts.status.pools.iter().for_each(|pool| _ = told.entry(pool.name.as_str()).or_insert(pool));
    let mut workloads: BTreeMap<&str, Vec<usize>> = asked.keys().map(|pool| (*pool, Vec::new())).collect();
    for (place, workload) in facts.workloads.iter().enumerate() {
        workloads.entry(&workload.pool).or_default().push(place);
    }
    let seat = |(pool, mut places): (&str, Vec<usize>)| {
        let age = |place: &usize| {
            let metadata = &facts.workloads[*place].object["metadata"];
            (metadata["creationTimestamp"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default())
        };
        places.sort_by(|one, other| age(one).cmp(&age(other)));
        let (first, doubles) = match places.split_first() {
            Some((first, rest)) => (Some(*first), rest),
            None => (None, &[][..]),
        };
        let doubles = doubles.iter().map(|place| facts.workloads[*place].name().to_owned()).collect();
        look((pool, asked.get(pool).copied()), first, doubles, told.get(pool).copied(), facts)
    };
    workloads.into_iter().map(seat).collect()
}

/// How one pool is.
fn look(
    (pool, asked): (&str, Option<&AskedPool>),
    workload: Option<usize>,
    doubles: Vec<String>,
    before: Option<&PoolStatus>,
    facts: &Facts<'_>,
) -> Seat {
    let repairs = before.map(|before| before.repairs.iter().map(|time| time.0).collect::<Vec<_>>()).unwrap_or_default();
    let mut seat = Seat {
        pool: pool.to_owned(),
        is_asked: asked.is_some(),
        workload,
        is_left_alone: workload.is_some_and(|place| facts.workloads[place].is_left_alone),
        doubles,
        rendered: asked.map(|asked| facts.renderings.render(facts.application, facts.version, pool, &asked.taints)),
        wanted: None,
        own: None,
        difference: Difference::default(),
        missing: Vec::new(),
        health: Health::default(),
        changed: None,
        since: None,
        is_in_change: false,
        is_done: false,
        is_late: false,
        repair_pause: None,
        repairs,
        is_drift: false,
        fate: None,
    };
    let Some(existing) = workload.and_then(|place| facts.workloads.get(place)) else { return seat };
    if let Some(Ok(rendered)) = &seat.rendered {
        let (difference, wanted, own) = compare(existing, rendered, pool, facts);
        let noted = existing.annotation(RENDERED);
        let names_this = || {
            let name = existing.label(POOL_REVISION_LABEL);
            name.is_some_and(|name| named(facts, pool, (facts.newest, &rendered.hash), Some(name)) == name)
        };
        seat.is_drift = difference.is_some()
            && (noted == Some(&rendered.hash) || noted.is_none() && names_this())
            && !existing.is_declared_anew(rendered);
        // A newer change of the application ends the pause.
        if facts.status.update_revision.as_ref().is_some_and(|known| *known != facts.newest.name) {
            seat.repairs.clear();
        }
        seat.repair_pause = repair::paused_until(&seat.repairs, facts.now).filter(|_| seat.is_drift);
        // Where no pod runs, none is lost.
        if difference.template && declared_replicas(&existing.object) > 0 {
            let is_missing = |target: &&Target| facts.learned.missing.contains(*target);
            seat.missing = rendered.targets.iter().filter(is_missing).cloned().collect();
        }
        (seat.difference, seat.wanted, seat.own) = (difference, wanted, own);
    }
    observe(&mut seat, existing, before, facts);
    seat
}

/// How a workload differs from what it should be, what that is, and what its own revision said where that was asked for. Nothing is
/// compared again before somebody has written it, or one of both says something else.
fn compare(
    existing: &Existing,
    rendered: &Rendered,
    pool: &str,
    facts: &Facts<'_>,
) -> (Difference, Option<Arc<Value>>, Option<Arc<Value>>) {
    let (stored, is_autoscaled) = (&existing.object, existing.is_autoscaled);
    let known = facts.renderings.compared(pool, rendered, (stored, is_autoscaled));
    if let Some(Compared { difference, beside: None, .. }) = &known {
        return (difference.clone(), None, None);
    }
    let compare = |own: Option<&Value>| {
        let wanted = wanted(rendered, stored, Beside { is_autoscaled, own });
        (difference(rendered.document, stored, &wanted), wanted)
    };
    let note = |difference: &Difference, beside: Option<(Arc<Value>, Option<Arc<Value>>)>| {
        let (stored, difference) = (stored.clone(), difference.clone());
        facts.renderings.note(pool, rendered, Compared { stored, is_autoscaled, difference, beside });
    };
    if known.is_none() && stored["spec"]["paused"] != true {
        let (difference, _) = compare(None);
        if !difference.is_some() {
            note(&difference, None);
            return (difference, None, None);
        }
    }
    let said = own(existing, pool, facts);
    if let Some(Compared { difference, beside: Some((wanted, before)), .. }) = known
        && before.as_ref().map(Arc::as_ptr) == said.as_ref().map(Arc::as_ptr)
    {
        return (difference, Some(wanted), said);
    }
    let (difference, wanted) = compare(said.as_deref());
    let wanted = Arc::new(wanted);
    note(&difference, Some((wanted.clone(), said.clone())));
    (difference, Some(wanted), said)
}

/// How its workload is, and how long it has been so.
fn observe(seat: &mut Seat, existing: &Existing, before: Option<&PoolStatus>, facts: &Facts<'_>) {
    let kind = facts.version.document().unwrap_or(Document::Deployment);
    seat.health = health(kind, &existing.object);
    let forgotten = || names_unfinished(existing, facts).then(|| Changed::forgotten(facts.newest));
    seat.changed = Changed::of(&existing.object, facts.newest).or_else(forgotten);
    let counts = seat.health.counts;
    let same = before.filter(|before| {
        (before.desired, before.ready, before.updated, before.available)
            == (counts.desired, counts.ready, counts.updated, counts.available)
    });
    let was_done = same.is_some_and(|before| before.since.is_none());
    let known = same.and_then(|before| before.since.as_ref()).map(|since| since.0).filter(|since| *since <= facts.now);
    let since = known.unwrap_or(facts.now);
    let passed = |from: Timestamp| facts.now.as_second() - from.as_second();
    let begun = seat.changed.map_or(since, |changed| changed.at.max(since));
    let settled = if is_on(Mutant::PoolSettledForgotten) { 0 } else { SETTLED };
    let is_settled = seat.changed.is_none_or(|changed| passed(changed.at) >= settled);
    let is_quiet = is_settled && (was_done || passed(since) >= settled);
    let changes_nothing = counts.desired == 0 || is_held(&existing.object);
    seat.is_done = seat.health.is_complete && (changes_nothing || is_quiet);
    seat.since = (!seat.is_done).then_some(since);
    let completed = before.and_then(|before| before.completed.as_ref()).map(|completed| completed.0);
    seat.is_in_change = !seat.is_done && seat.changed.is_some_and(|changed| completed != Some(changed.at));
    let is_slow = kind == Document::StatefulSet && !seat.health.is_complete && passed(begun) >= DEADLINE;
    let has_resumed = |resumed: Timestamp| seat.changed.is_some_and(|changed| changed.at <= resumed);
    let is_given_time = facts.resumed.is_some_and(|resumed| has_resumed(resumed) && passed(resumed) < DEADLINE);
    seat.is_late = (seat.health.is_late || is_slow) && !is_given_time;
}

/// Whether a workload names a revision that is newer than the last one that was rolled out whole.
fn names_unfinished(existing: &Existing, facts: &Facts<'_>) -> bool {
    let number = |name: &str| facts.revisions.iter().find(|known| known.name == name).map(|known| known.number);
    let whole = facts.status.current_revision.as_deref().and_then(number);
    let own = existing.label(POOL_REVISION_LABEL).and_then(number);
    whole.is_some() && own > whole
}

/// Whether a workload makes no pods anew by itself.
pub(super) fn is_held(workload: &Value) -> bool {
    workload["spec"]["paused"] == true || workload["spec"]["updateStrategy"]["type"] == "OnDelete"
}

/// What the pool got of its workload's own revision, without its taints.
fn own(existing: &Existing, pool: &str, facts: &Facts<'_>) -> Option<Arc<Value>> {
    let name = existing.label(POOL_REVISION_LABEL)?;
    let revision = facts.revisions.iter().find(|revision| revision.name == name)?;
    let version = facts.renderings.version_for(revision, facts.version)?;
    let rendered = facts.renderings.render(facts.application, &version, pool, &[]);
    rendered.ok().map(|rendered| rendered.workload)
}

/// Whether a pool can be written at all.
fn is_writable(seat: &Seat, facts: &Facts<'_>) -> bool {
    let existing = seat.workload.and_then(|place| facts.workloads.get(place));
    seat.wanted.is_some()
        && seat.difference.fixed.is_empty()
        && seat.missing.is_empty()
        && seat.repair_pause.is_none()
        && !(seat.is_drift && is_on(Mutant::DriftLeft))
        && !seat.is_left_alone
        && !facts.refused.contains_key(&seat.pool)
        && existing.is_some_and(|existing| !existing.is_going() && !existing.is_others_doing)
}

/// How a pool stands in the rollout.
pub(super) fn state_of(seat: &Seat, facts: &Facts<'_>) -> PoolState {
    let is_in_doubt = seat.workload.is_some_and(|place| facts.workloads[place].is_in_doubt);
    let is_of_this = seat.changed.is_some_and(|changed| changed.rollout == facts.newest.number);
    let was_available = seat.changed.is_some_and(|changed| changed.was_available);
    // A pool takes from the budget until it is done, whatever is said meanwhile: one that was well, and that the rollout before
    // this one has begun with.
    let is_changed = is_of_this || seat.is_in_change && was_available;
    let is_changed = is_changed && (seat.is_in_change || !is_on(Mutant::PoolsDownUncounted));
    PoolState {
        name: seat.pool.clone(),
        is_due: seat.difference.concerns_pods() && is_writable(seat, facts),
        is_changed: is_changed || is_in_doubt,
        is_done: seat.is_done && !is_in_doubt,
        is_available: seat.health.is_available,
        was_available,
        is_broken: !is_changed && was_available && !seat.health.is_available,
        // A newer change goes on where the last one was stopped.
        is_overdue: seat.is_late && is_of_this && !is_on(Mutant::PoolStopForgotten),
    }
}

/// Whether the rollout was stopped, and nobody has had it go on since.
pub(super) fn is_stopped(facts: &Facts<'_>) -> bool {
    let stopped = facts.status.stopped.as_ref().filter(|_| !is_on(Mutant::PoolStopUnremembered));
    stopped.is_some_and(|stopped| {
        stopped.revision == facts.newest.number && facts.resumed.is_none_or(|resumed| resumed <= stopped.since.0)
    })
}

/// Decides about pools that are leaving, and says what is deleted.
fn leave(seats: &mut [Seat], states: &[PoolState], facts: &Facts<'_>) -> Vec<Action> {
    let existing = |seat: &Seat| seat.workload.and_then(|place| facts.workloads.get(place));
    let is_at_once = matches!(facts.version.pools, super::version::Pools::Named(_));
    let is_leaving = |seat: &Seat| !seat.is_asked && !seat.is_left_alone;
    let places: Vec<usize> = (0..seats.len()).filter(|place| is_leaving(&seats[*place])).collect();
    let counted = rollout::counted(states, facts.rules);
    let leavers: Vec<Leaver> = places
        .iter()
        .filter_map(|place| Some((*place, existing(&seats[*place])?)))
        .map(|(place, workload)| Leaver {
            pool: workload.pool.clone(),
            since: workload.annotation(LEAVING_SINCE).and_then(|text| text.parse().ok()),
            is_going: workload.is_going(),
            counts: counted.contains(&place),
        })
        .collect();
    // What cannot be understood deletes nothing.
    let grace = if is_at_once { Some(0) } else { facts.grace };
    let room = rollout::budget(states, facts.rules).saturating_sub(counted.len());
    let room = if is_on(Mutant::RemovalsUnbudgeted) { usize::MAX } else { room };
    let terms = Terms {
        pools: seats.len(),
        grace: grace.unwrap_or(i64::MAX),
        confirmed: facts.confirmed,
        room,
        now: facts.now,
    };
    let fates = removal::fates(&leavers, &terms);
    let mut deleted = Vec::new();
    for (place, fate) in places.into_iter().zip(fates) {
        if let (Fate::Delete, Some(workload)) = (&fate, existing(&seats[place])) {
            let text = |field: &str| workload.object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (pool, name) = (workload.pool.clone(), text("name"));
            deleted.push(Action::Delete { pool, name, uid: text("uid"), version: text("resourceVersion") });
        }
        seats[place].fate = Some(fate);
    }
    deleted
}

/// Notes on a workload that its pool is leaving, or that it has come back.
fn notes(seat: &Seat, facts: &Facts<'_>) -> Option<Action> {
    let existing = facts.workloads.get(seat.workload?).filter(|_| !seat.is_left_alone)?;
    let note = match (&seat.fate, existing.annotation(LEAVING_SINCE)) {
        (Some(Fate::Note), _) => json!(facts.now.to_string()),
        (None, Some(_)) if !existing.is_going() && !is_on(Mutant::LeavingKeptNoted) => Value::Null,
        _ => return None,
    };
    let metadata = &existing.object["metadata"];
    let patch = json!({"metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "annotations": {LEAVING_SINCE: note},
    }});
    Some(Action::Patch { pool: seat.pool.clone(), name: existing.name().to_owned(), patch, repaired: None })
}

/// The workload of a pool that has none: at the revision that the pool had, or the last one that was rolled out whole.
fn creation(seat: &Seat, facts: &Facts<'_>, current: Option<&str>) -> Option<Action> {
    if seat.workload.is_some() || !seat.is_asked || facts.refused.contains_key(&seat.pool) {
        return None;
    }
    let (revision, rendered) = first(seat, facts, current)?;
    let name = name(facts.application, rendered.document, &seat.pool);
    let changed = Changed { rollout: revision.number, at: facts.now, was_available: false };
    let notes = BTreeMap::from([(dapple_api::pool::CHANGED, changed.note())]);
    let had = facts.status.pools.iter().find(|known| known.name == seat.pool).map(|known| known.revision.as_str());
    let named = named(facts, &seat.pool, (revision, &rendered.hash), had);
    Some(Action::Create { pool: seat.pool.clone(), workload: rendered.new_workload(&name, &named, &notes) })
}

/// What a pool without a workload starts with.
fn first<'a>(seat: &Seat, facts: &'a Facts<'_>, current: Option<&str>) -> Option<(&'a Revision, Rendered)> {
    let taints = facts.pools.iter().find(|pool| pool.name == seat.pool).map(|pool| pool.taints.as_slice())?;
    let had = facts.status.pools.iter().find(|known| known.name == seat.pool).map(|known| known.revision.as_str());
    let known = |name: &str| facts.revisions.iter().find(|revision| revision.name == name);
    let older = had.and_then(known).or_else(|| current.and_then(known));
    let older = older.filter(|revision| revision.name != facts.newest.name && !is_on(Mutant::JoinsAtNewest));
    let of_older = older.and_then(|revision| {
        let version = facts.renderings.version_for(revision, facts.version)?;
        Some((revision, facts.renderings.render(facts.application, &version, &seat.pool, taints).ok()?))
    });
    let of_newest = || Some((facts.newest, seat.rendered.as_ref()?.as_ref().ok()?.clone()));
    of_older.or_else(of_newest)
}

/// The write that gives a pool what it should have.
fn change(seat: &mut Seat, facts: &Facts<'_>) -> Option<Action> {
    let (existing, wanted) = (facts.workloads.get(seat.workload?)?, seat.wanted.as_ref()?);
    let rendered = seat.rendered.as_ref()?.as_ref().ok()?;
    let mut notes = BTreeMap::new();
    if seat.difference.concerns_pods() {
        let changed = Changed::next(seat.changed, facts.newest.number, seat.health.is_available, facts.now);
        notes.insert(dapple_api::pool::CHANGED, Some(changed.note()));
    }
    if existing.annotation(LEAVING_SINCE).is_some() && !is_on(Mutant::LeavingKeptNoted) {
        notes.insert(LEAVING_SINCE, None);
    }
    let stored = (rendered.document, &*existing.object);
    let known = existing.label(POOL_REVISION_LABEL);
    let named = named(facts, &seat.pool, (facts.newest, &rendered.hash), known);
    let patch = patch(stored, wanted, &named, (seat.own.as_deref(), &notes));
    let repaired = seat.difference.field.as_ref().filter(|_| seat.is_drift).map(ToString::to_string);
    if seat.is_drift {
        seat.repairs = repair::with(&seat.repairs, facts.now);
    }
    Some(Action::Patch { pool: seat.pool.clone(), name: existing.name().to_owned(), patch, repaired })
}

/// The last revision that was rolled out whole.
fn current_revision(seats: &[Seat], facts: &Facts<'_>) -> Option<String> {
    let is_whole =
        |seat: &Seat| seat.is_done && !seat.difference.concerns_pods() && matches!(seat.rendered, Some(Ok(_)));
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
