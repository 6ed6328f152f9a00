//! What an application says of itself: how each pool is, and conditions that people can act on.

use dapple_api::pool::{ApplicationStatus, POOL_REVISION_LABEL, PoolState, PoolStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::application::{Decision, Facts, Seat};
use super::learned;
use super::pods::Unwell;
use super::removal::Fate;
use super::rollout::Next;

/// The condition that says whether all pools are as they should be.
pub const READY: &str = "Ready";
/// The condition that says how far the rollout is.
pub const PROGRESSING: &str = "Progressing";
/// The condition that says whether something holds an application up.
pub const SYNCED: &str = "Synced";

/// So long may a message of a pool be.
const LONGEST_MESSAGE: usize = 200;
/// So long may all of them be together: a status has to be small enough to be written often.
const ALL_MESSAGES: usize = 48 << 10;
/// So many pools, or other things, are named in a message.
const NAMED: usize = 3;

/// A condition: its type, whether it holds, a reason and a message.
pub type Found = (&'static str, bool, &'static str, String);

/// Fills in how the pools are. `next` is what comes next of the rollout, and whether it was stopped.
pub(super) fn tell(seats: &[Seat], facts: &Facts<'_>, next: (&Next, bool), status: &mut ApplicationStatus) {
    status.update_revision = Some(facts.newest.name.clone());
    status.template_type = facts.version.template.template_type();
    status.overrider_ref = facts.version.replacements.as_ref().map(|in_force| in_force.name.clone());
    status.pools = seats.iter().map(|seat| of_pool(seat, facts, next)).collect();
    shorten(&mut status.pools);
    let count = |is_so: &dyn Fn(&Seat) -> bool| {
        i32::try_from(seats.iter().filter(|seat| is_so(seat)).count()).unwrap_or(i32::MAX)
    };
    status.pool_count = count(&|_| true);
    status.available_pools = count(&|seat| seat.workload.is_some() && seat.health.is_available);
    status.updated_pools = count(&|seat| seat.is_asked && state(seat, facts) == PoolState::Done);
}

fn of_pool(seat: &Seat, facts: &Facts<'_>, next: (&Next, bool)) -> PoolStatus {
    let existing = seat.workload.and_then(|place| facts.workloads.get(place));
    // What a pool had that has no workload any more, or another one, is what it gets again.
    let is_kept = existing.is_none() || seat.is_set_back;
    let before = is_kept.then(|| facts.status.pools.iter().find(|known| known.name == seat.pool)).flatten();
    let label = existing.and_then(|existing| existing.object["metadata"]["labels"].get(POOL_REVISION_LABEL)?.as_str());
    let revision = before.map(|before| before.revision.as_str()).or(label).unwrap_or_default().to_owned();
    let completed = match before {
        _ if seat.is_in_change && !seat.is_set_back => None,
        Some(before) => before.completed.clone(),
        None => seat.changed.map(|changed| Time(changed.at)),
    };
    let state = state(seat, facts);
    let message = if state == PoolState::Done { String::new() } else { message(seat, state, facts, next) };
    let counts = seat.health.counts;
    PoolStatus {
        name: seat.pool.clone(),
        workload: existing.map(|existing| existing.name().to_owned()).unwrap_or_default(),
        desired: counts.desired,
        ready: counts.ready,
        updated: counts.updated,
        available: counts.available,
        revision,
        state,
        message,
        since: seat.since.map(Time),
        unfinished: existing.is_some() && !seat.health.is_complete,
        was_unavailable: seat.is_in_change && seat.changed.is_some_and(|changed| !changed.was_available),
        completed,
        repairs: seat.repairs.iter().map(|time| Time(*time)).collect(),
    }
}

fn state(seat: &Seat, facts: &Facts<'_>) -> PoolState {
    let cannot_be = matches!(seat.rendered, Some(Err(_)))
        || !seat.difference.fixed.is_empty()
        || facts.refused.contains_key(&seat.pool)
        || seat.repair_pause.is_some()
        || seat.is_left_alone;
    if !seat.is_asked && !seat.is_left_alone {
        PoolState::Leaving
    } else if cannot_be {
        PoolState::Failed
    } else if seat.workload.is_none() || is_different(seat, facts) {
        PoolState::Waiting
    } else if seat.is_done && seat.health.is_available {
        PoolState::Done
    } else if seat.is_late {
        PoolState::Late
    } else if seat.is_in_change {
        PoolState::Changing
    } else {
        PoolState::Unavailable
    }
}

fn is_different(seat: &Seat, facts: &Facts<'_>) -> bool {
    let existing = seat.workload.and_then(|place| facts.workloads.get(place));
    seat.difference.is_some() && existing.is_some_and(|existing| !existing.is_others_doing)
}

fn message(seat: &Seat, state: PoolState, facts: &Facts<'_>, (next, is_stopped): (&Next, bool)) -> String {
    let counts = seat.health.counts;
    let available = format!("{} of {} pods are available", counts.available, counts.desired);
    if !seat.doubles.is_empty() {
        return format!("{} is for this pool too, and left alone: delete it", seat.doubles.join(", "));
    }
    match state {
        PoolState::Done => String::new(),
        PoolState::Leaving => match &seat.fate {
            Some(Fate::Held) => {
                "many pools leave at once: it stays until dapple.dev/confirm-removal names it".to_owned()
            }
            Some(Fate::Grace(until)) => format!("its workload stays until {until}"),
            Some(Fate::Waits) => "its workload is deleted when the rollout leaves room".to_owned(),
            Some(Fate::Delete | Fate::Going) => "its workload is being deleted".to_owned(),
            Some(Fate::Note) | None => "its workload stays for a while".to_owned(),
        },
        PoolState::Failed => failure(seat, facts),
        PoolState::Waiting if facts.is_suspended => "dapple.dev/suspend: nothing is written".to_owned(),
        PoolState::Waiting if !seat.missing.is_empty() => waits_for(seat),
        PoolState::Waiting if seat.workload.is_none() => "its workload is being made".to_owned(),
        PoolState::Waiting => match next {
            _ if is_stopped => "the rollout is stopped".to_owned(),
            Next::Stopped(_) => "the rollout is stopped".to_owned(),
            _ => "it waits for its turn".to_owned(),
        },
        PoolState::Late => by_pods(seat, facts, format!("{available}, and it should be done by now")),
        PoolState::Changing | PoolState::Unavailable => by_pods(seat, facts, available),
    }
}

/// With what its pods say. What to do comes first: the rest may be cut off.
fn by_pods(seat: &Seat, facts: &Facts<'_>, text: String) -> String {
    let Some(Unwell { pod, reason, is_stuck }) = facts.learned.unwell.get(&seat.pool) else { return text };
    let reason = if reason.is_empty() { "not ready" } else { reason.as_str() };
    if *is_stuck {
        return format!("delete the pod {pod}: Kubernetes waits for it, and does not replace it ({reason}); {text}");
    }
    format!("{text}; pod {pod}: {reason}")
}

/// What a pool waits for that does not exist.
pub(super) fn waits_for(seat: &Seat) -> String {
    format!("it stays as it is until this exists: {}", learned::named(&seat.missing))
}

fn failure(seat: &Seat, facts: &Facts<'_>) -> String {
    if let Some(Err(error)) = &seat.rendered {
        return error.to_string();
    }
    if let Some(reason) = facts.refused.get(&seat.pool) {
        return reason.clone();
    }
    if seat.is_left_alone {
        return "its NodePool is gone while nodes carry its label, or cannot be read: nothing is changed in it"
            .to_owned();
    }
    if !seat.difference.fixed.is_empty() {
        return format!(
            "Kubernetes does not change {}: put it back, or delete the workload",
            seat.difference.fixed.join(", ")
        );
    }
    let field = seat.difference.field.as_ref().map_or_else(|| "something".to_owned(), ToString::to_string);
    let who = match facts.learned.changers.get(&seat.pool).map(Vec::as_slice) {
        None | Some([]) => "somebody else keeps".to_owned(),
        Some([one]) => format!("{one} keeps"),
        Some(many) => format!("{} keep", many.join(", ")),
    };
    let until = seat.repair_pause.map(|until| until.to_string()).unwrap_or_default();
    format!("{who} changing {field}: it is left alone until {until}")
}

/// Cuts messages off that are too long, or that are too long for there being so many.
fn shorten(pools: &mut [PoolStatus]) {
    let lengths = pools.iter().map(|pool| pool.message.chars().count().min(LONGEST_MESSAGE));
    let told = pools.iter().filter(|pool| !pool.message.is_empty()).count();
    let are_long = lengths.sum::<usize>() > ALL_MESSAGES;
    let longest = if are_long { LONGEST_MESSAGE.min(ALL_MESSAGES / told.max(1)) } else { LONGEST_MESSAGE };
    for pool in pools {
        pool.message = short(std::mem::take(&mut pool.message), longest);
    }
}

/// Has a status say which writes were refused since it was decided, with the reasons by pool. Else it would say at each try that such a
/// pool waits for its turn, and a moment later that it failed.
pub fn tell_refused<'a>(status: &mut ApplicationStatus, reason: impl Fn(&str) -> Option<&'a str>) {
    for pool in status.pools.iter_mut().filter(|pool| pool.state == PoolState::Waiting) {
        if let Some(reason) = reason(&pool.name) {
            pool.state = PoolState::Failed;
            pool.message = short(reason.to_owned(), LONGEST_MESSAGE);
        }
    }
}

