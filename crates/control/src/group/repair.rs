//! Brings pods to the groups and editions that they should have: what [`dapple_plan::group::repair`] and
//! [`dapple_plan::group::rollout`] decide, one pod after another.
//!
//! Pods come to be misplaced when a policy changes, or when they were made while dapple was away. Nothing is remembered of a step
//! but until it is seen: whether the last has done harm is read off the pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::{KindInfo, NATIVE_DAEMON_SET, POD};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::PodRule;
use dapple_plan::group::repair::{PodState, groups_of};
use dapple_plan::mutant::{Mutant, is_on};
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use super::BACKOFF;
use super::application::{Applicant, ApplicationKey, Applications, Asking, is_served};
use super::budget::Budget;
use super::editions::Editioner;
use super::metrics::GroupMetrics;
use super::owner::{OwnerKey, UNWELL, is_live};
use super::policy::Policy;
use super::quiet::Quiet;
use super::rooms::UNBOUND;
use super::seated::{StoreSubscriptions, Stores, open_groups};
use super::standing::{Standing, is_rolling_out, is_stale, owners_of_pods, pods_of_application, state_of, stranded};
use super::target::Read;
use super::template::Template;
use super::turns::Availability;
use super::versions::Versions;
use super::wake::{Waker, on_group, on_node, on_pod, on_policy};
use crate::caches::Subscription;
use crate::env::Env;
use crate::failing::Failure;
use crate::family::ControllerContext;
use crate::observed::Observed;
use crate::queue::{Ended, Queue};
use crate::slim::{Key, Node, Pod};
use crate::worker::Reconcile;
use crate::writes::events::Recorder;

/// How soon to look again where our view is behind.
pub(super) const ECHO: Duration = Duration::from_millis(500);
/// How soon to look again where something else has to end first.
pub(super) const HELD: Duration = Duration::from_secs(5);
/// How soon to look again where a PodDisruptionBudget is in the way.
pub(super) const REFUSED: Duration = Duration::from_secs(10);
/// How soon to look again where there is no node to move pods to.
pub(super) const NO_TARGET: Duration = Duration::from_secs(30);
/// How soon to look again where there are no pods. They are told of, but perhaps before what controls them is.
const SELDOM: Duration = Duration::from_secs(300);
/// The controller. Its keys are applications.
pub(super) struct Repairs {
    pub(super) client: Client,
    pub(super) env: Env,
    own_namespace: Arc<str>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) counted: Arc<GroupMetrics>,
    pub(super) applications: Arc<Applications>,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    pub(super) overrides: Subscription<Policy<OverridePolicySpec>>,
    pub(super) stores: Stores,
    pub(super) editions: Editioner,
    pub(super) budget: Budget,
    /// How often it was asked which volumes a pod has: others are asked about next.
    pub(super) asked: AtomicUsize,
    /// What nodes had a moment ago.
    pub(super) read: Read,
    subscriptions: StoreSubscriptions,
}

/// An application's pods, all of one revision.
pub(super) struct View {
    pub(super) owner: OwnerKey,
    pub(super) template: Arc<Template>,
    /// Those that live.
    pub(super) pods: Vec<Arc<Pod>>,
    /// What kind controls them.
    pub(super) kind: KindInfo,
    pub(super) available: Availability,
    /// How many are leaving nodes that are not well.
    pub(super) stranded: usize,
}

impl View {
    /// Whether pods belong to their nodes.
    pub(super) fn is_daemon(&self) -> bool {
        self.kind == NATIVE_DAEMON_SET.at
    }
}

/// What comes of a look at where pods are.
pub(super) enum Looked {
    /// A pod was moved, or may have been, or the view is behind: nothing else is done.
    Busy(Ended),
    /// Nothing was done. These pods are not where they belong; they are looked at again after this time.
    Rest { misplaced: BTreeSet<Arc<str>>, again: Option<Duration> },
}

