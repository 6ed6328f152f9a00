//! How far the rollout of an application has come, read off its status alone.

use dapple_api::pool::{PoolState, PoolStatus, YurtAppConfigurationReplacement};

use super::health::Counts;
use super::object::ApplicationObject;
use super::report::{PROGRESSING, SYNCED};
use super::said::Said;

/// How far a rollout has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// In one word.
    pub state: State,
    /// Whether nothing more is to be waited for.
    pub is_done: bool,
    /// The pools that the application should be in.
    pub pools: usize,
    /// Those of them that are as they should be.
    pub done: usize,
    /// The pods of all pools.
    pub counts: Counts,
    /// Pools that are under way or not well, with what is to be said of each.
    pub waiting: Vec<String>,
    /// Pools that are leaving, with what becomes of their workloads.
    pub leaving: Vec<String>,
    /// What else there is to say: what is wrong, and why nothing goes on.
    pub notes: Vec<String>,
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is being deleted.
    Deleting,
    /// The controller has not seen the last change: the numbers are of the state before it.
    Unseen,
    /// The controller says that something is wrong, and nothing else goes on.
    Degraded,
    /// Pools were not done in time: no other is changed until somebody says so.
    Stopped,
    /// Nothing is written until somebody has it go on.
    Paused,
    /// Pools are being changed.
    RollingOut,
    /// All pools are changed that should be, and some are not done in time.
    Late {
        /// How many pools.
        pools: usize,
    },
    /// Everything is changed that should be, and some pools have not all their pods available.
    Unavailable {
        /// How many pools.
        pools: usize,
    },
    /// It is in no pool.
    NoPools,
    /// Every pool is as it should be.
    Complete,
}

/// Reads how far an application has come. `said` is what annotations say of its rollouts.
pub fn progress(object: &ApplicationObject, said: &Said) -> Progress {
    let status = &object.status;
    let asked: Vec<&PoolStatus> = status.pools.iter().filter(|pool| pool.state != PoolState::Leaving).collect();
    let awaited: Vec<&PoolStatus> =
        asked.iter().copied().filter(|pool| !said.rules.skip.contains(&pool.name)).collect();
    let number = |state: PoolState| awaited.iter().filter(|pool| pool.state == state).count();
    let (moving, late) = (number(PoolState::Waiting) + number(PoolState::Changing), number(PoolState::Late));
    let (unavailable, failed) = (number(PoolState::Unavailable), number(PoolState::Failed));
    let is_failing = object.condition(SYNCED).is_some_and(|known| known.status == "False" && known.reason == "Failing");
    let is_deleting = object.metadata.deletion_timestamp.is_some();
    let is_stopped = status.stopped.as_ref().is_some_and(|stopped| said.resumed.is_none_or(|at| at <= stopped.since.0));
    let is_paused = said.is_suspended || object.condition(PROGRESSING).is_some_and(|known| known.reason == "Suspended");
    let state = if is_deleting {
        State::Deleting
    } else if is_failing {
        State::Degraded
    } else if !object.is_seen() {
        State::Unseen
    } else if is_stopped {
        State::Stopped
    } else if is_paused {
        State::Paused
    } else if moving > 0 {
        State::RollingOut
    } else if late > 0 {
        State::Late { pools: late }
    } else if failed > 0 {
        State::Degraded
    } else if unavailable > 0 {
        State::Unavailable { pools: unavailable }
    } else if asked.is_empty() {
        State::NoPools
    } else {
        State::Complete
    };
    let is_over = !matches!(state, State::Deleting | State::Unseen | State::Stopped) && !is_failing;
    let is_told = !matches!(state, State::Deleting | State::Unseen);
    Progress {
        state,
        is_done: is_over && moving + late + unavailable + failed == 0,
        pools: asked.len(),
        done: asked.iter().filter(|pool| pool.state == PoolState::Done).count(),
        counts: sum(&status.pools),
        waiting: if is_told { waiting(&awaited) } else { Vec::new() },
        leaving: if is_told { leaving(&status.pools) } else { Vec::new() },
        notes: if is_told { notes(object, said, &asked) } else { Vec::new() },
    }
}

