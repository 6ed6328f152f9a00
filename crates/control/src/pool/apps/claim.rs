//! Taking in workloads that nobody owns: of the right kind, with the application's labels and one of its pools.

use dapple_api::pool::{YurtAppDaemon, YurtAppSet};
use dapple_api::selector::Selector;
use dapple_plan::mutant::{Mutant, is_on};
use kube::api::Patch;
use tracing::info;

use super::super::kept::{ApplicationSpec, Kept};
use super::Workload;
use super::io::Io;
use super::observe::View;
use crate::claims::{adoption, may_adopt};
use crate::writes::outcome::Outcome;

/// Takes in orphans. Whether anything was written, or is not seen yet: then it is to be looked at again.
pub(super) async fn claim<S: ApplicationSpec>(io: &Io<S>, kept: &Kept<S>, view: &View) -> Result<bool, kube::Error> {
    let Ok(selector) = Selector::new(kept.spec.selector()) else { return Ok(false) };
    if view.is_suspended || selector.requirements().is_empty() {
        return Ok(false);
    }
    let namespace = &kept.meta.key.namespace;
    let store = io.workloads(view.kind);
    let mut orphans = store.find(Workload::ORPHANS, namespace);
    orphans.retain(|orphan| {
        view.pools.iter().any(|pool| pool.name == orphan.pool)
            && (selector.matches(|key| orphan.label(key)) || is_on(Mutant::StrangersTakenIn))
            && orphan.object["metadata"]["deletionTimestamp"].is_null()
    });
    if orphans.is_empty() || !may_take_in(io, kept).await? {
        return Ok(false);
    }
    let writer = io.writer(view.kind.at(), namespace);
    for orphan in orphans.iter().filter(|orphan| store.caught_up(&orphan.meta.key)) {
        let key = &orphan.meta.key;
        info!(application = %kept.meta.key, workload = %key.name, "taking in a workload that nobody owns");
        let patch = adoption(&view.application.owner(), &orphan.meta);
        match writer.patch(&key.name, None, &Patch::Strategic(patch)).await {
            Outcome::Written(version) => store.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // It is another by now: the watch tells.
            Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
        }
    }
    Ok(true)
}

async fn may_take_in<S: ApplicationSpec>(io: &Io<S>, kept: &Kept<S>) -> Result<bool, kube::Error> {
    let namespace = &kept.meta.key.namespace;
    match S::SUBJECT {
        dapple_api::pool::SubjectKind::YurtAppSet => {
            may_adopt(&kube::Api::<YurtAppSet>::namespaced(io.client.clone(), namespace), &kept.meta).await
        }
        dapple_api::pool::SubjectKind::YurtAppDaemon => {
            may_adopt(&kube::Api::<YurtAppDaemon>::namespaced(io.client.clone(), namespace), &kept.meta).await
        }
    }
}
