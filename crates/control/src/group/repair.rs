//! Brings pods to the groups and editions that they should have: what [`dapple_plan::group::repair`] and
//! [`dapple_plan::group::rollout`] decide, one pod after another.
//!
//! Pods come to be misplaced when a policy changes, or when they were made while dapple was away. Nothing is remembered of a step
//! but until it is seen: whether the last has done harm is read off the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_api::kinds::{KindInfo, NATIVE_DAEMON_SET, POD};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::PodRule;
use dapple_plan::group::repair::{self, PodState, groups_of};
use dapple_plan::mutant::{Mutant, is_on};
use kube::Client;

use super::BACKOFF;
use super::application::{Applicant, ApplicationKey, Applications, Asking, is_served};
use super::budget::Budget;
use super::editions::Editioner;
use super::metrics::GroupMetrics;
use super::owner::{UNWELL, is_live};
use super::policy::Policy;
use super::quiet::Quiet;
use super::rooms::UNBOUND;
use super::seated::{StoreSubscriptions, Stores, open_groups};
use super::standing::{is_stale, pods_of_application};
use super::steps::Attempt;
use super::target::Read;
use super::versions::Versions;
use super::view::View;
use super::wake::{Waker, on_group, on_node, on_pod, on_policy};
use crate::caches::Subscription;
use crate::env::Env;
use crate::failing::Failure;
use crate::family::ControllerContext;
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
pub(super) const SELDOM: Duration = Duration::from_secs(300);
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

/// A policy that divides pods among groups, and how.
type Divided = (Arc<Policy<PropagationPolicySpec>>, Division);

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

    /// Whether pods of such a kind are moved, or changed: of Jobs and of nobody's they never are, whatever is above them.
    pub(super) fn has_running_pods_changed(&self, kind: KindInfo) -> bool {
        self.applications.makes_others(kind) || kind == NATIVE_DAEMON_SET.at
    }

    /// Says of which pods nobody would make others that wait for nodes which their group does not have any more.
    pub(super) fn tell_stale(&self, at: &ApplicationKey, asking: &Asking, pods: &[Arc<Pod>]) {
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

    /// What a policy makes of an application's template, for the groups of its pods.
    pub(super) async fn editions_of(
        &self,
        view: &View,
        policy: &Policy<OverridePolicySpec>,
        groups: &[Arc<str>],
    ) -> Result<Option<dapple_plan::group::editions::Editions>, kube::Error> {
        self.editions.of_policy(&self.applications, &view.owner, policy, groups).await
    }

    /// Looks at an application whose pods are all of one revision.
    async fn look(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        view: &View,
        divided: Option<Divided>,
    ) -> Result<Ended, kube::Error> {
        let (mut misplaced, mut again) = (BTreeSet::new(), None);
        let mut places = None;
        if let Some((policy, mut division)) = divided {
            let mut pods = self.states(view, &view.pods, &division);
            if !policy.is_suspended || is_on(Mutant::SuspendedMoved) {
                // Pods that are to be moved are not changed before: it must be known which cannot be.
                if !self.pin((&mut division, &mut pods), &view.pods).await? {
                    return Ok(Ended::Again(ECHO));
                }
                match self.move_next(at, asking, &policy, view, (&mut division, &pods)).await? {
                    Looked::Busy(ended) => return Ok(ended),
                    // Pods that cannot be moved now hold up no other: one may be down until it gets its edition.
                    Looked::Rest { misplaced: found, again: at_latest } => (misplaced, again) = (found, at_latest),
                }
            }
            let named = named_places(&mut division, &view.pods, &pods, policy.is_suspended);
            places = Some((division.groups().to_vec(), named));
        }
        let ended = self.roll_out(at, asking, view, places, &misplaced).await?.ended();
        Ok(match (ended, again) {
            (Ended::Done, Some(again)) => Ended::Again(again),
            (Ended::Again(other), Some(again)) => Ended::Again(other.min(again)),
            (ended, _) => ended,
        })
    }

    /// Looks at an application whose pods are of several revisions. None is moved, and none that is available is changed; but one that
    /// is down may be what its workload waits for.
    async fn look_at_several(
        &self,
        at: &ApplicationKey,
        asking: &Asking,
        views: &[View],
        divided: Option<Divided>,
    ) -> Result<Ended, kube::Error> {
        let (mut misplaced, mut places) = (BTreeSet::new(), None);
        if let Some((policy, mut division)) = divided {
            let mut named = BTreeMap::new();
            for view in views {
                let own: Vec<Arc<Pod>> = view.pods.iter().filter(|pod| view.has(pod)).cloned().collect();
                let mut states = self.states(view, &own, &division);
                if !policy.is_suspended {
                    if !self.pin((&mut division, &mut states), &own).await? {
                        return Ok(Ended::Again(ECHO));
                    }
                    let moves = repair::misplaced(&mut division, &states);
                    misplaced.extend(moves.iter().map(|known| states[known.pod].name.clone()));
                }
                named.extend(named_places(&mut division, &own, &states, policy.is_suspended));
            }
            places = Some((division.groups().to_vec(), named));
        }
        self.tell_changing(at, asking, misplaced.len(), "are not in the groups that should have them");
        for view in views {
            match self.roll_out(at, asking, view, places.clone(), &misplaced).await? {
                Attempt::Held(_) | Attempt::Over(Ended::Done) => {}
                Attempt::Over(ended) => return Ok(ended),
            }
        }
        Ok(Ended::Again(HELD))
    }

    /// Says what is to be done about so many pods, and is not, since their workload has been rolling out for long.
    pub(super) fn tell_changing(&self, at: &ApplicationKey, asking: &Asking, pods: usize, what: &str) {
        if pods > 0 && self.budget.has_changed_for_long(at) {
            let note = format!(
                "{pods} pods {what}: none that is available is moved or changed until their workload has rolled out or scaled, and all \
                 are of one revision, which has taken minutes; with a partition or OnDelete that may be never"
            );
            self.report(at, asking, "WorkloadChanging", note);
        }
    }
}

/// The group that each of some pods counts for, by its name. While their policy is suspended, pods that say none are in none: what
/// it says by now would have them changed for other groups.
fn named_places(
    division: &mut Division,
    pods: &[Arc<Pod>],
    states: &[PodState],
    is_suspended: bool,
) -> BTreeMap<Arc<str>, Arc<str>> {
    let groups = groups_of(division, states);
    let counted = pods.iter().zip(states).zip(groups).filter(|((_, state), _)| !is_suspended || state.group.is_some());
    counted
        .filter_map(|((pod, _), group)| Some((pod.meta.key.name.clone(), division.groups()[group?].clone())))
        .collect()
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
        let views = match self.views(at, &asking).await? {
            Ok(views) => views,
            Err(ended) => return Ok(ended),
        };
        // Pods of DaemonSets belong to their nodes.
        let policy = policy.filter(|_| !views.iter().any(View::is_daemon));
        let divided = match policy.map(|policy| Division::of(&policy.spec).map(|division| (policy, division))) {
            Some(None) => return Ok(Ended::Done),
            Some(divided) => divided,
            None => None,
        };
        match views.as_slice() {
            [view] if view.revisions == 1 => self.look(at, &asking, view, divided).await,
            views => self.look_at_several(at, &asking, views, divided).await,
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
