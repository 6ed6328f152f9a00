//! Revisions: making the newest, and dropping those that nobody needs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::daemonset::DaemonSetStatus;
use dapple_plan::cause::CHANGE_CAUSE;
use dapple_plan::daemonset::driven_off::{self, DRIVEN_OFF_ANNOTATION};
use dapple_plan::daemonset::failure::{Failures, Step};
use dapple_plan::daemonset::pace::PACE;
use dapple_plan::daemonset::pod::REVISION_ANNOTATION;
use dapple_plan::daemonset::revision::{Revision, SINCE_ANNOTATION, Settled, object, settle, surplus};
use dapple_plan::daemonset::stale::Stale;
use dapple_plan::mutant::{Mutant, is_on};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use super::claim::own_revisions;
use super::io::Io;
use super::known::Known;
use super::memory::{Memory, RevisionWrites, Said};
use super::mend::replace;
use super::pod::hash_label;
use super::status::write_status;
use super::steps::note;
use super::{Set, SetRevision};
use crate::slim::{Key, Pod};
use crate::writes::outcome::{Outcome, exactly};

/// Sees to it that the newest revision is what the set says. Nothing if it was written just now.
pub(super) async fn settle_newest(
    io: &Io,
    set: &Set,
    (writes, said): (&mut RevisionWrites, &mut Said),
    revisions: &[Arc<SetRevision>],
) -> Result<Option<Arc<SetRevision>>, kube::Error> {
    let now = io.env.now();
    let known: Vec<Revision> = revisions.iter().map(|known| known.as_revision(set, now)).collect();
    let find = |name: &str| revisions.iter().find(|known| *known.meta.key.name == *name).cloned();
    let history = io.history(set);
    let collisions = set.status.collision_count.unwrap_or(0);
    let (name, outcome) = match settle(&set.meta.key.name, &set.spec, &known, collisions) {
        Settled::Keep { name } => return Ok(find(&name)),
        Settled::Renumber { name, number } => {
            let Some(found) = find(&name) else { return Ok(None) };
            let since = json!({SINCE_ANNOTATION: now.to_string()});
            let outcome = history.renumber((&name, found.meta.version), number, &since).await;
            if outcome.is_invalid() {
                writes.unsound.insert(found.meta.uid.clone());
                return replace(io, set, writes, &found).await.map(|_| None);
            }
            (name, outcome)
        }
        // A new set may have been left some that are not in our view yet: they are taken in first.
        Settled::Create(_) if revisions.is_empty() && has_orphans(io, set).await? => return Ok(None),
        Settled::Create(revision) => {
            let cause = set.annotations.get(CHANGE_CAUSE).map(String::as_str);
            let object = object(&revision, (&set.meta.key.name, &set.meta.uid), &set.spec, cause);
            let outcome = history.create(&object).await;
            match outcome {
                Outcome::NameTaken => return collide(io, set, said, &revision, collisions).await.map(|()| None),
                Outcome::Missing => return Err(no_namespace(set)),
                _ => {}
            }
            (revision.name, outcome)
        }
    };
    match outcome {
        Outcome::Written(version) => {
            let key = Key::new(&set.meta.key.namespace, &name);
            info!(set = %set.meta.key, revision = %key.name, "revision written");
            io.revisions.wrote(&key, version);
            writes.wrote(key);
            Ok(None)
        }
        // It is another one by now: the watch will tell.
        Outcome::Conflict | Outcome::Missing | Outcome::Gone | Outcome::NameTaken => Ok(None),
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
    }
}

/// Has the newest revision remember the nodes where a taint drives off the rollout's pod, before it is gone. They count in
/// this very look already, since the pod or its going was seen; from then on they do for every leader.
pub(super) async fn note_driven_off(io: &Io, set: &Set, memory: &mut Memory) -> Result<(), kube::Error> {
    let Some(known) = &memory.view.known else { return Ok(()) };
    let nodes = known.fleet.unnoted();
    if nodes.is_empty() {
        return Ok(());
    }
    let (revision, now) = (known.update.clone(), io.env.now());
    let is_there = |node: &str| known.fleet.node(node).is_some();
    let annotation = driven_off::written(&revision.driven_off(), &nodes, now, is_there);
    let metadata = json!({
        "uid": &*revision.meta.uid, "resourceVersion": revision.meta.version.to_string(),
        "annotations": {DRIVEN_OFF_ANNOTATION: annotation},
    });
    let name = &revision.meta.key.name;
    let outcome = io.history(set).patch(name, json!({"metadata": metadata})).await;
    if outcome.is_invalid() {
        memory.revisions.unsound.insert(revision.meta.uid.clone());
        memory.view.make_stale(Some(Stale::Changed));
    }
    let noted = match outcome {
        Outcome::Written(version) => {
            info!(set = %set.meta.key, revision = %name, nodes = nodes.len(), "taints drive the rollout's pods off");
            let key = revision.meta.key.clone();
            io.revisions.wrote(&key, version);
            memory.revisions.wrote(key);
            if let Some(known) = &mut memory.view.known {
                known.fleet.noted(&nodes, now.as_second());
            }
            Ok(())
        }
        // It is another one by now: the watch will tell.
        Outcome::Conflict | Outcome::Missing | Outcome::Gone | Outcome::NameTaken => Ok(()),
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
    };
    let object = format!("ControllerRevision {name}");
    note(&mut memory.failures, (io, set), (Step::Revisions, &object), noted).map(|_| ())
}

