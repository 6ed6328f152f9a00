//! Pools that leave an application, and those that come back.

use dapple_api::pool::LEAVING_SINCE;
use serde_json::{Value, json};

use super::super::removal::{self, Fate, Leaver, Terms};
use super::super::rollout::{self, PoolState};
use super::super::version::Pools;
use super::{Action, Facts, Seat};
use crate::mutant::{Mutant, is_on};

/// Decides about pools that are leaving, and says what is deleted.
pub(super) fn leave(seats: &mut [Seat], states: &[PoolState], facts: &Facts<'_>) -> Vec<Action> {
    let existing = |seat: &Seat| seat.workload.and_then(|place| facts.workloads.get(place));
    let is_at_once = matches!(facts.version.pools, Pools::Named(_));
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
pub(super) fn notes(seat: &Seat, facts: &Facts<'_>) -> Option<Action> {
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
