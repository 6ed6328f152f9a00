//! What the status of a NodePool says: which nodes it has, and how far they are.
//!
//! Equal facts give an equal status, so that nothing is written when nothing changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::{LeftNode, NodePoolStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The condition that says whether all nodes have what the pool gives them.
pub const APPLIED: &str = "Applied";
/// The condition that says whether nodes that left keep what the pool put there until somebody says that it was meant.
pub const HELD: &str = "Held";
/// The condition that says whether no node is written.
pub const SUSPENDED: &str = "Suspended";

/// The longest message, in characters.
const LONGEST: usize = 200;
/// So many nodes are named; the others are counted.
const NAMED: usize = 3;

/// How far a node of a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has all that the pool gives.
    Done,
    /// It is to be written.
    Waiting,
    /// It has come from another pool of which too many nodes have left at once.
    Held,
    /// It lacks taints with the effect NoExecute, for this reason.
    NotExecuted(String),
    /// It cannot be written, or what is remembered on it cannot be read.
    Failed(String),
    /// Others keep changing it, and it is left alone for a while.
    Contested(String),
}

/// What the status of a pool is made from.
#[derive(Debug, Clone, Default)]
pub struct PoolFacts {
    /// `metadata.generation` of the pool.
    pub generation: Option<i64>,
    /// Whether no node of it is written.
    pub is_suspended: bool,
    /// Its nodes by name: whether each is ready, and how far it is.
    pub nodes: BTreeMap<Arc<str>, (bool, Standing)>,
    /// Nodes that left and keep what it put there until that is confirmed.
    pub held: Vec<Arc<str>>,
    /// Nodes that left lately.
    pub left: Vec<LeftNode>,
}

/// The status of a pool, from the one before it.
#[must_use]
pub fn pool_status(facts: &PoolFacts, before: Option<&NodePoolStatus>, now: &Time) -> NodePoolStatus {
    let ready = facts.nodes.values().filter(|(is_ready, _)| *is_ready).count();
    let known = before.map_or(&[][..], |before| before.conditions.as_slice());
    let found = [applied(facts), held(facts), suspended(facts)];
    NodePoolStatus {
        ready_node_num: number(ready),
        unready_node_num: number(facts.nodes.len() - ready),
        nodes: facts.nodes.keys().map(ToString::to_string).collect(),
        left_nodes: facts.left.clone(),
        observed_generation: facts.generation,
        conditions: found.into_iter().map(|found| condition(found, facts.generation, known, now)).collect(),
    }
}

/// Type, whether it holds, reason and message of a condition.
type Found = (&'static str, bool, &'static str, String);

/// A condition. One that says the same as before keeps its time.
fn condition(found: Found, generation: Option<i64>, before: &[Condition], now: &Time) -> Condition {
    let (kind, is_true, reason, message) = found;
    let status = if is_true { "True" } else { "False" };
    let known = before.iter().find(|known| known.type_ == kind && known.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: shortened(message),
        observed_generation: generation,
        last_transition_time: known.map_or(now, |known| &known.last_transition_time).clone(),
    }
}

