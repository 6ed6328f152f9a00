//! Taking in workloads that nobody owns: of the right kind, with the application's labels and one of its pools.
//!
//! One that cannot be taken in holds up its own pool alone: nothing is made beside it, it counts as it stands, and the pool says why.
//! Who takes owners away again and again is given way to, as is who changes workloads; that is not in the cluster, so a new leader
//! begins to count anew.

use std::sync::Arc;

use dapple_api::pool::{YurtAppDaemon, YurtAppSet};
use dapple_api::selector::Selector;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::pool::application::Existing;
use dapple_plan::pool::repair::{paused_until, with};
use jiff::Timestamp;
use kube::api::Patch;
use tracing::info;

use super::super::kept::{ApplicationSpec, Kept};
use super::io::Io;
use super::observe::View;
use super::{Memory, Workload};
use crate::claims::{adoption, may_adopt};
use crate::writes::outcome::Outcome;

/// Takes in orphans. Whether anything was written, or is not seen yet: then it is to be looked at again.
pub(super) async fn claim<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    let Ok(selector) = Selector::new(kept.spec.selector()) else { return Ok(false) };
    if view.is_suspended || selector.requirements().is_empty() {
        return Ok(false);
    }
    let store = io.workloads(view.kind);
    let mut orphans = store.find(Workload::ORPHANS, &kept.meta.key.namespace);
    orphans.retain(|orphan| {
        view.pools.iter().any(|pool| pool.name == orphan.pool)
            && (selector.matches(|key| orphan.label(key)) || is_on(Mutant::StrangersTakenIn))
            && orphan.object["metadata"]["deletionTimestamp"].is_null()
    });
    let is_known = |uid: &str| {
        let mut own = view.workloads.iter();
        own.any(|known| known.object["metadata"]["uid"] == *uid)
            || orphans.iter().any(|orphan| *orphan.meta.uid == *uid)
    };
    memory.taken_in.retain(|uid, _| is_known(uid));
    if orphans.iter().any(|orphan| !store.caught_up(&orphan.meta.key)) {
        return Ok(true);
    }
    let is_hindered = |orphan: &Workload| hindrance(memory, &called(view, orphan), &orphan.meta.uid, now).is_some();
    let due = orphans.iter().filter(|orphan| !is_hindered(orphan));
    let due: Vec<Arc<Workload>> = due.cloned().collect();
    let mut has_written = false;
    if !due.is_empty() && may_take_in(io, kept).await? {
        for orphan in &due {
            has_written |= take_in(io, kept, view, memory, (orphan, now)).await?;
        }
    }
    if !has_written {
        leave_alone(view, memory, &orphans, now);
    }
    Ok(has_written)
}

/// Takes one in. Whether it is another one by now.
async fn take_in<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    memory: &mut Memory,
    (orphan, now): (&Workload, Timestamp),
) -> Result<bool, kube::Error> {
    let key = &orphan.meta.key;
    info!(application = %kept.meta.key, workload = %key.name, "taking in a workload that nobody owns");
    let patch = adoption(&view.application.owner(), &orphan.meta);
    let writer = io.writer(view.kind.at(), &key.namespace);
    match writer.patch(&key.name, None, &Patch::Strategic(patch)).await {
        Outcome::Written(version) => {
            io.workloads(view.kind).wrote(key, version);
            let times = memory.taken_in.entry(orphan.meta.uid.to_string()).or_default();
            *times = with(times, now);
            Ok(true)
        }
        Outcome::Refused(error) | Outcome::Unknown(error) => {
            memory.failed.note(called(view, orphan), "taken in", error, now).map(|_| false)
        }
        // It is another by now: the watch tells.
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => Ok(true),
    }
}

/// Has the pools of orphans that are not taken in left as they are, and says why.
fn leave_alone(view: &mut View, memory: &Memory, orphans: &[Arc<Workload>], now: Timestamp) {
    for orphan in orphans {
        let object = called(view, orphan);
        let why = hindrance(memory, &object, &orphan.meta.uid, now);
        let why = why.unwrap_or_else(|| format!("{object} is being taken in"));
        // What failed is told with all else that did.
        if memory.failed.about(&object).is_none() {
            view.failures.push(why.clone());
        }
        // A pool that has one of its own goes on with that.
        if view.workloads.iter().any(|known| known.pool == orphan.pool) {
            continue;
        }
        let existing = Existing::new(orphan.pool.clone(), orphan.object.clone());
        view.workloads.push(Existing { is_left_alone: true, ..existing });
        view.refused.insert(orphan.pool.clone(), why);
    }
}

/// Why an orphan of this name and UID is not taken in now.
fn hindrance(memory: &Memory, object: &str, uid: &str, now: Timestamp) -> Option<String> {
    if let Some(why) = memory.failed.about(object) {
        return Some(why.to_owned());
    }
    let until = paused_until(memory.taken_in.get(uid)?, now)?;
    Some(format!("somebody keeps taking {object} away: it is not taken in again before {until}"))
}

/// An orphan, as people name it.
fn called(view: &View, orphan: &Workload) -> String {
    format!("{} {}", view.kind.kind(), orphan.meta.key.name)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn whoever_keeps_taking_a_workload_away_is_given_way_to() {
        let mut memory = Memory::default();
        let why = |memory: &Memory, second| hindrance(memory, "Deployment d", "u", at(second));
        for second in [0, 1, 2] {
            assert_eq!(why(&memory, second), None);
            let times = memory.taken_in.entry("u".to_owned()).or_default();
            *times = with(times, at(second));
        }
        let text = why(&memory, 3).unwrap();
        assert!(text.starts_with("somebody keeps taking Deployment d away"), "{text}");
        assert_eq!(hindrance(&memory, "Deployment e", "v", at(3)), None);
        assert_eq!(why(&memory, 2 + 3600), None, "an hour later");
    }

    #[test]
    fn what_was_refused_is_not_tried_again_at_once() {
        let mut memory = Memory::default();
        let refusal = kube::core::Status::failure("not here", "").with_code(422).boxed();
        memory.failed.note("Deployment d".to_owned(), "taken in", kube::Error::Api(refusal), at(0)).unwrap();
        let why = |memory: &Memory| hindrance(memory, "Deployment d", "u", at(0));
        assert_eq!(why(&memory).unwrap(), "Deployment d cannot be taken in: not here");
        memory.forget(at(30));
        assert_eq!(why(&memory), None);
    }
}
