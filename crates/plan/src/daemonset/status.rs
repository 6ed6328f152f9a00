//! What the status of a DaemonSet says: counts, and conditions that people can act on.

pub mod variants;

use dapple_api::daemonset::DaemonSetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::cell::{Mode, Rules};
use super::desired::Variant;
use super::fleet::Fleet;

/// How many nodes a message names.
const NAMED: usize = 3;
/// Longest message.
const LONGEST: usize = 1000;
/// So many seconds without any progress a rollout has stalled.
const STALLED: i64 = 600;

/// Why a rollout does not begin: what it is to bring cannot be noted.
const BLOCKED: &str = "Blocked";

/// What can be done about nodes that a rollout has touched and that do not become Ready.
const WAYS_OUT: &str = "to go on, repair the node, delete it, taint it node.kubernetes.io/out-of-service, raise \
                        maxUnavailable or maxSurge, or undo the rollout";

/// Something that is wrong, and does not keep the rest from being served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// One word in CamelCase, for machines.
    pub reason: &'static str,
    /// One sentence, for people.
    pub text: String,
    /// What else the status says of it, which changes too often for an event.
    pub extent: String,
}

impl Problem {
    /// A problem whose extent is said in its text.
    pub fn new(reason: &'static str, text: String) -> Self {
        Self { reason, text, extent: String::new() }
    }
}

/// What a status is made from.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The nodes and pods.
    pub fleet: &'a Fleet,
    /// What kinds of nodes get at the newest revision.
    pub variants: &'a [Variant],
    /// Name of the newest revision.
    pub update: &'a str,
    /// What unpatched pods of the newest revision carry as `controller-revision-hash`.
    pub update_hash: &'a str,
    /// Name of the revision that nodes are held back at.
    pub current: &'a str,
    /// Whether updates are paused.
    pub is_paused: bool,
    /// Whether the OverridePolicy that it asks for says that nothing is to be changed.
    pub is_suspended: bool,
    /// Whether the newest revision cannot be written: `update` is the one before it.
    pub is_blocked: bool,
    /// What is wrong.
    pub problems: &'a [Problem],
    /// `metadata.generation` of the DaemonSet.
    pub generation: Option<i64>,
}

/// The status, from the one before it.
pub fn status(facts: Facts<'_>, before: &DaemonSetStatus, now: &Time) -> DaemonSetStatus {
    let fleet = facts.fleet;
    let (tally, rollout, second) = (fleet.tally(), &fleet.rules().rollout, now.0.as_second());
    // There is nothing to be held back at any more.
    let is_complete = fleet.is_complete(second);
    let (current, complete) =
        if is_complete { (facts.update, rollout.newest) } else { (facts.current, rollout.complete) };
    let progressing = progressing(facts, is_complete, before, second);
    let found = [progressing, available(facts, second), degraded(facts.problems), paused(facts)];
    DaemonSetStatus {
        observed_generation: facts.generation,
        collision_count: before.collision_count,
        current_revision: Some(current.to_owned()),
        current_revision_number: Some(complete),
        update_revision: Some(facts.update_hash.to_owned()),
        desired_number_scheduled: number(tally.desired),
        current_number_scheduled: number(tally.current),
        number_ready: number(tally.ready),
        // What the DaemonSet says now is not even a revision yet.
        updated_number_scheduled: if facts.is_blocked { 0 } else { number(tally.updated) },
        number_misscheduled: number(tally.misscheduled),
        number_available: Some(number(tally.available)),
        number_unavailable: Some(number(tally.desired - tally.available)),
        conditions: found.into_iter().map(|found| condition(found, facts.generation, before, now)).collect(),
        variants: variants::told(facts, before),
    }
}

/// The status of a DaemonSet of which nothing can be decided: what was known before, and what fails.
pub fn failed(before: &DaemonSetStatus, generation: Option<i64>, problems: &[Problem], now: &Time) -> DaemonSetStatus {
    let is_new = before.observed_generation != generation;
    let was_blocked = before.conditions.iter().any(|known| known.type_ == "Progressing" && known.reason == BLOCKED);
    let found = [(is_new || was_blocked).then(blocked), Some(degraded(problems))];
    let found: Vec<Found> = found.into_iter().flatten().collect();
    let kept = before.conditions.iter().filter(|known| found.iter().all(|(kind, ..)| known.type_ != *kind));
    let kept: Vec<Condition> = kept.cloned().collect();
    let told = found.into_iter().map(|found| condition(found, generation, before, now));
    DaemonSetStatus {
        observed_generation: generation,
        // Of what it says now, nothing is anywhere yet.
        updated_number_scheduled: if is_new { 0 } else { before.updated_number_scheduled },
        conditions: told.chain(kept).collect(),
        ..before.clone()
    }
}

