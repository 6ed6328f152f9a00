//! Brings pods to the groups and editions that they should have: what [`dapple_plan::group::repair`] and
//! [`dapple_plan::group::rollout`] decide, one pod after another.
//!
//! Pods come to be misplaced when a policy changes, or when they were made while dapple was away. Nothing is remembered of a step
//! but until it is seen: whether the last has done harm is read off the pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::NATIVE_DAEMON_SET;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::PodRule;
use dapple_plan::group::repair::{Facts, Move, Next, PodState, Stage, groups_of, misplaced, next};
use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use tracing::info;

use super::BACKOFF;
use super::application::{Applicant, ApplicationKey, Applications, Asking, is_served};
use super::budget::{Budget, PACE, Step};
use super::editions::Editioner;
use super::metrics::GroupMetrics;
use super::owner::OwnerKey;
use super::policy::Policy;
use super::quiet::Quiet;
use super::seated::{StoreSubscriptions, Stores, open_groups};
use super::standing::{Standing, is_rolling_out, owners_of_pods, pods_of_application, state_of, stranded};
use super::target::Targets;
use super::template::Template;
use super::turns::Availability;
use super::versions::Versions;
use super::volumes::{Reach, Volumes};
use super::wake::{Waker, on_group, on_node, on_pod, on_policy};
use crate::caches::Subscription;
use crate::env::Env;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::observed::Observed;
use crate::queue::{Ended, Queue};
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::events::{EventType, Recorder, Report};
use crate::writes::outcome::{Outcome, Writer};

/// How soon to look again where our view is behind.
pub(super) const ECHO: Duration = Duration::from_millis(500);
/// How soon to look again where something else has to end first.
pub(super) const HELD: Duration = Duration::from_secs(5);
/// How soon to look again where a PodDisruptionBudget is in the way.
pub(super) const REFUSED: Duration = Duration::from_secs(10);
/// How soon to look again where there is no node to move pods to.
pub(super) const NO_TARGET: Duration = Duration::from_secs(30);
/// Of so many pods that are to be moved it is asked which volumes they have.
const MOST_ASKED: usize = 10;

/// The controller. Its keys are applications.
pub(super) struct Repairs {
    pub(super) client: Client,
    pub(super) env: Env,
    own_namespace: Arc<str>,
    recorder: Arc<Recorder>,
    pub(super) counted: Arc<GroupMetrics>,
    applications: Arc<Applications>,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    pub(super) overrides: Subscription<Policy<OverridePolicySpec>>,
    pub(super) stores: Stores,
    pub(super) editions: Editioner,
    pub(super) budget: Budget,
    /// How often it was asked which volumes a pod has: others are asked about next.
    asked: AtomicUsize,
    subscriptions: StoreSubscriptions,
}

/// An application's pods, all of one revision.
pub(super) struct View {
    pub(super) owner: OwnerKey,
    pub(super) template: Arc<Template>,
    /// Those that live.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) available: Availability,
    /// How many are leaving nodes that are not well.
    pub(super) stranded: usize,
}

/// What comes of a look at where pods are.
enum Looked {
    /// This was done, or is waited for: nothing else is.
    Busy(Ended),
    /// Nothing can be done. These pods are not where they belong.
    Rest(BTreeSet<Arc<str>>),
}

/// A pod that is evicted, and why.
pub(super) struct Eviction<'a> {
    pub(super) pod: &'a Pod,
    pub(super) step: Step,
    /// The group that it is in, if any, and the one that its successor is for.
    pub(super) from: Option<Arc<str>>,
    pub(super) to: Arc<str>,
    pub(super) stage: Stage,
    /// What people are told of it.
    pub(super) reason: &'static str,
    pub(super) note: String,
}

