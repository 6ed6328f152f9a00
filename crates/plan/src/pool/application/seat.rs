//! What there is of each pool of an application: its workload, what that should be, and how both differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::{POOL_REVISION_LABEL, PoolStatus, RENDERED};
use jiff::Timestamp;
use serde_json::Value;

use super::super::change::Changed;
use super::super::health::Health;
use super::super::learned::Target;
use super::super::naming::named;
use super::super::removal::Fate;
use super::super::renderings::Compared;
use super::super::repair;
use super::super::stored::{Beside, Difference, difference, wanted};
use super::super::workload::{Rendered, Unrendered, declared_replicas};
use super::standing::{lost, observe};
use super::{AskedPool, Existing, Facts};

/// One pool of an application.
#[derive(Debug)]
pub struct Seat {
    /// Its name.
    pub pool: String,
    /// Whether the application should be in it.
    pub is_asked: bool,
    /// Its workload, by its place in the facts.
    pub workload: Option<usize>,
    /// Whether it has none, and never had.
    pub is_new: bool,
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
    /// Since when its numbers are as they are, and whether its workload is complete; none if for long.
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
    /// Whether somebody has done so by putting there what it had long ago, or before it was the application's, notes and all.
    pub is_set_back: bool,
    /// What becomes of it, if it is leaving.
    pub fate: Option<Fate>,
    /// Whether it is leaving with many others, and stays until that is confirmed.
    pub is_held: bool,
}

/// Every pool that the application should be in, or has a workload for.
pub(super) fn seats(facts: &Facts<'_>) -> Vec<Seat> {
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
        is_new: workload.is_none() && before.is_none_or(|before| before.revision.is_empty()),
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
        is_set_back: false,
        fate: None,
        is_held: false,
    };
    let Some(existing) = workload.and_then(|place| facts.workloads.get(place)) else {
        seat.changed = before.and_then(|before| lost(before, facts));
        seat.is_in_change = seat.changed.is_some();
        return seat;
    };
    if let Some(Ok(rendered)) = &seat.rendered {
        let (difference, wanted, own) = compare(existing, rendered, pool, facts);
        let noted = existing.annotation(RENDERED);
        let is_this = |name: &str| named(facts, pool, (facts.newest, &rendered.hash), Some(name)) == name;
        let names_this = || existing.label(POOL_REVISION_LABEL).is_some_and(is_this);
        let is_set_back = || before.is_some_and(|before| was_replaced(existing, before) && is_this(&before.revision));
        let had_this = noted == Some(&rendered.hash) || noted.is_none() && names_this();
        seat.is_set_back = difference.is_some() && is_set_back();
        seat.is_drift = seat.is_set_back || difference.is_some() && had_this && !existing.is_declared_anew(rendered);
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

/// Whether somebody has put another workload in the place of the one that a pool is told to have: it names another revision, and
/// remembers no change, or one that is older than what the pool was seen with.
fn was_replaced(existing: &Existing, before: &PoolStatus) -> bool {
    let seen = before.completed.as_ref().or(before.since.as_ref());
    let is_older = |noted: Changed| seen.is_some_and(|seen| noted.at < seen.0);
    !before.revision.is_empty()
        && existing.label(POOL_REVISION_LABEL) != Some(before.revision.as_str())
        && Changed::noted(&existing.object).is_none_or(is_older)
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

/// What the pool got of its workload's own revision, without its taints.
fn own(existing: &Existing, pool: &str, facts: &Facts<'_>) -> Option<Arc<Value>> {
    let name = existing.label(POOL_REVISION_LABEL)?;
    let revision = facts.revisions.iter().find(|revision| revision.name == name)?;
    let version = facts.renderings.version_for(revision, facts.version)?;
    let rendered = facts.renderings.render(facts.application, &version, pool, &[]);
    rendered.ok().map(|rendered| rendered.workload)
}
