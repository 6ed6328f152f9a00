//! Places pods that wait behind the gate: what [`dapple_plan::group::placing`] decides, one write per pod.
//!
//! Each write names the pod by UID and version, and takes the gate off with everything that the decision is about, so that a
//! pod is either behind the gate or placed, wherever the process dies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_api::kinds::{KindInfo, NATIVE_DAEMON_SET, POD};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::placing::{DELETION_COST, Decision, GATE, Placement, PodRule, Why};
use futures::StreamExt;
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, Patch};
use serde_json::{Map, Value, json};
use tracing::info;

use super::application::{Applicant, ApplicationKey, Applications, Asking, can_ask, is_served};
use super::owner::{GATED, GATED_BY_OWNER, Owner, OwnerKey, is_live, number_label};
use super::policy::Policy;
use super::seated::{Decided, Numbering, Seatings, Stores};
use super::waits::Waits;
use super::{BACKOFF, Group};
use crate::caches::Subscription;
use crate::caches::store::{Change, Store};
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::observed::Observed;
use crate::queue::{Ended, Queue, Urgency};
use crate::signal::Signal;
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::outcome::{Outcome, Writer, version_of};

/// How soon to look again where our view is behind.
const ECHO: Duration = Duration::from_millis(200);
/// So many pods of an owner are written at once.
const AT_ONCE: usize = 16;

/// The controller. Its keys are owners of pods.
pub(super) struct Placements {
    client: Client,
    own_namespace: Arc<str>,
    applications: Applications,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    seatings: Arc<Seatings>,
    waits: Waits,
    /// Pods of which nobody knows whether they were placed.
    in_doubt: Mutex<BTreeMap<Key, OwnerKey>>,
    /// The term in which pods are placed, for those who put pods behind the gate.
    places: Signal,
    subscriptions: (Subscription<Pod>, Subscription<Node>, Subscription<Group>),
}

/// A pod that waits, and what asks in its name.
struct Waiting<'a> {
    pod: Arc<Pod>,
    asking: &'a Asking,
}

