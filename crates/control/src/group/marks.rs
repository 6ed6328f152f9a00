//! Which policies are to be looked at when something changes that their status tells of. No change costs more than a look at what
//! has changed: pods are counted when a policy is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use dapple_api::group::{OverridePolicySpec, PropagationPolicySpec};
use dapple_plan::group::binding::Pair;

use super::Group;
use super::application::{Applicant, ApplicationKey, Applications};
use super::metrics::GroupMetrics;
use super::owner::is_gated;
use super::policy::{Policy, PolicyKey, PolicySpec};
use super::quiet::joined_or_left;
use crate::caches::store::{Change, Store};
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::slim::{Node, Pod};

/// The name of the controller that keeps the status of policies, in logs and metrics.
pub(super) const STATUSES: &str = "group-statuses";

/// All policies of one kind.
type Policies<S> = Arc<Store<Policy<S>>>;

/// Adds policies to the queue.
#[derive(Clone)]
pub(super) struct Marks {
    queue: Arc<Queue<PolicyKey>>,
    metrics: Arc<Metrics>,
    propagations: Arc<Store<Policy<PropagationPolicySpec>>>,
    overrides: Arc<Store<Policy<OverridePolicySpec>>>,
    /// Not kept by those who are told of its changes: it ends with the controller.
    applications: Arc<OnceLock<Weak<Applications>>>,
    /// What applications asked for when they were last told of: one that asks no more is missed by that policy too.
    asked: Arc<Mutex<BTreeMap<ApplicationKey, BTreeSet<PolicyKey>>>>,
}

impl Marks {
    pub(super) fn new(
        queue: Arc<Queue<PolicyKey>>,
        metrics: Arc<Metrics>,
        (propagations, overrides): (Policies<PropagationPolicySpec>, Policies<OverridePolicySpec>),
    ) -> Self {
        Self { queue, metrics, propagations, overrides, applications: Arc::default(), asked: Arc::default() }
    }

    /// From here on it is known what applications ask for.
    pub(super) fn know(&self, applications: &Arc<Applications>) {
        // Set once: nobody else has it.
        let _ = self.applications.set(Arc::downgrade(applications));
    }

    /// Whoever is told of a change may be so a moment before the controller is made.
    fn applications(&self) -> Option<Arc<Applications>> {
        self.applications.wait().upgrade()
    }

    fn add(&self, at: PolicyKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(STATUSES);
        }
    }

    /// The policies that name a group, or that are for all.
    fn add_of_group(&self, group: &str) {
        let mut found = Vec::new();
        self.propagations.for_each(|policy| {
            let (weights, ranges) = (policy.spec.static_weight_list.iter(), policy.spec.num_range.iter());
            let names =
                weights.flat_map(|item| &item.node_group_names).chain(ranges.flat_map(|item| &item.node_group_names));
            if names.into_iter().any(|name| name.eq_ignore_ascii_case(group)) {
                found.push(PolicyKey { pair: Pair::Propagation, key: policy.meta.key.clone() });
            }
        });
        self.overrides.for_each(|policy| found.push(PolicyKey { pair: Pair::Override, key: policy.meta.key.clone() }));
        found.into_iter().for_each(|at| self.add(at));
    }
}

/// What a change of an application means: the policies that it asks for, and those that it asked for.
pub(super) fn on_application(marks: Marks) -> impl Fn(ApplicationKey) + Clone + Send + 'static {
    move |at: ApplicationKey| {
        let asking = marks.applications().and_then(|applications| applications.get(&at));
        let namespace = &at.key.namespace;
        let now: BTreeSet<PolicyKey> = asking
            .map(|asking| PolicyKey::asked_by(namespace, |label| asking.labels.get_shared(label)).collect())
            .unwrap_or_default();
        let mut asked = marks.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if now.is_empty() { asked.remove(&at) } else { asked.insert(at.clone(), now.clone()) };
        drop(asked);
        before.unwrap_or_default().union(&now).for_each(|policy| marks.add(policy.clone()));
    }
}

/// What a change of a pod means: the policies of its application, and those that it says itself.
pub(super) fn on_pod(
    marks: Marks,
    counted: Arc<GroupMetrics>,
    pods: Arc<Store<Pod>>,
) -> impl FnMut(&Change<Pod>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        if old.as_ref().is_some_and(|pod| is_gated(pod)) {
            counted.notes.pod_changed(&pods, key);
        }
        for pod in [old, new].into_iter().flatten() {
            PolicyKey::asked_by(&key.namespace, |label| pod.labels.get_shared(label)).for_each(|at| marks.add(at));
        }
        let (Some(applications), Some(pod)) = (marks.applications(), new.as_ref().or(old.as_ref())) else { return };
        let Some((_, owner)) = applications.owner_of(pod) else { return };
        if let Applicant::Is(asking) = applications.application_of(&owner) {
            PolicyKey::asked_by(&key.namespace, |label| asking.labels.get_shared(label)).for_each(|at| marks.add(at));
        }
    }
}

/// What a change of a policy means: it is looked at, and with it those that tell of the same pods.
pub(super) fn on_policy<S: PolicySpec>(pair: Pair, marks: Marks) -> impl FnMut(&Change<Policy<S>>) + Send + 'static {
    move |change| {
        let Change::Object { key, .. } = change else { return };
        marks.add(PolicyKey { pair, key: key.clone() });
        let Some(applications) = marks.applications().filter(|_| Policy::is_news(change)) else { return };
        for at in applications.asking_for(pair, &key.namespace, &key.name) {
            let asking = applications.get(&at);
            let others = asking.iter().flat_map(|asking| {
                PolicyKey::asked_by(&key.namespace, |label| asking.labels.get_shared(label)).collect::<Vec<_>>()
            });
            others.for_each(|at| marks.add(at));
        }
    }
}

/// What a change of a node means: pods on it may be in other groups.
pub(super) fn on_node(marks: Marks, groups: Arc<Store<Group>>) -> impl FnMut(&Change<Node>) + Send + 'static {
    move |change| joined_or_left(&groups, change).iter().for_each(|group| marks.add_of_group(group))
}

/// What a change of a group means: it may have come or gone, or have other nodes.
pub(super) fn on_group(marks: Marks) -> impl FnMut(&Change<Group>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        if old.as_ref().map(|group| &group.spec) != new.as_ref().map(|group| &group.spec) {
            marks.add_of_group(&key.name);
        }
    }
}
