//! Keeps what deleting pods costs true to their policy: what [`dapple_plan::group::costs`] decides, after everything else.
//!
//! Costs are written when pods are placed. By another policy pods have other seats, and get other costs once nothing is misplaced and
//! nothing has changed for a while; where nothing asks for a policy any more, they lose them. Which costs are dapple's is remembered on
//! the pods alone, so that a new leader goes on where the last one was.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_api::kinds::POD;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::costs::{DELETION_COST, SEAT, Seated, cost_of, has_own_cost, reseated, seat_of};
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::{GATE, PodRule};
use dapple_plan::group::repair::{Move, PodState, misplaced};
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, Patch};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use super::BACKOFF;
use super::application::{Applicant, ApplicationKey, Applications, is_served};
use super::metrics::GroupMetrics;
use super::owner::{OwnerKey, is_gated, is_live, number_label, pods_of};
use super::policy::Policy;
use super::seated::{StoreSubscriptions, Stores, open_groups};
use super::standing::{Standing, pods_of_application, state_of};
use super::turns::Availability;
use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::metrics::Metrics;
use crate::pacer::{Pace, Pacer};
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// How soon to look again where our view is behind.
const ECHO: Duration = Duration::from_secs(1);
/// How soon to look again where volumes may keep pods where they are: nobody tells that this was found out.
const FOUND_OUT: Duration = Duration::from_secs(30);
/// Pods get other costs once nothing of what they follow from has changed for so long.
const SETTLED: Duration = Duration::from_secs(5);
/// Between two writes of costs.
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
/// An owner is looked at no more often: each look goes over all its pods, and each pod that is placed asks for one.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// The controller. Its keys are owners of pods.
pub(super) struct Costs {
    client: Client,
    own_namespace: Arc<str>,
    recorder: Arc<Recorder>,
    counted: Arc<GroupMetrics>,
    applications: Arc<Applications>,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    stores: Stores,
    /// What costs of an owner's pods followed from when it was last looked at, and since when.
    seen: Mutex<BTreeMap<OwnerKey, (u64, Instant)>>,
    pacer: Pacer,
    pace: Pace<OwnerKey>,
    subscriptions: StoreSubscriptions,
}

/// What becomes of the costs of an owner's pods.
enum Fate {
    /// They are left as they are.
    Kept,
    /// They go.
    Removed,
    /// They follow from this policy.
    By(Arc<Policy<PropagationPolicySpec>>),
    /// It is not known yet.
    Unknown,
}