fn short(text: String, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text;
    }
    text.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

/// What is to be said of an application. `failures` are what could not be done at all, such as a list that failed.
pub fn conditions(decision: &Decision, facts: &Facts<'_>, failures: &[String]) -> [Found; 3] {
    let status = &decision.status;
    [ready(status), progressing(decision, facts), synced(status, facts, failures)]
}

fn in_state(status: &ApplicationStatus, states: &[PoolState]) -> Vec<String> {
    let such = status.pools.iter().filter(|pool| states.contains(&pool.state));
    such.map(|pool| pool.name.clone()).collect()
}

fn ready(status: &ApplicationStatus) -> Found {
    let others = status.pools.iter().filter(|pool| pool.state != PoolState::Done).map(|pool| pool.name.clone());
    let others: Vec<String> = others.collect();
    match (status.pools.len(), others.is_empty()) {
        (0, _) => (READY, true, "NoPools", "It is in no pool.".to_owned()),
        (_, true) => (READY, true, "Done", "All pools are as they should be.".to_owned()),
        (_, false) => (READY, false, "NotDone", format!("Not as they should be: {}.", named(&others))),
    }
}

fn progressing(decision: &Decision, facts: &Facts<'_>) -> Found {
    let status = &decision.status;
    let late = in_state(status, &[PoolState::Late]);
    if let Some(stopped) = status.stopped.as_ref().filter(|stopped| stopped.revision == facts.newest.number) {
        let who = if late.is_empty() { "pools".to_owned() } else { named(&late) };
        let text = format!(
            "Stopped at {}: {who} were not done in time. Change the application, or have it go on: dapple rollout resume.",
            stopped.since.0
        );
        return (PROGRESSING, false, "Stopped", text);
    }
    let moving = in_state(status, &[PoolState::Waiting, PoolState::Changing, PoolState::Late]);
    if moving.is_empty() {
        return (PROGRESSING, true, "Complete", "No pool waits for a change.".to_owned());
    }
    if facts.is_suspended {
        return (
            PROGRESSING,
            false,
            "Suspended",
            "It, or its replacement, has the annotation dapple.dev/suspend.".to_owned(),
        );
    }
    let waits = |seat: &&Seat| !seat.missing.is_empty() && moving.contains(&seat.pool);
    let waiting = decision.seats.iter().filter(waits);
    let waiting: Vec<String> =
        waiting.map(|seat| format!("{} ({})", seat.pool, learned::named(&seat.missing))).collect();
    if waiting.len() == moving.len() {
        let text = format!("Pools stay as they are until what they would refer to exists: {}.", named(&waiting));
        return (PROGRESSING, false, "TargetsMissing", text);
    }
    (
        PROGRESSING,
        true,
        "RollingOut",
        format!("{} of {} pools are to be done: {}.", moving.len(), status.pools.len(), named(&moving)),
    )
}

