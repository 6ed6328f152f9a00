//! Whose pods and revisions are whose: taking in what nobody owns, and letting go of what is a set's no more.

use std::sync::Arc;

use dapple_plan::daemonset::failure::Step;
use dapple_plan::daemonset::pod::{REVISION_ANNOTATION, owner};
use dapple_plan::daemonset::revision::{has_same_template, hash_of, says_the_same, spec_of};
use dapple_plan::mutant::{Mutant, is_on};
use kube::api::Patch;
use serde_json::Value;
use tracing::info;

use super::io::Io;
use super::known::revision_of;
use super::memory::Memory;
use super::mend::replace;
use super::pod::hash_label;
use super::steps::note;
use super::{Set, SetRevision};
use crate::claims::{adoption, may_adopt, release};
use crate::slim::{Key, Pod, Revision};
use crate::writes::outcome::Outcome;

/// The revisions that are the set's own.
pub(super) fn own_revisions(io: &Io, set: &Set) -> Vec<Arc<SetRevision>> {
    let revisions = io.revisions.find(Revision::BY_OWNER, &set.meta.uid).into_iter().map(SetRevision::new);
    with_hashes_of_their_own(set, revisions.filter(|known| known.is_of(set)).collect())
}

/// Takes in pods and revisions that the set selects and nobody owns, and lets go of pods that somebody relabelled.
/// False if something was changed meanwhile: then it is to be looked at again.
pub(super) async fn claim(io: &Io, set: &Set, memory: &mut Memory) -> Result<bool, kube::Error> {
    let mut is_all_done = true;
    let owner = owner(&set.meta.key.name, &set.meta.uid);
    let namespace = &set.meta.key.namespace;
    memory.failures.keep(Step::Owners, |object| is_here(io, namespace, object));
    let mut pods = io.pods.find(Pod::ORPHANS, namespace);
    // One elsewhere that names the set as its owner is not its own.
    let owned = io.pods.find(Pod::BY_OWNER, &set.meta.uid).into_iter();
    pods.extend(owned.filter(|pod| pod.meta.key.namespace == *namespace));
    let orphans: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_orphan(pod) && is_selected(set, pod)).collect();
    // Of one that we have just written, or were told is another by now, our view is behind.
    let (open, orphans): (Vec<_>, Vec<_>) = orphans.into_iter().partition(|pod| memory.pods.is_open(&pod.meta.key));
    is_all_done &= open.is_empty();
    let mine = own_revisions(io, set);
    let revisions = io.revisions.find(Revision::ORPHANS, namespace).into_iter().map(SetRevision::new);
    let is_lost = |known: &Arc<SetRevision>| {
        let has_successor = mine.iter().any(|own| own.replaces(&known.meta.key.name));
        !has_successor && is_adoptable(set, known, &pods)
    };
    let lost: Vec<_> = revisions.filter(is_lost).collect();
    if (!orphans.is_empty() || !lost.is_empty()) && may_adopt(&io.sets_api(set), &set.meta).await? {
        for pod in orphans {
            is_all_done &= change_owner(io, set, memory, pod, adoption(&owner, &pod.meta)).await?;
        }
        for revision in &lost {
            is_all_done &= adopt_revision(io, set, memory, revision).await?;
        }
    }
    let owned = io.pods.find(Pod::BY_OWNER, &set.meta.uid);
    for pod in owned.iter().filter(|pod| is_released(set, &mine, pod)) {
        if memory.pods.is_open(&pod.meta.key) {
            is_all_done = false;
            continue;
        }
        is_all_done &= change_owner(io, set, memory, pod, release(&set.meta.uid, &pod.meta)).await?;
    }
    Ok(is_all_done)
}

async fn change_owner(io: &Io, set: &Set, memory: &mut Memory, pod: &Pod, patch: Value) -> Result<bool, kube::Error> {
    info!(set = %set.meta.key, pod = %pod.meta.key.name, "changing its owner");
    let (key, node) = (&pod.meta.key, pod.node.clone().unwrap_or_else(|| Arc::from("")));
    let object = format!("Pod {}", key.name);
    let pods = io.pod_writer(&set.meta.key.namespace);
    let given = match pods.patch(&key.name, None, &Patch::Strategic(patch)).await {
        Outcome::Written(version) => {
            io.pods.wrote(key, version);
            memory.pods.wrote(&mut memory.view, key.clone(), &node);
            Ok(())
        }
        Outcome::Gone | Outcome::Missing | Outcome::Conflict | Outcome::NameTaken => {
            memory.pods.doubt(&mut memory.view, key.clone(), &node);
            return Ok(false);
        }
        Outcome::Unknown(error) => {
            // Perhaps it is ours by now: nothing is made on its node before that is known.
            memory.pods.doubt(&mut memory.view, key.clone(), &node);
            Err(error)
        }
        Outcome::Refused(error) => Err(error),
    };
    note(&mut memory.failures, (io, set), (Step::Owners, &object), given).map(|_| true)
}

