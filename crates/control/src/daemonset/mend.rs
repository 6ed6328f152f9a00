//! Revisions that nobody can change, and those that are made in their place.
//!
//! The API server keeps the bytes that a revision was made with, writes them in Go's form whenever somebody patches it, and
//! then refuses the patch, since they have changed. What was written in another form can so be neither numbered anew, nor
//! let go by the garbage collector. It is replaced by one that says the same.
//!
//! Invariant: at no time is there none that says what the old one does. The new one is made first; the old one goes once the
//! new one is seen. Each write is safe to repeat.

use std::sync::Arc;

use dapple_edit::go_json;
use dapple_plan::daemonset::revision::replacement;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tracing::info;

use super::memory::Memory;
use super::steps::Step;
use super::{DaemonSets, Set, SetRevision};
use crate::caches::store::Key;
use crate::writes::outcome::{Outcome, Writer, version_of};

/// What failures call the revision that is yet to be made, or to become the newest.
pub(super) const NEWEST: &str = "the newest ControllerRevision";

impl DaemonSets {
    pub(super) fn revision_writer(&self, namespace: &str) -> Writer {
        Writer::new(&self.client, &Api::<ControllerRevision>::namespaced(self.client.clone(), namespace))
    }

    /// Makes a revision. What is sent has the form that the API server writes: see [`go_json`].
    pub(super) async fn post_revision(
        &self,
        namespace: &str,
        object: &Value,
    ) -> Result<ControllerRevision, kube::Error> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
        let body = go_json::encode(object).into_bytes();
        let request = kube::core::Request::new(api.resource_url()).create(&PostParams::default(), body);
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

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
        if !memory.unsound.contains(&revision.meta.uid) && self.is_changeable(set, revision).await? {
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
        let (namespace, name) = (&set.meta.key.namespace, &revision.meta.key.name);
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
        let Some(found) = api.get_opt(name).await? else { return Ok(false) };
        let old = serde_json::to_value(&found).map_err(kube::Error::SerdeError)?;
        let began = revision.as_revision(set, self.env.now()).began;
        let new = replacement(&old, (&set.meta.key.name, &set.meta.uid), began);
        let written = match self.post_revision(namespace, &new).await {
            // Made before, and not seen yet.
            Err(kube::Error::Api(error)) if error.code == 409 => {
                api.get(new["metadata"]["name"].as_str().unwrap_or_default()).await?
            }
            answer => answer?,
        };
        info!(set = %set.meta.key, revision = %name, by = %written.name_any(), "a revision that nobody can change is replaced");
        let key = Key::new(namespace, &written.name_any());
        self.revisions.wrote(&key, version_of(&written.metadata));
        memory.wrote_revision(key);
        Ok(true)
    }

    /// Whether the API server would take any change of it.
    async fn is_changeable(&self, set: &Set, revision: &SetRevision) -> Result<bool, kube::Error> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &set.meta.key.namespace);
        let patch = Patch::Strategic(json!({"metadata": {"uid": &*revision.meta.uid}}));
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        match api.patch(&revision.meta.key.name, &dry, &patch).await {
            // Gone, or another one by now: the watch will tell.
            Ok(_) => Ok(true),
            Err(kube::Error::Api(error)) if [404, 409].contains(&error.code) => Ok(true),
            Err(kube::Error::Api(error)) if error.code == 422 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn drop_replaced(&self, set: &Set, revision: &SetRevision) -> Result<(), kube::Error> {
        let only = Preconditions { uid: Some(revision.meta.uid.to_string()), resource_version: None };
        match self.revision_writer(&set.meta.key.namespace).delete(&revision.meta.key.name, Some(only)).await {
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            Outcome::Written(_) | Outcome::Gone | Outcome::Conflict | Outcome::NameTaken => Ok(()),
        }
    }
}
