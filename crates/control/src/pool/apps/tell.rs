//! Telling how an application and its replacement are.

use dapple_api::kinds;
use dapple_api::pool::ReplacementStatus;
use dapple_plan::pool::application::Decision;
use dapple_plan::pool::report::{self, Found, READY, SYNCED, condition, of_replacement};
use dapple_plan::pool::stored::merge_patch;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Replacement;
use super::super::kept::{ApplicationSpec, Kept};
use super::io::Io;
use super::observe::View;
use super::{AGAIN, Memory, facts};
use crate::queue::Ended;
use crate::slim::Meta;
use crate::writes::outcome::Outcome;

/// Writes what is to be told, if it is not told yet. False if the application has changed meanwhile.
pub(super) async fn told<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<bool, kube::Error> {
    let mut common = decision.status.clone();
    common.observed_generation = kept.generation;
    let before = S::conditions(&kept.status);
    let found = report::conditions(decision, &facts(kept, view, now), &view.failures);
    let conditions = found.into_iter().map(|found| condition(found, kept.generation, before, &Time(now))).collect();
    let status = S::status(common, conditions);
    if let Some(replacement) = &view.replacement {
        let in_force = view.version.replacements.as_ref();
        if let Some((wanted, found)) = in_force.map(|in_force| of_replacement(in_force, decision)) {
            tell_replacement(io, replacement, wanted, found, now).await?;
        }
    }
    for other in &view.others {
        let counts = view.replacement.as_ref().map(|known| known.meta.key.name.to_string()).unwrap_or_default();
        let text = format!("{counts} is for the same application and older, so this one does not count");
        tell_replacement(io, other, ReplacementStatus::default(), (READY, false, "NotCounted", text), now).await?;
    }
    write(io, kept, &status, memory).await
}

/// Tells that nothing can be done, and why. What is known of pools stays told.
pub(super) async fn failure<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    memory: &mut Memory,
    (reason, now): (String, Timestamp),
) -> Result<Ended, kube::Error> {
    let before = S::conditions(&kept.status);
    let told = condition((SYNCED, false, "Failing", reason), kept.generation, before, &Time(now));
    let mut conditions: Vec<_> = before.iter().filter(|known| known.type_ != SYNCED).cloned().collect();
    conditions.push(told);
    let status = S::status(S::common(&kept.status).clone(), conditions);
    let is_told = write(io, kept, &status, memory).await?;
    Ok(if is_told { Ended::Again(AGAIN) } else { Ended::Failed })
}

async fn write<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    status: &S::Status,
    memory: &mut Memory,
) -> Result<bool, kube::Error> {
    if kept.status == *status {
        return Ok(true);
    }
    memory.told = Some(Instant::now());
    let writer = io.writer(S::KIND, &kept.meta.key.namespace);
    match writer.write_status(&kept.meta, &changed(&kept.status, status)).await {
        Outcome::Written(version) => {
            io.applications.wrote(&kept.meta.key, version);
            Ok(true)
        }
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
        // The application has changed meanwhile: it is looked at again.
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => Ok(false),
    }
}

/// The merge patch that makes one status the other.
fn changed<T: Serialize>(before: &T, after: &T) -> Value {
    merge_patch(&json!(before), &json!(after))
}

async fn tell_replacement<S: ApplicationSpec>(
    io: &Io<S>,
    replacement: &Replacement,
    mut wanted: ReplacementStatus,
    found: Found,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let known = replacement.status.clone().unwrap_or_default();
    wanted.observed_generation = replacement.generation;
    wanted.conditions = vec![condition(found, replacement.generation, &known.conditions, &Time(now))];
    let meta: &Meta = &replacement.meta;
    if replacement.status.as_ref() == Some(&wanted) || !io.replacements.caught_up(&meta.key) {
        return Ok(());
    }
    let writer = io.writer(kinds::REPLACEMENT.at, &meta.key.namespace);
    match writer.write_status(meta, &changed(&known, &wanted)).await {
        Outcome::Written(version) => io.replacements.wrote(&meta.key, version),
        Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => {}
    }
    Ok(())
}
