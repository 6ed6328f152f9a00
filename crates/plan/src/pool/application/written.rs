//! What is written of a pool: a workload is made, or changed.

use std::collections::BTreeMap;

use dapple_api::pool::{CHANGED, LEAVING_SINCE, POOL_REVISION_LABEL, REMOVAL_HELD};

use super::super::change::Changed;
use super::super::naming::named;
use super::super::repair;
use super::super::revision::Revision;
use super::super::stored::patch;
use super::super::workload::{Rendered, name};
use super::standing::unfinished;
use super::{Action, Facts, Seat};
use crate::mutant::{Mutant, is_on};

/// The workload of a pool that has none: at the revision that the pool had, or the last one that was rolled out whole.
pub(super) fn creation(seat: &Seat, facts: &Facts<'_>, current: Option<&str>) -> Option<Action> {
    if seat.workload.is_some() || !seat.is_asked || facts.refused.contains_key(&seat.pool) {
        return None;
    }
    let (revision, rendered) = first(seat, facts, current)?;
    let name = name(facts.application, rendered.document, &seat.pool);
    // One that went in the middle of a rollout is as much a part of it as before.
    let (rollout, was_available) =
        seat.changed.map_or((revision.number, false), |lost| (lost.rollout, lost.was_available));
    let changed = Changed { rollout, at: facts.now, was_available };
    let notes = BTreeMap::from([(CHANGED, changed.note())]);
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
pub(super) fn change(seat: &mut Seat, facts: &Facts<'_>) -> Option<Action> {
    let (existing, wanted) = (facts.workloads.get(seat.workload?)?, seat.wanted.as_ref()?);
    let rendered = seat.rendered.as_ref()?.as_ref().ok()?;
    let mut notes = BTreeMap::new();
    if seat.difference.concerns_pods() {
        let changed = Changed::next(unfinished(seat, facts), facts.newest.number, seat.health.is_available, facts.now);
        notes.insert(CHANGED, Some(changed.note()));
    }
    for key in [LEAVING_SINCE, REMOVAL_HELD] {
        if existing.annotation(key).is_some() && !is_on(Mutant::LeavingKeptNoted) {
            notes.insert(key, None);
        }
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
