//! Revisions that nobody can change, and those that are made in their place.
//!
//! What was not written in Go's form can be neither numbered anew, nor let go by the garbage collector: see
//! [`crate::history`]. It is replaced by one that says the same.
//!
//! Invariant: at no time is there none that says what the old one does. The new one is made first; the old one goes once the
//! new one is seen. Each write is safe to repeat.

use std::sync::Arc;

use dapple_edit::go_json;
use dapple_plan::daemonset::failure::{Failures, Step};
use dapple_plan::daemonset::revision::replacement;
use kube::api::Preconditions;
use serde_json::Value;
use tracing::info;

use super::io::Io;
use super::memory::RevisionWrites;
use super::steps::note;
use super::{Set, SetRevision};
use crate::slim::Key;
use crate::writes::outcome::Outcome;

/// What failures call the revision that is yet to be made, or to become the newest.
pub(super) const NEWEST: &str = "the newest ControllerRevision";

/// Replaces revisions of the set that nobody can change. True if something was written that must be seen first.
pub(super) async fn mend(
    io: &Io,
    set: &Set,
    writes: &mut RevisionWrites,
    failures: &mut Failures,
    revisions: &[Arc<SetRevision>],
) -> Result<bool, kube::Error> {
    writes.sound.retain(|uid| revisions.iter().any(|known| known.meta.uid == *uid));
    writes.unsound.retain(|uid| revisions.iter().any(|known| known.meta.uid == *uid));
    let is_there = |object: &str| revisions.iter().any(|known| object.ends_with(&*known.meta.key.name));
    failures.keep(Step::Revisions, is_there);
    let mut has_written = false;
    for revision in revisions {
        let is_sound = go_json::is_plain(&revision.data) || writes.sound.contains(&revision.meta.uid);
        if is_sound && !writes.unsound.contains(&revision.meta.uid) {
            continue;
        }
        let mended = mend_one(io, set, writes, revision, revisions).await;
        let object = format!("ControllerRevision {}", revision.meta.key.name);
        has_written |= note(failures, (io, set), (Step::Revisions, &object), mended)?.unwrap_or(false);
    }
    Ok(has_written)
}

async fn mend_one(
    io: &Io,
    set: &Set,
    writes: &mut RevisionWrites,
    revision: &SetRevision,
    revisions: &[Arc<SetRevision>],
) -> Result<bool, kube::Error> {
    if revisions.iter().any(|known| known.stands_in_for(revision)) {
        return drop_replaced(io, set, revision).await.map(|()| false);
    }
    if !writes.unsound.contains(&revision.meta.uid) && io.history(set).is_changeable(&revision.meta).await? {
        writes.sound.insert(revision.meta.uid.clone());
        return Ok(false);
    }
    replace(io, set, writes, revision).await
}

/// Makes one that says the same. False if the old one is gone.
pub(super) async fn replace(
    io: &Io,
    set: &Set,
    writes: &mut RevisionWrites,
    revision: &SetRevision,
) -> Result<bool, kube::Error> {
    let name = &revision.meta.key.name;
    let began = revision.as_revision(set, io.env.now()).began;
    let stand_in = |old: &Value| replacement(old, (&set.meta.key.name, &set.meta.uid), began);
    let Some((by, outcome)) = io.history(set).replace(name, stand_in).await? else { return Ok(false) };
    match outcome {
        Outcome::Written(version) => {
            info!(set = %set.meta.key, revision = %name, %by, "a revision that nobody can change is replaced");
            let key = Key::new(&set.meta.key.namespace, &by);
            io.revisions.wrote(&key, version);
            writes.wrote(key);
            Ok(true)
        }
        // It is gone again, or the namespace is.
        Outcome::Conflict | Outcome::Missing | Outcome::Gone | Outcome::NameTaken => Ok(false),
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
    }
}

async fn drop_replaced(io: &Io, set: &Set, revision: &SetRevision) -> Result<(), kube::Error> {
    let only = Preconditions { uid: Some(revision.meta.uid.to_string()), resource_version: None };
    match io.history(set).delete(&revision.meta.key.name, only).await {
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
        Outcome::Written(_) | Outcome::Gone | Outcome::Missing | Outcome::Conflict | Outcome::NameTaken => Ok(()),
    }
}
