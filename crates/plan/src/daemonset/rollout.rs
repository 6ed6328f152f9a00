//! How far a rollout has come, read off the DaemonSet alone, and the changes by which people steer it.

use dapple_api::daemonset::{DaemonSet, DaemonSetStatus, UpdateStrategyType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::order::held_back;

/// The annotation of the template that a restart sets, the same that kubectl sets.
pub const RESTARTED_ANNOTATION: &str = "kubectl.kubernetes.io/restartedAt";

/// How far a rollout has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// In one word.
    pub state: State,
    /// Whether nothing more is to be waited for.
    pub is_done: bool,
    /// Nodes that should run a pod.
    pub desired: i32,
    /// Nodes whose pod has the newest revision.
    pub updated: i32,
    /// Nodes with a ready pod.
    pub ready: i32,
    /// Nodes whose pod has been ready for long enough.
    pub available: i32,
    /// Nodes that should run a pod and have none.
    pub missing: i32,
    /// What it waits for, in the controller's words.
    pub waiting: Vec<String>,
    /// What else the controller says: what is wrong, and why nothing goes on.
    pub notes: Vec<String>,
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is being deleted.
    Deleting,
    /// The controller has not seen the last change: the counts are of the state before it.
    Unseen,
    /// The controller says that something is wrong.
    Degraded,
    /// Pods of an older revision wait until somebody deletes them.
    OnDelete {
        /// How many.
        waiting: i32,
    },
    /// No pod is updated until somebody resumes it.
    Paused,
    /// Pods are being updated.
    RollingOut,
    /// Everything is updated that should be, and some node has no available pod.
    Unavailable {
        /// How many nodes.
        nodes: i32,
    },
    /// Everything is updated but for nodes that the strategy leaves alone.
    HeldBack {
        /// How many nodes.
        nodes: i32,
    },
    /// Everything is updated but for nodes that are not ready, or take no new pods.
    OutOfReach {
        /// How many nodes.
        nodes: i32,
    },
    /// Every node has the newest revision, and is available.
    Complete,
}

/// Reads how far a DaemonSet has come. Works without conditions, which other products' controllers do not write.
pub fn progress(set: &DaemonSet) -> Progress {
    let none = DaemonSetStatus::default();
    let status = set.status.as_ref().unwrap_or(&none);
    let desired = status.desired_number_scheduled.max(0);
    // Counts are whatever somebody wrote: none is more than there are nodes.
    let within = |count: i32| count.clamp(0, desired);
    let (updated, ready) = (within(status.updated_number_scheduled), within(status.number_ready));
    let available = within(status.number_available.unwrap_or(0));
    let (outdated, unavailable) = (desired - updated, desired - available);
    let rolling = set.spec.rolling_update();
    let is_on_delete = set.spec.update_strategy_type() == UpdateStrategyType::OnDelete;
    let is_paused = rolling.paused();
    // A rollout that the controller calls over has updated all it may. Without its word, the partition says how many.
    let has = |kind: &str, status: &str| condition(set, kind).is_some_and(|known| known.status == status);
    let is_degraded = has("Degraded", "True");
    // One that has stalled waits for somebody: it is not over.
    let is_stalled = condition(set, "Progressing").is_some_and(|known| known.reason == "Stalled");
    let is_at_rest = has("Progressing", "False") && !is_degraded && !is_stalled;
    let held = if is_at_rest {
        outdated
    } else {
        i32::try_from(held_back(&rolling.partition(), usize::try_from(desired).unwrap_or(0))).unwrap_or(0).min(outdated)
    };
    let is_seen = is_seen(set);
    let is_deleting = set.metadata.deletion_timestamp.is_some();
    let is_moving = !is_paused && !is_on_delete && outdated > held;
    let state = if is_deleting {
        State::Deleting
    } else if !is_seen {
        State::Unseen
    } else if is_degraded {
        State::Degraded
    } else if is_on_delete && outdated > 0 {
        State::OnDelete { waiting: outdated }
    } else if is_paused {
        State::Paused
    } else if is_moving {
        State::RollingOut
    } else if unavailable > 0 {
        State::Unavailable { nodes: unavailable }
    } else if outdated > 0 && condition(set, "Progressing").is_some_and(|known| known.reason == "OutOfReach") {
        State::OutOfReach { nodes: outdated }
    } else if outdated > 0 {
        State::HeldBack { nodes: outdated }
    } else {
        State::Complete
    };
    // Who deletes pods one by one looks at each of them: there is no end to wait for.
    let is_settled = unavailable == 0 && !is_moving && (!is_paused || outdated == 0);
    let is_done = is_seen && !is_deleting && (is_settled || (is_on_delete && outdated > 0));
    let (waiting, mut notes) = if is_seen { told(set) } else { Default::default() };
    // Which nodes the selector matches is not in the counts, so without a condition the end cannot be seen.
    if is_seen && is_moving && rolling.selector.is_some() && condition(set, "Progressing").is_none() {
        notes.push("only nodes that spec.updateStrategy.rollingUpdate.selector matches are updated".to_owned());
    }
    let missing = desired - within(status.current_number_scheduled);
    Progress { state, is_done, desired, updated, ready, available, missing, waiting, notes }
}