/// Whether the controller has seen what an application and its replacement say now. Its status alone does not tell: a change of
/// the replacement is none of the application.
pub fn has_seen(object: &ApplicationObject, replacement: Option<&YurtAppConfigurationReplacement>) -> bool {
    let name = replacement.and_then(|known| known.metadata.name.as_deref());
    let is_seen = |known: &YurtAppConfigurationReplacement| {
        let seen = known.status.as_ref().and_then(|status| status.observed_generation);
        seen.is_some_and(|seen| seen >= known.metadata.generation.unwrap_or(0))
    };
    object.is_seen() && object.status.overrider_ref.as_deref() == name && replacement.is_none_or(is_seen)
}

fn sum(pools: &[PoolStatus]) -> Counts {
    pools.iter().fold(Counts::default(), |all, pool| Counts {
        desired: all.desired + pool.desired,
        ready: all.ready + pool.ready,
        updated: all.updated + pool.updated,
        available: all.available + pool.available,
    })
}

/// Pools that something is to be said of. Those whose turn has not come are only counted.
fn waiting(pools: &[&PoolStatus]) -> Vec<String> {
    let told = pools.iter().filter(|pool| !matches!(pool.state, PoolState::Done | PoolState::Waiting));
    told.map(|pool| named(pool)).collect()
}

fn leaving(pools: &[PoolStatus]) -> Vec<String> {
    pools.iter().filter(|pool| pool.state == PoolState::Leaving).map(named).collect()
}

fn named(pool: &PoolStatus) -> String {
    if pool.message.is_empty() { pool.name.clone() } else { format!("{}: {}", pool.name, pool.message) }
}

