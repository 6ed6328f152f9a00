//! Asking the API server what is not watched, when it decides: which numbers of pods are autoscaled, what becomes of a workload that
//! somebody else has changed, and whether there is what replacements have pods refer to.

use std::collections::{BTreeMap, BTreeSet};

use dapple_edit::edit::ReferenceKind;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::pool::application::{Action, Decision, Seat};
use dapple_plan::pool::learned::{Learned, Target};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Client;
use kube::api::Api;

use super::super::kept::{ApplicationSpec, Kept};
use super::explain::{explain, known_changers, unwell_pods};
use super::io::Io;
use super::observe::{Numbers, View};
use super::{AGAIN, Memory};
use crate::writes::client::in_words;

/// So many targets are asked for at once.
const AT_ONCE: usize = 16;

/// Whether a target is there; if that cannot be read, why.
type Found = Result<bool, String>;

/// What was found when a target was asked for, and until when that counts.
pub(super) struct Sought {
    found: Found,
    until: Timestamp,
}

/// Asks what decides. Whether something was learned: then it is to be decided anew.
pub(super) async fn learn<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    let has_learned = [
        numbers(io, kept, view, decision, memory, now).await?,
        others_doing(io, view, decision, memory, now).await?,
        targets(io, kept, view, decision, memory, now).await?,
        explain(io, kept, view, decision, memory, now).await,
    ];
    Ok(has_learned.contains(&true))
}

/// What has its number of pods from an autoscaler, and until when that counts.
pub(super) struct Autoscaled {
    /// Kinds and names; none if it cannot be told.
    targets: Option<BTreeSet<(String, String)>>,
    until: Timestamp,
}

/// Which workloads have their number of pods from an autoscaler, if any number is to be written. If that cannot be told, none is
/// written.
async fn numbers<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    let sets_number = |action: &Action| match action {
        Action::Patch { patch, .. } => !patch["spec"]["replicas"].is_null(),
        _ => false,
    };
    let are_written = decision.actions.iter().any(sets_number);
    // A pool that waits for its turn may only wait since the number of its pods would be lowered.
    let is_lowered = decision.seats.iter().any(|seat| seat.difference.fewer);
    if !view.numbers.are_asked(are_written, is_lowered) {
        return Ok(false);
    }
    // What was said a moment ago is enough for whoever waits.
    let recalled = memory.autoscaled.as_ref().filter(|known| now < known.until && !are_written);
    if let Some(recalled) = recalled {
        view.numbers = Numbers::Recalled;
        return Ok(heed(recalled, view));
    }
    let targets = match io.autoscaled(&kept.meta.key.namespace).await {
        Ok(targets) => Some(targets),
        Err(error) => {
            memory.failed.note("HorizontalPodAutoscalers".to_owned(), "listed", error, now)?;
            None
        }
    };
    let found = Autoscaled { targets, until: now.checked_add(AGAIN).unwrap_or(now) };
    view.numbers = Numbers::Asked;
    let has_learned = heed(&found, view);
    memory.autoscaled = Some(found);
    Ok(has_learned)
}

/// Notes which workloads have their number of pods from an autoscaler. Whether that is news.
fn heed(found: &Autoscaled, view: &mut View) -> bool {
    let kind = view.kind.kind();
    let mut is_news = false;
    for workload in &mut view.workloads {
        let name = (kind.to_owned(), workload.name().to_owned());
        let is_target = found.targets.as_ref().is_none_or(|targets| targets.contains(&name));
        let is_autoscaled = is_target && !is_on(Mutant::AutoscalerOverruled);
        is_news |= std::mem::replace(&mut workload.is_autoscaled, is_autoscaled) != is_autoscaled;
    }
    is_news
}

