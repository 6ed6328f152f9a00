//! Keeps the status of policies true: what follows them, and how far that is. What it says is decided by
//! [`dapple_plan::group::status`].
//!
//! A change of a pod marks its policies; a policy that is marked is looked at once a second at most, and then by indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::group::{OverridePolicySpec, PolicyApplication, PropagationPolicySpec};
use dapple_api::kinds::{NATIVE_DAEMON_SET, POD};
use dapple_plan::group::binding::{Pair, Situation};
use dapple_plan::group::division::Division;
use dapple_plan::group::edition::EDITION;
use dapple_plan::group::placing::GATE;
use dapple_plan::group::repair::PodState;
use dapple_plan::group::status::{Editioned, Following, Place, Spread, override_status, propagation_status};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::debug;

use super::application::{Applicant, ApplicationKey, Applications, Asking, is_served};
use super::marks::{Marks, STATUSES, on_application, on_group, on_node, on_pod, on_policy};
use super::metrics::GroupMetrics;
use super::owner::{OwnerKey, is_gated, is_live, number_label};
use super::policy::{Policy, PolicyKey, PolicySpec};
use super::seated::{StoreSubscriptions, Stores, all_groups_of};
use super::standing::{Standing, pods_of_application, state_of};
use super::template::Templates;
use super::turns::Availability;
use super::{BACKOFF, Group};
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

/// A policy is looked at, and written, no more often.
const PACE: Duration = Duration::from_secs(1);
/// How soon to look again while pods wait, or are to be moved: that they wait for something else, or are found to have volumes that
/// cannot follow them, changes no pod.
const WHILE_WAITING: Duration = Duration::from_secs(5);
/// Why a pod waits about which nothing is decided yet.
const BEING_PLACED: &str = "BeingPlaced";
/// Why a pod that is placed has no node, where the scheduler has not said it.
const SCHEDULING: &str = "Scheduling";

/// The controller. Its keys are policies.
pub(super) struct Statuses {
    client: Client,
    env: Env,
    own_namespace: Arc<str>,
    recorder: Arc<Recorder>,
    counted: Arc<GroupMetrics>,
    applications: Arc<Applications>,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    overrides: Subscription<Policy<OverridePolicySpec>>,
    stores: Stores,
    templates: Templates,
    looked: Mutex<BTreeMap<PolicyKey, Instant>>,
    subscriptions: StoreSubscriptions,
}

/// What asks for a policy.
struct Askers {
    following: Following,
    /// Those that have it confirmed, and their pods.
    bound: Vec<(ApplicationKey, Asking, Vec<Arc<Pod>>)>,
    /// Pods of those that do not.
    held: Vec<Arc<Pod>>,
    /// Whether an owner of some is not known yet.
    is_partial: bool,
}

