//! Moves pods to the groups that should have them: what [`dapple_plan::group::repair`] decides, one eviction after another.
//!
//! Pods come to be misplaced when a policy changes, or when they were made while dapple was away. Nothing is remembered of a move
//! but until it is seen: whether the last has done harm is read off the pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_api::kinds::POD;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::PodRule;
use dapple_plan::group::repair::{Facts, Move, Next, PodState, Stage, misplaced, next};
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use tokio::time::Instant;
use tracing::info;

use super::application::{Applicant, ApplicationKey, Applications, Asking, is_served};
use super::metrics::GroupMetrics;
use super::owner::OwnerKey;
use super::policy::Policy;
use super::quiet::Quiet;
use super::seated::Stores;
use super::standing::{Standing, is_rolling_out, pods_of_application, state_of};
use super::target::Targets;
use super::template::{Template, Templates};
use super::volumes::Volumes;
use super::{BACKOFF, Group};
use crate::caches::Subscription;
use crate::caches::store::Change;
use crate::env::Env;
use crate::failing::Failure;
use crate::family::{ControllerContext, RepairLimits};
use crate::metrics::Metrics;
use crate::observed::Observed;
use crate::queue::{Ended, Queue, Urgency};
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// How soon to look again where our view is behind.
const ECHO: Duration = Duration::from_millis(500);
/// An application is looked at no more often.
const PACE: Duration = Duration::from_secs(2);
/// How soon to look again where something else has to end first.
const HELD: Duration = Duration::from_secs(5);
/// How soon to look again where a PodDisruptionBudget is in the way.
const REFUSED: Duration = Duration::from_secs(10);
/// How soon to look again where there is no node to move pods to.
const NO_TARGET: Duration = Duration::from_secs(30);
/// A leader moves nothing before it has led for so long.
const LEADS_SINCE: Duration = Duration::from_secs(60);
/// The limit of moves in the cluster is counted over this time.
const MINUTE: Duration = Duration::from_secs(60);
/// An application whose last move has not helped is left alone for so long.
const FUTILE: Duration = Duration::from_secs(600);
/// A move that is not seen by then was not done.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// Of so many pods that are to be moved it is asked which volumes they have.
const MOST_ASKED: usize = 10;

/// The kinds whose pods are moved: those that make another for one that is evicted.
const MOVED: [&str; 4] = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"];

/// The controller. Its keys are applications.
pub(super) struct Repairs {
    client: Client,
    env: Env,
    own_namespace: Arc<str>,
    recorder: Arc<Recorder>,
    counted: Arc<GroupMetrics>,
    limits: RepairLimits,
    applications: Arc<Applications>,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    stores: Stores,
    templates: Templates,
    quiet: Arc<Quiet>,
    memory: Mutex<Memory>,
    subscriptions: (Subscription<Pod>, Subscription<Node>, Subscription<Group>),
}

/// What is remembered from look to look, and only while this process leads.
#[derive(Default)]
struct Memory {
    term: u64,
    leads_since: Option<Instant>,
    /// When pods were moved in the last minute.
    moves: VecDeque<Instant>,
    looked: BTreeMap<ApplicationKey, Instant>,
    /// How applications stood when a pod of theirs was last moved, and when that was.
    moved: BTreeMap<ApplicationKey, (Stage, Instant)>,
    /// The UIDs of pods that were evicted, until that is seen.
    evicted: BTreeMap<Arc<str>, Instant>,
}

impl Repairs {
    /// Subscribes to all that says where pods belong.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<ApplicationKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let pods = context.caches.open().indexed_by([Pod::BY_OWNER, Pod::BY_NODE]);
        let (nodes, groups) = (context.caches.open::<Node>(), context.caches.open::<Group>());
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let quiet = Arc::new(Quiet::new(stores.groups.clone()));
        let adder = Adder { queue: queue.clone(), metrics: context.metrics.clone() };
        let told = adder.clone();
        let applications =
            Arc::new(Applications::subscribe(&context.caches, &context.stop, move |at: ApplicationKey| told.add(at)));
        let (of_nodes, of_groups) = (quiet.clone(), quiet.clone());
        let subscriptions = (
            pods.subscribe(&context.stop, on_pod(&applications, adder.clone())),
            nodes.subscribe(&context.stop, move |change| of_nodes.on_node(change)),
            groups.subscribe(&context.stop, move |change| of_groups.on_group(change)),
        );
        let controller = Self {
            client: context.client.clone(),
            env: context.env.clone(),
            own_namespace: context.namespace.clone(),
            recorder: context.recorder.clone(),
            counted: context.metrics.of_family::<GroupMetrics>(),
            limits: context.repair,
            propagations: context.caches.open().subscribe(&context.stop, on_policy(&applications, adder)),
            applications,
            stores,
            templates: Templates::default(),
            quiet,
            memory: Mutex::default(),
            subscriptions,
        };
        (Arc::new(controller), queue)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until anything may be moved for these groups; none if now.
    fn wait(&self, groups: &[Arc<str>]) -> Option<Duration> {
        let mut memory = self.memory();
        let led = memory.leads_since.map_or(Duration::ZERO, |since| since.elapsed());
        let first = LEADS_SINCE.min(self.limits.after).saturating_sub(led);
        if !first.is_zero() {
            return Some(first);
        }
        while memory.moves.front().is_some_and(|at| at.elapsed() >= MINUTE) {
            memory.moves.pop_front();
        }
        if memory.moves.len() >= self.limits.per_minute {
            return memory.moves.front().map(|at| MINUTE.saturating_sub(at.elapsed()));
        }
        drop(memory);
        self.quiet.wait(groups, self.limits.after)
    }