impl Repairs {
    /// Subscribes to all that says where pods belong, and how they should be.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<ApplicationKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let pods = context.caches.open().indexed_by([Pod::BY_OWNER, Pod::BY_NODE]);
        let (nodes, groups) = (context.caches.open::<Node>(), open_groups(&context.caches));
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let quiet = Arc::new(Quiet::new(stores.groups.clone()));
        let waker = Waker { name: Self::NAME, queue: queue.clone(), metrics: context.metrics.clone() };
        let told = waker.clone();
        let applications =
            Arc::new(Applications::subscribe(&context.caches, &context.stop, move |at: ApplicationKey| told.add(at)));
        let (of_nodes, of_groups) = (quiet.clone(), quiet.clone());
        let mut wake_by_node = on_node(&applications, stores.pods.clone(), waker.clone());
        let mut wake_by_group = on_group(&applications, waker.clone());
        let subscriptions = StoreSubscriptions {
            pods: pods.subscribe(&context.stop, on_pod(&applications, waker.clone())),
            nodes: nodes.subscribe(&context.stop, move |change| {
                of_nodes.on_node(change);
                wake_by_node(change);
            }),
            groups: groups.subscribe(&context.stop, move |change| {
                of_groups.on_group(change);
                wake_by_group(change);
            }),
        };
        let of_propagations = on_policy(&applications, Pair::Propagation, waker.clone());
        let versions = Versions::subscribe(&context.caches, &context.stop, |_| {});
        let controller = Self {
            client: context.client.clone(),
            env: context.env.clone(),
            own_namespace: context.namespace.clone(),
            recorder: context.recorder.clone(),
            counted: context.metrics.of_family::<GroupMetrics>(),
            propagations: context.caches.open().subscribe(&context.stop, of_propagations),
            overrides: context.caches.open().subscribe(&context.stop, on_policy(&applications, Pair::Override, waker)),
            applications,
            stores,
            editions: Editioner::new(context.client.clone(), context.env.clone(), versions),
            budget: Budget::new(context.repair, quiet),
            asked: AtomicUsize::default(),
            subscriptions,
        };
        (Arc::new(controller), queue)
    }

    /// Whether pods of an application are moved and changed at all.
    fn is_served(&self, at: &ApplicationKey, asking: &Asking) -> bool {
        let topmost = match self.applications.application_of(asking) {
            Applicant::Is(application) => Some(application),
            Applicant::None => Some(self.applications.topmost(asking)),
            Applicant::Unknown => None,
        };
        topmost.is_some_and(|topmost| topmost.meta.uid == asking.meta.uid)
            && (self.applications.makes_others(at.kind) || at.kind == NATIVE_DAEMON_SET.at)
            && !asking.is_terminating()
            && is_served(&at.key.namespace, &self.own_namespace)
    }

    /// An application's pods: none if they are of several revisions, or not known well enough.
    async fn view(&self, at: &ApplicationKey, asking: &Asking) -> Result<Option<View>, kube::Error> {
        let pods = pods_of_application(&self.applications, &self.stores.pods, &at.key.namespace, asking);
        let owners: BTreeSet<OwnerKey> = pods.iter().map(|pod| OwnerKey::of(pod)).collect();
        let Some(owner) = owners.first().filter(|_| owners.len() == 1).cloned() else { return Ok(None) };
        if self.budget.is_behind(&pods, &self.stores.pods) {
            return Ok(None);
        }
        let Some(template) = self.editions.templates.get(&self.client, &self.applications, &owner).await? else {
            return Ok(None);
        };
        let available = Availability { min_ready: template.min_ready, now: self.env.now().as_second() };
        let stranded = stranded(&self.stores, &owners_of_pods(&self.applications, asking));
        Ok(Some(View { owner, template, pods, available, stranded }))
    }

    /// How the pods of an application stand with a policy.
    fn states(&self, at: &ApplicationKey, view: &View, division: &Division) -> Vec<PodState> {
        let (start, available) = (view.template.start, view.available);
        let standing = Standing { stores: &self.stores, division, start, available };
        let uid = view.owner.uid();
        let kind = uid.and_then(|uid| self.applications.by_uid(&at.key.namespace, uid)).map(|(kind, _)| kind);
        view.pods.iter().map(|pod| state_of(&standing, kind, pod)).collect()
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
            if targets.has_node_for(&division.groups()[group], template, None).await? {
                found.insert(group);
            }
        }
        Ok(found)
    }

    /// Which moves the volumes of pods cannot follow. Of a few it is asked at each look, of others at the next ones: those that
    /// cannot move hold up nobody.
    async fn stuck(
        &self,
        at: &ApplicationKey,
        view: &View,
        moves: &[Move],
        groups: &[Arc<str>],
    ) -> Result<BTreeSet<(Arc<str>, usize)>, kube::Error> {
        let volumes = Volumes { client: &self.client, nodes: &self.stores.nodes, groups: &self.stores.groups };
        let mut bound: Vec<&Move> = moves.iter().filter(|known| !view.pods[known.pod].claims.is_empty()).collect();
        let first = self.asked.fetch_add(MOST_ASKED, Ordering::Relaxed).checked_rem(bound.len()).unwrap_or(0);
        bound.rotate_left(first);
        let mut stuck = BTreeSet::new();
        for (number, known) in bound.into_iter().enumerate() {
            let pod = &view.pods[known.pod];
            let is_free = number < MOST_ASKED
                && match volumes.reach_by(&at.key.namespace, &pod.claims, groups).await? {
                    Reach::All => true,
                    Reach::Only(allowed) => allowed.contains(&known.to),
                    Reach::Unbound(_) => false,
                };
            if !is_free {
                stuck.insert((pod.meta.key.name.clone(), known.to));
            }
        }
        Ok(stuck)
    }

    /// What a policy makes of an application's template, for the groups of its pods.
    pub(super) async fn editions_of(
        &self,
        view: &View,
        policy: &Policy<OverridePolicySpec>,
        groups: &[Arc<str>],
    ) -> Result<Option<dapple_plan::group::editions::Editions>, kube::Error> {
        self.editions.of_policy(&self.applications, &view.owner, policy, groups).await
    }

    /// Moves the next pod of an application that is not where it belongs.
    async fn move_next(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        policy: &Policy<PropagationPolicySpec>,
        view: &View,
        (division, pods): (&mut Division, &[PodState]),
    ) -> Result<Looked, kube::Error> {
        let moves = misplaced(division, pods);
        if moves.is_empty() {
            return Ok(Looked::Rest(BTreeSet::new()));
        }
        if let Some(wait) = self.budget.wait().or_else(|| self.budget.wait_for_groups(division.groups())) {
            return Ok(Looked::Busy(Ended::Again(wait.max(ECHO))));
        }
        let Some((desired, available)) = self.settled(at, asking, view).await? else {
            return Ok(Looked::Busy(Ended::Again(HELD)));
        };
        let stage = Stage { policy: (policy.meta.uid.clone(), policy.generation), desired, misplaced: moves.len() };
        let targets = self.targets(&moves, division, &view.template.value).await?;
        let facts =
            Facts { desired, available, pods: pods.to_vec(), stranded: view.stranded, most_away: policy.most_away };
        let stuck = self.stuck(at, view, &moves, division.groups()).await?;
        let fits =
            |pod: &PodState, group: usize| targets.contains(&group) && !stuck.contains(&(pod.name.clone(), group));
        let known = match next(division, &facts, fits) {
            Next::Rest => {
                return Ok(Looked::Rest(moves.iter().map(|known| facts.pods[known.pod].name.clone()).collect()));
            }
            Next::Wait => return Ok(Looked::Busy(Ended::Again(HELD))),
            Next::Evict(known) => known,
        };
        if let Some((before, rest)) = self.budget.futile(at, Step::Move, &stage) {
            let note = format!(
                "{} pods are not in the groups that should have them, and moving one has not helped: no more are moved for {} s",
                before.misplaced,
                rest.as_secs()
            );
            self.report(at, asking, "MoveDidNotHelp", note);
            return Ok(Looked::Busy(Ended::Again(rest)));
        }
        let (state, pod) = (&facts.pods[known.pod], &view.pods[known.pod]);
        let from = state.group.or(state.near.first().copied()).map(|group| division.groups()[group].clone());
        let to = division.groups()[known.to].clone();
        let place = from.as_ref().map_or_else(|| "no listed group".to_owned(), |from| format!("group {from:?}"));
        let note = format!("pod {} was evicted from {place}: {to:?} should have it", pod.meta.key.name);
        let eviction = Eviction { pod, step: Step::Move, from, to, stage, reason: "PodMoved", note };
        let ended = self.evict(at, asking, eviction).await?;
        Ok(Looked::Busy(ended))
    }

    /// How many pods an application should have, and how many are available. None if it is another by now, or rolls out or scales.
    pub(super) async fn settled(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        view: &View,
    ) -> Result<Option<(usize, usize)>, kube::Error> {
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &at.key.namespace, &at.kind);
        let found = api.get_opt(&at.key.name).await?.and_then(|found| found.object.ok());
        let Some(whole) = found.filter(|object| object["metadata"]["uid"] == *asking.meta.uid) else { return Ok(None) };
        let Some(field) = self.applications.replicas_field(at.kind) else {
            let available = count(&whole, "/status/availableReplicas");
            return Ok((!is_rolling_out(&whole)).then(|| (desired(&whole), available.unwrap_or(0))));
        };
        // Of a kind that users have listed no more is known than how many pods there should be.
        let desired = count(&whole, &format!("/{}", field.replace('.', "/"))).unwrap_or(view.pods.len());
        let available = view.pods.iter().filter(|pod| view.available.has(pod)).count();
        Ok((desired == view.pods.len()).then_some((desired, available)))
    }

    /// Evicts a pod, so that its owner makes another.
    pub(super) async fn evict(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        eviction: Eviction<'_>,
    ) -> Result<Ended, kube::Error> {
        let Eviction { pod, step, from, to, stage, reason, note } = eviction;
        let pods = Api::<v1::Pod>::namespaced(self.client.clone(), &at.key.namespace);
        let outcome = Writer::new(&self.client, &pods).evict(&pod.meta).await;
        // If nobody knows whether it was done, it counts as done until that is seen.
        if let Outcome::Gone | Outcome::Unknown(_) = outcome {
            self.budget.note_eviction(at, step, pod, stage);
        }
        match outcome {
            Outcome::Gone => {
                info!(application = %at, pod = %pod.meta.key, ?step, "evicted");
                match step {
                    Step::Move => {
                        let groups = (from.as_deref(), &*to);
                        self.counted.moved(asking, &pod.meta.key.name, groups, self.env.now().as_second());
                    }
                    Step::Edition => self.counted.changed(),
                }
                self.report(at, asking, reason, note);
                Ok(Ended::Again(PACE))
            }
            outcome => self.refused(at, asking, pod, outcome),
        }
    }

    /// What follows from a disruption of a pod that was not done.
    pub(super) fn refused(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        pod: &Pod,
        outcome: Outcome,
    ) -> Result<Ended, kube::Error> {
        match outcome {
            Outcome::Refused(kube::Error::Api(status)) if status.code == 429 => {
                self.counted.refused();
                let note = format!(
                    "pod {} is to be moved or changed, and may not be disrupted: {}",
                    pod.meta.key.name, status.message
                );
                self.report(at, asking, "MoveRefused", note);
                Ok(Ended::Again(REFUSED))
            }
            Outcome::Refused(error) | Outcome::Unknown(error) => Err(error),
            // It is another one by now.
            _ => Ok(Ended::Again(ECHO)),
        }
    }

    pub(super) fn report(&self, at: &ApplicationKey, asking: &Asking, reason: &'static str, note: String) {
        let is_done = ["PodMoved", "EditionChanged"].contains(&reason);
        self.recorder.report(Report {
            about: at.kind,
            key: at.key.clone(),
            uid: asking.meta.uid.to_string(),
            event_type: if is_done { EventType::Normal } else { EventType::Warning },
            action: "Moving",
            reason,
            note,
        });
    }
}