impl Statuses {
    /// Subscribes to all that policies tell of. Returns the controller and the queue of policies to look at.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<PolicyKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let pods = context.caches.open().indexed_by([Pod::BY_OWNER, Applications::PODS_BY_POLICY]);
        let (nodes, groups) = (context.caches.open::<Node>(), context.caches.open::<Group>());
        let (propagations, overrides) = (context.caches.open(), context.caches.open());
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let counted = context.metrics.of_family::<GroupMetrics>();
        let marks = Marks::new(queue.clone(), context.metrics.clone(), (propagations.store(), overrides.store()));
        let applications =
            Arc::new(Applications::subscribe(&context.caches, &context.stop, on_application(marks.clone())));
        marks.know(&applications);
        let subscriptions = StoreSubscriptions {
            pods: pods.subscribe(&context.stop, on_pod(marks.clone(), counted.clone(), stores.pods.clone())),
            nodes: nodes.subscribe(&context.stop, on_node(marks.clone(), stores.groups.clone())),
            groups: groups.subscribe(&context.stop, on_group(marks.clone())),
        };
        let controller = Self {
            client: context.client.clone(),
            env: context.env.clone(),
            own_namespace: context.namespace.clone(),
            recorder: context.recorder.clone(),
            counted,
            propagations: propagations.subscribe(&context.stop, on_policy(Pair::Propagation, marks.clone())),
            overrides: overrides.subscribe(&context.stop, on_policy(Pair::Override, marks)),
            applications,
            stores,
            templates: Templates::default(),
            looked: Mutex::default(),
            subscriptions,
        };
        (Arc::new(controller), queue)
    }

    fn looked(&self) -> MutexGuard<'_, BTreeMap<PolicyKey, Instant>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that asks for a policy, and the pods of it.
    fn askers<S: PolicySpec>(&self, at: &PolicyKey, policy: &Policy<S>) -> Askers {
        let mut following = Following {
            generation: policy.generation,
            is_suspended: policy.is_suspended,
            groups: self.stores.groups.all().iter().map(|group| group.meta.key.name.clone()).collect(),
            ..Following::default()
        };
        let (mut bound, mut held, mut is_partial) = (Vec::new(), Vec::new(), false);
        let is_served = is_served(&at.key.namespace, &self.own_namespace);
        let asking = self.applications.asking_for(at.pair, &at.key.namespace, &at.key.name);
        for application in asking.into_iter().filter(|_| is_served) {
            let Some(asking) = self.applications.get(&application).filter(|asking| !asking.is_terminating()) else {
                continue;
            };
            match self.applications.application_of(&asking) {
                Applicant::Is(topmost) if topmost.meta.uid == asking.meta.uid => {}
                // What is above it asks in its name, or nobody knows yet whether something does.
                Applicant::Is(_) | Applicant::None => continue,
                Applicant::Unknown => {
                    is_partial = true;
                    continue;
                }
            }
            let pods = self.pods_of(&application, &asking);
            match at.pair.situation(&asking.labels) {
                Situation::Bound(_) => {
                    let kind = application.kind;
                    following.applications.insert(PolicyApplication {
                        api_group: Some(kind.group.to_owned()).filter(|group| !group.is_empty()),
                        kind: kind.kind.to_owned(),
                        name: application.key.name.to_string(),
                    });
                    bound.push((application, asking, pods));
                }
                _ => {
                    following.unconfirmed += 1;
                    held.extend(pods);
                }
            }
        }
        Askers { following, bound, held, is_partial }
    }

    /// The live pods of an application.
    fn pods_of(&self, application: &ApplicationKey, asking: &Asking) -> Vec<Arc<Pod>> {
        if application.kind == POD {
            return self.stores.pods.get(&application.key).into_iter().filter(|pod| is_live(pod)).collect();
        }
        pods_of_application(&self.applications, &self.stores.pods, &application.key.namespace, asking)
    }

    /// How pods stand that a policy divides, by owner revision.
    async fn owners(&self, division: &Division, pods: Vec<Arc<Pod>>) -> Result<Vec<Vec<PodState>>, kube::Error> {
        let mut by_owner: BTreeMap<OwnerKey, Vec<Arc<Pod>>> = BTreeMap::new();
        pods.into_iter().for_each(|pod| by_owner.entry(OwnerKey::of(&pod)).or_default().push(pod));
        let mut owners = Vec::with_capacity(by_owner.len());
        for (owner, pods) in by_owner {
            let uid = owner.uid();
            let kind = uid.and_then(|uid| self.applications.by_uid(&owner.namespace, uid)).map(|(kind, _)| kind);
            // Only where pods have numbers the template is needed: it says which is the first.
            let is_numbered = kind.is_some_and(|kind| number_label(kind.kind).is_some());
            let template = match is_numbered {
                true => self.templates.get(&self.client, &self.applications, &owner).await?,
                false => None,
            };
            let (start, min_ready) = template.map_or((0, 0), |template| (template.start, template.min_ready));
            let available = Availability { min_ready, now: self.env.now().as_second() };
            let standing = Standing { stores: &self.stores, division, start, available };
            let state = |pod: &Arc<Pod>| {
                let reach = self.counted.pinned.reach(pod, division.groups());
                PodState { reach, ..state_of(&standing, kind, pod) }
            };
            owners.push(pods.iter().map(state).collect());
        }
        Ok(owners)
    }

    /// Pods without a node, by reason.
    fn pending<'p>(&self, pods: impl Iterator<Item = &'p Arc<Pod>>) -> BTreeMap<Arc<str>, usize> {
        let mut pending = BTreeMap::new();
        for pod in pods.filter(|pod| !pod.is_bound) {
            let reason = if is_gated(pod) {
                Arc::from(self.counted.notes.why(&pod.meta.key).unwrap_or(BEING_PLACED))
            } else {
                pod.trouble.clone().unwrap_or_else(|| Arc::from(SCHEDULING))
            };
            *pending.entry(reason).or_default() += 1;
        }
        pending
    }

    async fn look_at_propagation(&self, at: &PolicyKey) -> Result<Ended, kube::Error> {
        let Some(policy) = self.propagations.get(&at.key) else {
            self.counted.notes.policy_gone(&at.key);
            return Ok(self.gone(at));
        };
        if let Some(rest) = self.rest(at) {
            return Ok(Ended::Again(rest));
        }
        let Askers { following, mut bound, held, is_partial } = self.askers(at, &policy);
        // Where pods of DaemonSets go is not for a policy to say.
        bound.retain(|(application, _, _)| application.kind != NATIVE_DAEMON_SET.at);
        let pods: Vec<Arc<Pod>> = bound.into_iter().flat_map(|(_, _, pods)| pods).collect();
        let pending = self.pending(pods.iter().chain(&held));
        let are_waiting = !pending.is_empty();
        let owners = match Division::of(&policy.spec) {
            Some(division) => self.owners(&division, pods).await?,
            None => Vec::new(),
        };
        let facts = Spread { following, owners, pending, moves: self.counted.notes.moves_for(&at.key) };
        let before = policy.status.clone().unwrap_or_default();
        let status = propagation_status(&policy.spec, &facts, &before, &Time(self.env.now()));
        let again = again(is_partial, are_waiting || status.misplaced > 0);
        if policy.status.as_ref() == Some(&status) {
            return Ok(again);
        }
        let written = json!({
            "observedGeneration": status.observed_generation,
            "applicationCount": status.application_count,
            "applications": status.applications,
            "pods": status.pods,
            "groupCount": status.group_count,
            "groups": status.groups,
            "pending": status.pending,
            "pendingReasons": status.pending_reasons,
            "misplaced": status.misplaced,
            "lastMoves": status.last_moves,
            "conditions": status.conditions,
        });
        self.write(&self.propagations, &policy, &written, again).await
    }

    async fn look_at_override(&self, at: &PolicyKey) -> Result<Ended, kube::Error> {
        let Some(policy) = self.overrides.get(&at.key) else { return Ok(self.gone(at)) };
        if let Some(rest) = self.rest(at) {
            return Ok(Ended::Again(rest));
        }
        let Askers { following, bound, is_partial, .. } = self.askers(at, &policy);
        let (mut groups, mut counts, mut undivided) = (BTreeSet::new(), BTreeMap::new(), 0);
        for (application, asking, pods) in bound {
            let own = self.groups_of(&application, &asking);
            let (is_divided, is_daemon) = (own.is_some(), application.kind == NATIVE_DAEMON_SET.at);
            undivided += usize::from(!is_divided && !is_daemon);
            let own = own.unwrap_or_else(|| following.groups.iter().cloned().collect());
            for pod in pods.iter().filter(|pod| !is_gated(pod)) {
                if let Some(place) = self.place(pod, &own, is_divided, is_daemon) {
                    groups.insert(place.group.clone());
                    let stamp = pod.annotations.get(EDITION).map(Arc::from);
                    *counts.entry((place, stamp)).or_default() += 1;
                }
            }
            // Without a division, any group may get pods: those are told that have some.
            if Situation::None != Pair::Propagation.situation(&asking.labels) {
                groups.extend(own);
            }
        }
        let facts = Editioned { following, groups, pods: counts, undivided };
        let before = policy.status.clone().unwrap_or_default();
        let status = override_status(&policy.spec, &facts, &before, &Time(self.env.now()));
        let again = again(is_partial, false);
        if policy.status.as_ref() == Some(&status) {
            return Ok(again);
        }
        let written = json!({
            "observedGeneration": status.observed_generation,
            "applicationCount": status.application_count,
            "applications": status.applications,
            "pods": status.pods,
            "updated": status.updated,
            "groupCount": status.group_count,
            "groups": status.groups,
            "conditions": status.conditions,
        });
        self.write(&self.overrides, &policy, &written, again).await
    }

    /// Where a pod is, of an application whose pods are in these groups; none if it is in none of them.
    fn place(&self, pod: &Pod, own: &[Arc<str>], is_divided: bool, is_daemon: bool) -> Option<Place> {
        let said = pod.labels.get(GATE).filter(|_| !is_daemon).map(|group| Arc::from(group.to_ascii_lowercase()));
        let node = pod.node.as_ref().filter(|_| !is_divided && said.is_none());
        let group: Arc<str> = said.or_else(|| self.stores.groups_of(pod, own).first().cloned())?;
        let rules_of = node.map(|node| all_groups_of(&self.stores.nodes, &self.stores.groups, node));
        let is_images_only = !is_divided && !is_daemon;
        Some(Place { rules_of: rules_of.unwrap_or_else(|| group.clone()), group, is_images_only })
    }

    /// The groups that an application's pods are divided among; none if they are not divided.
    fn groups_of(&self, application: &ApplicationKey, asking: &Asking) -> Option<Vec<Arc<str>>> {
        let Situation::Bound(name) = Pair::Propagation.situation(&asking.labels) else { return None };
        if application.kind == NATIVE_DAEMON_SET.at {
            return None;
        }
        let key = Key { namespace: application.key.namespace.clone(), name: Arc::from(name) };
        let policy = self.propagations.get(&key)?;
        Some(Division::of(&policy.spec)?.groups().to_vec())
    }

    /// How long until a policy may be looked at again; none if now, which is noted.
    fn rest(&self, at: &PolicyKey) -> Option<Duration> {
        let mut looked = self.looked();
        let rest = looked.get(at).map(|at| PACE.saturating_sub(at.elapsed())).filter(|rest| !rest.is_zero());
        if rest.is_none() {
            looked.insert(at.clone(), Instant::now());
        }
        rest
    }

    fn gone(&self, at: &PolicyKey) -> Ended {
        self.looked().remove(at);
        Ended::Done
    }

    /// Writes a status onto the very version that was looked at. Anything newer refuses it.
    async fn write<S: PolicySpec>(
        &self,
        policies: &Subscription<Policy<S>>,
        policy: &Policy<S>,
        status: &Value,
        again: Ended,
    ) -> Result<Ended, kube::Error> {
        let key = &policy.meta.key;
        let api = Api::<Observed<Value>>::namespaced_with(self.client.clone(), &key.namespace, &S::KIND);
        match Writer::new(&self.client, &api).write_status(&policy.meta, status).await {
            Outcome::Written(version) => policies.wrote(key, version),
            Outcome::Refused(error) | Outcome::Unknown(error) => return Err(error),
            // The world moved on between look and write: look again.
            Outcome::Missing | Outcome::Conflict | Outcome::Gone | Outcome::NameTaken => return Ok(Ended::Failed),
        }
        debug!(kind = S::KIND.kind, policy = %key, "status written");
        Ok(again)
    }
}

