//! What a YurtAppConfigurationReplacement says of itself: its status without conditions, and its one condition.

use dapple_api::pool::{PoolState, PoolStatus, ReplacementStatus, SubjectKind};
use dapple_edit::edit::Warning;

use super::application::{Decision, Seat};
use super::report::{Found, READY, named, waits_for};
use super::unused::unused_in;
use super::version::InForce;

/// Of the one that counts: how many pools of the application it is for, and how they are.
pub fn in_force(in_force: &InForce, decision: &Decision) -> (ReplacementStatus, Found) {
    let status = &decision.status;
    let is_for = |pool: &&PoolStatus| {
        pool.state != PoolState::Leaving && in_force.replacements.iter().any(|one| one.pools.contains(&pool.name))
    };
    let matched: Vec<&PoolStatus> = status.pools.iter().filter(is_for).collect();
    let count = |states: &[PoolState]| {
        let such = matched.iter().filter(|pool| states.contains(&pool.state)).count();
        i32::try_from(such).unwrap_or(i32::MAX)
    };
    let (waiting, failed) =
        (count(&[PoolState::Waiting, PoolState::Changing, PoolState::Late]), count(&[PoolState::Failed]));
    let told = ReplacementStatus {
        matched_pools: i32::try_from(matched.len()).unwrap_or(i32::MAX),
        pools_in_effect: count(&[PoolState::Done, PoolState::Unavailable]),
        pools_waiting: waiting,
        pools_failed: failed,
        ..ReplacementStatus::default()
    };
    let (kind, is_so, reason, text) = match (matched.len(), waiting, failed) {
        (0, ..) => (READY, false, "NoPools", "The application has none of the pools that it names.".to_owned()),
        (_, _, 1..) => {
            let first = matched.iter().find(|pool| pool.state == PoolState::Failed);
            let text = first.map(|pool| format!("Pool {}: {}", pool.name, pool.message)).unwrap_or_default();
            (READY, false, "PoolsFailed", text)
        }
        (_, 1.., _) => {
            let is_matched = |seat: &&Seat| matched.iter().any(|pool| pool.name == seat.pool);
            let mut waits = decision.seats.iter().filter(|seat| !seat.missing.is_empty()).filter(is_matched);
            match waits.next() {
                Some(seat) => (READY, false, "TargetsMissing", format!("Pool {}: {}", seat.pool, waits_for(seat))),
                None => (READY, false, "RollingOut", format!("{waiting} pools do not have it yet.")),
            }
        }
        (all, ..) => (READY, true, "InEffect", format!("It is in effect in {all} pools.")),
    };
    (told, (kind, is_so, reason, text + &without_effect(&unused_in(in_force, &decision.seats))))
}

/// Names items that change nothing in any pool that they are for.
fn without_effect(unused: &[Warning]) -> String {
    if unused.is_empty() {
        return String::new();
    }
    let items: Vec<String> = unused.iter().map(|item| format!("{}: {}", item.source.rule, item.text)).collect();
    format!(" Items that change nothing: {}.", named(&items))
}

/// Of one whose application is not there.
pub fn no_subject(kind: SubjectKind, name: &str) -> (ReplacementStatus, Found) {
    changes_nothing("NoSubject", format!("There is no {kind:?} {name} in its namespace: it waits until there is."))
}

/// Of one that names an application of another namespace.
pub fn astray(namespace: &str) -> (ReplacementStatus, Found) {
    let text = format!(
        "Its subject is in namespace {namespace}: a replacement changes applications of its own namespace, and no others."
    );
    changes_nothing("NoSubject", text)
}

/// Of one that is younger than this other one for the same application.
pub fn not_counted(other: &str) -> (ReplacementStatus, Found) {
    let text = format!("{other} is for the same application and older, so this one does not count.");
    changes_nothing("NotCounted", text)
}

/// Of one for a kind that dapple does not serve. `why`: what is in the way.
pub fn not_served(kind: SubjectKind, why: &str) -> (ReplacementStatus, Found) {
    changes_nothing("NotServed", format!("It changes nothing, since dapple does not serve {kind:?}s: {why}."))
}

fn changes_nothing(reason: &'static str, text: String) -> (ReplacementStatus, Found) {
    (ReplacementStatus::default(), (READY, false, reason, text))
}

#[cfg(test)]
mod tests {
    use dapple_edit::edit::Source;

    use super::*;

    #[test]
    fn items_that_change_nothing_are_named() {
        assert_eq!(without_effect(&[]), "");
        let source = Source { object: "o".to_owned(), rule: "replacements[0].items[1]".to_owned() };
        let unused = Warning { source, text: "nothing refers to it".to_owned() };
        let text = without_effect(&[unused]);
        assert_eq!(text, " Items that change nothing: replacements[0].items[1]: nothing refers to it.");
    }

    #[test]
    fn one_that_changes_nothing_says_why() {
        for (told, reason, part) in [
            (no_subject(SubjectKind::YurtAppSet, "web"), "NoSubject", "There is no YurtAppSet web"),
            (astray("other"), "NoSubject", "in namespace other"),
            (not_counted("first"), "NotCounted", "first is for the same application"),
            (
                not_served(SubjectKind::YurtAppDaemon, "the CRD x is another product's"),
                "NotServed",
                "YurtAppDaemons: the CRD x",
            ),
        ] {
            let (status, (kind, is_so, found, text)) = told;
            assert_eq!((status, kind, is_so, found), (ReplacementStatus::default(), READY, false, reason));
            assert!(text.contains(part) && text.ends_with('.'), "{text}");
        }
    }
}