    /// Whether some of these pods were evicted a moment ago, and still seem to be there.
    fn is_behind(&self, pods: &[Arc<Pod>]) -> bool {
        let mut memory = self.memory();
        memory.evicted.retain(|_, at| at.elapsed() < SEEN_WITHIN);
        pods.iter().any(|pod| memory.evicted.contains_key(&pod.meta.uid) || !self.stores.pods.caught_up(&pod.meta.key))
    }

    /// The policy that an application's pods are divided by, if any of them are to be moved.
    fn policy_of(&self, at: &ApplicationKey, asking: &Asking) -> Option<Arc<Policy<PropagationPolicySpec>>> {
        let is_own = match self.applications.application_of(asking) {
            Applicant::Is(application) => application.meta.uid == asking.meta.uid,
            Applicant::None | Applicant::Unknown => false,
        };
        let PodRule::Divide(name) = PodRule::of(&asking.labels) else { return None };
        let key = Key { namespace: at.key.namespace.clone(), name: Arc::from(name) };
        let policy = self.propagations.get(&key).filter(|policy| !policy.is_suspended);
        policy.filter(|_| is_own && MOVED.contains(&at.kind.kind) && !asking.is_terminating())
    }

    /// How long to leave an application alone whose last move has not helped; none if it has. All pods are there again by now.
    fn is_futile(&self, at: &ApplicationKey, asking: &Asking, stage: &Stage) -> Option<Duration> {
        let moved = self.memory().moved.get(at).cloned();
        let (before, since) = moved.filter(|(before, _)| !before.has_helped(stage))?;
        let rest = FUTILE.saturating_sub(since.elapsed());
        let note = format!(
            "{} pods are not in the groups that should have them, and moving one has not helped: no more are moved for {} s",
            before.misplaced,
            rest.as_secs()
        );
        self.report(at, asking, "MoveDidNotHelp", note);
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// How an application's pods stand: none if they are of several revisions, or not known well enough.
    async fn standing(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        division: &Division,
    ) -> Result<Option<(OwnerKey, Arc<Template>, Vec<PodState>)>, kube::Error> {
        let pods = pods_of_application(&self.applications, &self.stores.pods, at, asking);
        let owners: BTreeSet<OwnerKey> = pods.iter().map(|pod| OwnerKey::of(pod)).collect();
        let Some(owner) = owners.first().filter(|_| owners.len() == 1).cloned() else { return Ok(None) };
        if self.is_behind(&pods) {
            return Ok(None);
        }
        let Some(template) = self.templates.get(&self.client, &self.applications, &owner).await? else {
            return Ok(None);
        };
        let standing =
            Standing { stores: &self.stores, division, template: &template, now: self.env.now().as_second() };
        let kind = owner.uid().and_then(|uid| self.applications.by_uid(&at.key.namespace, uid)).map(|(kind, _)| kind);
        let states = pods.iter().map(|pod| state_of(&standing, kind, pod)).collect();
        Ok(Some((owner, template, states)))
    }

    /// Which groups have a node for pods of a template, of those that moves go to.
    async fn targets(
        &self,
        moves: &[Move],
        division: &Division,
        template: &Value,
    ) -> Result<BTreeSet<usize>, kube::Error> {
        let (mut found, targets) = (BTreeSet::new(), Targets { client: &self.client, stores: &self.stores });
        for group in moves.iter().map(|known| known.to).collect::<BTreeSet<usize>>() {
            if targets.has_node_for(&division.groups()[group], template).await? {
                found.insert(group);
            }
        }
        Ok(found)
    }

    /// Which moves the volumes of pods cannot follow, of the first ones.
    async fn stuck(
        &self,
        at: &ApplicationKey,
        pods: &[PodState],
        moves: &[Move],
        groups: &[Arc<str>],
    ) -> Result<BTreeSet<(Arc<str>, usize)>, kube::Error> {
        let volumes = Volumes { client: &self.client, nodes: &self.stores.nodes, groups: &self.stores.groups };
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.key.namespace, &POD);
        let mut stuck = BTreeSet::new();
        for (number, known) in moves.iter().enumerate() {
            let name = &pods[known.pod].name;
            // The others' turn comes when these are where they belong.
            if number >= MOST_ASKED {
                stuck.insert((name.clone(), known.to));
                continue;
            }
            let Some(pod) = api.get_opt(name).await?.and_then(|found| found.object.ok()) else { continue };
            let allowed = volumes.allowed(&at.key.namespace, &pod, groups).await?;
            if allowed.is_some_and(|allowed| !allowed.contains(&known.to)) {
                stuck.insert((name.clone(), known.to));
            }
        }
        Ok(stuck)
    }

