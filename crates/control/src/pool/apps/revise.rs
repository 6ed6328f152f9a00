//! Revisions of an application: the newest is made before anything is written for it, and what nobody needs goes.

use dapple_api::pool::POOL_REVISION_LABEL;
use dapple_plan::pool::application::Decision;
use dapple_plan::pool::revision::{Settled, object, surplus};
use kube::api::Preconditions;
use serde_json::json;
use tracing::info;

use super::super::kept::{ApplicationSpec, Kept};
use super::io::Io;
use super::observe::View;
use super::recalled::Recalled;
use crate::slim::{Key, Revision};
use crate::writes::outcome::{Outcome, exactly};

/// Has the newest revision say what the application says. Whether anything was written: then it is to be looked at again.
pub(super) async fn revise<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    recalled: &mut Recalled,
) -> Result<bool, kube::Error> {
    let collisions = S::common(&kept.status).collision_count.unwrap_or_default();
    let history = io.history(&kept.meta.key.namespace);
    let key = |name: &str| Key::new(&kept.meta.key.namespace, name);
    let settled = recalled.settle(&view.application, (&view.version, &view.revisions), collisions);
    if view.is_suspended {
        // It is only told how pools would differ from it.
        view.newest = match settled {
            Settled::Create(revision) => Some(revision),
            Settled::Keep(name) | Settled::Renumber { name, .. } => {
                view.revisions.iter().find(|revision| revision.name == name).cloned()
            }
        };
        return Ok(false);
    }
    match settled {
        Settled::Keep(name) => {
            view.newest = view.revisions.iter().find(|revision| revision.name == name).cloned();
            Ok(view.newest.is_none())
        }
        Settled::Renumber { name, number } => {
            let Some(known) = io.revisions.get(&key(&name)) else { return Ok(true) };
            match history.renumber((&name, known.meta.version), number, &json!({})).await {
                Outcome::Written(version) => io.revisions.wrote(&key(&name), version),
                Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
                Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
            }
            Ok(true)
        }
        Settled::Create(revision) => {
            let mut made = object(&revision, &view.application);
            made["apiVersion"] = "apps/v1".into();
            made["kind"] = "ControllerRevision".into();
            info!(application = %kept.meta.key, revision = revision.name, "making a revision");
            match history.create(&made).await {
                Outcome::Written(version) => io.revisions.wrote(&key(&revision.name), version),
                Outcome::NameTaken => return taken(io, kept, &revision.name).await,
                Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
                Outcome::Gone | Outcome::Conflict | Outcome::Missing => {}
            }
            Ok(true)
        }
    }
}

/// The name is taken: by our own, which was not seen yet, or by something else. Then the next name is tried.
async fn taken<S: ApplicationSpec>(io: &Io<S>, kept: &Kept<S>, name: &str) -> Result<bool, kube::Error> {
    let found = io.history(&kept.meta.key.namespace).find(name).await?;
    let owners = found.iter().flat_map(|found| found.metadata.owner_references.iter().flatten());
    let is_own = owners.into_iter().any(|owner| owner.controller == Some(true) && *owner.uid == *kept.meta.uid);
    if is_own || found.is_none() {
        return Ok(true);
    }
    let collisions = S::common(&kept.status).collision_count.unwrap_or_default();
    let writer = io.writer(S::KIND, &kept.meta.key.namespace);
    match writer.write_status(&kept.meta, &json!({"collisionCount": collisions.saturating_add(1)})).await {
        Outcome::Written(version) => io.applications.wrote(&kept.meta.key, version),
        Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
    }
    Ok(true)
}

/// Drops the oldest revisions beyond the limit, but none that a pool has, or starts with.
pub(super) async fn drop_surplus<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    decision: &Decision,
) -> Result<(), kube::Error> {
    if view.is_suspended {
        return Ok(());
    }
    let status = &decision.status;
    let is_needed = |name: &str| {
        let has = |workload: &dapple_plan::pool::application::Existing| {
            workload.object["metadata"]["labels"].get(POOL_REVISION_LABEL).is_some_and(|revision| revision == name)
        };
        status.current_revision.as_deref() == Some(name)
            || status.update_revision.as_deref() == Some(name)
            || status.pools.iter().any(|pool| pool.revision == name)
            || view.workloads.iter().any(has)
    };
    let gone = surplus(&view.revisions, view.application.history_limit, |revision| is_needed(&revision.name));
    let history = io.history(&kept.meta.key.namespace);
    for revision in gone {
        let known = io.revisions.get(&Key::new(&kept.meta.key.namespace, &revision.name));
        let Some(only) = known.as_deref().map(|known: &Revision| exactly(&known.meta)) else { continue };
        let only: Preconditions = only;
        if let Outcome::Refused(error) | Outcome::Unknown(error) = history.delete(&revision.name, only).await {
            return Err(error);
        }
    }
    Ok(())
}
