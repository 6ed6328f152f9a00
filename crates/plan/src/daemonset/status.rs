//! What the status of a DaemonSet says: counts, and conditions that people can act on.

use dapple_api::daemonset::{DaemonSetStatus, VariantStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::cell::{Mode, Rules};
use super::desired::Variant;
use super::fleet::{Fleet, Tally};

/// How many nodes a message names.
const NAMED: usize = 3;
/// How many variants a status lists: one that has more is not read by people any more.
const LISTED: usize = 64;
/// Longest message.
const LONGEST: usize = 1000;

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
    /// Name of the revision that nodes are held back at.
    pub current: &'a str,
    /// Whether updates are paused.
    pub is_paused: bool,
    /// What is wrong.
    pub problems: &'a [Problem],
    /// `metadata.generation` of the DaemonSet.
    pub generation: Option<i64>,
}

/// The status, from the one before it.
pub fn status(facts: Facts<'_>, before: &DaemonSetStatus, now: &Time) -> DaemonSetStatus {
    let Facts { fleet, update, current, .. } = facts;
    let tally = fleet.tally();
    // Every node that gets a pod has what the newest revision gives it: there is nothing to be held back at.
    let current = if fleet.is_settled() { update } else { current };
    let found = [progressing(facts), available(facts), degraded(facts.problems), paused(facts.is_paused)];
    DaemonSetStatus {
        observed_generation: facts.generation,
        collision_count: before.collision_count,
        current_revision: Some(current.to_owned()),
        current_revision_number: before.current_revision_number,
        update_revision: Some(update.to_owned()),
        desired_number_scheduled: number(tally.desired),
        current_number_scheduled: number(tally.current),
        number_ready: number(tally.ready),
        updated_number_scheduled: number(tally.updated),
        number_misscheduled: number(tally.misscheduled),
        number_available: Some(number(tally.available)),
        number_unavailable: Some(number(tally.desired - tally.available)),
        conditions: found.into_iter().map(|found| condition(found, facts.generation, before, now)).collect(),
        variants: variants(facts.variants, fleet.variants()),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn variants(variants: &[Variant], tallies: &[Tally]) -> Vec<VariantStatus> {
    let told = |(variant, tally): (&Variant, &Tally)| VariantStatus {
        hash: variant.rendering.as_ref().map_or_else(|_| String::new(), |rendered| rendered.hash.to_string()),
        patches: variant.patches.iter().map(|place| number(*place)).collect(),
        desired: number(tally.desired),
        updated: number(tally.updated),
        ready: number(tally.ready),
        available: number(tally.available),
    };
    let has_nodes = |(variant, tally): &(&Variant, &Tally)| tally.desired > 0 || variant.rendering.is_err();
    let mut all: Vec<VariantStatus> = variants.iter().zip(tallies).filter(has_nodes).map(told).collect();
    all.sort_by(|a, b| a.patches.cmp(&b.patches));
    all.truncate(LISTED);
    all
}

/// Kind, whether it holds, reason and message.
type Found = (&'static str, bool, &'static str, String);

fn progressing(facts: Facts<'_>) -> Found {
    let Facts { fleet, update, .. } = facts;
    let (tally, Rules { mode, .. }) = (fleet.tally(), fleet.rules());
    let left = tally.desired - tally.updated;
    let so_far = || {
        let mut text = format!("{} of {} nodes have revision {update}", tally.updated, tally.desired);
        let (waiting, unreachable) = (fleet.waiting(NAMED), fleet.unreachable(NAMED));
        if !waiting.is_empty() {
            text += &format!("; waiting for {}", waiting.join(", "));
        }
        if !unreachable.is_empty() {
            text += &format!("; out of reach: {}", unreachable.join(", "));
        }
        text
    };
    let (is_true, reason, text) = if left == 0 {
        (false, "Complete", format!("all {} nodes have revision {update}", tally.desired))
    } else if *mode == Mode::OnDelete {
        (false, "WaitsForDeletion", format!("{left} nodes get revision {update} once somebody deletes their pod"))
    } else if facts.is_paused {
        (false, "Paused", format!("{left} nodes get revision {update} once the rollout is resumed"))
    } else if fleet.behind() == 0 {
        (false, "HeldBack", format!("{left} of {} nodes are held back at {}", tally.desired, facts.current))
    } else if fleet.lagging() == 0 {
        // Whoever may get it has it.
        (false, "OutOfReach", so_far())
    } else {
        (true, "RollingOut", so_far())
    };
    ("Progressing", is_true, reason, text)
}

fn available(facts: Facts<'_>) -> Found {
    let (tally, rules) = (facts.fleet.tally(), facts.fleet.rules());
    let missing = tally.desired - tally.available;
    if missing <= rules.budget {
        let text = format!("{} of {} nodes have an available pod", tally.available, tally.desired);
        return ("Available", true, "Enough", text);
    }
    let named = facts.fleet.holding(NAMED);
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

fn paused(is_paused: bool) -> Found {
    let (reason, text) = if is_paused {
        ("Paused", "spec.updateStrategy.rollingUpdate.paused is true: missing pods are made, none is updated")
    } else {
        ("NotPaused", "updates proceed")
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

    use super::super::cell::{Hold, NodeState, PodState};
    use super::super::renderings::Renderings;
    use super::*;

    fn node(name: &str) -> NodeState {
        NodeState {
            name: Arc::from(name),
            can_start: true,
            can_stay: true,
            is_ready: true,
            wanted: Arc::from("new"),
            newest: Arc::from("new"),
            variant: 0,
            hold: None,
            is_partitioned: false,
        }
    }

    /// Reason and message of a rollout over nodes, each of which has a pod with this hash.
    fn told(nodes: &[(NodeState, &str)]) -> (&'static str, String) {
        let rules = Rules { budget: 1, burst: 250, ..Rules::default() };
        let mut fleet = Fleet::new(rules, nodes.iter().map(|(node, _)| node.clone()).collect(), Renderings::default());
        for (node, hash) in nodes {
            let (name, hash) = (node.name.clone(), Arc::from(*hash));
            let pod = PodState { name, hash, ready_since: Some(0), ..PodState::default() };
            fleet.observe(&node.name, Some((&node.name, pod)));
        }
        fleet.decide(1_000);
        let facts = Facts {
            fleet: &fleet,
            variants: &[],
            update: "a-2",
            current: "a-1",
            is_paused: false,
            problems: &[],
            generation: None,
        };
        let (_, _, reason, text) = progressing(facts);
        (reason, text)
    }

    #[test]
    fn nobody_says_that_all_is_done_while_a_node_has_an_old_pod() {
        let closed = NodeState { can_start: false, ..node("b") };
        let held = NodeState { hold: Some(Hold::Partition), wanted: Arc::from("old"), ..node("b") };
        let lost = NodeState { hold: Some(Hold::Unrendered), can_start: false, newest: Arc::from(""), ..node("b") };
        for (second, hash, reason, text) in [
            (node("b"), "new", "Complete", "all 2 nodes have revision a-2"),
            (node("b"), "old", "RollingOut", "1 of 2 nodes have revision a-2"),
            (closed, "old", "OutOfReach", "1 of 2 nodes have revision a-2; out of reach: b: no pod may start there"),
            (held, "old", "HeldBack", "1 of 2 nodes are held back at a-1"),
            (lost, "old", "HeldBack", "1 of 2 nodes are held back at a-1"),
        ] {
            assert_eq!(told(&[(node("a"), "new"), (second, hash)]), (reason, text.to_owned()));
        }
    }
}
