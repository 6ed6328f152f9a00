//! Telling how an application is.

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
