//! Reading DaemonSets of apps.kruise.io and their revisions from a cluster.

use dapple_api::daemonset::{DaemonSet, UpdateStrategyType};
use dapple_plan::cause::CHANGE_CAUSE;
use dapple_plan::daemonset::pod::{HASH_LABEL, is_set};
use dapple_plan::daemonset::revision::{
    FORM_ANNOTATION, REPLACES_ANNOTATION, Revision, SINCE_ANNOTATION, began, form_of, number_of,
};
use dapple_view::daemonset::history::RevisionFacts;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::reach::{Reach, typed};

/// One DaemonSet.
pub(crate) async fn get(reach: &Reach, name: &str) -> anyhow::Result<DaemonSet> {
    reach.read(name, &reach.get(name).await?, typed)
}

/// The revisions that a DaemonSet controls.
pub(crate) async fn revisions(reach: &Reach, set: &DaemonSet) -> anyhow::Result<Vec<RevisionFacts>> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let own = reach.revisions(namespace, |metadata| is_owned(metadata, set)).await?;
    Ok(own.into_iter().map(|revision| revision_facts(set, revision)).collect())
}

/// Why a change of a DaemonSet does not show in pods by itself.
pub(crate) fn obstacle(set: &DaemonSet, name: &str) -> Option<String> {
    if set.spec.update_strategy_type() == UpdateStrategyType::OnDelete {
        let text = "pods are replaced when somebody deletes them, since spec.updateStrategy.type is OnDelete";
        return Some(text.to_owned());
    }
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    set.spec
        .rolling_update()
        .paused()
        .then(|| format!("it is paused: no pod changes before `dapple rollout resume daemonset/{name} -n {namespace}`"))
}

/// Whether a revision has this DaemonSet as its controller, by UID, kind and name: the policy on who may write revisions goes by the
/// latter.
fn is_owned(metadata: &ObjectMeta, set: &DaemonSet) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).is_some_and(|owner| {
        is_set(&owner.api_version, &owner.kind)
            && Some(&owner.name) == set.metadata.name.as_ref()
            && Some(&owner.uid) == set.metadata.uid.as_ref()
    })
}

fn revision_facts(set: &DaemonSet, object: ControllerRevision) -> RevisionFacts {
    let name = object.metadata.name.unwrap_or_default();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let label = object.metadata.labels.and_then(|mut labels| labels.remove(HASH_LABEL));
    let ending = || name.strip_prefix(&format!("{set_name}-")).unwrap_or(&name).to_owned();
    let mut annotations = object.metadata.annotations.unwrap_or_default();
    let noted = |key: &str| annotations.get(key).map(String::as_str);
    let created = object.metadata.creation_timestamp.map(|time| time.0);
    RevisionFacts {
        revision: Revision {
            replaces: noted(REPLACES_ANNOTATION).map(str::to_owned),
            number: number_of(object.revision),
            hash: label.unwrap_or_else(ending),
            form: form_of(noted(FORM_ANNOTATION)),
            began: began(created, noted(SINCE_ANNOTATION), Timestamp::now()),
            data: object.data.map(|data| data.0).unwrap_or_default(),
            name,
        },
        created,
        change_cause: annotations.remove(CHANGE_CAUSE),
    }
}
