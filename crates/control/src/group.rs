//! The NodeGroup controller: keeps `status.containedNodes` true as nodes come, go and change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_api::group::{NodeGroup, NodeGroupSpec, NodeGroupStatus};
use dapple_api::kinds;
use dapple_plan::group::{Membership, Roll, Rule};
use dapple_plan::mutant::{Mutant, is_on};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::Api;
use serde::Deserialize;
use serde_json::json;
use tracing::info;

use crate::caches::Subscription;
use crate::caches::store::{Change, Store};
use crate::env::{Backoff, Env};
use crate::failing::Failure;
use crate::family::{Controller, ControllerContext, Family, Part};
use crate::observed::{KindInfo, KindWire, Wire};
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Cached, Interner, Key, Meta, Node};
use crate::worker::{Reconcile, started};
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

mod adder;
mod application;
mod asking;
mod binding;
mod budget;
mod costs;
mod editions;
pub mod extender;
mod gatekeeper;
mod gates;
mod guess;
mod known_editions;
mod labels;
mod listed;
mod lookup;
mod marks;
mod metrics;
mod moves;
mod notes;
mod owner;
mod pinned;
mod placing;
mod policy;
mod quiet;
mod release;
mod repair;
mod reporting;
mod rollout;
mod rooms;
mod seated;
mod standing;
mod status;
mod steps;
mod target;
mod template;
mod turns;
mod unserved;
mod versions;
mod view;
mod volumes;
mod waits;
mod wake;

pub(crate) use application::is_served;
pub use gatekeeper::{Admission, Gatekeeper, IsRefused, Made};
pub(crate) use policy::Policy;
pub use release::release_all;
pub use volumes::read_claims;

use binding::Bindings;
use costs::Costs;
use labels::NodeLabels;
use metrics::GroupMetrics;
use placing::Placements;
use repair::Repairs;
use reporting::Kinds;
use status::Statuses;
use versions::PolicyHistory;

/// The family.
pub const FAMILY: Family = Family {
    name: "group",
    adoptable: &[],
    parts: &[Part {
        name: "group",
        needs: &[&kinds::NODE_GROUP, &kinds::PROPAGATION_POLICY, &kinds::OVERRIDE_POLICY],
        controllers: &[
            Controller {
                reads: &[kinds::NODE_GROUP.at, kinds::NODE],
                start: |context| started(Groups::start(context), context),
            },
            Controller {
                reads: &[kinds::NODE_GROUP.at, kinds::NODE, kinds::POD],
                start: |context| started(NodeLabels::start(context), context),
            },
            Controller { reads: &BINDINGS_READ, start: |context| started(Bindings::start(context), context) },
            Controller { reads: &[kinds::CONFIG_MAP], start: |context| started(Kinds::start(context), context) },
            Controller { reads: &PLACEMENTS_READ, start: |context| started(Placements::start(context), context) },
            Controller { reads: &PLACEMENTS_READ, start: |context| started(Repairs::start(context), context) },
            Controller {
                reads: &[kinds::OVERRIDE_POLICY.at, kinds::CONTROLLER_REVISION],
                start: |context| started(PolicyHistory::start(context), context),
            },
            Controller { reads: &PLACEMENTS_READ, start: |context| started(Costs::start(context), context) },
            Controller { reads: &PLACEMENTS_READ, start: |context| started(Statuses::start(context), context) },
        ],
        tell_off: |context, why| Box::pin(unserved::tell_gated(context, why)),
    }],
    gates: &[],
    register: |metrics| _ = metrics.of_family::<GroupMetrics>(),
};

/// What says where pods go; what may ask for policies is read for the bindings too.
const PLACEMENTS_READ: [KindInfo; 6] = [
    kinds::PROPAGATION_POLICY.at,
    kinds::OVERRIDE_POLICY.at,
    kinds::CONTROLLER_REVISION,
    kinds::NODE_GROUP.at,
    kinds::NODE,
    kinds::POD,
];

/// Policies, and what may ask for them.
const BINDINGS_READ: [KindInfo; 4 + kinds::NATIVE.len()] = {
    let mut all = [kinds::POD; 4 + kinds::NATIVE.len()];
    all[0] = kinds::PROPAGATION_POLICY.at;
    all[1] = kinds::OVERRIDE_POLICY.at;
    all[2] = kinds::DAEMON_SET.at;
    let mut index = 0;
    while index < kinds::NATIVE.len() {
        all[4 + index] = kinds::NATIVE[index].at;
        index += 1;
    }
    all
};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };
/// A group's status names all its nodes, so a thousand nodes that join one by one must not cause a thousand writes.
const BETWEEN_WRITES: Duration = Duration::from_millis(250);