fn synced(status: &ApplicationStatus, facts: &Facts<'_>, failures: &[String]) -> Found {
    if let Some(failure) = failures.first() {
        return (SYNCED, false, "Failing", failure.clone());
    }
    let failed: Vec<&PoolStatus> = status.pools.iter().filter(|pool| pool.state == PoolState::Failed).collect();
    if let Some(first) = failed.first() {
        let others = if failed.len() > 1 {
            format!(" ({} more pools have something wrong)", failed.len() - 1)
        } else {
            String::new()
        };
        return (SYNCED, false, "PoolsFailed", format!("Pool {}: {}{others}", first.name, first.message));
    }
    let held =
        status.pools.iter().filter(|pool| pool.state == PoolState::Leaving && pool.message.starts_with("many pools"));
    let held: Vec<String> = held.map(|pool| pool.name.clone()).collect();
    if !held.is_empty() {
        let text = format!(
            "Removals are held, since many pools leave at once: {}. Annotate dapple.dev/confirm-removal with their names, or \"*\".",
            named(&held)
        );
        return (SYNCED, false, "RemovalsHeld", text);
    }
    if facts.grace.is_none() {
        let text = "The annotation dapple.dev/pool-grace is no length of time, such as \"5m\": nothing is removed.";
        return (SYNCED, false, "BadAnnotation", text.to_owned());
    }
    (SYNCED, true, "Synced", "Nothing is wrong.".to_owned())
}

pub(super) fn named(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{others}", names[..names.len().min(NAMED)].join(", "))
}

/// A condition, which keeps its time while it stays as it is.
pub fn condition(found: Found, generation: Option<i64>, before: &[Condition], now: &Time) -> Condition {
    let (kind, is_so, reason, message) = found;
    let status = if is_so { "True" } else { "False" };
    let known = before.iter().find(|known| known.type_ == kind && known.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: known.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waited_for_what_was_refused_has_failed() {
        let pool = |name: &str, state| PoolStatus { name: name.to_owned(), state, ..PoolStatus::default() };
        let pools = vec![
            pool("refused", PoolState::Waiting),
            pool("leaving", PoolState::Leaving),
            pool("waiting", PoolState::Waiting),
        ];
        let mut status = ApplicationStatus { pools, ..ApplicationStatus::default() };
        let long = "refused: ".to_owned() + &"not here ".repeat(40);
        tell_refused(&mut status, |name| (name != "waiting").then_some(long.as_str()));
        let states: Vec<PoolState> = status.pools.iter().map(|pool| pool.state).collect();
        assert_eq!(states, [PoolState::Failed, PoolState::Leaving, PoolState::Waiting]);
        assert_eq!(status.pools[0].message, short(long.clone(), LONGEST_MESSAGE), "as the next look says it");
        assert!(status.pools[1..].iter().all(|pool| pool.message.is_empty()));
    }
}