async fn adopt_revision(io: &Io, set: &Set, memory: &mut Memory, revision: &SetRevision) -> Result<bool, kube::Error> {
    let meta = &revision.meta;
    let object = format!("ControllerRevision {}", meta.key.name);
    let (history, owner) = (io.history(set), owner(&set.meta.key.name, &set.meta.uid));
    match history.patch(&meta.key.name, adoption(&owner, meta)).await {
        Outcome::Written(version) => {
            io.revisions.wrote(&meta.key, version);
            memory.revisions.wrote(Key::clone(&meta.key));
            note(&mut memory.failures, (io, set), (Step::Owners, &object), Ok(())).map(|_| true)
        }
        Outcome::Conflict | Outcome::NameTaken => {
            if let Some(version) = history.version(&meta.key.name).await? {
                io.revisions.wrote(&meta.key, version);
                memory.revisions.wrote(Key::clone(&meta.key));
            }
            Ok(false)
        }
        Outcome::Missing | Outcome::Gone => Ok(true),
        // Nobody can change it: what it says is kept in one of the set's own.
        outcome if outcome.is_invalid() => {
            let replaced = replace(io, set, &mut memory.revisions, revision).await;
            note(&mut memory.failures, (io, set), (Step::Owners, &object), replaced).map(|_| true)
        }
        // Perhaps it is ours by now, and says what the set says: none is made before that is known.
        Outcome::Unknown(error) => Err(error),
        Outcome::Refused(error) => {
            note::<()>(&mut memory.failures, (io, set), (Step::Owners, &object), Err(error)).map(|_| true)
        }
    }
}

/// Whether a pod or revision, as failures name it, is in the namespace.
fn is_here(io: &Io, namespace: &Arc<str>, object: &str) -> bool {
    let key = |name: &str| Key { namespace: namespace.clone(), name: Arc::from(name) };
    match object.split_once(' ') {
        Some(("Pod", name)) => io.pods.get(&key(name)).is_some(),
        Some((_, name)) => io.revisions.get(&key(name)).is_some(),
        None => false,
    }
}

/// Whether a set selects a pod.
pub(super) fn is_selected(set: &Set, pod: &Pod) -> bool {
    selects(set, |key| pod.labels.get(key))
}

/// Whether a set selects what has these labels.
pub(super) fn selects<'l>(set: &Set, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    set.selector.as_ref().is_some_and(|selector| selector.matches(label))
}

/// Whether a revision is nobody's, and may become a set's. Anybody who may write revisions can leave one that a set selects:
/// it is taken in only if the set says the same, or a pod that is the set's, or becomes so, was made of it.
pub(super) fn is_adoptable(set: &Set, revision: &SetRevision, pods: &[Arc<Pod>]) -> bool {
    let name = &revision.meta.key.name;
    let is_of_set = |pod: &Arc<Pod>| match &pod.owner {
        Some(owner) => *owner == set.meta.uid,
        None => is_selected(set, pod),
    };
    let is_made_of_it = |pod: &Arc<Pod>| match pod.annotations.get(REVISION_ANNOTATION) {
        Some(named) => *named == **name || revision.replaces(named),
        None => hash_label(pod) == revision.hash(set),
    };
    revision.is_orphan
        && selects(set, |key| revision.label(key))
        && (says_the_same(&revision.data, &set.spec) || pods.iter().any(|pod| is_of_set(pod) && is_made_of_it(pod)))
}

/// Has no two templates go by one hash. Anybody who may write revisions can copy the hash of another: then pods of one would be
/// taken for those of the other. The one that came first keeps it.
pub(super) fn with_hashes_of_their_own(set: &Set, mut revisions: Vec<Arc<SetRevision>>) -> Vec<Arc<SetRevision>> {
    revisions.sort_by(|a, b| (a.created, &a.meta.key.name).cmp(&(b.created, &b.meta.key.name)));
    for later in 1..revisions.len() {
        let hash = revisions[later].hash(set);
        let is_taken = |first: &Arc<SetRevision>| {
            first.hash(set) == hash && !has_same_template(&first.data, &revisions[later].data)
        };
        if revisions[..later].iter().any(is_taken) {
            let mut own = SetRevision::clone(&revisions[later]);
            own.hash = hash_of(&own.data);
            revisions[later] = Arc::new(own);
        }
    }
    revisions.sort_by(|a, b| a.meta.key.cmp(&b.meta.key));
    revisions
}

/// Whether a pod is nobody's, and may become a set's.
pub(super) fn is_orphan(pod: &Pod) -> bool {
    let is_nobodys = pod.owner.is_none() || is_on(Mutant::ForeignAdopted);
    is_nobodys && pod.node.is_some() && pod.leaving_since.is_none()
}

/// Whether somebody has relabelled a pod of the set, so that it is the set's no more.
pub(super) fn is_released(set: &Set, revisions: &[Arc<SetRevision>], pod: &Pod) -> bool {
    !is_selected(set, pod) && is_relabelled(set, revisions, pod)
}

/// Whether a pod that is not selected was, as it was made. If not, the selector was changed, not the pod: it stays, and is
/// replaced as any other that is not what it should be.
fn is_relabelled(set: &Set, revisions: &[Arc<SetRevision>], pod: &Pod) -> bool {
    let template = revision_of(set, revisions, pod).and_then(|revision| spec_of(&revision.data));
    // No patch may change what the selector selects on: so the template tells.
    template
        .zip(set.selector.as_ref())
        .is_some_and(|((template, _), selector)| selector.matches(|key| template["metadata"]["labels"][key].as_str()))
}