fn applied(facts: &PoolFacts) -> Found {
    let all = facts.nodes.len();
    if all == 0 {
        return (APPLIED, true, "NoNodes", "No node has the pool's label.".to_owned());
    }
    let reasons: [(&'static str, &str, Select); 5] = [
        ("Contested", "changed by others again and again", |known| match known {
            Standing::Contested(why) => Some(why),
            _ => None,
        }),
        ("Failed", "cannot be written", |known| match known {
            Standing::Failed(why) => Some(why),
            _ => None,
        }),
        ("NoExecuteHeld", "without taints with the effect NoExecute", |known| match known {
            Standing::NotExecuted(why) => Some(why),
            _ => None,
        }),
        ("Held", "held back with what another pool put there", |known| matches!(known, Standing::Held).then_some("")),
        ("Applying", "still to be written", |known| matches!(known, Standing::Waiting).then_some("")),
    ];
    let done = facts.nodes.values().filter(|(_, known)| *known == Standing::Done).count();
    let mut said = vec![format!("{done} of {all} nodes have what the pool gives")];
    let mut first = None;
    for (reason, what, select) in reasons {
        let such: Vec<(&Arc<str>, &str)> =
            facts.nodes.iter().filter_map(|(name, (_, known))| Some((name, select(known)?))).collect();
        let Some((_, why)) = such.first() else { continue };
        first = first.or(Some(reason));
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        said.push(format!("{what}: {} ({}{why})", such.len(), named(such.iter().map(|(name, _)| *name))));
    }
    match first {
        Some(reason) => (APPLIED, false, reason, format!("{}.", said.join("; "))),
        None => (APPLIED, true, "Applied", format!("All {all} nodes have what the pool gives.")),
    }
}

/// What a standing says, if it is such a one.
type Select = fn(&Standing) -> Option<&str>;

fn held(facts: &PoolFacts) -> Found {
    match facts.held.len() {
        0 => (HELD, false, "NothingHeld", "Too many nodes have not left at once.".to_owned()),
        count => {
            let named = named(facts.held.iter());
            let text = format!(
                "{count} nodes left at once and keep what the pool put there. If that was meant, name them in annotation \
                 dapple.dev/confirm-removal, or *: {named}."
            );
            (HELD, true, "ManyLeft", text)
        }
    }
}

fn suspended(facts: &PoolFacts) -> Found {
    if facts.is_suspended {
        (SUSPENDED, true, "Suspended", "By annotation dapple.dev/suspend: no node of it is written.".to_owned())
    } else {
        (SUSPENDED, false, "NotSuspended", "Nodes get what the pool gives.".to_owned())
    }
}

/// The first of these by name; the others are counted.
fn named<'n>(names: impl ExactSizeIterator<Item = &'n Arc<str>>) -> String {
    let count = names.len();
    let first: Vec<&str> = names.take(NAMED).map(|name| &**name).collect();
    let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
    format!("{}{more}", first.join(", "))
}

fn shortened(message: String) -> String {
    if message.chars().count() <= LONGEST {
        return message;
    }
    message.chars().take(LONGEST - 1).chain(['…']).collect()
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(standings: &[Standing]) -> PoolFacts {
        let nodes = standings.iter().enumerate();
        let nodes = nodes.map(|(index, known)| (Arc::from(format!("n{index}")), (index % 2 == 0, known.clone())));
        PoolFacts { generation: Some(3), nodes: nodes.collect(), ..PoolFacts::default() }
    }

    fn told(facts: &PoolFacts, kind: &str) -> (String, String, String) {
        let now = Time("2026-11-18T20:00:00Z".parse().unwrap());
        let status = pool_status(facts, None, &now);
        assert_eq!(pool_status(facts, Some(&status), &Time("2026-11-18T21:00:00Z".parse().unwrap())), status);
        let found = status.conditions.into_iter().find(|known| known.type_ == kind).unwrap();
        assert!(found.message.chars().count() <= LONGEST, "{}", found.message);
        (found.status, found.reason, found.message)
    }

    #[test]
    fn nodes_are_counted_and_those_that_lack_something_are_named() {
        let status = pool_status(
            &facts(&[Standing::Done, Standing::Done, Standing::Done]),
            None,
            &Time(jiff::Timestamp::UNIX_EPOCH),
        );
        assert_eq!((status.ready_node_num, status.unready_node_num), (2, 1));
        assert_eq!(status.nodes, ["n0", "n1", "n2"]);
        let all = told(&facts(&[Standing::Done]), APPLIED);
        assert_eq!((&*all.0, &*all.1), ("True", "Applied"));
        let some = facts(&[Standing::Done, Standing::Waiting, Standing::Failed("forbidden".to_owned())]);
        let (is_true, reason, message) = told(&some, APPLIED);
        assert_eq!((&*is_true, &*reason), ("False", "Failed"));
        let expected =
            "1 of 3 nodes have what the pool gives; cannot be written: 1 (n2: forbidden); still to be written: 1 (n1).";
        assert_eq!(message, expected);
        let many = vec![Standing::Failed("x".repeat(300)); 9];
        assert!(told(&facts(&many), APPLIED).2.contains("n0, n1, n2 and 6 more"));
        assert_eq!(told(&facts(&[]), APPLIED).1, "NoNodes");
    }

    #[test]
    fn what_is_held_says_what_to_do() {
        let mut of = facts(&[Standing::Done]);
        assert_eq!(told(&of, HELD).0, "False");
        of.held = (0..20).map(|number| Arc::from(format!("n{number}"))).collect();
        let (is_true, reason, message) = told(&of, HELD);
        assert_eq!((&*is_true, &*reason), ("True", "ManyLeft"));
        assert!(message.contains("20 nodes") && message.contains("dapple.dev/confirm-removal"), "{message}");
        of.is_suspended = true;
        assert_eq!(told(&of, SUSPENDED).0, "True");
    }
}