impl Placements {
    /// Subscribes to all that says where pods go. Returns the controller and the queue of owners to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<OwnerKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let pods = context.caches.open();
        let pods = pods.indexed_by([Pod::BY_OWNER, GATED, GATED_BY_OWNER, Applications::PODS_BY_POLICY]);
        let (nodes, groups) = (context.caches.open::<Node>(), context.caches.open::<Group>());
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let seatings = Arc::new(Seatings::new(stores.clone()));
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone(), pods: stores.pods.clone() };
        let subscriptions = (
            pods.subscribe(&context.stop, on_pod(seatings.clone(), adder.clone())),
            nodes.subscribe(&context.stop, on_node(seatings.clone(), adder.clone())),
            groups.subscribe(&context.stop, on_group(seatings.clone(), adder.clone())),
        );
        let told = adder.clone();
        let controller = Self {
            client: context.client.clone(),
            own_namespace: context.namespace.clone(),
            applications: Applications::subscribe(&context.caches, &context.stop, move |at: ApplicationKey| {
                told.add_gated(&at.key.namespace);
            }),
            propagations: context.caches.open().subscribe(&context.stop, on_policy(adder)),
            waits: Waits::new(context.recorder.clone(), stores.pods),
            seatings,
            in_doubt: Mutex::default(),
            places: context.places.clone(),
            subscriptions,
        };
        (Arc::new(controller), queue)
    }

    fn pods(&self) -> &Store<Pod> {
        &self.seatings.stores.pods
    }

    /// What asks in the name of an owner's pods.
    async fn applicant(&self, at: &OwnerKey, pod: &Pod) -> Result<Applicant, kube::Error> {
        let Owner::Revision { uid, .. } = &at.owner else { return Ok(Applicant::Is(Asking::of_pod(pod))) };
        if let Some((kind, owner)) = self.applications.by_uid(&at.namespace, uid) {
            // Where pods of a DaemonSet go is decided already.
            let is_daemon = kind == NATIVE_DAEMON_SET.at;
            return Ok(if is_daemon { Applicant::None } else { self.applications.application_of(&owner) });
        }
        // Its owner is not of a kind that can ask, or not known here yet: the API server knows which.
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.namespace, &POD);
        let found = api.get_opt(&pod.meta.key.name).await?.and_then(|found| found.object.ok());
        let Some(whole) = found else { return Ok(Applicant::Unknown) };
        let owners = whole["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut own = owners.filter(|owner| owner["uid"] == **uid);
        let is_listed = own.any(|owner| can_ask(&text(&owner["apiVersion"]), &text(&owner["kind"])));
        Ok(if is_listed { Applicant::Unknown } else { Applicant::None })
    }

    /// Asks what has become of pods that nobody knows of. Nothing is decided until the view is as new as the answer.
    async fn resolve(&self, at: &OwnerKey) -> Result<(), kube::Error> {
        let in_doubt = || self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner);
        let own: Vec<Key> = in_doubt().iter().filter(|(_, owner)| *owner == at).map(|(key, _)| key.clone()).collect();
        for key in own {
            let api = Api::<v1::Pod>::namespaced(self.client.clone(), &key.namespace);
            if let Some(found) = api.get_metadata_opt(&key.name).await? {
                self.pods().wrote(&key, version_of(&found.metadata));
            }
            in_doubt().remove(&key);
            // If it was not done, no change of the pod will tell.
            self.seatings.pod_changed(&key, BTreeSet::from([at.clone()]));
        }
        Ok(())
    }

    /// How an owner numbers its pods.
    async fn numbering(&self, at: &OwnerKey) -> Result<Numbering, kube::Error> {
        let Owner::Revision { uid, .. } = &at.owner else { return Ok(Numbering::default()) };
        let Some((kind, owner)) = self.applications.by_uid(&at.namespace, uid) else { return Ok(Numbering::default()) };
        let Some(label) = number_label(kind.kind) else { return Ok(Numbering::default()) };
        if let Some(known) = self.seatings.numbering(at, owner.generation) {
            return Ok(known);
        }
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.namespace, &kind);
        let found = api.get_opt(&owner.meta.key.name).await?.and_then(|found| found.object.ok()).unwrap_or_default();
        let start = found.pointer("/spec/ordinals/start").and_then(Value::as_u64);
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        Ok(Numbering { label: Some(label), start, generation: found["metadata"]["generation"].as_i64() })
    }

    /// Takes the gate off a pod, with what goes with it.
    async fn ungate(&self, pod: &Pod, labels: Map<String, Value>, placement: Option<&Placement>) -> Outcome {
        let cost = placement.and_then(|placement| placement.cost);
        let annotations = cost.map_or_else(|| json!({}), |cost| json!({DELETION_COST: cost.to_string()}));
        let selector = placement.map_or_else(|| json!({}), |placement| json!(placement.selector));
        let patch = json!({
            "metadata": {"uid": &*pod.meta.uid, "resourceVersion": pod.meta.version.to_string(),
                "labels": labels, "annotations": annotations},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}], "nodeSelector": selector},
        });
        let pods = Api::<v1::Pod>::namespaced(self.client.clone(), &pod.meta.key.namespace);
        let outcome = Writer::new(&self.client, &pods).patch(&pod.meta.key.name, None, &Patch::Strategic(patch)).await;
        if let Outcome::Written(version) = &outcome {
            self.pods().wrote(&pod.meta.key, *version);
        }
        outcome
    }

    /// Takes the gate off a pod that nothing asks a place for.
    async fn release(&self, pod: Arc<Pod>, asking: Option<&Asking>) -> Result<Ended, kube::Error> {
        let labels = asking.map(|asking| asking.labels_for(&pod.labels)).unwrap_or_default();
        match self.ungate(&pod, labels, None).await {
            Outcome::Written(_) => {
                info!(pod = %pod.meta.key, "nothing asks where it goes: the gate is off");
                Ok(Ended::Done)
            }
            outcome => failed(outcome),
        }
    }

    /// Places a pod, and notes what has come of it.
    async fn place(&self, at: &OwnerKey, waiting: &Waiting<'_>, placement: &Placement) -> Result<Ended, kube::Error> {
        let Waiting { pod, asking } = waiting;
        let mut labels = asking.labels_for(&pod.labels);
        labels.insert(GATE.to_owned(), json!(&*placement.group));
        let outcome = self.ungate(pod, labels, Some(placement)).await;
        // If nobody knows whether it was done, its seat is nobody else's until somebody does.
        if let Outcome::Written(_) | Outcome::Unknown(_) = outcome {
            self.seatings.note_placed(at, pod, placement);
        }
        match outcome {
            Outcome::Written(_) => {
                if placement.has_own_cost {
                    let note = format!(
                        "it has a {DELETION_COST} of its own, which is left alone: when there are fewer pods, it may go \
                         though its group should keep it"
                    );
                    self.waits.report(POD, &pod.meta.key, &pod.meta.uid, "DeletionCostKept", note);
                }
                Ok(Ended::Done)
            }
            Outcome::Unknown(error) => {
                let mut in_doubt = self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner);
                in_doubt.insert(pod.meta.key.clone(), at.clone());
                Err(error)
            }
            outcome => failed(outcome),
        }
    }

    /// Divides pods of an owner by a policy.
    async fn divide(
        &self,
        at: &OwnerKey,
        kind: KindInfo,
        policy: &str,
        pods: BTreeMap<Arc<str>, Waiting<'_>>,
    ) -> Result<Ended, kube::Error> {
        let key = Key { namespace: at.namespace.clone(), name: Arc::from(policy) };
        if self.propagations.is_malformed(&key) {
            return Ok(Ended::Done);
        }
        let numbering = self.numbering(at).await?;
        let decided = match self.propagations.get(&key) {
            Some(policy) => self.seatings.decide(at, &policy, numbering),
            None => Decided::Undivided,
        };
        let decisions = match decided {
            Decided::Behind => return Ok(Ended::Again(ECHO)),
            Decided::Decisions(decisions) => decisions,
            Decided::Undivided => {
                let why = Why::NotConfirmed { pair: Pair::Propagation, policy: policy.to_owned() };
                pods.keys().map(|name| (name.clone(), Decision::Wait(why.clone()))).collect()
            }
        };
        let (mut placed, mut waiting) = (Vec::new(), Vec::new());
        for (name, decision) in decisions {
            match (pods.get(&name), decision) {
                (Some(pod), Decision::Place(placement)) => placed.push((pod, placement)),
                (Some(pod), Decision::Wait(why)) => waiting.push((pod.pod.clone(), why)),
                (None, _) => {}
            }
        }
        // A pod that nothing is decided about is not known to wait: it is found out anew.
        let is_left = placed.len() + waiting.len() < pods.len();
        if is_left {
            self.seatings.forget(at);
        }
        if let Some(any) = pods.values().next() {
            self.waits.tell(kind, any.asking, &waiting);
        }
        if !placed.is_empty() {
            info!(owner = %at, pods = placed.len(), "placing pods");
        }
        let writes: Vec<_> = placed.iter().map(|(pod, placement)| self.place(at, pod, placement)).collect();
        let ended = all_of(futures::stream::iter(writes).buffer_unordered(AT_ONCE).collect().await)?;
        Ok(if is_left { Ended::Again(ECHO) } else { ended })
    }

    /// Does what the labels of its application say about each pod.
    async fn look(
        &self,
        at: &OwnerKey,
        kind: KindInfo,
        pods: &[(Arc<Pod>, Option<Asking>)],
    ) -> Result<Ended, kube::Error> {
        let (mut released, mut held, mut divided) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut by = None;
        for (pod, asking) in pods {
            match asking.as_ref().map(|asking| (asking, PodRule::of(&asking.labels))) {
                None => released.push((pod.clone(), None)),
                Some((asking, PodRule::Release)) => released.push((pod.clone(), Some(asking))),
                Some((asking, PodRule::Hold { pair, policy })) => {
                    held.push((asking, (pod.clone(), Why::NotConfirmed { pair, policy: policy.to_owned() })));
                }
                Some((asking, PodRule::Divide(policy))) => {
                    by = Some(policy);
                    divided.insert(pod.meta.key.name.clone(), Waiting { pod: pod.clone(), asking });
                }
            }
        }
        if let Some((asking, _)) = held.first().filter(|_| kind != POD) {
            let waiting: Vec<(Arc<Pod>, Why)> = held.iter().map(|(_, waits)| waits.clone()).collect();
            self.waits.tell(kind, asking, &waiting);
        } else {
            held.iter().for_each(|(asking, waits)| self.waits.tell(kind, asking, std::slice::from_ref(waits)));
        }
        let releases: Vec<_> = released.into_iter().map(|(pod, asking)| self.release(pod, asking)).collect();
        let released = all_of(futures::stream::iter(releases).buffer_unordered(AT_ONCE).collect().await);
        match by {
            Some(policy) => {
                let divided = self.divide(at, kind, policy, divided).await;
                all_of(vec![released, divided])
            }
            None => released,
        }
    }
}