impl Costs {
    /// Subscribes to all that costs follow from. Returns the controller and the queue of owners to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<OwnerKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let pods = context.caches.open().indexed_by([Pod::BY_OWNER]);
        let (nodes, groups) = (context.caches.open::<Node>(), open_groups(&context.caches));
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone(), stores: stores.clone() };
        let applications = Arc::new_cyclic(|applications| {
            let (adder, applications) = (adder.clone(), applications.clone());
            Applications::subscribe(&context.caches, &context.stop, move |at: ApplicationKey| {
                if let Some(applications) = std::sync::Weak::<Applications>::upgrade(&applications) {
                    adder.add_pods_of(&applications, &at);
                }
            })
        });
        let told = adder.clone();
        let subscriptions = StoreSubscriptions {
            pods: pods.subscribe(&context.stop, move |change| on_pod(&told, change)),
            nodes: nodes.subscribe(&context.stop, |_| {}),
            groups: groups.subscribe(&context.stop, |_| {}),
        };
        let asking = Arc::downgrade(&applications);
        let on_policy = move |change: &Change<Policy<PropagationPolicySpec>>| {
            let asking = asking.upgrade().filter(|_| Policy::is_news(change));
            let (Change::Object { key, .. }, Some(applications)) = (change, asking) else { return };
            let asking = applications.asking_for(Pair::Propagation, &key.namespace, &key.name);
            asking.iter().for_each(|at| adder.add_pods_of(&applications, at));
        };
        let controller = Self {
            client: context.client.clone(),
            own_namespace: context.namespace.clone(),
            recorder: context.recorder.clone(),
            counted: context.metrics.of_family::<GroupMetrics>(),
            propagations: context.caches.open().subscribe(&context.stop, on_policy),
            applications,
            stores,
            seen: Mutex::default(),
            pacer: Pacer::new(BETWEEN_WRITES),
            pace: Pace::new(BETWEEN_LOOKS),
            subscriptions,
        };
        (Arc::new(controller), queue)
    }

    /// What becomes of the costs of an owner's pods.
    fn fate(&self, at: &OwnerKey) -> Fate {
        // Nobody chooses among pods of nobody's, nor among those of Jobs, and they are never changed once they are placed.
        let Some((kind, owner)) = at.uid().and_then(|uid| self.applications.by_uid(&at.namespace, uid)) else {
            return Fate::Kept;
        };
        if !is_served(&at.namespace, &self.own_namespace)
            || !self.applications.makes_others(kind)
            || owner.is_terminating()
        {
            return Fate::Kept;
        }
        let application = match self.applications.application_of(&owner) {
            Applicant::Is(application) => application,
            Applicant::None => return Fate::Removed,
            Applicant::Unknown => return Fate::Unknown,
        };
        match PodRule::of(&application.labels) {
            PodRule::Release => Fate::Removed,
            PodRule::Hold { .. } => Fate::Kept,
            // Nor among those that have a number: it is their seat, and they are given no other.
            PodRule::Divide(_) if number_label(kind.kind).is_some() => Fate::Kept,
            PodRule::Divide(name) => {
                let key = Key { namespace: at.namespace.clone(), name: Arc::from(name) };
                let policy = self.propagations.get(&key).filter(|policy| !policy.is_suspended);
                policy.map_or(Fate::Kept, Fate::By)
            }
        }
    }

    /// How long until what costs follow from has not changed for long enough; none if it has not.
    fn unsettled(&self, at: &OwnerKey, pods: &[Arc<Pod>], policy: &Policy<PropagationPolicySpec>) -> Option<Duration> {
        let mut hasher = DefaultHasher::new();
        (&policy.meta.uid, policy.generation).hash(&mut hasher);
        let mut facts: Vec<(&str, Option<&str>, bool)> =
            pods.iter().map(|pod| (&*pod.meta.uid, pod.labels.get(GATE), is_gated(pod))).collect();
        facts.sort_unstable();
        facts.hash(&mut hasher);
        let (now, told) = (Instant::now(), hasher.finish());
        let mut seen = lock(&self.seen);
        let known = seen.entry(at.clone()).or_insert((told, now));
        if known.0 != told {
            *known = (told, now);
        }
        Some(SETTLED.saturating_sub(now.duration_since(known.1))).filter(|rest| !rest.is_zero())
    }

    /// The seats that pods of an owner get by a policy in place of those that they have. While some are misplaced, or wait, how the
    /// look ends.
    fn changes(
        &self,
        pods: &[Arc<Pod>],
        policy: &Policy<PropagationPolicySpec>,
    ) -> Result<Vec<(Arc<str>, usize)>, Ended> {
        let Some(mut division) = Division::of(&policy.spec) else { return Err(Ended::Done) };
        // Whether they are available, and which number they have, makes no difference to costs.
        let available = Availability { min_ready: 0, now: 0 };
        let standing = Standing { stores: &self.stores, division: &division, start: 0, available };
        // A pod belongs where it is while its volumes cannot follow it to where its seat is.
        let state = |pod: &Arc<Pod>| {
            let reach = self.counted.pinned.reach(pod, division.groups());
            PodState { reach, ..state_of(&standing, None, pod) }
        };
        let states: Vec<PodState> = pods.iter().map(state).collect();
        if states.iter().any(|pod| pod.is_gated) {
            return Err(Ended::Done);
        }
        let moves = misplaced(&mut division, &states);
        if !moves.is_empty() {
            let has_volumes = |known: &Move| !pods[known.pod].claims.is_empty();
            return Err(if moves.iter().any(has_volumes) { Ended::Again(FOUND_OUT) } else { Ended::Done });
        }
        let seated = states.iter().zip(pods).map(|(state, pod)| Seated {
            name: state.name.clone(),
            group: state.group,
            seat: state.seat,
            has_own_cost: has_own_cost(&pod.annotations),
        });
        Ok(reseated(&mut division, &seated.collect::<Vec<_>>()))
    }

    /// Writes annotations onto the very version of a pod that was looked at.
    async fn write(&self, pod: &Pod, annotations: Value) -> Result<Ended, kube::Error> {
        self.pacer.turn().await;
        let (key, meta) = (&pod.meta.key, &pod.meta);
        let only = json!({"uid": &*meta.uid, "resourceVersion": meta.version.to_string(), "annotations": annotations});
        let api = Api::<v1::Pod>::namespaced(self.client.clone(), &key.namespace);
        let patch = Patch::Merge(json!({"metadata": only}));
        // Until it is seen what has become of it, nobody else is given a seat of this owner.
        let _under_way = self.stores.pods.begin_write(key);
        match Writer::new(&self.client, &api).patch(&key.name, None, &patch).await {
            Outcome::Written(version) => self.stores.pods.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // It is another one by now: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        info!(pod = %key, %annotations, "cost of its deletion written");
        Ok(Ended::Done)
    }

    /// Takes the costs off pods that dapple has written.
    async fn remove(&self, pods: &[Arc<Pod>]) -> Result<Ended, kube::Error> {
        let mut ended = Ended::Done;
        for pod in pods.iter().filter(|pod| seat_of(&pod.annotations).is_some()) {
            let mut annotations = json!({SEAT: null});
            if !has_own_cost(&pod.annotations) {
                annotations[DELETION_COST] = Value::Null;
            }
            if let Ended::Failed = self.write(pod, annotations).await? {
                ended = Ended::Failed;
            }
        }
        Ok(ended)
    }

    /// Gives pods the seats that they have by their policy now.
    async fn rewrite(
        &self,
        at: &OwnerKey,
        pods: &[Arc<Pod>],
        policy: &Policy<PropagationPolicySpec>,
    ) -> Result<Ended, kube::Error> {
        let changes = match self.changes(pods, policy) {
            Ok(changes) if !changes.is_empty() => changes,
            Ok(_) => return Ok(Ended::Done),
            Err(ended) => return Ok(ended),
        };
        for pod in pods.iter().filter(|pod| has_own_cost(&pod.annotations)) {
            let note = format!(
                "it has a {DELETION_COST} of its own, which is left alone though its PropagationPolicy has changed: when there are \
                 fewer pods, it may go though its group should keep it"
            );
            self.report(pod, "DeletionCostKept", note);
        }
        let mut ended = Ended::Done;
        for (name, seat) in changes {
            let Some(pod) = pods.iter().find(|pod| pod.meta.key.name == name) else { continue };
            let Some(cost) = cost_of(seat) else { continue };
            // One that has come meanwhile takes a seat that is free by now: the rest is worked out anew beside it.
            if pods_of(&self.stores.pods, at).iter().any(|pod| is_live(pod) && is_gated(pod)) {
                return Ok(Ended::Again(ECHO));
            }
            let annotations = json!({SEAT: seat.to_string(), DELETION_COST: cost.to_string()});
            if let Ended::Failed = self.write(pod, annotations).await? {
                ended = Ended::Failed;
            }
        }
        Ok(ended)
    }

    fn report(&self, pod: &Pod, reason: &'static str, note: String) {
        self.recorder.report(Report {
            about: POD,
            key: pod.meta.key.clone(),
            uid: pod.meta.uid.to_string(),
            event_type: EventType::Warning,
            action: "Placing",
            reason,
            note,
        });
    }
}

