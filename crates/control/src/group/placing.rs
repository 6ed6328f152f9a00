//! Places pods that wait behind the gate: what [`dapple_plan::group::placing`] decides, one write per pod.
//!
//! Each write names the pod by UID and version, and takes the gate off with everything that the decision is about, so that a
//! pod is either behind the gate or placed, wherever the process dies.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::{KindInfo, POD};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::{Decision, PodRule};
use dapple_plan::group::why::Why;
use dapple_plan::mutant::{Mutant, is_on};
use futures::{FutureExt, StreamExt};
use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::adder::{Adder, PLACEMENTS, on_group, on_node, on_pod, on_policy};
use super::application::{Applicant, ApplicationKey, Applications, Asking, is_served};
use super::editions::{Editioner, World};
use super::gates::Gates;
use super::lookup::Lookup;
use super::metrics::GroupMetrics;
use super::owner::{GATED, GATED_BY_OWNER, Owner, OwnerKey, is_live};
use super::policy::Policy;
use super::rooms::{Rooms, UNBOUND};
use super::seated::{Decided, Facts, Seatings, StoreSubscriptions, Stores};
use super::versions::Versions;
use super::waits::Waits;
use super::{BACKOFF, Group};
use crate::caches::Subscription;
use crate::caches::store::Store;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::queue::{Ended, Queue};
use crate::signal::Signal;
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;

/// How soon to look again where our view is behind.
const ECHO: Duration = Duration::from_millis(200);
/// How soon to look again where pods are being listed.
const LISTED_AGAIN: Duration = Duration::from_secs(1);
/// Where lists of pods have come to nothing for so long, none is put behind the gate.
const IN_VAIN: Duration = Duration::from_secs(60);
/// How often that is looked at.
const WORD_KEPT: Duration = Duration::from_secs(10);
/// So many pods of an owner are written at once.
const AT_ONCE: usize = 16;
/// How soon to ask again whether an edition is taken.
const PROVED_AGAIN: Duration = Duration::from_secs(5);
/// How soon to ask again whether a claim is bound: nobody tells.
const BOUND_AGAIN: Duration = Duration::from_secs(2);

mod facts;
mod replacements;
mod writes;

use facts::{Reaches, RoomFor};
use replacements::Replacements;

/// The controller. Its keys are owners of pods.
pub(super) struct Placements {
    client: Client,
    own_namespace: Arc<str>,
    applications: Applications,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    overrides: Subscription<Policy<OverridePolicySpec>>,
    editions: Editioner,
    gates: Gates,
    seatings: Arc<Seatings>,
    rooms: Rooms,
    waits: Waits,
    counted: Arc<GroupMetrics>,
    /// Pods of which nobody knows whether they were placed.
    in_doubt: Mutex<BTreeMap<Key, Doubt>>,
    replacements: Replacements,
    /// How often it was asked which volumes a pod has: others are asked about next.
    asked: AtomicUsize,
    /// The term in which pods are placed, for those who put pods behind the gate.
    places: Signal,
    /// The same, whether or not pods are known.
    term: Signal,
    subscriptions: StoreSubscriptions,
}

