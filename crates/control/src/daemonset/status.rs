//! Saying how a set stands: its status.

use std::time::Duration;

use dapple_api::daemonset::DaemonSetStatus;
use dapple_plan::daemonset::pace::{PACE, waits};
use dapple_plan::daemonset::status::{Facts, Problem, has_stalled, status};
use dapple_plan::daemonset::wake::ECHO;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tokio::time::Instant;

use super::Set;
use super::io::Io;
use super::memory::{Memory, Said};
use crate::writes::outcome::{Outcome, Writer, version_of};

/// Nodes that a message names.
const NAMED: usize = 3;

/// How the set stands, as of the last decision: what that comes to is told once it has been seen.
pub(super) fn next_status(io: &Io, set: &Set, memory: &Memory) -> Option<DaemonSetStatus> {
    let known = memory.view.known.as_ref()?;
    let mut problems: Vec<Problem> = memory.failures.problems().collect();
    problems.extend(known.problems.iter().cloned());
    let refusals = memory.pods.refusals.values().take(NAMED);
    problems.extend(refusals.map(|refusal| Problem::new(refusal.reason, refusal.text.clone())));
    let failing: Vec<String> =
        known.fleet.failing().take(NAMED).map(|(node, count)| format!("{node} ({count} times)")).collect();
    if !failing.is_empty() {
        problems.push(Problem::new("PodsFail", format!("pods keep ending on {}", failing.join(", "))));
    }
    let variants = memory.view.variants.get(&known.update.meta.key.name).map(|(_, variants)| variants.all());
    let facts = Facts {
        fleet: &known.fleet,
        variants: variants.unwrap_or_default(),
        update: &known.update.meta.key.name,
        update_hash: &known.update.hash(set),
        current: &known.held_at,
        is_paused: set.spec.rolling_update().paused(),
        is_suspended: memory.view.asked.is_suspended,
        is_blocked: memory.view.is_blocked,
        problems: &problems,
        generation: set.generation,
    };
    Some(status(facts, &set.status, &Time(io.env.now())))
}

/// Writes the status if it says something new. Returns when to say what had to wait.
pub(super) async fn tell(
    io: &Io,
    set: &Set,
    said: &mut Said,
    wanted: &DaemonSetStatus,
) -> Result<Option<Duration>, kube::Error> {
    if !io.sets.caught_up(&set.meta.key) {
        return Ok(Some(PACE));
    }
    match waits(wanted, &set.status, said.told.map(|told| told.elapsed())) {
        None => return Ok(None),
        Some(Duration::ZERO) => {}
        Some(wait) => return Ok(Some(wait)),
    }
    if !write_status(io, set, said, wanted).await? {
        return Ok(Some(ECHO));
    }
    said.told = Some(Instant::now());
    if let Some(message) = has_stalled(&set.status, wanted) {
        io.reporter.report(set, "Stalled", message.to_owned());
    }
    Ok(None)
}

/// Writes the status. If the set is not what we think it is, nothing is written, and nothing decided about it before
/// our view includes what it is: of a set that was made anew, pods would be made in vain for ever.
pub(super) async fn write_status(
    io: &Io,
    set: &Set,
    said: &mut Said,
    status: &DaemonSetStatus,
) -> Result<bool, kube::Error> {
    let mut whole = json!(status);
    // An empty list is not written at all, and would leave in a merge patch what was there.
    whole["variants"] = json!(status.variants);
    let key = &set.meta.key;
    let api = io.sets_api(set);
    match Writer::new(&io.client, &api).write_status(&set.meta, &whole).await {
        Outcome::Written(version) => {
            io.sets.wrote(key, version);
            Ok(true)
        }
        Outcome::Conflict | Outcome::Missing | Outcome::Gone | Outcome::NameTaken => {
            let found = api.get_metadata_opt(&key.name).await?;
            said.wait_for(found.map(|found| version_of(&found.metadata)));
            Ok(false)
        }
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
    }
}