impl Reconcile for Costs {
    type Key = OwnerKey;
    const NAME: &'static str = "group-costs";

    async fn ready(&self, term: u64) {
        self.subscriptions.synced(term).await;
        self.propagations.synced(term).await;
        self.applications.synced(term).await;
    }

    async fn reconcile(&self, at: &OwnerKey) -> Result<Ended, kube::Error> {
        if let Some(rest) = self.pace.note_look(at) {
            return Ok(Ended::Again(rest));
        }
        let mut pods = pods_of(&self.stores.pods, at);
        pods.retain(|pod| is_live(pod));
        if pods.is_empty() {
            self.pace.forget(at);
        }
        if !pods.iter().any(|pod| seat_of(&pod.annotations).is_some()) {
            lock(&self.seen).remove(at);
            return Ok(Ended::Done);
        }
        if self.stores.pods.is_listing() || !pods.iter().all(|pod| self.stores.pods.caught_up(&pod.meta.key)) {
            return Ok(Ended::Again(ECHO));
        }
        match self.fate(at) {
            Fate::Kept => Ok(Ended::Done),
            Fate::Unknown => Ok(Ended::Again(ECHO)),
            Fate::Removed => self.remove(&pods).await,
            Fate::By(policy) => match self.unsettled(at, &pods, &policy) {
                Some(rest) => Ok(Ended::Again(rest)),
                None => self.rewrite(at, &pods, &policy).await,
            },
        }
    }

    async fn tell_failure(&self, at: &OwnerKey, failure: &Failure) {
        let pods = pods_of(&self.stores.pods, at);
        if let Some(pod) = pods.iter().find(|pod| seat_of(&pod.annotations).is_some()) {
            self.report(pod, "FailedDeletionCost", format!("{DELETION_COST} cannot be written: {}", failure.text));
        }
    }
}

/// Adds owners to the queue.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<OwnerKey>>,
    metrics: Arc<Metrics>,
    stores: Stores,
}

impl Adder {
    fn add(&self, at: OwnerKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(Costs::NAME);
        }
    }

    /// The owners of all pods of an application.
    fn add_pods_of(&self, applications: &Applications, at: &ApplicationKey) {
        let Some(asking) = applications.get(at) else { return };
        let pods = pods_of_application(applications, &self.stores.pods, &at.key.namespace, &asking);
        let seated = pods.iter().filter(|pod| seat_of(&pod.annotations).is_some());
        seated.map(|pod| OwnerKey::of(pod)).for_each(|at| self.add(at));
    }
}

/// What a change of a pod means: the costs of its owner's pods may not be what they should be. Most changes are of other things.
fn on_pod(adder: &Adder, change: &Change<Pod>) {
    let Change::Object { old, new, .. } = change else { return };
    let told = |pod: &Option<Arc<Pod>>| {
        pod.as_ref().filter(|pod| is_live(pod)).map(|pod| {
            let annotations = [SEAT, DELETION_COST].map(|key| pod.annotations.get_shared(key));
            (pod.meta.uid.clone(), annotations, pod.labels.get_shared(GATE), is_gated(pod))
        })
    };
    let pods = [old, new].into_iter().flatten();
    if told(old) != told(new) {
        pods.filter(|pod| pod.labels.get(GATE).is_some()).map(|pod| OwnerKey::of(pod)).for_each(|at| adder.add(at));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