/// A write to a pod of which nobody knows whether it was done.
#[derive(Clone)]
struct Doubt {
    owner: OwnerKey,
    pod: Arc<Pod>,
    opening: Value,
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
        let pods = pods.indexed_by([
            Pod::BY_OWNER,
            Pod::BY_NODE,
            GATED,
            GATED_BY_OWNER,
            UNBOUND,
            Applications::PODS_BY_POLICY,
        ]);
        let (nodes, groups) = (context.caches.open::<Node>(), context.caches.open::<Group>());
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let seatings = Arc::new(Seatings::new(stores.clone()));
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone(), pods: stores.pods.clone() };
        let subscriptions = StoreSubscriptions {
            pods: pods.subscribe(&context.stop, on_pod(seatings.clone(), adder.clone())),
            nodes: nodes.subscribe(&context.stop, on_node(seatings.clone(), adder.clone())),
            groups: groups.subscribe(&context.stop, on_group(seatings.clone(), adder.clone())),
        };
        let (told, counted) = (adder.clone(), counted_gated(context, &stores.pods));
        let controller = Self {
            client: context.client.clone(),
            own_namespace: context.namespace.clone(),
            applications: Applications::subscribe(&context.caches, &context.stop, move |at: ApplicationKey| {
                told.add_gated(&at.key.namespace);
            }),
            propagations: context.caches.open().subscribe(&context.stop, on_policy(adder.clone())),
            overrides: context.caches.open().subscribe(&context.stop, on_policy(adder)),
            editions: Editioner::new(
                context.client.clone(),
                context.env.clone(),
                Versions::subscribe(&context.caches, &context.stop, |_| {}),
            ),
            gates: Gates { client: context.client.clone(), pods: stores.pods.clone() },
            rooms: Rooms::new(stores.clone()),
            waits: Waits::new(context.recorder.clone(), counted.clone(), stores.pods),
            counted,
            seatings,
            in_doubt: Mutex::default(),
            replacements: Replacements::default(),
            asked: AtomicUsize::default(),
            places: context.places.clone(),
            term: Signal::default(),
            subscriptions,
        };
        let controller = Arc::new(controller);
        tokio::spawn(keep_word(Arc::downgrade(&controller), context.stop.clone()));
        (controller, queue)
    }

    fn pods(&self) -> &Store<Pod> {
        &self.seatings.stores.pods
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup { client: &self.client, applications: &self.applications, seatings: &self.seatings }
    }

    /// What the Lease is to say of placing, if it is something else than before: nobody opens the gate for pods that are not seen.
    fn word(&self) -> Option<u64> {
        let in_vain = self.pods().listed_in_vain();
        match (in_vain >= IN_VAIN, self.places.get()) {
            (true, places) if places != 0 => {
                warn!(seconds = in_vain.as_secs(), "pods cannot be listed: none is put behind the gate until they can");
                Some(0)
            }
            (false, 0) if self.term.get() != 0 => {
                info!("pods are listed again: they are put behind the gate");
                Some(self.term.get())
            }
            _ => None,
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
        if self.seatings.are_half_listed() {
            return Ok(Ended::Again(LISTED_AGAIN));
        }
        let numbering = self.lookup().numbering(at).await?;
        let found = self.propagations.get(&key);
        let division = found.as_ref().and_then(|policy| Division::of(&policy.spec));
        let is_by_range = division.as_ref().is_some_and(Division::is_by_range);
        let groups = division.map(|division| division.groups().to_vec()).unwrap_or_default();
        let askings = pods.values().map(|waiting| waiting.asking);
        let world = World { applications: &self.applications, overrides: &self.overrides, pods: self.pods() };
        let Some(editions) = self.editions.of_owner(world, at, askings, &groups).await? else {
            // Its template is told of soon, or its owner is gone, and so are the pods then.
            return Ok(Ended::Failed);
        };
        let Reaches { allowed, unbound: mut held, later } = self.reaches(at, &pods, &groups).await?;
        for (name, waiting) in &pods {
            let policy = editions.lacks(&waiting.asking.labels).map(str::to_owned);
            held.extend(policy.map(|policy| (name.clone(), Why::NotConfirmed { pair: Pair::Override, policy })));
        }
        // Only by range does it matter whether groups have room.
        let templates = if is_by_range { self.templates(at, &pods).await? } else { BTreeMap::new() };
        let decided = match found {
            Some(policy) => {
                let room = RoomFor::new(&self.rooms, at, &pods, &templates, (&groups, &editions));
                let has_room = |pod: &str, group: usize, besides: usize| room.is_there(pod, group, besides);
                let facts = Facts { editions: &editions, allowed: &allowed, has_room: &has_room };
                self.seatings.decide(at, &policy, numbering, &facts)
            }
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
        let (mut placed, mut waiting, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
        for (name, decision) in decisions.into_iter().filter(|(name, _)| !later.contains(name)) {
            let decision = held.get(&name).cloned().map_or(decision, Decision::Wait);
            match (pods.get(&name), decision) {
                (Some(pod), Decision::Place(placement)) => placed.push((pod, placement)),
                (Some(pod), Decision::Replace) => replaced.push(pod),
                (Some(pod), Decision::Wait(why)) => waiting.push((pod.asking, pod.pod.clone(), why)),
                (None, _) => {}
            }
        }
        // A pod that nothing is decided about is not known to wait: it is found out anew.
        let is_left = placed.len() + waiting.len() + replaced.len() < pods.len();
        if is_left {
            self.seatings.forget(at);
        }
        self.waits.tell(kind, &waiting);
        if !placed.is_empty() {
            info!(owner = %at, pods = placed.len(), "placing pods");
        }
        let placing = placed.iter().map(|(pod, placement)| self.place(at, pod, placement, &editions).boxed());
        let replacing = replaced.iter().map(|waiting| self.replace(at, waiting).boxed());
        let writes: Vec<_> = placing.chain(replacing).collect();
        let ended = all_of(futures::stream::iter(writes).buffer_unordered(AT_ONCE).collect().await)?;
        Ok(match ended {
            // Where volumes are not bound, others are asked about no sooner than these again.
            Ended::Done if is_left && !later.is_empty() && placed.is_empty() => Ended::Again(BOUND_AGAIN),
            Ended::Done if is_left => Ended::Again(ECHO),
            // Whether the API server takes an edition is asked again.
            Ended::Done if !editions.is_proved() => Ended::Again(PROVED_AGAIN),
            Ended::Done if !held.is_empty() => Ended::Again(BOUND_AGAIN),
            ended => ended,
        })
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
                    held.push((asking, pod.clone(), Why::NotConfirmed { pair, policy: policy.to_owned() }));
                }
                Some((asking, PodRule::Divide(policy))) => {
                    by = Some(policy);
                    divided.insert(pod.meta.key.name.clone(), Waiting { pod: pod.clone(), asking });
                }
            }
        }
        self.waits.tell(kind, &held);
        let releases: Vec<_> = released.into_iter().map(|(pod, asking)| self.release(at, pod, asking)).collect();
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

/// Has the Lease say that pods are placed only while they can be listed.
async fn keep_word(controller: Weak<Placements>, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(WORD_KEPT) => {}
        }
        let Some(controller) = controller.upgrade() else { return };
        if let Some(places) = controller.word() {
            controller.places.set(places);
        }
    }
}