    /// The application as the API server has it, if it is still the same.
    async fn whole(&self, at: &ApplicationKey, asking: &Asking) -> Result<Option<Value>, kube::Error> {
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.key.namespace, &at.kind);
        let found = api.get_opt(&at.key.name).await?.and_then(|found| found.object.ok());
        Ok(found.filter(|object| object["metadata"]["uid"] == *asking.meta.uid))
    }

    /// Evicts a pod, so that its owner makes another, which goes where it belongs.
    async fn evict(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        pod: &PodState,
        (from, to, stage): (Option<&str>, &str, Stage),
    ) -> Result<Ended, kube::Error> {
        let key = Key { namespace: at.key.namespace.clone(), name: pod.name.clone() };
        let Some(known) = self.stores.pods.get(&key) else { return Ok(Ended::Again(ECHO)) };
        let pods = Api::<v1::Pod>::namespaced(self.client.clone(), &key.namespace);
        let outcome = Writer::new(&self.client, &pods).evict(&known.meta).await;
        // If nobody knows whether it was done, it counts as done until that is seen.
        if let Outcome::Gone | Outcome::Unknown(_) = outcome {
            let mut memory = self.memory();
            memory.evicted.insert(known.meta.uid.clone(), Instant::now());
            memory.moves.push_back(Instant::now());
            memory.moved.insert(at.clone(), (stage, Instant::now()));
        }
        match outcome {
            Outcome::Gone => {
                info!(application = %at, pod = %key, from, to, "evicted, to be placed where it belongs");
                self.counted.moved();
                let from = from.map_or_else(|| "no listed group".to_owned(), |from| format!("group {from:?}"));
                self.report(
                    at,
                    asking,
                    "PodMoved",
                    format!("pod {} was evicted from {from}: {to:?} should have it", pod.name),
                );
                Ok(Ended::Again(PACE))
            }
            Outcome::Refused(kube::Error::Api(status)) if status.code == 429 => {
                self.counted.refused();
                let note =
                    format!("pod {} belongs to group {to:?}, and may not be evicted: {}", pod.name, status.message);
                self.report(at, asking, "MoveRefused", note);
                Ok(Ended::Again(REFUSED))
            }
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            // It is another one by now.
            _ => Ok(Ended::Again(ECHO)),
        }
    }

    fn report(&self, at: &ApplicationKey, asking: &Asking, reason: &'static str, note: String) {
        self.recorder.report(Report {
            about: at.kind,
            key: at.key.clone(),
            uid: asking.meta.uid.to_string(),
            event_type: if reason == "PodMoved" { EventType::Normal } else { EventType::Warning },
            action: "Moving",
            reason,
            note,
        });
    }
}

impl Reconcile for Repairs {
    type Key = ApplicationKey;
    const NAME: &'static str = "group-repairs";

    async fn ready(&self, term: u64) {
        let (pods, nodes, groups) = &self.subscriptions;
        pods.synced(term).await;
        nodes.synced(term).await;
        groups.synced(term).await;
        self.propagations.synced(term).await;
        self.applications.synced(term).await;
        let mut memory = self.memory();
        if term != 0 && memory.term != term {
            *memory = Memory { term, leads_since: Some(Instant::now()), ..Memory::default() };
        }
    }

