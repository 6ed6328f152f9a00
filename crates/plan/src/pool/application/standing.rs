//! How a pool stands: how its workload is, since when, and what the rollout makes of that.

use dapple_api::pool::{POOL_REVISION_LABEL, PoolStatus};
use dapple_edit::document::Document;
use jiff::Timestamp;
use serde_json::Value;

use super::super::change::Changed;
use super::super::health::health;
use super::super::revision::Revision;
use super::super::rollout::PoolState;
use super::{DEADLINE, Existing, Facts, SETTLED, Seat};
use crate::mutant::{Mutant, is_on};

/// How its workload is, and how long it has been so.
pub(super) fn observe(seat: &mut Seat, existing: &Existing, before: Option<&PoolStatus>, facts: &Facts<'_>) {
    let kind = facts.version.document().unwrap_or(Document::Deployment);
    seat.health = health(kind, &existing.object);
    let forgotten = || names_unfinished(existing, facts).then(|| Changed::forgotten(facts.newest));
    seat.changed = Changed::of(&existing.object, facts.newest).or_else(forgotten);
    let counts = seat.health.counts;
    let completed = before.and_then(|before| before.completed.as_ref()).map(|completed| completed.0);
    let same = before.filter(|before| {
        // It may come to the same numbers as before it was written, with other pods.
        let has_turned = before.unfinished && seat.health.is_complete;
        !has_turned
            && (before.desired, before.ready, before.updated, before.available)
                == (counts.desired, counts.ready, counts.updated, counts.available)
    });
    let is_of_last = seat.changed.is_none_or(|changed| completed == Some(changed.at));
    let was_done = is_of_last && same.is_some_and(|before| before.since.is_none());
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
    seat.is_in_change = !seat.is_done && seat.changed.is_some_and(|changed| completed != Some(changed.at));
    let is_slow = kind == Document::StatefulSet && !seat.health.is_complete && passed(begun) >= DEADLINE;
    let has_resumed = |resumed: Timestamp| seat.changed.is_some_and(|changed| changed.at <= resumed);
    let is_given_time = facts.resumed().is_some_and(|resumed| has_resumed(resumed) && passed(resumed) < DEADLINE);
    seat.is_late = (seat.health.is_late || is_slow) && !is_given_time;
}

/// What is known of the last change of a pool whose workload is gone, if that went in the middle of a rollout: the pool was changed, and
/// is down. What the workload remembered went with it.
pub(super) fn lost(before: &PoolStatus, facts: &Facts<'_>) -> Option<Changed> {
    let had = revision(&before.revision, facts)?;
    let is_whole = whole(facts).is_some_and(|whole| whole.name == facts.newest.name);
    let is_touched = is_beyond(&before.name, (had.number, Some(had)), facts) || is_whole && before.completed.is_none();
    let changed = Changed { was_available: !before.was_unavailable, ..Changed::forgotten(facts.newest) };
    Some(changed).filter(|_| is_touched && !is_on(Mutant::LostPoolsUncounted))
}

/// Whether a workload names a revision that is newer than the last one that was rolled out whole.
fn names_unfinished(existing: &Existing, facts: &Facts<'_>) -> bool {
    let whole = whole(facts).map(|known| known.number);
    let own = existing.label(POOL_REVISION_LABEL).and_then(|name| revision(name, facts)).map(|known| known.number);
    whole.is_some() && own > whole
}

/// A revision by its name.
fn revision<'a>(name: &str, facts: &Facts<'a>) -> Option<&'a Revision> {
    facts.revisions.iter().find(|known| known.name == name)
}

/// The last revision that was rolled out whole, as the status says.
fn whole<'a>(facts: &Facts<'a>) -> Option<&'a Revision> {
    facts.status.current_revision.as_deref().and_then(|name| revision(name, facts))
}

/// Whether the rollout that changed a pool last has never come to all pools.
fn is_of_unfinished(seat: &Seat, changed: Changed, facts: &Facts<'_>) -> bool {
    let existing = seat.workload.and_then(|place| facts.workloads.get(place));
    let own = existing.and_then(|existing| existing.label(POOL_REVISION_LABEL)).and_then(|name| revision(name, facts));
    is_beyond(&seat.pool, (changed.rollout, own), facts)
}

/// The last change of a pool that is not well, if the pool was never done with that, or if its rollout never came to all pools.
pub(super) fn unfinished(seat: &Seat, facts: &Facts<'_>) -> Option<Changed> {
    let is_of_this = |changed: &Changed| changed.rollout == facts.newest.number;
    let is_told = |changed: &Changed| is_of_this(changed) || !is_on(Mutant::ChangedTwiceForgotten);
    let changed = seat.changed.filter(|changed| !seat.health.is_available && is_told(changed));
    changed.filter(|changed| seat.is_in_change || is_of_unfinished(seat, *changed, facts))
}

/// Whether a pool has something that was never rolled out whole: by the number of the rollout, or by what the revision says that its
/// workload names, since whoever goes back to a revision gives it another number.
fn is_beyond(pool: &str, (number, own): (i64, Option<&Revision>), facts: &Facts<'_>) -> bool {
    let Some(whole) = whole(facts) else { return true };
    let given = |revision: &Revision| {
        let version = facts.renderings.version_for(revision, facts.version)?;
        let rendered = facts.renderings.render(facts.application, &version, pool, &[]).ok()?;
        Some(rendered.hash)
    };
    // What is not known counts.
    number > whole.number || own.is_none_or(|own| own.name != whole.name && given(own) != given(whole))
}

/// Whether a workload makes no pods anew by itself.
pub(in crate::pool) fn is_held(workload: &Value) -> bool {
    workload["spec"]["paused"] == true || workload["spec"]["updateStrategy"]["type"] == "OnDelete"
}

/// Whether a pool can be written at all.
pub(super) fn is_writable(seat: &Seat, facts: &Facts<'_>) -> bool {
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
pub(in crate::pool) fn state_of(seat: &Seat, facts: &Facts<'_>) -> PoolState {
    let is_in_doubt = seat.workload.is_some_and(|place| facts.workloads[place].is_in_doubt);
    let is_of_this = seat.changed.is_some_and(|changed| changed.rollout == facts.newest.number);
    let was_available = seat.changed.is_some_and(|changed| changed.was_available);
    // A pool takes from the budget until it is done, whatever is said meanwhile: one that was well, and that an earlier rollout has
    // begun with.
    let is_changed = is_of_this || seat.is_in_change && was_available;
    let is_changed = is_changed && (seat.is_in_change || !is_on(Mutant::PoolsDownUncounted));
    let is_due = seat.difference.concerns_pods() && is_writable(seat, facts);
    // One that fell ill after its rollout had come to all pools is not what a newer one is to mend.
    let is_unwell = is_due && !is_changed && was_available && !seat.health.is_available;
    let is_broken = is_unwell && seat.changed.is_some_and(|changed| is_of_unfinished(seat, changed, facts));
    PoolState {
        name: seat.pool.clone(),
        is_due,
        is_changed: is_changed || is_in_doubt,
        is_done: seat.is_done && !is_in_doubt,
        is_available: seat.health.is_available,
        was_available,
        is_broken,
        // A newer change goes on where the last one was stopped.
        is_overdue: seat.is_late && is_of_this && !is_on(Mutant::PoolStopForgotten),
    }
}
