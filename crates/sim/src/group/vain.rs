//! An application whose pods are never shown to the webhook, and are scheduled anywhere but in their group: to move one does not help,
//! so it is not done again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use dapple_plan::group::binding::Pair;
use serde_json::json;

use super::crowd::{create, is_elected, named};
use super::script::PATH as GROUPS_PATH;
use super::seats::{STRAGGLER, is_live};
use crate::object::text;
use crate::script::{Event, Script};
use crate::server::{CRDS, ChangeKind};
use crate::sim::{Actor, Write};

/// What the names of the family's CRDs end with.
const OF_GROUPS: &str = ".groupmanagement.kubeedge.io";
/// The application, the label of its pods, its policy, its group, and the only node of that.
const NAME: &str = "vain";
/// What has not helped is not done again before this: ten minutes, less what the first answer may have taken.
const RESTS: Duration = Duration::from_secs(580);

/// The application is there first.
pub(super) fn move_in_vain(script: &mut Script) {
    // To dapple that is no reason against the node, and the scheduler here takes any other.
    let avoided = json!([{"key": "example.com/avoided", "effect": "PreferNoSchedule"}]);
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME}}, "spec": {"taints": avoided},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let group = || {
        create(
            GROUPS_PATH.into(),
            json!({"apiVersion": "groupmanagement.kubeedge.io/v1alpha1", "kind": "NodeGroup",
                "metadata": {"name": NAME}, "spec": {"nodes": [NAME]}}),
        )
    };
    let own = json!({NAME: "yes"});
    let template = json!({"metadata": {"labels": own}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let application = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": NAME, "namespace": "default", "labels": {Pair::Propagation.required(): NAME}},
        "spec": {"replicas": 1, "selector": {"matchLabels": own}, "template": template}});
    script.setup.extend([
        create("/api/v1/nodes".into(), node),
        group(),
        named(Pair::Propagation, NAME, &json!({"staticWeightList": [{"nodeGroupNames": [NAME], "weight": 1}]})),
        create("/apis/apps/v1/namespaces/default/replicasets".into(), application),
    ]);
    // It goes with its CRD, if that goes.
    script.finish.push(Event::User(group()));
    script.habits.hides = Some(NAME);
}

/// What was seen of the application.
#[derive(Default)]
pub(super) struct Vain {
    /// When each manager last moved its pod, since it came to hold the lease.
    moved: BTreeMap<Actor, Duration>,
}

impl Vain {
    /// Takes in a write.
    pub(super) fn see(&mut self, write: &Write<'_>) -> Result<(), String> {
        let (object, before) = (&write.change.object, write.change.previous.as_deref());
        let is_crd = write.change.resource == CRDS && text(&object["metadata"]["name"]).ends_with(OF_GROUPS);
        if is_crd && write.change.kind == ChangeKind::Added {
            // The family begins anew with its CRDs, as with a new leader: it has forgotten what it did.
            self.moved.clear();
        }
        if is_elected(write) {
            self.moved.remove(&write.actor);
        }
        let is_own = write.change.resource == "pods" && object["metadata"]["labels"][NAME].is_string();
        let is_gone = write.change.kind == ChangeKind::Deleted || !is_live(object);
        // One that was given up is counted by when that was.
        let is_given_up = write.under_way > STRAGGLER;
        if !is_own || !write.is_ours() || is_given_up || !is_gone || !before.is_some_and(is_live) {
            return Ok(());
        }
        match self.moved.insert(write.actor, write.at) {
            Some(last) if write.at < last + RESTS => {
                let name = text(&object["metadata"]["name"]);
                Err(format!("what has not helped is done again: {name} is moved {:?} after the last", write.at - last))
            }
            _ => Ok(()),
        }
    }
}
