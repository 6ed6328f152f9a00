//! Reading applications in pools, their revisions and their replacements from a cluster.

use anyhow::{anyhow, bail};
use dapple_api::kinds::{self, Name, OwnKind};
use dapple_api::pool::{SubjectKind, YurtAppConfigurationReplacement, YurtAppDaemon, YurtAppSet};
use dapple_plan::cause::CHANGE_CAUSE;
use dapple_plan::pool::object::{ApplicationObject, counting};
use dapple_plan::pool::revision::{Revision, number_of};
use dapple_view::pool::history::RevisionFacts;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, ListParams};

use crate::reach::{Reach, is_unserved, pages, typed};

/// An application, and the replacements of its namespace.
pub(crate) struct Found {
    pub(crate) application: ApplicationObject,
    pub(crate) replacements: Vec<YurtAppConfigurationReplacement>,
}

impl Found {
    /// Reads what there is beside an application.
    pub(crate) async fn beside(reach: &Reach, name: &str, object: &DynamicObject) -> anyhow::Result<Self> {
        let application = reach.read(name, object, |object| read(reach.own, object))?;
        Ok(Self { application, replacements: replacements(reach).await?.unwrap_or_default() })
    }

    /// The object whose replacements count for it.
    pub(crate) fn replacement(&self) -> Option<&YurtAppConfigurationReplacement> {
        counting(&self.replacements, &self.application)
    }
}

/// An application, of the kind that a command is about.
pub(crate) fn read(own: &OwnKind, object: &DynamicObject) -> anyhow::Result<ApplicationObject> {
    match own.name {
        Name::YurtAppSet => Ok(typed::<YurtAppSet>(object)?.into()),
        Name::YurtAppDaemon => Ok(typed::<YurtAppDaemon>(object)?.into()),
        _ => bail!("a {} is no application in pools", own.at.kind),
    }
}

/// The kind that a command is about, as replacements name it.
pub(crate) fn subject_kind(own: &OwnKind) -> SubjectKind {
    if own.name == Name::YurtAppDaemon { SubjectKind::YurtAppDaemon } else { SubjectKind::YurtAppSet }
}

/// The replacements of the namespace; nothing if the cluster does not serve them. One that cannot be read may be the one that counts.
pub(crate) async fn replacements(reach: &Reach) -> anyhow::Result<Option<Vec<YurtAppConfigurationReplacement>>> {
    let at = kinds::REPLACEMENT.at;
    let objects = match pages(&reach.others(at), ListParams::default()).await {
        Err(error) if is_unserved(&error) => return Ok(None),
        found => found.map_err(|error| reach.explained(error, &format!("cannot list {}s", at.kind)))?,
    };
    let read = |object: &DynamicObject| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        typed::<YurtAppConfigurationReplacement>(object)
            .map_err(|error| anyhow!("{} {name} cannot be read: {error}", at.kind))
    };
    objects.iter().map(read).collect::<anyhow::Result<_>>().map(Some)
}

/// The revisions that an application controls.
pub(crate) async fn revisions(reach: &Reach, of: &ApplicationObject) -> anyhow::Result<Vec<RevisionFacts>> {
    let own = reach.revisions(of.namespace(), |metadata| is_owned(reach.own, metadata, of)).await?;
    Ok(own.into_iter().map(revision_facts).collect())
}

/// Whether a revision has this application as its controller, by UID, kind and name: the policy on who may write revisions goes by the
/// latter.
fn is_owned(own: &OwnKind, metadata: &ObjectMeta, of: &ApplicationObject) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).is_some_and(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        (group, owner.kind.as_str()) == (own.at.group, own.at.kind)
            && owner.name == of.name()
            && Some(&owner.uid) == of.metadata.uid.as_ref()
    })
}

fn revision_facts(object: ControllerRevision) -> RevisionFacts {
    let mut annotations = object.metadata.annotations.unwrap_or_default();
    RevisionFacts {
        revision: Revision {
            name: object.metadata.name.unwrap_or_default(),
            number: number_of(object.revision),
            data: object.data.map(|data| data.0).unwrap_or_default(),
        },
        created: object.metadata.creation_timestamp.map(|time| time.0),
        change_cause: annotations.remove(CHANGE_CAUSE),
    }
}