fn notes(object: &ApplicationObject, said: &Said, asked: &[&PoolStatus]) -> Vec<String> {
    let mut notes = Vec::new();
    for kind in [PROGRESSING, SYNCED] {
        let wrong = object.condition(kind).filter(|known| known.status == "False");
        // What is wrong with pools is told of each of them.
        notes.extend(wrong.filter(|known| known.reason != "PoolsFailed").map(|known| known.message.clone()));
    }
    let skipped: Vec<&str> = asked
        .iter()
        .filter(|pool| pool.state != PoolState::Done && said.rules.skip.contains(&pool.name))
        .map(|pool| pool.name.as_str())
        .collect();
    if !skipped.is_empty() {
        notes.push(format!("not waited for (dapple.dev/rollout-skip): {}", skipped.join(", ")));
    }
    let done = asked.iter().filter(|pool| pool.state == PoolState::Done);
    let kept: i64 = done.map(|pool| (pool.desired - pool.updated).max(0)).sum();
    if kept > 0 {
        notes.push(format!(
            "{kept} pods keep an older template: their workload is paused, or replaces a pod when somebody deletes it"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::object::tests::{replacement, set};
    use super::*;

    fn pool(name: &str, state: &str, updated: i64, message: &str) -> Value {
        json!({"name": name, "state": state, "desired": 3, "ready": 3, "updated": updated, "available": 3, "message": message})
    }

    fn of(metadata: Value, pools: &[Value], more: Value) -> Progress {
        let mut status = json!({"pools": pools});
        for (field, value) in more.as_object().into_iter().flatten() {
            status[field] = value.clone();
        }
        let object = set(&["a"], metadata, status);
        progress(&object, &Said::by(&object, None))
    }

    fn condition(kind: &str, reason: &str, message: &str) -> Value {
        json!({"conditions": [{"type": kind, "status": "False", "reason": reason, "message": message,
            "observedGeneration": 2, "lastTransitionTime": "2026-11-15T10:00:00Z"}]})
    }

    #[test]
    fn pools_are_counted_and_those_under_way_are_named() {
        let pools = [
            pool("a", "Done", 3, ""),
            pool("b", "Changing", 1, "2 of 3 pods are available"),
            pool("c", "Waiting", 0, "it waits for its turn"),
            pool("d", "Leaving", 0, "its workload is being deleted"),
        ];
        let found = of(json!({}), &pools, json!({}));
        assert_eq!((found.state, found.is_done, found.pools, found.done), (State::RollingOut, false, 3, 1));
        assert_eq!(found.counts, Counts { desired: 12, ready: 12, updated: 4, available: 12 });
        assert_eq!(found.waiting, ["b: 2 of 3 pods are available"]);
        assert_eq!((found.leaving, found.notes.len()), (vec!["d: its workload is being deleted".to_owned()], 0));
        let done = of(json!({}), &pools[..1], json!({}));
        assert_eq!((done.state, done.is_done), (State::Complete, true));
        assert_eq!(of(json!({}), &[], json!({})).state, State::NoPools);
        assert!(of(json!({}), &[pool("a", "Done", 1, "")], json!({})).notes[0].starts_with("2 pods keep an older"));
    }

    #[test]
    fn what_does_not_go_on_by_itself_is_told_apart() {
        let waiting = [pool("a", "Waiting", 0, "")];
        let state = |metadata, pools: &[Value], more| {
            let found = of(metadata, pools, more);
            (found.state, found.is_done)
        };
        assert_eq!(state(json!({"generation": 3}), &waiting, json!({})), (State::Unseen, false));
        assert_eq!(state(json!({"deletionTimestamp": "2026-11-15T10:00:00Z"}), &waiting, json!({})).0, State::Deleting);
        let stopped = json!({"stopped": {"revision": 4, "since": "2026-11-15T10:00:00Z"}});
        assert_eq!(state(json!({}), &waiting, stopped.clone()), (State::Stopped, false));
        let resumed = json!({"annotations": {"dapple.dev/rollout-resumed": "2026-11-15T10:00:01Z"}});
        assert_eq!(state(resumed, &waiting, stopped).0, State::RollingOut);
        let suspended = json!({"annotations": {"dapple.dev/suspend": "true"}});
        assert_eq!(state(suspended.clone(), &waiting, json!({})), (State::Paused, false));
        assert_eq!(state(suspended, &[pool("a", "Done", 3, "")], json!({})), (State::Paused, true));
        let by_replacement = condition("Progressing", "Suspended", "its replacement says so");
        assert_eq!(state(json!({}), &waiting, by_replacement).0, State::Paused);
        let failing = condition("Synced", "Failing", "it is not known which NodePools there are");
        assert_eq!(state(json!({}), &[pool("a", "Done", 3, "")], failing.clone()), (State::Degraded, false));
        assert_eq!(of(json!({}), &[], failing).notes, ["it is not known which NodePools there are"]);
        assert_eq!(state(json!({}), &[pool("a", "Failed", 3, "x")], json!({})), (State::Degraded, false));
        assert_eq!(state(json!({}), &[pool("a", "Unavailable", 3, "x")], json!({})).0, State::Unavailable { pools: 1 });
        let late = pool("b", "Late", 1, "x");
        assert_eq!(
            state(json!({}), &[pool("a", "Done", 3, ""), late.clone()], json!({})),
            (State::Late { pools: 1 }, false)
        );
        assert_eq!(state(json!({}), &[waiting[0].clone(), late], json!({})).0, State::RollingOut);
    }

    #[test]
    fn pools_that_are_skipped_are_not_waited_for() {
        let skips = json!({"annotations": {"dapple.dev/rollout-skip": "b"}});
        let found = of(skips, &[pool("a", "Done", 3, ""), pool("b", "Late", 3, "x")], json!({}));
        assert_eq!((found.state, found.is_done, found.pools, found.done), (State::Complete, true, 2, 1));
        assert_eq!(found.notes, ["not waited for (dapple.dev/rollout-skip): b"]);
    }

    #[test]
    fn a_change_of_the_replacement_is_seen_once_both_say_so() {
        let web = set(&["a"], json!({}), json!({"overriderRef": "r"}));
        let of = |seen: i64| replacement("r", None, json!({"status": {"observedGeneration": seen}}));
        assert!(has_seen(&web, Some(&of(3))));
        assert!(!has_seen(&web, Some(&of(2))), "it has changed since");
        assert!(!has_seen(&web, None), "it is gone, and still in force");
        assert!(!has_seen(&set(&["a"], json!({}), json!({})), Some(&of(3))), "it is new");
        assert!(has_seen(&set(&["a"], json!({}), json!({})), None));
    }
}
