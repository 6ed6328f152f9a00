//! Writing what was decided, pool by pool. What is refused is that pool's error, and holds up no other.

use dapple_api::pool::POOL_NAME_LABEL;
use dapple_edit::render::hash;
use dapple_plan::pool::application::{Action, Decision, Existing};
use dapple_plan::pool::stored::is_as_stored;
use jiff::Timestamp;
use kube::api::{ListParams, Patch, Preconditions};
use serde_json::{Value, json};
use tracing::info;

use super::super::kept::{ApplicationSpec, Kept};
use super::io::{Io, WorkloadKind};
use super::observe::View;
use super::{AGAIN, Doubt, Memory, Refusal, SEEN_WITHIN};
use crate::slim::Key;
use crate::writes::client::{in_words, is_not_leading};
use crate::writes::outcome::Outcome;

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
    for action in &decision.actions {
        let (pool, outcome) = match action {
            Action::Create { pool, workload } => (pool, create(io, kept, view, (pool, workload)).await?),
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
                refuse(memory, view, pool, format!("the name {name} is taken by something else"), now)
            }
            Outcome::Refused(error) if !is_not_leading(&error) => refuse(memory, view, pool, in_words(&error), now),
            Outcome::Refused(error) => return Err(error),
            Outcome::Unknown(error) => {
                doubt(memory, action, now);
                return Err(error);
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

/// Makes a pool's workload, unless the API server has one that was not seen yet: another, of any name, would be a second.
async fn create<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    (pool, workload): (&str, &Value),
) -> Result<(String, Outcome), kube::Error> {
    let name = workload["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = &kept.meta.key.namespace;
    let asked = ListParams::default().labels(&format!("{POOL_NAME_LABEL}={pool}"));
    let there = io.api(view.kind.at(), namespace).list_metadata(&asked).await?;
    let is_own = |found: &kube::core::PartialObjectMeta<_>| {
        let mut owners = found.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && *owner.uid == *kept.meta.uid)
    };
    if there.items.iter().any(is_own) {
        return Ok((name, Outcome::Conflict));
    }
    info!(application = %kept.meta.key, %pool, workload = name, "making a workload");
    let outcome = io.writer(view.kind.at(), namespace).create(workload.to_string().into_bytes()).await;
    Ok((name, outcome))
}

/// Whether the API server, asked what it would make of a workload, has what is there: then another webhook made the difference.
/// What it said is remembered for as long as nothing of it changes.
pub(super) async fn is_others_doing<S: ApplicationSpec>(
    io: &Io<S>,
    (kind, workload): (WorkloadKind, &Existing),
    wanted: &Value,
    memory: &mut Memory,
) -> Result<bool, kube::Error> {
    let metadata = &workload.object["metadata"];
    let uid = metadata["uid"].as_str().unwrap_or_default();
    let compared = json!([metadata["labels"], metadata["annotations"], workload.object["spec"], wanted]);
    let compared = hash(&compared);
    if memory.others_doing.get(uid) == Some(&compared) {
        return Ok(true);
    }
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let document = kind.document();
    let patch = dapple_plan::pool::stored::merge_patch(&workload.object["spec"], &wanted["spec"]);
    let patch = json!({
        "metadata": {
            "uid": uid, "resourceVersion": metadata["resourceVersion"],
            "labels": wanted["metadata"]["labels"], "annotations": wanted["metadata"]["annotations"],
        },
        "spec": patch,
    });
    match io.writer(kind.at(), namespace).try_patch(workload.name(), &patch).await {
        Ok(answer) if is_as_stored(document, &workload.object, &answer) => {
            memory.others_doing.insert(uid.to_owned(), compared);
            Ok(true)
        }
        // A refusal is told when it is written.
        Ok(_) | Err(kube::Error::Api(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
