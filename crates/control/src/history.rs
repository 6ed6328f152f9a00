//! ControllerRevisions in the API server, for any owner: making, numbering anew, replacing and dropping them.
//!
//! The API server keeps the bytes that a revision was made with, writes them in Go's form whenever somebody patches it, and
//! then refuses the patch, since they have changed. So what is sent has that form, and one that was made in another is
//! replaced by one that says the same.

use dapple_api::selector::Selector;
use dapple_edit::go_json;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Api, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, Error, ResourceExt};
use serde_json::{Value, json};

use crate::slim::Meta;
use crate::writes::outcome::{Outcome, Writer, version_of};

/// The revisions of a namespace.
pub struct History {
    api: Api<ControllerRevision>,
    writer: Writer,
}

impl History {
    /// Those of this namespace.
    pub fn new(client: &Client, namespace: &str) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self { writer: Writer::new(client, &api), api }
    }

    /// One of this name.
    pub async fn find(&self, name: &str) -> Result<Option<ControllerRevision>, Error> {
        self.api.get_opt(name).await
    }

    /// The version that one of this name has now.
    pub async fn version(&self, name: &str) -> Result<Option<u64>, Error> {
        let found = self.api.get_metadata_opt(name).await?;
        Ok(found.map(|found| version_of(&found.metadata)))
    }

    /// Makes one.
    pub async fn create(&self, object: &Value) -> Outcome {
        self.writer.create(go_json::encode(object).into_bytes()).await
    }

    /// Gives one another number, at this version of it.
    pub async fn renumber(&self, (name, version): (&str, u64), number: i64, annotations: &Value) -> Outcome {
        let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
        let patch = json!({"metadata": metadata, "revision": number});
        self.writer.patch(name, None, &Patch::Merge(patch)).await
    }

    /// Patches one. The patch names what it is meant for.
    pub async fn patch(&self, name: &str, patch: Value) -> Outcome {
        self.writer.patch(name, None, &Patch::Strategic(patch)).await
    }

    /// Makes one in place of another, which says the same: `replacement` follows from the old one. Returns its name and what
    /// came of it; nothing if the old one is gone.
    pub async fn replace(
        &self,
        name: &str,
        replacement: impl FnOnce(&Value) -> Value,
    ) -> Result<Option<(String, Outcome)>, Error> {
        let Some(old) = self.find(name).await? else { return Ok(None) };
        let new = replacement(&serde_json::to_value(&old).map_err(Error::SerdeError)?);
        let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let outcome = match self.create(&new).await {
            // Made before, and not seen yet.
            Outcome::NameTaken => self.version(&name).await?.map_or(Outcome::Missing, Outcome::Written),
            outcome => outcome,
        };
        Ok(Some((name, outcome)))
    }

    /// Whether the API server would take any change of one.
    pub async fn is_changeable(&self, revision: &Meta) -> Result<bool, Error> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": &*revision.uid}}));
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        match self.api.patch(&revision.key.name, &dry, &patch).await {
            // Gone, or another one by now: the watch will tell.
            Ok(_) => Ok(true),
            Err(Error::Api(error)) if [404, 409].contains(&error.code) => Ok(true),
            Err(Error::Api(error)) if error.code == 422 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Drops one.
    pub async fn delete(&self, name: &str, only: Preconditions) -> Outcome {
        self.writer.delete(name, Some(only)).await
    }

    /// Whether there are revisions with such labels that nobody controls and that our view does not have as they are: not one
    /// of the same name as it was before, with its owner of then. Asks the API server itself: our view of revisions may be older than that of their owners.
    pub async fn has_unseen_orphans(
        &self,
        selector: &Selector,
        is_in_view: impl Fn(&str, u64) -> bool,
    ) -> Result<bool, Error> {
        let all = self.api.list_metadata(&ListParams::default()).await?;
        Ok(all.iter().any(|known| {
            let is_owned = known.owner_references().iter().any(|owner| owner.controller == Some(true));
            let is_selected = selector.matches(|key| known.labels().get(key).map(String::as_str));
            !is_owned && is_selected && !is_in_view(&known.name_any(), version_of(&known.metadata))
        }))
    }
}
