//! Revisions that nobody can change, and those that are made in their place.
//!
//! What was not written in Go's form can be neither numbered anew, nor let go by the garbage collector: see
//! [`crate::history`]. It is replaced by one that says the same.
//!
//! Invariant: at no time is there none that says what the old one does. The new one is made first; the old one goes once the
//! new one is seen. Each write is safe to repeat.

use std::sync::Arc;

use dapple_edit::go_json;
use dapple_plan::daemonset::revision::replacement;
use kube::ResourceExt;
use kube::api::Preconditions;
use serde_json::Value;
use tracing::info;

use super::memory::Memory;
use super::steps::Step;
use super::{DaemonSets, Set, SetRevision};
use crate::caches::store::Key;
use crate::writes::outcome::{Outcome, version_of};

/// What failures call the revision that is yet to be made, or to become the newest.
pub(super) const NEWEST: &str = "the newest ControllerRevision";

impl DaemonSets {
    /// Replaces revisions of the set that nobody can change. True if something was written that must be seen first.
    pub(super) async fn mend(
        &self,
        set: &Set,
        memory: &mut Memory,
        revisions: &[Arc<SetRevision>],
    ) -> Result<bool, kube::Error> {
        memory.sound.retain(|uid| revisions.iter().any(|known| known.meta.uid == *uid));
        memory.unsound.retain(|uid| revisions.iter().any(|known| known.meta.uid == *uid));
        let is_there = |object: &str| revisions.iter().any(|known| object.ends_with(&*known.meta.key.name));
        memory.keep_failures(Step::Revisions, |object| object == NEWEST || is_there(object));
        let mut has_written = false;
        for revision in revisions {
            let is_sound = go_json::is_plain(&revision.data) || memory.sound.contains(&revision.meta.uid);
            if is_sound && !memory.unsound.contains(&revision.meta.uid) {
                continue;
            }
            let mended = self.mend_one(set, memory, revision, revisions).await;
            let object = format!("ControllerRevision {}", revision.meta.key.name);
            has_written |= self.stepped(set, memory, (Step::Revisions, &object), mended)?.unwrap_or(false);
        }
        Ok(has_written)
    }

    async fn mend_one(
        &self,
        set: &Set,
        memory: &mut Memory,
        revision: &SetRevision,
        revisions: &[Arc<SetRevision>],
    ) -> Result<bool, kube::Error> {
        if revisions.iter().any(|known| known.stands_in_for(revision)) {
            return self.drop_replaced(set, revision).await.map(|()| false);
        }
        if !memory.unsound.contains(&revision.meta.uid) && self.history(set).is_changeable(&revision.meta).await? {
            memory.sound.insert(revision.meta.uid.clone());
            return Ok(false);
        }
        self.replace(set, memory, revision).await
    }

    /// Makes one that says the same. False if the old one is gone.
    pub(super) async fn replace(
        &self,
        set: &Set,
        memory: &mut Memory,
        revision: &SetRevision,
    ) -> Result<bool, kube::Error> {
        let name = &revision.meta.key.name;
        let began = revision.as_revision(set, self.env.now()).began;
        let stand_in = |old: &Value| replacement(old, (&set.meta.key.name, &set.meta.uid), began);
        let Some(written) = self.history(set).replace(name, stand_in).await? else { return Ok(false) };
        info!(set = %set.meta.key, revision = %name, by = %written.name_any(), "a revision that nobody can change is replaced");
        let key = Key::new(&set.meta.key.namespace, &written.name_any());
        self.revisions.wrote(&key, version_of(&written.metadata));
        memory.wrote_revision(key);
        Ok(true)
    }

    async fn drop_replaced(&self, set: &Set, revision: &SetRevision) -> Result<(), kube::Error> {
        let only = Preconditions { uid: Some(revision.meta.uid.to_string()), resource_version: None };
        match self.history(set).delete(&revision.meta.key.name, only).await {
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            Outcome::Written(_) | Outcome::Gone | Outcome::Missing | Outcome::Conflict | Outcome::NameTaken => Ok(()),
        }
    }
}
