//! Which applications repair looks at when something changes.

use std::sync::Arc;

use dapple_api::kinds::POD;
use dapple_plan::group::binding::Pair;
use dapple_plan::group::edition::EDITION;

use super::Group;
use super::application::{Applicant, ApplicationKey, Applications};
use super::policy::{Policy, PolicySpec};
use crate::caches::store::{Change, Store};
use crate::metrics::Metrics;
use crate::queue::{Queue, Urgency};
use crate::slim::{Node, Pod};

/// Adds applications to the queue.
#[derive(Clone)]
pub(super) struct Waker {
    pub(super) name: &'static str,
    pub(super) queue: Arc<Queue<ApplicationKey>>,
    pub(super) metrics: Arc<Metrics>,
}

impl Waker {
    pub(super) fn add(&self, at: ApplicationKey) {
        if self.queue.add(at, Urgency::Change) {
            self.metrics.queue_added(self.name);
        }
    }
}

/// The application that a pod is of, if repair may have to do with it.
pub(super) fn application_of(applications: &Applications, pod: &Pod) -> Option<ApplicationKey> {
    let namespace = &pod.meta.key.namespace;
    let (_, owner) = applications.owner_of(pod)?;
    let application = match applications.application_of(&owner) {
        Applicant::Is(application) => application,
        // It asks for nothing any more, and its pod is still as a policy had it.
        Applicant::None if pod.annotations.get(EDITION).is_some() => applications.topmost(&owner),
        Applicant::None | Applicant::Unknown => return None,
    };
    let (kind, application) = applications.by_uid(namespace, &application.meta.uid)?;
    Some(ApplicationKey { kind, key: application.meta.key })
}

/// What a change of a pod means: its application is looked at.
pub(super) fn on_pod(applications: &Arc<Applications>, waker: Waker) -> impl FnMut(&Change<Pod>) + Send + 'static {
    let applications = Arc::downgrade(applications);
    move |change| {
        let (Change::Object { old, new, .. }, Some(applications)) = (change, applications.upgrade()) else { return };
        let at = new.as_ref().or(old.as_ref()).and_then(|pod| application_of(&applications, pod));
        at.into_iter().for_each(|at| waker.add(at));
    }
}

/// What a change of a node means: it may be in other groups, so the applications of its pods are looked at.
pub(super) fn on_node(
    applications: &Arc<Applications>,
    pods: Arc<Store<Pod>>,
    waker: Waker,
) -> impl FnMut(&Change<Node>) + Send + 'static {
    let applications = Arc::downgrade(applications);
    move |change| {
        let (Change::Object { key, old, new, .. }, Some(applications)) = (change, applications.upgrade()) else {
            return;
        };
        if old.as_ref().map(|node| &node.labels) != new.as_ref().map(|node| &node.labels) {
            let there = pods.find(Pod::BY_NODE, &key.name);
            there.iter().filter_map(|pod| application_of(&applications, pod)).for_each(|at| waker.add(at));
        }
    }
}

/// What a change of a group means: it may have other nodes, so everything that asks for policies is looked at.
pub(super) fn on_group(applications: &Arc<Applications>, waker: Waker) -> impl FnMut(&Change<Group>) + Send + 'static {
    let applications = Arc::downgrade(applications);
    move |change| {
        let (Change::Object { old, new, .. }, Some(applications)) = (change, applications.upgrade()) else { return };
        if old.as_ref().map(|group| &group.spec) != new.as_ref().map(|group| &group.spec) {
            applications.labelled().into_iter().chain(applications.pods_labelled()).for_each(|at| waker.add(at));
        }
    }
}

/// What a change of a policy means: what asks for it is looked at.
pub(super) fn on_policy<S: PolicySpec>(
    applications: &Arc<Applications>,
    pair: Pair,
    waker: Waker,
) -> impl FnMut(&Change<Policy<S>>) + Send + 'static {
    let applications = Arc::downgrade(applications);
    move |change| {
        let (Change::Object { key, .. }, Some(applications)) =
            (change, applications.upgrade().filter(|_| Policy::is_news(change)))
        else {
            return;
        };
        let asking = applications.asking_for(pair, &key.namespace, &key.name);
        asking.into_iter().filter(|at: &ApplicationKey| at.kind != POD).for_each(|at| waker.add(at));
    }
}