impl Drop for Placements {
    /// From here on nobody opens the gate.
    fn drop(&mut self) {
        self.places.set(0);
    }
}

/// What follows from a write that was not done.
fn failed(outcome: Outcome) -> Result<Ended, kube::Error> {
    match outcome {
        Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
        // It is another one by now: what has changed is told, and looked at then.
        _ => Ok(Ended::Failed),
    }
}

/// The worst of several ends: one that fails stops no other.
fn all_of(ends: Vec<Result<Ended, kube::Error>>) -> Result<Ended, kube::Error> {
    let mut worst = Ended::Done;
    for ended in ends {
        match ended? {
            Ended::Done => {}
            other => worst = other,
        }
    }
    Ok(worst)
}

impl Reconcile for Placements {
    type Key = OwnerKey;
    const NAME: &'static str = "group-placements";

    async fn ready(&self, term: u64) {
        let (pods, nodes, groups) = &self.subscriptions;
        pods.synced(term).await;
        nodes.synced(term).await;
        groups.synced(term).await;
        self.propagations.synced(term).await;
        self.applications.synced(term).await;
        // Without a term, this process only follows.
        if term != 0 {
            self.places.set(term);
        }
    }

    async fn reconcile(&self, at: &OwnerKey) -> Result<Ended, kube::Error> {
        self.resolve(at).await?;
        let mut gated = self.pods().find(GATED_BY_OWNER, &at.index());
        gated.retain(|pod| is_live(pod));
        // Those that were written a moment ago are seen soon, without the gate.
        let all = gated.len();
        gated.retain(|pod| self.pods().caught_up(&pod.meta.key));
        let behind = all - gated.len();
        let Some(first) = gated.first() else {
            return Ok(if behind == 0 { Ended::Done } else { Ended::Again(ECHO) });
        };
        let applicant = if is_served(&at.namespace, &self.own_namespace) {
            self.applicant(at, first).await?
        } else {
            Applicant::None
        };
        let (kind, asking) = match applicant {
            // Its owner is told of soon, or is gone, and so is the pod then.
            Applicant::Unknown => return Ok(Ended::Failed),
            Applicant::None => (POD, None),
            Applicant::Is(asking) => {
                let known = self.applications.by_uid(&at.namespace, &asking.meta.uid);
                (known.map_or(POD, |(kind, _)| kind), Some(asking))
            }
        };
        let is_own = matches!(at.owner, Owner::Nobody { .. }) && asking.is_some();
        let with_asking = |pod: Arc<Pod>| {
            let asking = if is_own { Some(Asking::of_pod(&pod)) } else { asking.clone() };
            (pod, asking)
        };
        let pods: Vec<(Arc<Pod>, Option<Asking>)> = gated.into_iter().map(with_asking).collect();
        self.look(at, kind, &pods).await
    }