impl Drop for Placements {
    /// From here on nobody opens the gate.
    fn drop(&mut self) {
        self.places.set(0);
    }
}

/// Where placements are counted, and before each scrape the pods that wait.
fn counted_gated(context: &ControllerContext, pods: &Arc<Store<Pod>>) -> Arc<GroupMetrics> {
    let counted = context.metrics.of_family::<GroupMetrics>();
    let (shown, pods, env) = (counted.clone(), Arc::downgrade(pods), context.env.clone());
    context.metrics.before_scrape(move |_| {
        let waiting = pods.upgrade()?.all_under(GATED);
        let oldest = waiting.iter().map(|pod| pod.created).min();
        shown.waiting(waiting.len(), oldest.map_or(0, |oldest| (env.now().as_second() - oldest).max(0)));
        Some(())
    });
    counted
}

/// The worst of several ends: one that fails stops no other, and what is to be looked at first counts.
fn all_of(ends: Vec<Result<Ended, kube::Error>>) -> Result<Ended, kube::Error> {
    let mut worst = Ended::Done;
    for ended in ends {
        worst = match (worst, ended?) {
            (Ended::Again(one), Ended::Again(other)) => Ended::Again(one.min(other)),
            (worst, Ended::Done) | (worst @ Ended::Failed, Ended::Again(_)) => worst,
            (_, other) => other,
        };
    }
    Ok(worst)
}

impl Reconcile for Placements {
    type Key = OwnerKey;
    const NAME: &'static str = PLACEMENTS;

    async fn ready(&self, term: u64) {
        self.subscriptions.synced(term).await;
        self.propagations.synced(term).await;
        self.overrides.synced(term).await;
        self.editions.versions.synced(term).await;
        self.applications.synced(term).await;
        // Without a term, this process only follows.
        if term == 0 {
            return;
        }
        self.term.set(term);
        if self.places.set(term) {
            // What was decided before is decided anew.
            self.counted.notes.forget_waits();
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
            self.lookup().applicant(at, first).await?
        } else {
            Applicant::None
        };
        let (kind, asking) = match applicant {
            Applicant::Unknown if is_on(Mutant::UnknownReleased) => (POD, None),
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
