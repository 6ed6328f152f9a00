//! Telling how an application is.

use std::time::Duration;

use dapple_plan::pool::application::Decision;
use dapple_plan::pool::report::{self, SYNCED, condition};
use dapple_plan::pool::stored::merge_patch;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::kept::{ApplicationSpec, Kept};
use super::io::Io;
use super::observe::View;
use super::{AGAIN, Memory, facts};
use crate::queue::Ended;
use crate::writes::outcome::Outcome;

/// How it has ended.
pub(super) enum Told {
    /// All is told.
    All,
    /// Something else was told a moment ago: a status is written once a second.
    Later(Duration),
    /// The application has changed meanwhile: it is looked at again.
    Changed,
}

impl Told {
    /// When to tell, if that is later.
    pub(super) fn later(&self) -> Option<Duration> {
        match self {
            Self::Later(rest) => Some(*rest),
            Self::All | Self::Changed => None,
        }
    }
}

/// Writes what is to be told, if it is not told yet.
pub(super) async fn tell<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    view: &View,
    decision: &Decision,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<Told, kube::Error> {
    let mut common = decision.status.clone();
    common.observed_generation = kept.generation;
    let before = S::conditions(&kept.status);
    let found = report::conditions(decision, &facts(kept, view, now), &view.failures);
    let conditions = found.into_iter().map(|found| condition(found, kept.generation, before, &Time(now))).collect();
    let status = S::status(common, conditions);
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
    Ok(match write(io, kept, &status, memory).await? {
        Told::All => Ended::Again(AGAIN),
        Told::Later(rest) => Ended::Again(rest),
        Told::Changed => Ended::Failed,
    })
}

async fn write<S: ApplicationSpec>(
    io: &Io<S>,
    kept: &Kept<S>,
    status: &S::Status,
    memory: &mut Memory,
) -> Result<Told, kube::Error> {
    if kept.status == *status {
        return Ok(Told::All);
    }
    if let Some(rest) = memory.rest() {
        return Ok(Told::Later(rest));
    }
    memory.told = Some(Instant::now());
    let writer = io.writer(S::KIND, &kept.meta.key.namespace);
    match writer.write_status(&kept.meta, &changed(&kept.status, status)).await {
        Outcome::Written(version) => {
            io.applications.wrote(&kept.meta.key, version);
            Ok(Told::All)
        }
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
        Outcome::Gone | Outcome::Conflict | Outcome::Missing | Outcome::NameTaken => Ok(Told::Changed),
    }
}

/// The merge patch that makes one status the other.
fn changed<T: Serialize>(before: &T, after: &T) -> Value {
    merge_patch(&json!(before), &json!(after))
}
