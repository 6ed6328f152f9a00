//! Pods that are moved, or given another image where they run: one of an owner at a time, the next when all are ready again, and
//! none is taken away that does not come back.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::placing::is_gated;
use super::properties::has_ended;
use super::trial;
use crate::object::{is_terminating, list, text};
use crate::server::{ChangeKind, Server};
use crate::sim::{Actor, Write};
use crate::webhook::controller_of;

/// The kinds that make another pod for one that is evicted, as the server names them.
const MOVED: [(&str, &str); 3] = [
    ("ReplicaSet", "replicasets.apps"),
    ("StatefulSet", "statefulsets.apps"),
    ("ReplicationController", "replicationcontrollers"),
];

/// What was seen of owners.
#[derive(Default)]
pub(super) struct Moves {
    /// Until when all pods of an owner were there and ready, by its UID; [`Duration::MAX`] while they are.
    whole_until: BTreeMap<String, Duration>,
    /// Who moved a pod of an owner last, and whether all its pods were there and ready since.
    last: BTreeMap<String, (Actor, bool)>,
}

impl Moves {
    /// Takes in a write of a pod.
    pub(super) fn see(&mut self, write: &Write<'_>, server: &Server) -> Result<(), String> {
        let pod = &write.change.object;
        let before = write.change.previous.as_deref();
        let is_gone = is_terminating(pod) || write.change.kind == ChangeKind::Deleted;
        if write.is_ours() && is_gone && before.is_some_and(|before| !is_terminating(before)) {
            let before = before.unwrap_or(&Value::Null);
            if !comes_back(before) {
                return Err(format!(
                    "a manager takes a pod away that does not come back: {}",
                    before["metadata"]["name"]
                ));
            }
            self.disturbed(write, before, "moved")?;
        }
        let is_changed = |before: &&Value| !is_gated(before) && images(before) != images(pod);
        if let Some(before) = before.filter(|_| write.is_ours()).filter(is_changed) {
            if !comes_back(before) {
                return Err(format!(
                    "a manager changes a pod that is to stay as it is: {}",
                    before["metadata"]["name"]
                ));
            }
            self.disturbed(write, before, "changed")?;
        }
        let Some(owner) = controller_of(pod) else { return Ok(()) };
        let uid = text(&owner["uid"]).to_owned();
        if is_whole(&owner, server) {
            self.last.entry(uid.clone()).and_modify(|(_, is_whole_since)| *is_whole_since = true);
            self.whole_until.insert(uid, Duration::MAX);
        } else if let Some(until) = self.whole_until.get_mut(&uid) {
            *until = write.at.min(*until);
        }
        Ok(())
    }

    /// A manager takes a pod away, or restarts it. A pod that is not ready itself, or has yet to run what it should, makes nothing
    /// worse.
    fn disturbed(&mut self, write: &Write<'_>, before: &Value, how: &str) -> Result<(), String> {
        // Of this one several may be away at once.
        if trial::is_own(before) {
            return Ok(());
        }
        let (name, owner) = (&before["metadata"]["name"], controller_of(before).unwrap_or_default());
        let since = write.at.saturating_sub(write.memory);
        let uid = text(&owner["uid"]).to_owned();
        // What it has done itself it knows, however old its view is.
        if is_well(before) && self.last.insert(uid, (write.actor, false)) == Some((write.actor, false)) {
            return Err(format!("a pod is {how} before the last one, or its successor, is ready: {name}"));
        }
        let whole_until = self.whole_until.get(text(&owner["uid"])).copied().unwrap_or_default();
        if is_well(before) && !is_gated(before) && whole_until < since {
            return Err(format!("a pod is {how} while another is away: {name}, whole until {whole_until:?}"));
        }
        Ok(())
    }
}

/// Whether a pod's owner makes another for one that is taken away.
pub(super) fn comes_back(pod: &Value) -> bool {
    let owner = controller_of(pod).unwrap_or_default();
    MOVED.iter().any(|(kind, _)| owner["kind"] == *kind)
}

/// The images that a pod should run.
pub(super) fn images(pod: &Value) -> Vec<&Value> {
    list(&pod["spec"]["containers"]).iter().map(|container| &container["image"]).collect()
}

/// Whether a pod is ready, and runs what it should.
pub(super) fn is_well(pod: &Value) -> bool {
    let running: Vec<&Value> =
        list(&pod["status"]["containerStatuses"]).iter().map(|status| &status["image"]).collect();
    is_ready(pod) && running == images(pod)
}

/// Whether all pods of an owner are there and ready.
fn is_whole(owner: &Value, server: &Server) -> bool {
    let Some((_, resource)) = MOVED.iter().find(|(kind, _)| owner["kind"] == *kind) else { return false };
    let Some(found) = server.get(resource, "default", text(&owner["name"])) else { return false };
    let desired = found["spec"]["replicas"].as_u64().unwrap_or(1);
    let pods = server.list("pods");
    let is_own = |pod: &&std::sync::Arc<Value>| {
        controller_of(pod).is_some_and(|of| of["uid"] == owner["uid"]) && !has_ended(pod) && !is_terminating(pod)
    };
    let own: Vec<_> = pods.iter().filter(is_own).collect();
    own.iter().all(|pod| is_well(pod)) && u64::try_from(own.len()).is_ok_and(|count| count >= desired)
}

fn is_ready(pod: &Value) -> bool {
    list(&pod["status"]["conditions"]).iter().any(|known| known["type"] == "Ready" && known["status"] == "True")
}
