//! Writing what was decided, pool by pool. What is refused is that pool's error, and holds up no other.

use dapple_api::pool::POOL_NAME_LABEL;
use dapple_plan::pool::application::{Action, Decision};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, Preconditions};
use serde_json::Value;
use tracing::info;

use super::super::kept::{ApplicationSpec, Kept};
use super::failed::ends_all;
use super::io::Io;
use super::memory::{Doubt, Memory, Refusal};
use super::observe::View;
use super::{AGAIN, SEEN_WITHIN};
use crate::slim::Key;
use crate::writes::client::{in_words, is_not_leading};
use crate::writes::outcome::{Outcome, outcome};

/// Writes what was decided. False if something has changed meanwhile.
pub(super) async fn execute<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    let mut are_all_done = true;
    memory.unanswered.retain(|pool| decision.seats.iter().any(|seat| seat.pool == *pool));
    for action in &decision.actions {
        let (pool, outcome) = match action {
            Action::Create { pool, workload } => (pool, create(io, kept, view, (pool, workload)).await),
            Action::Patch { pool, name, patch, .. } => {
                info!(application = %kept.meta.key, %pool, workload = name, "changing a workload");
                let writer = io.writer(view.kind.at(), &kept.meta.key.namespace);
                (pool, (name.clone(), writer.patch(name, None, &Patch::Merge(patch)).await))
            }
            Action::Delete { pool, name, uid, version } => {
                info!(application = %kept.meta.key, %pool, workload = name, "deleting a workload");
                let only = Preconditions { uid: Some(uid.clone()), resource_version: Some(version.clone()) };
                let writer = io.writer(view.kind.at(), &kept.meta.key.namespace);
                (pool, (name.clone(), writer.delete_last(name, only).await))
            }
        };
        let (name, outcome) = outcome;
        if !matches!(outcome, Outcome::Unknown(_)) {
            memory.unanswered.remove(pool);
        }
        match outcome {
            Outcome::Written(version) => {
                if matches!(action, Action::Patch { repaired: Some(_), .. }) {
                    io.counted.workload_repairs.inc();
                }
                io.workloads(view.kind).wrote(&Key::new(&kept.meta.key.namespace, &name), version);
            }
            Outcome::Gone => {}
            Outcome::Missing | Outcome::Conflict => are_all_done = false,
            Outcome::NameTaken => {
                let reason = format!("refused: the name {name} is taken by something else");
                refuse(memory, view, pool, reason, now);
            }
            Outcome::Refused(error) if is_not_leading(&error) => return Err(error),
            Outcome::Refused(error) => {
                refuse(memory, view, pool, format!("refused: {}", in_words(&error)), now);
                if ends_all(&error) {
                    return Err(error);
                }
            }
            Outcome::Unknown(error) => {
                doubt(memory, action, now);
                // Once is tried again soon. Who is never answered holds up no other.
                let is_first = memory.unanswered.insert(pool.clone());
                if !is_first {
                    let reason = format!("it is not known whether it was written: {}", in_words(&error));
                    refuse(memory, view, pool, reason, now);
                }
                if is_first || ends_all(&error) {
                    return Err(error);
                }
            }
        }
    }
    Ok(are_all_done)
}

/// Notes that nobody knows whether something was done. What is to be made has the same name at the next try.
fn doubt(memory: &mut Memory, action: &Action, now: Timestamp) {
    let (uid, version) = match action {
        Action::Create { .. } => return,
        Action::Patch { patch, .. } => {
            let text = |field: &str| patch["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("uid"), text("resourceVersion"))
        }
        Action::Delete { uid, version, .. } => (uid.clone(), version.clone()),
    };
    memory.doubts.insert(uid, Doubt { version, until: now.checked_add(SEEN_WITHIN).unwrap_or(now) });
}

fn refuse(memory: &mut Memory, view: &View, pool: &str, reason: String, now: Timestamp) {
    let until = now.checked_add(AGAIN).unwrap_or(now);
    let revision = view.newest.as_ref().map(|newest| newest.name.clone()).unwrap_or_default();
    memory.refused.insert(pool.to_owned(), Refusal { revision, reason, until });
}

/// Makes a pool's workload, unless the API server has one that was not seen yet: another, of any name, would be a second. Nothing is
/// made before that is known.
async fn create<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    (pool, workload): (&str, &Value),
) -> (String, Outcome) {
    let name = workload["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = &kept.meta.key.namespace;
    let asked = ListParams::default().labels(&format!("{POOL_NAME_LABEL}={pool}"));
    let there = match io.api(view.kind.at(), namespace).list_metadata(&asked).await {
        Ok(there) => there,
        Err(error) => return (name, outcome(Err(error))),
    };
    let is_own = |found: &kube::core::PartialObjectMeta<_>| {
        let mut owners = found.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && *owner.uid == *kept.meta.uid)
    };
    if there.items.iter().any(is_own) {
        return (name, Outcome::Conflict);
    }
    info!(application = %kept.meta.key, %pool, workload = name, "making a workload");
    let outcome = io.writer(view.kind.at(), namespace).create(workload.to_string().into_bytes()).await;
    (name, outcome)
}