/// Whether the status describes the DaemonSet as it is now.
pub fn is_seen(set: &DaemonSet) -> bool {
    let seen = set.status.as_ref().and_then(|status| status.observed_generation);
    seen.is_some_and(|seen| seen >= set.metadata.generation.unwrap_or(0))
}

/// A condition, unless it is older than the last change.
fn condition<'a>(set: &'a DaemonSet, kind: &str) -> Option<&'a Condition> {
    let found = set.status.as_ref()?.conditions.iter().find(|known| known.type_ == kind)?;
    found.observed_generation.is_none_or(|seen| seen >= set.metadata.generation.unwrap_or(0)).then_some(found)
}

/// What conditions say that are not as they should be in the end: what is being waited for, and what else.
fn told(set: &DaemonSet) -> (Vec<String>, Vec<String>) {
    let (mut waiting, mut notes) = (Vec::new(), Vec::new());
    let message = |kind: &str, status: &str| {
        let found = condition(set, kind).filter(|known| known.status == status)?;
        Some((found.reason.as_str(), found.message.trim())).filter(|(_, message)| !message.is_empty())
    };
    notes.extend(message("Degraded", "True").map(|(_, text)| text.to_owned()));
    match message("Progressing", "True") {
        // Ours begins with the counts, which are said anyway.
        Some(("RollingOut", text)) => {
            for part in text.split("; ").skip(1) {
                match part.strip_prefix("waiting for ") {
                    Some(what) => waiting.push(what.to_owned()),
                    None => notes.push(part.to_owned()),
                }
            }
        }
        Some((_, text)) => waiting.push(text.to_owned()),
        None => {
            let stands = message("Progressing", "False").filter(|(reason, _)| *reason != "Complete");
            notes.extend(stands.map(|(_, text)| text.to_owned()));
        }
    }
    notes.extend(message("Available", "False").map(|(_, text)| text.to_owned()));
    (waiting, notes)
}

/// Why a DaemonSet's course cannot be changed so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// It is as it should be.
    #[error("is already paused: `dapple rollout resume` lets it go on")]
    AlreadyPaused,
    /// It is as it should be.
    #[error("is not paused")]
    NotPaused,
    /// Nothing rolls out by itself.
    #[error(
        "has spec.updateStrategy.type OnDelete: pods are replaced when somebody deletes them, and no rollout can be \
         paused or resumed; set the type to RollingUpdate first"
    )]
    OnDelete,
    /// A restart would not begin.
    #[error("is paused (spec.updateStrategy.rollingUpdate.paused): `dapple rollout resume` it first")]
    Paused,
    /// Twice within a second would be once.
    #[error("was restarted this very second: wait a moment")]
    JustRestarted,
}

/// The merge patch that pauses a rollout, or lets it go on.
pub fn pause(set: &DaemonSet, paused: bool) -> Result<Value, ChangeError> {
    if set.spec.update_strategy_type() == UpdateStrategyType::OnDelete {
        return Err(ChangeError::OnDelete);
    }
    match (set.spec.rolling_update().paused(), paused) {
        (true, true) => Err(ChangeError::AlreadyPaused),
        (false, false) => Err(ChangeError::NotPaused),
        _ => Ok(only_if_unchanged(set, json!({"updateStrategy": {"rollingUpdate": {"paused": paused}}}))),
    }
}

/// The merge patch that replaces every pod by one like it. `at` is the time, in RFC 3339.
pub fn restart(set: &DaemonSet, at: &str) -> Result<Value, ChangeError> {
    if set.spec.rolling_update().paused() {
        return Err(ChangeError::Paused);
    }
    if set.spec.template.0["metadata"]["annotations"][RESTARTED_ANNOTATION] == at {
        return Err(ChangeError::JustRestarted);
    }
    Ok(only_if_unchanged(set, json!({"template": {"metadata": {"annotations": {RESTARTED_ANNOTATION: at}}}})))
}

fn only_if_unchanged(set: &DaemonSet, spec: Value) -> Value {
    json!({"metadata": {"uid": set.metadata.uid, "resourceVersion": set.metadata.resource_version}, "spec": spec})
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