/// When a rollout that waits will have stalled, if nothing happens before.
pub fn stalls_at(status: &DaemonSetStatus, fleet: &Fleet) -> Option<i64> {
    let waits = status.conditions.iter().find(|known| known.type_ == "Progressing" && known.status == "True")?;
    Some(fleet.progressed_at().max(waits.last_transition_time.0.as_second()) + STALLED)
}

/// What is to be told of a rollout that has just stalled.
pub fn has_stalled<'a>(before: &DaemonSetStatus, after: &'a DaemonSetStatus) -> Option<&'a str> {
    let is_stalled = |known: &&Condition| known.type_ == "Progressing" && known.reason == "Stalled";
    let was_stalled = before.conditions.iter().any(|known| is_stalled(&known));
    after.conditions.iter().find(is_stalled).filter(|_| !was_stalled).map(|known| known.message.as_str())
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Kind, whether it holds, reason and message.
type Found = (&'static str, bool, &'static str, String);

fn progressing(facts: Facts<'_>, is_complete: bool, before: &DaemonSetStatus, now: i64) -> Found {
    let Facts { fleet, update, .. } = facts;
    let (tally, Rules { mode, rollout, .. }) = (fleet.tally(), fleet.rules());
    let left = tally.desired - tally.updated;
    let (is_reached, nodes) = (fleet.unreachable(1, now).is_empty(), tally.desired);
    // What falls ill after a rollout was complete is no part of it.
    let is_over = is_complete || rollout.complete == rollout.newest;
    if facts.is_blocked {
        return blocked();
    }
    let (is_true, reason, text) = if left == 0 && is_reached && (is_over || *mode == Mode::OnDelete) {
        (false, "Complete", format!("all {nodes} nodes have revision {update}"))
    } else if *mode == Mode::OnDelete {
        (false, "WaitsForDeletion", format!("{left} nodes get revision {update} once somebody deletes their pod"))
    } else if (facts.is_paused || facts.is_suspended) && left > 0 {
        (false, "Paused", format!("{left} nodes get revision {update} once the rollout is resumed"))
    } else if fleet.behind() == 0 && left > 0 {
        (false, "HeldBack", format!("{left} of {nodes} nodes are held back at {}", facts.current))
    } else if fleet.is_out_of_reach() {
        // Whoever may get it has it.
        (false, "OutOfReach", so_far(facts, now))
    } else if is_stalled(fleet, before, now) {
        (false, "Stalled", format!("no progress for {} minutes: {}", STALLED / 60, so_far(facts, now)))
    } else {
        (true, "RollingOut", so_far(facts, now))
    };
    ("Progressing", is_true, reason, text)
}

fn blocked() -> Found {
    let text = "the newest revision cannot be written, see Degraded; nothing is updated until it can";
    ("Progressing", false, BLOCKED, text.to_owned())
}

fn so_far(facts: Facts<'_>, now: i64) -> String {
    let Facts { fleet, update, .. } = facts;
    let tally = fleet.tally();
    let mut text = format!("{} of {} nodes have revision {update}", tally.updated, tally.desired);
    let (waiting, unreachable) = (fleet.waiting(NAMED, now), fleet.unreachable(NAMED, now));
    if !waiting.is_empty() {
        text += &format!("; waiting for {}", waiting.join(", "));
    }
    if fleet.ill() > 0 {
        text += &format!("; {WAYS_OUT}");
    }
    if !unreachable.is_empty() {
        text += &format!("; out of reach: {}", unreachable.join(", "));
    }
    text
}

/// Whether nothing has come on for long. A rollout that was let go on, or began, just now has time.
fn is_stalled(fleet: &Fleet, before: &DaemonSetStatus, now: i64) -> bool {
    let known = before.conditions.iter().find(|known| known.type_ == "Progressing");
    let since = match known {
        Some(known) if known.status == "True" => known.last_transition_time.0.as_second(),
        Some(known) if known.reason == "Stalled" => i64::MIN,
        Some(_) | None => now,
    };
    now.saturating_sub(fleet.progressed_at().max(since)) >= STALLED
}

fn available(facts: Facts<'_>, now: i64) -> Found {
    let (tally, rules) = (facts.fleet.tally(), facts.fleet.rules());
    let missing = tally.desired - tally.available;
    if missing <= rules.budget {
        let text = format!("{} of {} nodes have an available pod", tally.available, tally.desired);
        return ("Available", true, "Enough", text);
    }
    let named = facts.fleet.holding(NAMED, now);
    let mut text =
        format!("{missing} of {} nodes have no available pod, and {} may be without", tally.desired, rules.budget);
    if !named.is_empty() {
        text += &format!(": {}", named.join(", "));
    }
    ("Available", false, "TooFew", text)
}