    async fn tell_failure(&self, at: &OwnerKey, failure: &Failure) {
        if let Some(pod) = self.pods().find(GATED_BY_OWNER, &at.index()).first() {
            let note = format!("it cannot be placed: {}", failure.text);
            self.waits.report(POD, &pod.meta.key, &pod.meta.uid, "FailedPlacement", note);
        }
    }
}

/// Adds owners to the queue.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<OwnerKey>>,
    metrics: Arc<Metrics>,
    pods: Arc<Store<Pod>>,
}

impl Adder {
    fn add(&self, at: OwnerKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(Placements::NAME);
        }
    }

    /// The owners of all pods of a namespace that wait.
    fn add_gated(&self, namespace: &str) {
        self.pods.find(GATED, namespace).iter().for_each(|pod| self.add(OwnerKey::of(pod)));
    }

    /// The owners of all pods that wait.
    fn add_all_gated(&self) {
        self.pods.all_under(GATED).iter().for_each(|pod| self.add(OwnerKey::of(pod)));
    }
}

/// What a change of a pod means: its owner knows of it, and is looked at if some pod waits.
fn on_pod(seatings: Arc<Seatings>, adder: Adder) -> impl FnMut(&Change<Pod>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        let owners: BTreeSet<OwnerKey> = [old, new].into_iter().flatten().map(|pod| OwnerKey::of(pod)).collect();
        seatings.pod_changed(key, owners).into_iter().for_each(|at| adder.add(at));
    }
}

/// What a change of a node means: it may be in other groups.
fn on_node(seatings: Arc<Seatings>, adder: Adder) -> impl FnMut(&Change<Node>) + Send + 'static {
    move |change| {
        let Change::Object { old, new, .. } = change else { return };
        if old.as_ref().map(|node| &node.labels) != new.as_ref().map(|node| &node.labels) {
            seatings.groups_changed();
            adder.add_all_gated();
        }
    }
}

/// What a change of a group means: it may have come, or have other nodes.
fn on_group(seatings: Arc<Seatings>, adder: Adder) -> impl FnMut(&Change<Group>) + Send + 'static {
    move |change| {
        let Change::Object { old, new, .. } = change else { return };
        if old.as_ref().map(|group| &group.spec) != new.as_ref().map(|group| &group.spec) {
            seatings.groups_changed();
            adder.add_all_gated();
        }
    }
}

/// What a change of a policy means: pods may have places that had none.
fn on_policy(adder: Adder) -> impl FnMut(&Change<Policy<PropagationPolicySpec>>) + Send + 'static {
    move |change| {
        if let Change::Object { key, .. } = change {
            adder.add_gated(&key.namespace);
        }
    }
}
