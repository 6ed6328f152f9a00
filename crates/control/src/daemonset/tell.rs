//! Saying how a set stands: its status.

use std::time::Duration;

use dapple_api::daemonset::{DaemonSet, DaemonSetStatus};
use dapple_plan::daemonset::pace::{PACE, waits};
use dapple_plan::daemonset::status::{Facts, Problem, has_stalled, status};
use dapple_plan::daemonset::wake::ECHO;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use serde_json::json;
use tokio::time::Instant;

use super::memory::Memory;
use super::{DaemonSets, Set};
use crate::writes::outcome::{Outcome, Writer, version_of};

/// Nodes that a message names.
const NAMED: usize = 3;

impl DaemonSets {
    /// How the set stands, as of the last decision: what that comes to is told once it has been seen.
    pub(super) fn standing(&self, set: &Set, memory: &Memory) -> Option<DaemonSetStatus> {
        let known = memory.known.as_ref()?;
        let mut problems: Vec<Problem> = memory.failures().collect();
        problems.extend(known.problems.iter().cloned());
        let refusals = memory.refusals.values().take(NAMED);
        problems.extend(refusals.map(|refusal| Problem::new(refusal.reason, refusal.text.clone())));
        let failing: Vec<String> =
            known.fleet.failing().take(NAMED).map(|(node, count)| format!("{node} ({count} times)")).collect();
        if !failing.is_empty() {
            problems.push(Problem::new("PodsFail", format!("pods keep ending on {}", failing.join(", "))));
        }
        let variants = memory.variants.get(&known.update.meta.key.name).map(|(_, variants)| variants.all());
        let facts = Facts {
            fleet: &known.fleet,
            variants: variants.unwrap_or_default(),
            update: &known.update.meta.key.name,
            update_hash: &known.update.hash(set),
            current: &known.held_at,
            is_paused: set.spec.rolling_update().paused(),
            is_blocked: memory.is_blocked,
            problems: &problems,
            generation: set.generation,
        };
        Some(status(facts, &set.status, &Time(self.env.now())))
    }

    /// Writes the status if it says something new. Returns when to say what had to wait.
    pub(super) async fn tell(
        &self,
        set: &Set,
        memory: &mut Memory,
        wanted: &DaemonSetStatus,
    ) -> Result<Option<Duration>, kube::Error> {
        if !self.sets.caught_up(&set.meta.key) {
            return Ok(Some(PACE));
        }
        match waits(wanted, &set.status, memory.told.map(|told| told.elapsed())) {
            None => return Ok(None),
            Some(Duration::ZERO) => {}
            Some(wait) => return Ok(Some(wait)),
        }
        if !self.write_status(set, memory, wanted).await? {
            return Ok(Some(ECHO));
        }
        memory.told = Some(Instant::now());
        if let Some(message) = has_stalled(&set.status, wanted) {
            self.report(set, "Stalled", message.to_owned());
        }
        Ok(None)
    }

    /// Writes the status. If the set is not what we think it is, nothing is written, and nothing decided about it before
    /// our view includes what it is: of a set that was made anew, pods would be made in vain for ever.
    pub(super) async fn write_status(
        &self,
        set: &Set,
        memory: &mut Memory,
        status: &DaemonSetStatus,
    ) -> Result<bool, kube::Error> {
        let mut whole = json!(status);
        // An empty list is not written at all, and would leave in a merge patch what was there.
        whole["variants"] = json!(status.variants);
        let key = &set.meta.key;
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        match Writer::new(&self.client, &api).write_status(&set.meta, &whole).await {
            Outcome::Written(version) => {
                self.sets.wrote(key, version);
                Ok(true)
            }
            Outcome::Conflict | Outcome::Missing | Outcome::Gone | Outcome::NameTaken => {
                let found = api.get_metadata_opt(&key.name).await?;
                memory.is_to_wait_for(found.map(|found| version_of(&found.metadata)));
                Ok(false)
            }
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
        }
    }
}