/// There is nowhere to make a revision.
fn no_namespace(set: &Set) -> kube::Error {
    let message = format!("the namespace {} is not there", set.meta.key.namespace);
    kube::Error::Api(kube::core::Status::failure(&message, "NotFound").with_code(404).boxed())
}

/// Whether there are revisions that the set selects, nobody owns, and that are not in our view: those that are have been
/// looked at.
async fn has_orphans(io: &Io, set: &Set) -> Result<bool, kube::Error> {
    let Some(selector) = &set.selector else { return Ok(false) };
    let is_in_view = |name: &str, version: u64| {
        let view = io.revisions.get(&Key::new(&set.meta.key.namespace, name));
        view.is_some_and(|view| view.meta.version == version)
    };
    io.history(set).has_unseen_orphans(selector, is_in_view).await
}

/// The name of a new revision is taken: by ourselves, and not seen yet, or by something else. Then another name is
/// used from now on.
async fn collide(io: &Io, set: &Set, said: &mut Said, revision: &Revision, collisions: i32) -> Result<(), kube::Error> {
    let found = io.history(set).find(&revision.name).await?;
    let is_ours = |found: &ControllerRevision| found.owner_references().iter().any(|owner| *owner.uid == *set.meta.uid);
    if found.as_ref().is_none_or(is_ours) {
        return Ok(());
    }
    let status = DaemonSetStatus { collision_count: Some(collisions + 1), ..set.status.clone() };
    write_status(io, set, said, &status).await.map(|_| ())
}

/// Drops revisions beyond the limit that no pod and no node needs, if something has changed that may have set one
/// free. Returns when to try what had to wait.
pub(super) async fn prune(
    io: &Io,
    set: &Set,
    known: Option<&Known>,
    writes: &mut RevisionWrites,
    failures: &mut Failures,
) -> Result<Option<Duration>, kube::Error> {
    let Some(known) = known.filter(|_| writes.may_prune && !is_on(Mutant::HistoryKept)) else {
        return Ok(None);
    };
    let revisions = own_revisions(io, set);
    let limit = usize::try_from(set.spec.revision_history_limit()).unwrap_or(0);
    if revisions.len() <= limit {
        writes.may_prune = false;
        return Ok(None);
    }
    let waited = writes.pruned.map_or(PACE, |pruned| pruned.elapsed());
    if waited < PACE {
        return Ok(Some(PACE - waited));
    }
    let all: Vec<Revision> = revisions.iter().map(|revision| revision.as_revision(set, io.env.now())).collect();
    let pods = io.pods.find(Pod::BY_OWNER, &set.meta.uid);
    let is_needed = |revision: &Revision| {
        [&known.update, &known.current].iter().any(|known| *known.meta.key.name == *revision.name)
            || pods.iter().any(|pod| match pod.annotations.get(REVISION_ANNOTATION) {
                Some(name) => revision.is_called(name),
                None => hash_label(pod) == revision.hash,
            })
    };
    let history = io.history(set);
    let mut is_all_done = true;
    let spare: BTreeSet<&str> =
        surplus(&all, limit, is_needed).into_iter().map(|revision| revision.name.as_str()).collect();
    for found in revisions.iter().filter(|known| spare.contains(&*known.meta.key.name)) {
        let name = &found.meta.key.name;
        info!(set = %set.meta.key, revision = %name, "dropping a revision that nobody needs");
        let object = format!("ControllerRevision {name}");
        // At this version: an undo may have made it the newest meanwhile.
        let dropped = match history.delete(name, exactly(&found.meta)).await {
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            Outcome::Conflict => {
                is_all_done = false;
                continue;
            }
            Outcome::Gone | Outcome::Missing | Outcome::Written(_) | Outcome::NameTaken => Ok(()),
        };
        note(failures, (io, set), (Step::History, &object), dropped)?;
    }
    failures.keep(Step::History, |object| spare.iter().any(|name| object.ends_with(name)));
    writes.may_prune = !is_all_done;
    writes.pruned = Some(Instant::now());
    Ok((!is_all_done).then_some(PACE))
}
