//! No mark moves on stale news: what a manager does to pods of the marker that goes by a probe follows from a result that counts. And
//! what nodes are to probe is not written too often.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_api::marker::PROBER_NAMESPACE;
use serde_json::Value;

use super::changes::Changed;
use super::{RESULTS, name};
use crate::object::{list, text};
use crate::past::{Past, believed, note};
use crate::sim::{Actor, LEASES, Write};

/// A prober is heard for so long after a renewal.
const HEARD: Duration = Duration::from_secs(180);
/// What a node is to probe is written once a second at most; the write before may have waited for its turn.
const BETWEEN_WRITES: Duration = Duration::from_millis(900);

/// What was seen of probers, by node.
#[derive(Default)]
pub(super) struct Results {
    told: BTreeMap<String, Past>,
    renewed: BTreeMap<String, Vec<Duration>>,
    /// When each manager last wrote what a node is to probe.
    asked: BTreeMap<(Actor, String), Duration>,
}

impl Results {
    /// Takes in results and renewals.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let object = &*write.change.object;
        let node = name(object).to_owned();
        match write.change.resource {
            RESULTS => note(self.told.entry(node).or_default(), write),
            LEASES if object["metadata"]["namespace"] == PROBER_NAMESPACE => {
                self.renewed.entry(node).or_default().push(write.at);
            }
            _ => {}
        }
    }

    /// A manager has written what a node is to probe.
    pub(super) fn asked(&mut self, write: &Write<'_>) -> Result<(), String> {
        let (node, at) = (name(&write.change.object), write.at.saturating_sub(write.under_way));
        let before = self.asked.insert((write.actor, node.to_owned()), at);
        if before.is_some_and(|before| at.abs_diff(before) < BETWEEN_WRITES) {
            return Err(format!("what is to be probed is written too often: {node}"));
        }
        Ok(())
    }

    /// A pod was changed for the marker that goes by a probe, by a manager that leads since then.
    pub(super) fn changed(&self, write: &Write<'_>, change: &Changed, leads: Option<Duration>) -> Result<(), String> {
        let pod = &*write.change.object;
        let (node, wanted) = (text(&pod["spec"]["nodeName"]), if change.is_marked { "Succeeded" } else { "Failed" });
        let at = write.at.saturating_sub(write.under_way);
        let heard_from = at.saturating_sub(HEARD + write.memory);
        let since = leads.map_or(heard_from, |leads| leads.max(heard_from));
        let is_heard = |renewed: &Vec<Duration>| renewed.iter().any(|then| (since..=write.at).contains(then));
        if !self.renewed.get(node).is_some_and(is_heard) {
            return Err(format!("a mark moves though nobody is heard: {}, on {node}", name(pod)));
        }
        let told = self.told.get(node).map(|past| believed(past, write)).unwrap_or_default();
        if told.iter().filter_map(|(_, known)| known.as_deref()).any(|known| says(known, pod, wanted)) {
            return Ok(());
        }
        Err(format!("a mark moves and no result says so: {}, which has to have {wanted}", name(pod)))
    }
}

/// Whether results say this of the run of a pod's container.
fn says(results: &Value, pod: &Value, wanted: &str) -> bool {
    let run = &list(&pod["status"]["containerStatuses"]).first().map(|known| known["containerID"].clone());
    let told = list(&results["status"]["podProbeStatuses"]).iter().filter(|told| told["uid"] == pod["metadata"]["uid"]);
    let mut states = told.flat_map(|told| list(&told["probeStates"]));
    states.any(|state| state["state"] == wanted && Some(&state["containerID"]) == run.as_ref())
}
