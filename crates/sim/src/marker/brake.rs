//! How fast marks move: in a second for all markers, in a minute for one, and one pod again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::changes::Changed;
use crate::clock::FIRST_SECOND;
use crate::object::text;
use crate::past::Past;
use crate::sim::{Actor, LEASE, LEASES, Write};

/// So many pods may be patched in a second: what the rate allows, and some that were held up on the way.
const PATCHES_OF_A_SECOND: usize = 56;
/// So many pods may be changed in a minute; no run has so many that a tenth is more.
const CHANGES_OF_A_MINUTE: usize = 10;
/// So often a pod may be changed in ten minutes.
const CHANGES_OF_A_POD: usize = 4;
const MINUTE: Duration = Duration::from_secs(60);
/// Pods that are older by any manager's clock than those that do not count.
const OLD: i64 = 480;

/// What was seen of changes.
#[derive(Default)]
pub(super) struct Brakes {
    /// Since when each manager leads.
    leads: BTreeMap<Actor, Duration>,
    /// When each manager sent its last patches.
    sent: BTreeMap<Actor, Vec<Duration>>,
    /// By marker, with UID and generation: the pods that it has changed, by UID.
    changed: BTreeMap<String, BTreeSet<String>>,
    /// By manager and marker: when pods were changed that count.
    counted: BTreeMap<(Actor, String), Vec<Duration>>,
    /// By manager, marker and pod: when it was changed.
    again: BTreeMap<(Actor, String, String), Vec<Duration>>,
}

impl Brakes {
    /// Since when a manager leads, at the earliest.
    pub(super) fn leads_since(&self, actor: Actor) -> Option<Duration> {
        self.leads.get(&actor).copied()
    }

    /// Takes in who leads.
    pub(super) fn see(&mut self, write: &Write<'_>) {
        let holder = |lease: Option<&Value>| lease.map(|lease| text(&lease["spec"]["holderIdentity"]).to_owned());
        if write.change.resource != LEASES || text(&write.change.object["metadata"]["name"]) != LEASE {
            return;
        }
        if holder(write.change.previous.as_deref()) != holder(Some(&write.change.object)) {
            self.leads.insert(write.actor, write.at.saturating_sub(write.under_way));
            // What it knew of an earlier term it has forgotten.
            self.counted.retain(|(actor, _), _| *actor != write.actor);
            self.again.retain(|(actor, ..), _| *actor != write.actor);
        }
    }

    /// A manager has changed a pod for a marker, of which it may have believed this.
    pub(super) fn changed(&mut self, write: &Write<'_>, change: &Changed, believed: &Past) -> Result<(), String> {
        let pod = &*write.change.object;
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]).to_owned());
        let at = write.at.saturating_sub(write.under_way);
        let sent = self.sent.entry(write.actor).or_default();
        sent.retain(|then| then.abs_diff(at) < Duration::from_secs(1));
        sent.push(at);
        if sent.len() > PATCHES_OF_A_SECOND {
            return Err(format!("pods are patched too fast: {} in a second", sent.len()));
        }
        // For a change of its spec a marker changes each pod once, whoever leads.
        let known = || believed.iter().filter_map(|(_, known)| known.as_deref());
        let mut is_free = false;
        for marker in known() {
            let metadata = &marker["metadata"];
            let of = format!("{} {} {}", change.marker, metadata["uid"], metadata["generation"]);
            is_free |= self.changed.entry(of).or_default().insert(uid.clone());
        }
        // One that goes on with it may come to as many pods as the status says.
        let is_carried = known().any(|marker| !marker["status"]["carryingOut"].is_null());
        if is_free || is_carried {
            return Ok(());
        }
        // One that is made again under its name is another.
        let marker = known().next_back().map(|marker| format!("{} {}", change.marker, marker["metadata"]["uid"]));
        let marker = marker.unwrap_or_default();
        let key = (write.actor, marker.clone(), uid);
        let again = self.again.entry(key).or_default();
        again.retain(|then| at.saturating_sub(*then) < 10 * MINUTE);
        again.push(at);
        if again.len() > CHANGES_OF_A_POD {
            return Err(format!("a pod is changed again and again: {name}, by {}", change.marker));
        }
        if age(pod, write) < OLD {
            return Ok(());
        }
        self.counted(write, marker, at)
    }

    fn counted(&mut self, write: &Write<'_>, marker: String, at: Duration) -> Result<(), String> {
        let counted = self.counted.entry((write.actor, marker)).or_default();
        counted.retain(|then| at.saturating_sub(*then) < MINUTE);
        counted.push(at);
        let most = match self.leads.get(&write.actor) {
            // It begins with nothing.
            Some(since) if at.saturating_sub(*since) < MINUTE => {
                let share = (at.saturating_sub(*since)).as_secs_f64() / 60.0 * CHANGES_OF_A_MINUTE as f64;
                share.ceil() as usize
            }
            _ => CHANGES_OF_A_MINUTE,
        };
        if counted.len() > most {
            return Err(format!("marks move too fast: {} pods in a minute, of {most}", counted.len()));
        }
        Ok(())
    }
}

/// How old a pod is, in seconds, by the server's clock.
fn age(pod: &Value, write: &Write<'_>) -> i64 {
    let created = text(&pod["metadata"]["creationTimestamp"]).parse::<Timestamp>().map_or(0, Timestamp::as_second);
    FIRST_SECOND + i64::try_from(write.at.as_secs()).unwrap_or(0) - created
}