/// A cached NodeGroup. Groups are few and small: spec and status are kept whole.
#[derive(Debug)]
pub struct Group {
    meta: Meta,
    generation: Option<i64>,
    spec: NodeGroupSpec,
    status: Option<NodeGroupStatus>,
}

impl Group {
    pub(crate) fn name(&self) -> &str {
        &self.meta.key.name
    }

    pub(crate) fn spec(&self) -> &NodeGroupSpec {
        &self.spec
    }
}

/// The fields of a NodeGroup that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct GroupWire {
    metadata: GroupMeta,
    spec: NodeGroupSpec,
    status: Option<NodeGroupStatus>,
}

#[derive(Debug, Clone, Deserialize)]
struct GroupMeta {
    generation: Option<i64>,
}

impl Wire for GroupWire {}

impl KindWire for GroupWire {
    const KIND: KindInfo = kinds::NODE_GROUP.at;
}

impl Cached for Group {
    type Wire = GroupWire;

    fn slim(meta: Meta, wire: GroupWire, _: &mut Interner) -> Self {
        Self { meta, generation: wire.metadata.generation, spec: wire.spec, status: wire.status }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// What follows from what the controller was told so far.
#[derive(Default)]
struct Known {
    membership: Membership,
    /// By group: the version whose rule is in the membership. The store may be ahead of it.
    versions: BTreeMap<Key, u64>,
}

impl Known {
    /// The members of a group, if they are those of the group as it is in the store. If not, it is told soon, and looked at
    /// then: a generation must not be written beside the members of another.
    fn roll(&self, group: &Group) -> Option<Roll> {
        let is_told = self.versions.get(&group.meta.key) == Some(&group.meta.version);
        is_told.then(|| self.membership.roll(&group.meta.key.name)).flatten()
    }
}

/// The controller.
pub struct Groups {
    client: Client,
    env: Env,
    groups: Subscription<Group>,
    nodes: Subscription<Node>,
    known: Arc<Mutex<Known>>,
    recorder: Arc<Recorder>,
    last_writes: Mutex<BTreeMap<Key, tokio::time::Instant>>,
}

impl Groups {
    /// Subscribes to groups and nodes. Returns the controller and the queue of groups to look at.
    pub fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let known = Arc::<Mutex<Known>>::default();
        let (groups, nodes) = (context.caches.open(), context.caches.open());
        let on_group = on_group(nodes.store(), known.clone(), queue.clone(), context.metrics.clone());
        let on_node = on_node(nodes.store(), known.clone(), queue.clone(), context.metrics.clone());
        let (groups, nodes) = (groups.subscribe(&context.stop, on_group), nodes.subscribe(&context.stop, on_node));
        let (client, env, recorder) = (context.client.clone(), context.env.clone(), context.recorder.clone());
        (Arc::new(Self { client, env, groups, nodes, known, recorder, last_writes: Mutex::default() }), queue)
    }

    /// How long to wait before this group may be written again.
    fn pause_before_write(&self, key: &Key) -> Option<Duration> {
        let last = self.last_writes.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()?;
        BETWEEN_WRITES.checked_sub(last.elapsed()).filter(|pause| !pause.is_zero())
    }

    /// Writes the status onto the very version that was looked at. Anything newer refuses it.
    async fn write_status(&self, group: &Group, status: &NodeGroupStatus) -> Result<Ended, kube::Error> {
        let key = &group.meta.key;
        let writer = Writer::new(&self.client, &Api::<NodeGroup>::all(self.client.clone()));
        match writer.write_status(&group.meta, &replacing(status)).await {
            Outcome::Written(version) => self.groups.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // The world moved on between look and write: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        self.last_writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), tokio::time::Instant::now());
        info!(group = %key, nodes = status.node_count, "status written");
        Ok(Ended::Done)
    }
}

/// The status as a merge patch that replaces the whole: what is empty now is taken out.
fn replacing(status: &NodeGroupStatus) -> serde_json::Value {
    json!({
        "containedNodes": status.contained_nodes,
        "nodeCount": status.node_count,
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions,
    })
}

/// What a change of a group means: hold its rule against the fleet once, and look at it and at those it shares nodes with.
fn on_group(
    nodes: Arc<Store<Node>>,
    known: Arc<Mutex<Known>>,
    queue: Arc<Queue<Key>>,
    metrics: Arc<crate::metrics::Metrics>,
) -> impl FnMut(&Change<Group>) + Send + 'static {
    move |change| {
        let Change::Object { key, new, listed, .. } = change else { return };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let neighbours = match new {
            Some(group) => {
                known.versions.insert(key.clone(), group.meta.version);
                known.membership.group_changed(&key.name, Rule::from(&group.spec), |visit| {
                    nodes.for_each(|node| visit(node.name(), &node.labels));
                })
            }
            None => {
                known.versions.remove(key);
                known.membership.group_removed(&key.name)
            }
        };
        let urgency = if *listed { Urgency::Sweep } else { Urgency::Change };
        let neighbours = neighbours.into_iter().map(|name| Key { namespace: Arc::from(""), name });
        for key in std::iter::once(key.clone()).chain(neighbours) {
            if queue.add(key, urgency) {
                metrics.queue_added(Groups::NAME);
            }
        }
    }
}

/// What a change of a node means: look at the groups that it joined or left, and at those it is in besides.
fn on_node(
    nodes: Arc<Store<Node>>,
    known: Arc<Mutex<Known>>,
    queue: Arc<Queue<Key>>,
    metrics: Arc<crate::metrics::Metrics>,
) -> impl FnMut(&Change<Node>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        if let (Some(old), Some(new)) = (old, new)
            && old.labels == new.labels
        {
            return;
        }
        let membership = &mut known.lock().unwrap_or_else(PoisonError::into_inner).membership;
        // As it is now: a group that came meanwhile was held against that, and must not see an older one after it.
        let affected = match nodes.get(key) {
            Some(node) => membership.node_changed(&key.name, &node.labels),
            None if is_on(Mutant::LeaversKept) => Default::default(),
            None => membership.node_removed(&key.name),
        };
        for group in affected {
            if queue.add(Key { namespace: Arc::from(""), name: group }, Urgency::Change) {
                metrics.queue_added(Groups::NAME);
            }
        }
    }
}