impl Repairs {
    /// Subscribes to all that says where pods belong, and how they should be.
    pub(super) fn start(context: &ControllerContext) -> (Arc<Self>, Arc<Queue<ApplicationKey>>) {
        let queue = Arc::new(Queue::new(BACKOFF, context.env.clone()));
        let pods = context.caches.open().indexed_by([Pod::BY_OWNER, Pod::BY_NODE, UNBOUND, UNWELL]);
        let (nodes, groups) = (context.caches.open::<Node>(), open_groups(&context.caches));
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let quiet = Arc::new(Quiet::new(stores.groups.clone(), stores.nodes.clone()));
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
            read: Read::default(),
            subscriptions,
        };
        (Arc::new(controller), queue)
    }

    /// Whether policies are asked for in its name.
    fn is_served(&self, at: &ApplicationKey, asking: &Asking) -> bool {
        let topmost = match self.applications.application_of(asking) {
            Applicant::Is(application) => Some(application),
            Applicant::None => Some(self.applications.topmost(asking)),
            Applicant::Unknown => None,
        };
        topmost.is_some_and(|topmost| topmost.meta.uid == asking.meta.uid)
            && !asking.is_terminating()
            && is_served(&at.key.namespace, &self.own_namespace)
    }

    /// An application's pods. If nothing is to be done about them, how the look ends: if there are none, they are of several revisions,
    /// or not known well enough, or no others are made for those that are evicted.
    async fn view(&self, at: &ApplicationKey, asking: &Asking) -> Result<Result<View, Ended>, kube::Error> {
        let pods = pods_of_application(&self.applications, &self.stores.pods, &at.key.namespace, asking);
        let owners: BTreeSet<OwnerKey> = pods.iter().map(|pod| OwnerKey::of(pod)).collect();
        let Some(owner) = owners.first().cloned() else { return Ok(Err(Ended::Again(SELDOM))) };
        if owners.len() > 1 {
            self.tell_several(at, asking, &owners);
            return Ok(Err(Ended::Again(HELD)));
        }
        let kind = owner.uid().and_then(|uid| self.applications.by_uid(&at.key.namespace, uid)).map(|(kind, _)| kind);
        let Some(kind) = kind else { return Ok(Err(Ended::Again(HELD))) };
        if !self.has_running_pods_changed(kind) {
            self.tell_stale(at, asking, &pods);
            return Ok(Err(Ended::Done));
        }
        if self.budget.is_behind(&pods, &self.stores.pods) {
            return Ok(Err(Ended::Again(HELD)));
        }
        let Some(template) = self.editions.templates.get(&self.client, &self.applications, &owner).await? else {
            return Ok(Err(Ended::Again(HELD)));
        };
        let available = Availability { min_ready: template.min_ready, now: self.env.now().as_second() };
        let stranded = stranded(&self.stores, &owners_of_pods(&self.applications, asking));
        Ok(Ok(View { owner, template, pods, kind, available, stranded }))
    }

    /// Whether pods of such a kind are moved, or changed: of Jobs and of nobody's they never are, whatever is above them.
    pub(super) fn has_running_pods_changed(&self, kind: KindInfo) -> bool {
        self.applications.makes_others(kind) || kind == NATIVE_DAEMON_SET.at
    }

    /// Says that pods of an application are left alone, if they are of several workloads: of a kind that users have listed, nobody
    /// knows what those are for. Those of Kubernetes have several while they roll out.
    fn tell_several(&self, at: &ApplicationKey, asking: &Asking, owners: &BTreeSet<OwnerKey>) {
        if self.applications.replicas_field(at.kind).is_none() {
            return;
        }
        let workloads = owners.iter().filter_map(|owner| owner.uid().cloned()).collect();
        let workloads = self.applications.branches(asking, &workloads).len();
        if workloads > 1 {
            let note = format!(
                "its pods are of {workloads} workloads below it, or revisions: none is moved or changed until all are of one"
            );
            self.report(at, asking, "SeveralWorkloads", note);
        }
    }

    /// Says of which pods nobody would make others that wait for nodes which their group does not have any more.
    fn tell_stale(&self, at: &ApplicationKey, asking: &Asking, pods: &[Arc<Pod>]) {
        let mut stale = pods.iter().filter(|pod| is_stale(&self.stores, pod));
        if let Some(pod) = stale.next() {
            let others = stale.count();
            let besides = if others > 0 { format!(", and {others} others,") } else { String::new() };
            let note = format!(
                "pod {}{besides} waits for nodes that its group selected when it was placed, and does not any more; none is made in \
                 place of such a pod, so it is left to you: delete it, or make it anew",
                pod.meta.key.name
            );
            self.report(at, asking, "SelectorOutdated", note);
        }
    }

    /// How the pods of an application stand with a policy.
    fn states(&self, view: &View, division: &Division) -> Vec<PodState> {
        let (start, available) = (view.template.start, view.available);
        let standing = Standing { stores: &self.stores, division, start, available };
        view.pods.iter().map(|pod| state_of(&standing, Some(view.kind), pod)).collect()
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
            PodRule::Divide(name) => {
                let key = Key { namespace: at.key.namespace.clone(), name: Arc::from(name) };
                let Some(policy) = self.propagations.get(&key) else { return Ok(Ended::Done) };
                Some(policy)
            }
        };
        if let Some(rest) = self.budget.note_look(at) {
            return Ok(Ended::Again(rest));
        }
        if !self.has_running_pods_changed(at.kind) {
            let own = self.stores.pods.get(&at.key).filter(|pod| at.kind == POD && is_live(pod));
            let below = pods_of_application(&self.applications, &self.stores.pods, &at.key.namespace, &asking);
            self.tell_stale(at, &asking, &own.into_iter().chain(below).collect::<Vec<_>>());
            return Ok(Ended::Done);
        }
        let view = match self.view(at, &asking).await? {
            Ok(view) => view,
            Err(ended) => return Ok(ended),
        };
        // Pods of DaemonSets belong to their nodes.
        let policy = policy.filter(|_| !view.is_daemon());
        let division = match policy.as_ref().map(|policy| Division::of(&policy.spec)) {
            Some(None) => return Ok(Ended::Done),
            Some(division) => division,
            None => None,
        };
        let mut division = division.map(|division| (self.states(&view, &division), division));
        let (mut misplaced, mut again) = (BTreeSet::new(), None);
        if let (Some(policy), Some((pods, division))) =
            (policy.filter(|policy| !policy.is_suspended || is_on(Mutant::SuspendedMoved)), &mut division)
        {
            match self.move_next(at, &asking, &policy, &view, (division, pods)).await? {
                Looked::Busy(ended) => return Ok(ended),
                // Pods that cannot be moved now hold up no other: one may be down until it gets its edition.
                Looked::Rest { misplaced: found, again: at_latest } => (misplaced, again) = (found, at_latest),
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
        Ok(match (ended, again) {
            (Ended::Done, Some(again)) => Ended::Again(again),
            (Ended::Again(other), Some(again)) => Ended::Again(other.min(again)),
            (ended, _) => ended,
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