/// When to look again though nothing is told.
fn again(is_partial: bool, are_waiting: bool) -> Ended {
    match (is_partial, are_waiting) {
        (true, _) => Ended::Again(PACE),
        (false, true) => Ended::Again(WHILE_WAITING),
        (false, false) => Ended::Done,
    }
}

impl Reconcile for Statuses {
    type Key = PolicyKey;
    const NAME: &'static str = STATUSES;

    async fn ready(&self, term: u64) {
        self.subscriptions.synced(term).await;
        self.propagations.synced(term).await;
        self.overrides.synced(term).await;
        self.applications.synced(term).await;
    }

    async fn reconcile(&self, at: &PolicyKey) -> Result<Ended, kube::Error> {
        let (is_malformed, caught_up) = match at.pair {
            Pair::Propagation => (self.propagations.is_malformed(&at.key), self.propagations.caught_up(&at.key)),
            Pair::Override => (self.overrides.is_malformed(&at.key), self.overrides.caught_up(&at.key)),
        };
        if is_malformed {
            return Ok(Ended::Done);
        }
        if !caught_up {
            return Ok(Ended::Again(PACE));
        }
        match at.pair {
            Pair::Propagation => self.look_at_propagation(at).await,
            Pair::Override => self.look_at_override(at).await,
        }
    }

    /// All that is written of a policy is its status. If that cannot be, no condition can, and an Event is left.
    async fn tell_failure(&self, at: &PolicyKey, failure: &Failure) {
        let uid = match at.pair {
            Pair::Propagation => self.propagations.get(&at.key).map(|policy| policy.meta.uid.to_string()),
            Pair::Override => self.overrides.get(&at.key).map(|policy| policy.meta.uid.to_string()),
        };
        let Some(uid) = uid else { return };
        self.recorder.report(Report {
            about: at.pair.kind(),
            key: at.key.clone(),
            uid,
            event_type: EventType::Warning,
            action: "Reconciling",
            reason: "FailedStatus",
            note: format!("its status cannot be written: {}", failure.text),
        });
    }
}