impl Reconcile for Groups {
    type Key = Key;
    const NAME: &'static str = "group";

    async fn ready(&self, term: u64) {
        self.nodes.synced(term).await;
        self.groups.synced(term).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Ended, kube::Error> {
        if self.groups.is_malformed(key) {
            return Ok(Ended::Done);
        }
        // Its nodes are told as they were at one time, not some of them as they are now and others as they were before.
        if !self.groups.caught_up(key) || self.nodes.is_listing() {
            return Ok(Ended::Again(BETWEEN_WRITES));
        }
        let Some(group) = self.groups.get(key) else {
            self.last_writes.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            return Ok(Ended::Done);
        };
        let roll = self.known.lock().unwrap_or_else(PoisonError::into_inner).roll(&group);
        let Some(roll) = roll else { return Ok(Ended::Done) };
        let generation = group.generation.filter(|_| !is_on(Mutant::GenerationForgotten));
        let wanted = dapple_plan::group::status(roll, generation, group.status.as_ref(), &Time(self.env.now()));
        if group.status.as_ref() == Some(&wanted) {
            return Ok(Ended::Done);
        }
        if let Some(pause) = self.pause_before_write(key) {
            return Ok(Ended::Again(pause));
        }
        self.write_status(&group, &wanted).await
    }

    /// All that is written of a group is its status. If that cannot be, no condition can, and an Event is left.
    async fn tell_failure(&self, key: &Key, failure: &Failure) {
        let Some(group) = self.groups.get(key) else { return };
        self.recorder.report(Report {
            about: GroupWire::KIND,
            key: key.clone(),
            uid: group.meta.uid.to_string(),
            event_type: EventType::Warning,
            action: "Reconciling",
            reason: "FailedStatus",
            note: format!("its status cannot be written: {}", failure.text),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slim::read;

    #[test]
    fn members_are_those_of_the_group_that_is_decided_about() {
        let group = |version: u64| -> Group {
            let object = json!({"metadata": {"name": "east", "uid": "u", "resourceVersion": version.to_string()},
                "spec": {"nodes": ["a"]}});
            read(&object, &mut Interner::default()).unwrap()
        };
        let known = Arc::<Mutex<Known>>::default();
        let queue = Arc::new(Queue::new(BACKOFF, Env::new(crate::env::SystemClock, 1)));
        let metrics = Arc::new(crate::metrics::Metrics::new());
        let mut tell = on_group(Arc::default(), known.clone(), queue, metrics);
        let key = Key::new("", "east");
        tell(&Change::Object { key: key.clone(), old: None, new: Some(Arc::new(group(1))), listed: false });
        let has_roll = |version| known.lock().unwrap().roll(&group(version)).is_some();
        assert!(has_roll(1));
        assert!(!has_roll(2), "it is in the store, and was not told yet");
        tell(&Change::Object { key, old: None, new: Some(Arc::new(group(2))), listed: false });
        assert!(has_roll(2));
    }
}