fn count(workload: &Value, path: &str) -> Option<usize> {
    workload.pointer(path).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
}

/// How many pods a workload should have.
fn desired(workload: &Value) -> usize {
    if workload["kind"] == NATIVE_DAEMON_SET.at.kind {
        return count(workload, "/status/desiredNumberScheduled").unwrap_or(0);
    }
    count(workload, "/spec/replicas").unwrap_or(1)
}

impl Reconcile for Repairs {
    type Key = ApplicationKey;
    const NAME: &'static str = "group-repairs";

    async fn ready(&self, term: u64) {
        self.subscriptions.synced(term).await;
        self.propagations.synced(term).await;
        self.overrides.synced(term).await;
        self.editions.versions.synced(term).await;
        self.applications.synced(term).await;
        self.budget.begin(term);
    }

    async fn reconcile(&self, at: &ApplicationKey) -> Result<Ended, kube::Error> {
        let Some(asking) = self.applications.get(at) else {
            self.budget.forget(at);
            return Ok(Ended::Done);
        };
        if !self.is_served(at, &asking) {
            return Ok(Ended::Done);
        }
        let policy = match PodRule::of(&asking.labels) {
            // While a policy is asked for and not confirmed, pods keep their places and editions.
            PodRule::Hold { .. } => return Ok(Ended::Done),
            PodRule::Release => None,
            // Pods of DaemonSets belong to their nodes.
            PodRule::Divide(_) if at.kind == NATIVE_DAEMON_SET.at => None,
            PodRule::Divide(name) => {
                let key = Key { namespace: at.key.namespace.clone(), name: Arc::from(name) };
                let Some(policy) = self.propagations.get(&key) else { return Ok(Ended::Done) };
                Some(policy)
            }
        };
        if let Some(rest) = self.budget.note_look(at) {
            return Ok(Ended::Again(rest));
        }
        let division = match policy.as_ref().map(|policy| Division::of(&policy.spec)) {
            Some(None) => return Ok(Ended::Done),
            Some(division) => division,
            None => None,
        };
        let Some(view) = self.view(at, &asking).await? else { return Ok(Ended::Again(HELD)) };
        let mut division = division.map(|division| (self.states(at, &view, &division), division));
        let mut misplaced = BTreeSet::new();
        if let (Some(policy), Some((pods, division))) = (policy.filter(|policy| !policy.is_suspended), &mut division) {
            match self.move_next(at, &asking, &policy, &view, (division, pods)).await? {
                Looked::Busy(ended) => return Ok(ended),
                Looked::Rest(found) => misplaced = found,
            }
        }
        let places = division.as_mut().map(|(pods, division)| {
            let groups = groups_of(division, pods);
            let named = view.pods.iter().zip(groups);
            let named =
                named.filter_map(|(pod, group)| Some((pod.meta.key.name.clone(), division.groups()[group?].clone())));
            (division.groups().to_vec(), named.collect())
        });
        let ended = self.roll_out(at, &asking, &view, places, &misplaced).await?;
        Ok(match ended {
            Ended::Done if !misplaced.is_empty() => Ended::Again(NO_TARGET),
            ended => ended,
        })
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
