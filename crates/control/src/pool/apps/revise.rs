//! Revisions of an application: the newest is made before anything is written for it, and what nobody needs goes.

use dapple_plan::pool::application::Decision;
use dapple_plan::pool::needed::needed;
use dapple_plan::pool::revision::{self, Settled, object, stand_in, surplus};
use jiff::Timestamp;
use serde_json::json;
use tracing::info;

use super::super::kept::{ApplicationSpec, Kept};
use super::Memory;
use super::io::Io;
use super::observe::View;
use crate::slim::Key;
use crate::writes::outcome::{Outcome, exactly};

/// What has come of making the newest revision.
pub(super) enum Revised {
    /// It is there.
    Newest,
    /// Something was written, or is another by now: it is to be looked at again.
    Written,
    /// It cannot be written, for this reason: nothing is rolled out before it is.
    Failed(String),
}

/// Has the newest revision say what the application says.
pub(super) async fn revise<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<Revised, kube::Error> {
    let collisions = S::common(&kept.status).collision_count.unwrap_or_default();
    let settled = memory.recalled.settle(&view.application, (&view.version, &view.revisions), collisions);
    let find = |name: &str| view.revisions.iter().find(|revision| revision.name == name).cloned();
    if view.is_suspended {
        // It is only told how pools would differ from it.
        view.newest = match settled {
            Settled::Create(revision) => Some(revision),
            Settled::Keep(name) | Settled::Renumber { name, .. } => find(&name),
        };
        return Ok(if view.newest.is_some() { Revised::Newest } else { Revised::Written });
    }
    match settled {
        Settled::Keep(name) => {
            view.newest = find(&name);
            Ok(if view.newest.is_some() { Revised::Newest } else { Revised::Written })
        }
        Settled::Renumber { name, number } => {
            let made = stand_in(&view.application, &view.version, &view.revisions, (number, collisions));
            let why = [&name, &made.name].into_iter().find_map(|name| memory.failed.about(&called(name)));
            if let Some(why) = why {
                return Ok(Revised::Failed(why.to_owned()));
            }
            let Some(known) = io.revisions.get(&key(kept, &name)) else { return Ok(Revised::Written) };
            let history = io.history(&kept.meta.key.namespace);
            let outcome = history.renumber((&name, known.meta.version), number, &json!({})).await;
            if outcome.is_invalid() {
                return make(io, kept, view, memory, (&made, now)).await;
            }
            written(io, kept, memory, (&name, "numbered anew", outcome), now)
        }
        Settled::Create(made) => make(io, kept, view, memory, (&made, now)).await,
    }
}

/// Makes a revision.
async fn make<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    memory: &mut Memory,
    (revision, now): (&revision::Revision, Timestamp),
) -> Result<Revised, kube::Error> {
    if let Some(why) = memory.failed.about(&called(&revision.name)) {
        return Ok(Revised::Failed(why.to_owned()));
    }
    let mut made = object(revision, &view.application);
    made["apiVersion"] = "apps/v1".into();
    made["kind"] = "ControllerRevision".into();
    info!(application = %kept.meta.key, revision = revision.name, "making a revision");
    match io.history(&kept.meta.key.namespace).create(&made).await {
        Outcome::NameTaken => taken(io, kept, &revision.name).await.map(|()| Revised::Written),
        outcome => written(io, kept, memory, (&revision.name, "made", outcome), now),
    }
}

/// What has come of a write to a revision.
fn written<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    memory: &mut Memory,
    (name, done, outcome): (&str, &str, Outcome),
    now: Timestamp,
) -> Result<Revised, kube::Error> {
    match outcome {
        Outcome::Written(version) => io.revisions.wrote(&key(kept, name), version),
        Outcome::Refused(error) | Outcome::Unknown(error) => {
            return memory.failed.note(called(name), done, error, now).map(Revised::Failed);
        }
        // It is another by now: the watch tells.
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
    }
    Ok(Revised::Written)
}

fn key<S: ApplicationSpec>(kept: &Kept<S>, name: &str) -> Key {
    Key::new(&kept.meta.key.namespace, name)
}

/// A revision, as people name it.
fn called(name: &str) -> String {
    format!("ControllerRevision {name}")
}

/// The name is taken: by our own, which was not seen yet, or by something else. Then the next name is tried.
async fn taken<S: ApplicationSpec>(io: &Io<S>, kept: &Kept<S>, name: &str) -> Result<(), kube::Error> {
    let found = io.history(&kept.meta.key.namespace).find(name).await?;
    let owners = found.iter().flat_map(|found| found.metadata.owner_references.iter().flatten());
    let is_own = owners.into_iter().any(|owner| owner.controller == Some(true) && *owner.uid == *kept.meta.uid);
    if is_own || found.is_none() {
        return Ok(());
    }
    let collisions = S::common(&kept.status).collision_count.unwrap_or_default();
    let writer = io.writer(S::KIND, &kept.meta.key.namespace);
    match writer.write_status(&kept.meta, &json!({"collisionCount": collisions.saturating_add(1)})).await {
        Outcome::Written(version) => io.applications.wrote(&kept.meta.key, version),
        Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
    }
    Ok(())
}

/// Drops the oldest revisions beyond the limit, but none that a pool has, or starts with. One that cannot be dropped is told.
pub(super) async fn drop_surplus<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<(), kube::Error> {
    if view.is_suspended {
        return Ok(());
    }
    let needed = needed(&decision.status, &decision.actions, &view.workloads);
    let limit = view.application.history_limit;
    let gone = surplus(&view.revisions, limit, |revision| needed.contains(revision.name.as_str()));
    let history = io.history(&kept.meta.key.namespace);
    let mut failures = Vec::new();
    for revision in gone {
        let object = called(&revision.name);
        if memory.failed.about(&object).is_some() {
            continue;
        }
        let Some(known) = io.revisions.get(&key(kept, &revision.name)) else { continue };
        match history.delete(&revision.name, exactly(&known.meta)).await {
            Outcome::Refused(error) | Outcome::Unknown(error) => {
                failures.push(memory.failed.note(object, "dropped", error, now)?);
            }
            Outcome::Written(_) | Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
        }
    }
    view.failures.extend(failures);
    Ok(())
}