    async fn reconcile(&self, at: &ApplicationKey) -> Result<Ended, kube::Error> {
        let Some(asking) = self.applications.get(at) else {
            let mut memory = self.memory();
            memory.looked.remove(at);
            memory.moved.remove(at);
            drop(memory);
            return Ok(Ended::Done);
        };
        if !is_served(&at.key.namespace, &self.own_namespace) {
            return Ok(Ended::Done);
        }
        let Some(policy) = self.policy_of(at, &asking) else { return Ok(Ended::Done) };
        let looked = self.memory().looked.insert(at.clone(), Instant::now());
        if let Some(rest) = looked.map(|at| PACE.saturating_sub(at.elapsed())).filter(|rest| !rest.is_zero()) {
            self.memory().looked.extend(looked.map(|looked| (at.clone(), looked)));
            return Ok(Ended::Again(rest));
        }
        let Some(mut division) = Division::of(&policy.spec) else { return Ok(Ended::Done) };
        let Some((_, template, pods)) = self.standing(at, &asking, &division).await? else {
            return Ok(Ended::Again(HELD));
        };
        let moves = misplaced(&mut division, &pods);
        if moves.is_empty() {
            return Ok(Ended::Done);
        }
        if let Some(wait) = self.wait(division.groups()) {
            return Ok(Ended::Again(wait.max(ECHO)));
        }
        let Some(whole) = self.whole(at, &asking).await? else { return Ok(Ended::Again(HELD)) };
        if is_rolling_out(&whole) {
            return Ok(Ended::Again(HELD));
        }
        let count =
            |path: &str| whole.pointer(path).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
        let desired = count("/spec/replicas").unwrap_or(1);
        let available = count("/status/availableReplicas").unwrap_or(0);
        let stage = Stage { policy: (policy.meta.uid.clone(), policy.generation), desired, misplaced: moves.len() };
        let targets = self.targets(&moves, &division, &template.value).await?;
        let facts = Facts { desired, available, pods, most_away: policy.most_away };
        let stuck = self.stuck(at, &facts.pods, &moves, division.groups()).await?;
        let fits = |pod: &PodState, group: usize| {
            targets.contains(&group) && !stuck.contains(&(pod.name.clone(), group))
        };
        match next(&mut division, &facts, fits) {
            Next::Rest => Ok(Ended::Again(NO_TARGET)),
            Next::Wait => Ok(Ended::Again(HELD)),
            Next::Evict(known) => {
                if let Some(rest) = self.is_futile(at, &asking, &stage) {
                    return Ok(Ended::Again(rest));
                }
                let pod = &facts.pods[known.pod];
                let from = pod.group.or(pod.near.first().copied());
                let (from, to) = (from.map(|group| &*division.groups()[group]), &*division.groups()[known.to]);
                self.evict(at, &asking, pod, (from, to, stage)).await
            }
        }
    }

    async fn tell_failure(&self, at: &ApplicationKey, failure: &Failure) {
        let Some(asking) = self.applications.get(at) else { return };
        self.report(
            at,
            &asking,
            "FailedMove",
            format!("its pods cannot be moved to where they belong: {}", failure.text),
        );
    }
}

/// Adds applications to the queue.
#[derive(Clone)]
struct Adder {
    queue: Arc<Queue<ApplicationKey>>,
    metrics: Arc<Metrics>,
}

impl Adder {
    fn add(&self, at: ApplicationKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(Repairs::NAME);
        }
    }
}

/// What a change of a pod means: its application is looked at.
fn on_pod(applications: &Arc<Applications>, adder: Adder) -> impl FnMut(&Change<Pod>) + Send + 'static {
    let applications = Arc::downgrade(applications);
    move |change| {
        let (Change::Object { key, old, new, .. }, Some(applications)) = (change, applications.upgrade()) else {
            return;
        };
        let pod = new.as_ref().or(old.as_ref());
        let owner = pod.and_then(|pod| pod.owner.as_ref()).and_then(|uid| applications.by_uid(&key.namespace, uid));
        let Some((_, owner)) = owner else { return };
        if let Applicant::Is(application) = applications.application_of(&owner)
            && let Some((kind, _)) = applications.by_uid(&key.namespace, &application.meta.uid)
        {
            adder.add(ApplicationKey { kind, key: application.meta.key.clone() });
        }
    }
}

/// What a change of a policy means: what asks for it is looked at.
fn on_policy(
    applications: &Arc<Applications>,
    adder: Adder,
) -> impl FnMut(&Change<Policy<PropagationPolicySpec>>) + Send + 'static {
    let applications = Arc::downgrade(applications);
    move |change| {
        let (Change::Object { key, .. }, Some(applications)) = (change, applications.upgrade()) else { return };
        let asking = applications.asking_for(Pair::Propagation, &key.namespace, &key.name);
        asking.into_iter().filter(|at: &ApplicationKey| at.kind != POD).for_each(|at| adder.add(at));
    }
}