/// Which workloads that differ are as another webhook makes them.
async fn others_doing<S: ApplicationSpec>(
    io: &Io<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    let mut has_learned = false;
    for seat in decision.seats.iter().filter(|seat| seat.is_drift && !view.is_suspended) {
        let (Some(place), Some(wanted)) = (seat.workload, &seat.wanted) else { continue };
        let Some(workload) = view.workloads.get_mut(place).filter(|workload| !workload.is_others_doing) else {
            continue;
        };
        // What is not written whoever made the difference is not asked about.
        let matters = seat.repair_pause.is_none()
            && seat.difference.fixed.is_empty()
            && !seat.is_left_alone
            && !view.refused.contains_key(&seat.pool);
        let asked = (view.kind, &*workload, &**wanted);
        workload.is_others_doing = memory.judged.is_others_doing(io, asked, matters, now).await?;
        has_learned |= workload.is_others_doing;
    }
    Ok(has_learned)
}

/// Whether there is what pools would be made to refer to: those whose turn it is, and if one of them has to wait, all that are due.
async fn targets<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &mut View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    if view.is_suspended {
        return Ok(false);
    }
    let has_turn = |seat: &Seat| {
        let is_its = |action: &Action| matches!(action, Action::Patch { pool, .. } if *pool == seat.pool);
        decision.actions.iter().any(is_its)
    };
    let waits = decision.seats.iter().any(|seat| !seat.missing.is_empty());
    let due = decision.seats.iter().filter(|seat| seat.difference.template && (waits || has_turn(seat)));
    let referred = due.filter_map(|seat| seat.rendered.as_ref()?.as_ref().ok()).flat_map(|rendered| &rendered.targets);
    let unknown: BTreeSet<Target> = referred.filter(|target| !memory.targets.contains_key(*target)).cloned().collect();
    if unknown.is_empty() {
        return Ok(false);
    }
    let until = now.checked_add(AGAIN).unwrap_or(now);
    for (target, found) in seek(&io.client, &kept.meta.key.namespace, unknown).await? {
        memory.targets.insert(target, Sought { found, until });
    }
    let missing = missing(&memory.targets);
    let has_learned = view.learned.missing != missing;
    view.learned.missing = missing;
    Ok(has_learned)
}

/// What is known from before, as far as it counts still.
pub(super) fn known(memory: &mut Memory, now: Timestamp) -> Learned {
    memory.targets.retain(|_, sought| now < sought.until);
    Learned {
        missing: missing(&memory.targets),
        unwell: unwell_pods(&memory.pods),
        changers: known_changers(&memory.changers),
    }
}

/// Targets that are not there, or cannot be read: no pool is made to refer to them.
fn missing(targets: &BTreeMap<Target, Sought>) -> BTreeSet<Target> {
    targets.iter().filter(|(_, sought)| sought.found != Ok(true)).map(|(target, _)| target.clone()).collect()
}

/// What is to be told of targets that cannot be read.
pub(super) fn unreadable(targets: &BTreeMap<Target, Sought>) -> impl Iterator<Item = String> {
    let why = |(target, sought): (&Target, &Sought)| {
        sought.found.as_ref().err().map(|error| format!("{target} cannot be read: {error}"))
    };
    targets.iter().filter_map(why)
}

/// Whether each is there. Only metadata is asked for.
async fn seek(
    client: &Client,
    namespace: &str,
    targets: BTreeSet<Target>,
) -> Result<Vec<(Target, Found)>, kube::Error> {
    let ask = async |target: Target| {
        let found = match is_there(client, namespace, &target).await {
            Ok(is_there) => Ok(is_there),
            Err(error @ kube::Error::Api(_)) => Err(in_words(&error)),
            Err(error) => return Err(error),
        };
        Ok((target, found))
    };
    futures::stream::iter(targets).map(ask).buffer_unordered(AT_ONCE).try_collect().await
}

/// Whether a target is there.
pub async fn is_there(client: &Client, namespace: &str, target: &Target) -> Result<bool, kube::Error> {
    let name = &target.name;
    Ok(match target.kind {
        ReferenceKind::PersistentVolumeClaim => {
            let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
            claims.get_metadata_opt(name).await?.is_some()
        }
        ReferenceKind::ConfigMap => {
            let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
            maps.get_metadata_opt(name).await?.is_some()
        }
        // Nobody asks for them here.
        ReferenceKind::Secret => true,
    })
}
