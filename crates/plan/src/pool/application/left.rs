//! Pools that leave an application, and those that come back.

use dapple_api::pool::{LEAVING_SINCE, REMOVAL_HELD};
use serde_json::{Map, Value, json};

use super::super::removal::{self, Fate, Leaver, Terms};
use super::super::rollout::{self, PoolState};
use super::super::version::Pools;
use super::{Action, Existing, Facts, Seat};
use crate::mutant::{Mutant, is_on};

/// Decides about pools that are leaving, and says what is deleted.
pub(super) fn leave(seats: &mut [Seat], states: &[PoolState], facts: &Facts<'_>) -> Vec<Action> {
    let existing = |seat: &Seat| seat.workload.and_then(|place| facts.workloads.get(place));
    let is_at_once = matches!(facts.version.pools, Pools::Named(_));
    let is_leaving = |seat: &Seat| !seat.is_asked && !seat.is_left_alone;
    let places: Vec<usize> = (0..seats.len()).filter(|place| is_leaving(&seats[*place])).collect();
    let counted = rollout::counted(states, facts.rules);
    let leavers = places.iter().filter_map(|place| Some((*place, existing(&seats[*place])?)));
    let leavers: Vec<Leaver> = leavers.map(|(place, workload)| leaver(workload, counted.contains(&place))).collect();
    // What cannot be understood deletes nothing.
    let grace = if is_at_once { Some(0) } else { facts.grace };
    let room = rollout::budget(states, facts.rules).saturating_sub(counted.len());
    let room = if is_on(Mutant::RemovalsUnbudgeted) { usize::MAX } else { room };
    let earliest = leavers.iter().filter_map(|leaver| leaver.since).min();
    let came_later = |seat: &&Seat| match existing(seat) {
        Some(workload) => seat.is_asked && earliest.is_some_and(|since| workload.created() >= Some(since)),
        None => seat.is_new,
    };
    let terms = Terms {
        pools: seats.iter().filter(|seat| !came_later(seat)).count(),
        grace: grace.unwrap_or(i64::MAX),
        confirmed: facts.confirmed,
        room,
        now: facts.now,
    };
    let held = removal::held(&leavers, &terms);
    // That they are many has to be noted on each before they are fewer.
    let is_noted = |(leaver, is_held): (&Leaver, &bool)| !is_held || leaver.is_held || leaver.is_going;
    let are_noted = leavers.iter().zip(&held).all(is_noted);
    let fates = removal::fates(&leavers, &terms);
    let mut deleted = Vec::new();
    for (place, (fate, is_held)) in places.into_iter().zip(fates.into_iter().zip(held)) {
        let fate = if fate == Fate::Delete && !are_noted { Fate::Waits } else { fate };
        if let (Fate::Delete, Some(workload)) = (&fate, existing(&seats[place])) {
            let text = |field: &str| workload.object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (pool, name) = (workload.pool.clone(), text("name"));
            deleted.push(Action::Delete { pool, name, uid: text("uid"), version: text("resourceVersion") });
        }
        (seats[place].fate, seats[place].is_held) = (Some(fate), is_held);
    }
    deleted
}

/// A pool that is leaving, as is noted on its workload.
fn leaver(workload: &Existing, counts: bool) -> Leaver {
    let [since, held] = [LEAVING_SINCE, REMOVAL_HELD].map(|key| workload.annotation(key));
    Leaver {
        pool: workload.pool.clone(),
        since: since.and_then(|text| text.parse().ok()),
        // One that stands beside another time is left over from when it left before.
        is_held: held.is_some() && held == since,
        is_going: workload.is_going(),
        counts,
    }
}

/// Notes on a workload that its pool is leaving, and whether with many others, or that it has come back.
pub(super) fn notes(seat: &Seat, facts: &Facts<'_>) -> Option<Action> {
    let existing = facts.workloads.get(seat.workload?).filter(|known| !seat.is_left_alone && !known.is_going())?;
    let [since, held] = [LEAVING_SINCE, REMOVAL_HELD].map(|key| existing.annotation(key));
    let mut notes = Map::new();
    if seat.fate.is_some() {
        let now = Some(facts.now.to_string()).filter(|_| seat.fate == Some(Fate::Note));
        let since = now.as_deref().or(since);
        if now.is_some() {
            notes.insert(LEAVING_SINCE.to_owned(), json!(since));
        }
        if seat.is_held && held != since {
            notes.insert(REMOVAL_HELD.to_owned(), json!(since));
        }
    } else if !is_on(Mutant::LeavingKeptNoted) {
        let noted = [(LEAVING_SINCE, since), (REMOVAL_HELD, held)].into_iter().filter(|(_, text)| text.is_some());
        notes.extend(noted.map(|(key, _)| (key.to_owned(), Value::Null)));
    }
    if notes.is_empty() {
        return None;
    }
    let metadata = &existing.object["metadata"];
    let patch = json!({"metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "annotations": notes,
    }});
    Some(Action::Patch { pool: seat.pool.clone(), name: existing.name().to_owned(), patch, repaired: None })
}