fn degraded(problems: &[Problem]) -> Found {
    let Some(first) = problems.first() else {
        return ("Degraded", false, "AsExpected", "nothing is wrong".to_owned());
    };
    let texts: Vec<String> = problems.iter().map(|problem| format!("{}{}", problem.text, problem.extent)).collect();
    ("Degraded", true, first.reason, texts.join("; "))
}

fn paused(facts: Facts<'_>) -> Found {
    let (is_paused, reason, text) = match () {
        () if facts.is_paused => {
            (true, "Paused", "spec.updateStrategy.rollingUpdate.paused is true: missing pods are made, none is updated")
        }
        () if facts.is_suspended => {
            (true, "PolicySuspended", "its OverridePolicy is suspended: missing pods are made, none is updated")
        }
        () => (false, "NotPaused", "updates proceed"),
    };
    ("Paused", is_paused, reason, text.to_owned())
}

fn condition(found: Found, generation: Option<i64>, before: &DaemonSetStatus, now: &Time) -> Condition {
    let (kind, is_true, reason, mut message) = found;
    message.truncate(message.floor_char_boundary(LONGEST));
    let status = if is_true { "True" } else { "False" };
    let known = before.conditions.iter().find(|known| known.type_ == kind && known.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: known.map_or(now, |known| &known.last_transition_time).clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::cell::{PodState, Rollout};
    use super::super::placement::{Given, Placement, Prospect};
    use super::super::renderings::Renderings;
    use super::*;
    use crate::fit::Reach;
    use crate::health::Health;

    const NOW: i64 = 100_000;

    /// The fleet over these nodes, each of which has a pod that is up, with this hash, made at this time.
    fn fleet(nodes: &[(Prospect, &str, i64)]) -> Fleet {
        let rollout = Rollout { began: 90_000, since: 90_000, newest: 2, current: 1, complete: 1, soak: None };
        let rules = Rules { budget: 1, burst: 250, rollout, ..Rules::default() };
        let mut fleet = Fleet::new(rules, Placement::default(), Renderings::default());
        fleet.put_all(nodes.iter().map(|(node, _, _)| node.clone()).collect());
        for (node, hash, created) in nodes {
            let (name, created) = (node.name.clone(), *created);
            let number = Some(if *hash == "new" { 2 } else { 1 });
            let pod =
                PodState { name, hash: Arc::from(*hash), number, created, ready_since: Some(0), ..PodState::default() };
            fleet.observe(&node.name, Some((&node.name, pod)));
        }
        fleet.decide(NOW);
        fleet
    }

    fn given(rendering: &str) -> Given {
        let rendering = Some(Arc::from(rendering)).filter(|name: &Arc<str>| !name.is_empty());
        let reach = Reach::Always;
        Given { rendering, can_start: true, can_stay: true, is_selected: true, reach, ..Given::default() }
    }

    fn node(name: &str) -> Prospect {
        let name = Arc::from(name);
        let (next, now) = (given("new"), Some(given("old")));
        Prospect { name, health: Health::Ready, is_out_of_service: false, next, now, is_canary: false, is_chosen: true }
    }

    fn facts(fleet: &Fleet) -> Facts<'_> {
        Facts {
            fleet,
            variants: &[],
            update: "a-2",
            update_hash: "2",
            current: "a-1",
            is_paused: false,
            is_suspended: false,
            is_blocked: false,
            problems: &[],
            generation: None,
        }
    }

    /// Reason and message of a rollout.
    fn told(nodes: &[(Prospect, &str, i64)]) -> (&'static str, String) {
        let fleet = fleet(nodes);
        let (_, _, reason, text) = progressing(facts(&fleet), fleet.is_complete(NOW), &DaemonSetStatus::default(), NOW);
        (reason, text)
    }

    #[test]
    fn nobody_says_that_all_is_done_while_a_node_has_an_old_pod() {
        let closed = Prospect { next: Given { can_start: false, reach: Reach::WithPod, ..given("new") }, ..node("b") };
        let held = Prospect { is_chosen: false, ..node("b") };
        let lost = Prospect { next: given(""), now: None, ..node("b") };
        let outside = "1 of 1 nodes have revision a-2; out of reach: b: no pod may start there";
        for (second, hash, reason, text) in [
            (node("b"), "new", "Complete", "all 2 nodes have revision a-2"),
            (node("b"), "old", "RollingOut", "1 of 2 nodes have revision a-2"),
            (closed, "old", "OutOfReach", outside),
            (held, "old", "HeldBack", "1 of 2 nodes are held back at a-1"),
            (lost, "old", "HeldBack", "1 of 2 nodes are held back at a-1"),
        ] {
            assert_eq!(told(&[(node("a"), "new", 95_000), (second, hash, 0)]), (reason, text.to_owned()));
        }
    }

    #[test]
    fn nodes_that_fell_ill_are_named_with_the_ways_out() {
        let ill = Prospect { health: Health::NotReady { since: 96_000 }, ..node("b") };
        let nodes = [(node("a"), "old", 0), (ill.clone(), "new", 95_000)];
        let text = "1 of 2 nodes have revision a-2; waiting for b: updated 02:23, not Ready since 02:40; to go on, repair \
                    the node, delete it, taint it node.kubernetes.io/out-of-service, raise maxUnavailable or maxSurge, or \
                    undo the rollout";
        assert_eq!(told(&nodes), ("RollingOut", text.to_owned()));
        // All have it, and one is not well: the rollout is not complete.
        assert_eq!(told(&[(node("a"), "new", 95_000), (ill, "new", 95_000)]).0, "RollingOut");
    }

    #[test]
    fn ten_minutes_without_progress_are_a_stall() {
        let ill = Prospect { health: Health::NotReady { since: 99_990 }, ..node("b") };
        let fleet = fleet(&[(node("a"), "old", 0), (ill, "new", 99_000)]);
        let time = |second: i64| Time(jiff::Timestamp::from_second(second).unwrap());
        let at = |second: i64, before: &DaemonSetStatus| status(facts(&fleet), before, &time(second));
        let reason = |status: &DaemonSetStatus| status.conditions[0].reason.clone();
        let first = at(99_100, &DaemonSetStatus::default());
        assert_eq!((reason(&first).as_str(), stalls_at(&first, &fleet)), ("RollingOut", Some(99_700)));
        let second = at(99_699, &first);
        assert_eq!(reason(&second), "RollingOut");
        let third = at(99_700, &second);
        assert_eq!(reason(&third), "Stalled");
        assert!(has_stalled(&second, &third).unwrap().contains("b: updated"), "{third:?}");
        assert!(has_stalled(&third, &at(99_800, &third)).is_none(), "told once");
        assert_eq!(reason(&at(99_800, &third)), "Stalled");
    }

    #[test]
    fn nobody_takes_a_set_for_updated_whose_revision_cannot_be_written() {
        let now = Time(jiff::Timestamp::from_second(NOW).unwrap());
        let reason = |status: &DaemonSetStatus, kind: &str| {
            status.conditions.iter().find(|known| known.type_ == kind).map(|known| known.reason.clone())
        };
        let fleet = fleet(&[(node("a"), "new", 95_000)]);
        let done = status(Facts { generation: Some(1), ..facts(&fleet) }, &DaemonSetStatus::default(), &now);
        assert_eq!((reason(&done, "Progressing").as_deref(), done.updated_number_scheduled), (Some("Complete"), 1));
        let next = status(Facts { generation: Some(2), is_blocked: true, ..facts(&fleet) }, &done, &now);
        assert_eq!((reason(&next, "Progressing").as_deref(), next.updated_number_scheduled), (Some("Blocked"), 0));
        // Nor one of which nothing can be decided: what is not known stays as it was.
        let problems = [Problem::new("FailedRevision", "no".to_owned())];
        let lost = failed(&done, Some(2), &problems, &now);
        assert_eq!((reason(&lost, "Progressing").as_deref(), lost.updated_number_scheduled), (Some("Blocked"), 0));
        assert_eq!(reason(&lost, "Degraded").as_deref(), Some("FailedRevision"));
        assert_eq!((lost.observed_generation, lost.number_ready), (Some(2), done.number_ready));
        assert_eq!(lost.conditions.len(), done.conditions.len());
        assert_eq!(reason(&failed(&lost, Some(2), &problems, &now), "Progressing").as_deref(), Some("Blocked"));
        let same = failed(&done, Some(1), &problems, &now);
        assert_eq!((reason(&same, "Progressing").as_deref(), same.updated_number_scheduled), (Some("Complete"), 1));
    }

    #[test]
    fn the_current_revision_moves_on_with_its_number() {
        let now = Time(jiff::Timestamp::from_second(NOW).unwrap());
        let of = |hash: &str| {
            let fleet = fleet(&[(node("a"), hash, 95_000)]);
            let status = status(facts(&fleet), &DaemonSetStatus::default(), &now);
            (status.current_revision.unwrap(), status.current_revision_number, status.update_revision.unwrap())
        };
        assert_eq!(of("old"), ("a-1".to_owned(), Some(1), "2".to_owned()));
        assert_eq!(of("new"), ("a-2".to_owned(), Some(2), "2".to_owned()));
    }
}
