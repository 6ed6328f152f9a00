//! What is known to answer a scheduler with: applications, policies, groups, and where pods are. What follows from it is
//! decided in [`dapple_plan::group::extender`]. Every replica answers from its own view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_api::kinds::NATIVE_DAEMON_SET;
use dapple_plan::group::Rule;
use dapple_plan::group::extender::{Judged, Passes, PodName, Question, Reason, Roster};
use dapple_plan::group::placing::GATE;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Group;
use super::application::{Applicant, Applications, is_served};
use super::owner::{OwnerKey, is_live};
use super::policy::Policy;
use super::seated::{Seatings, Stores};
use crate::caches::store::{Change, Store};
use crate::caches::{Caches, Subscription};
use crate::slim::{Key, Node, Pod, StringMap};

/// A pod that a scheduler asks about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What controls it.
    pub controller: Option<Controller>,
}

/// What controls a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its UID.
    pub uid: String,
}

/// What a scheduler is told of a pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is none of ours: everything stays as it is.
    Untouched,
    /// No node may have it.
    Refused(Reason),
    /// Its nodes were judged.
    Judged,
}

/// What answers follow from, beside applications and policies.
struct Seen {
    roster: RwLock<Roster>,
    seatings: Seatings,
    /// Held while pods are taken in, so that one is never counted twice: where it is, and where it was let pass to.
    passes: Mutex<Passes<OwnerKey>>,
}

/// Answers schedulers.
pub struct Extender {
    own_namespace: String,
    begun: Instant,
    applications: Applications,
    propagations: Subscription<Policy<PropagationPolicySpec>>,
    seen: Arc<Seen>,
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    groups: Subscription<Group>,
}

impl Extender {
    /// Subscribes to all that says where pods go. If that breaks, `life` is cancelled.
    pub fn start(caches: &Caches, life: &CancellationToken, own_namespace: &str) -> Self {
        let pods = caches.open().indexed_by([Pod::BY_OWNER, Applications::PODS_BY_POLICY]);
        let (nodes, groups) = (caches.open::<Node>(), caches.open::<Group>());
        let stores = Stores { pods: pods.store(), nodes: nodes.store(), groups: groups.store() };
        let seen = Arc::new(Seen {
            roster: RwLock::default(),
            seatings: Seatings::new(stores.clone()),
            passes: Mutex::default(),
        });
        Self {
            own_namespace: own_namespace.to_owned(),
            begun: Instant::now(),
            applications: Applications::subscribe(caches, life, |_| {}),
            propagations: caches.open().subscribe(life, |_| {}),
            pods: pods.subscribe(life, on_pod(seen.clone(), stores.pods)),
            nodes: nodes.subscribe(life, on_node(seen.clone(), stores.nodes.clone())),
            groups: groups.subscribe(life, on_group(seen.clone(), stores.nodes)),
            seen,
        }
    }

    /// Whether everything is known. Until then no pod is judged.
    pub fn is_complete(&self) -> bool {
        let has_groups = self.groups.is_known() && self.propagations.is_known();
        has_groups && self.pods.is_known() && self.nodes.is_known() && self.applications.is_known()
    }

    /// Waits until everything was read once, or is known not to be installed.
    pub async fn settled(&self) {
        self.groups.settled().await;
        self.propagations.settled().await;
        self.pods.settled().await;
        self.nodes.settled().await;
        self.applications.settled().await;
    }

    /// The labels of what asks for policies in the name of a pod; none if nothing does, or nobody knows.
    fn labels_of(&self, pod: &AskedPod) -> Option<StringMap> {
        let Some(Controller { api_version, kind, uid }) = &pod.controller else {
            return Some(StringMap::new(&pod.labels, &mut Default::default()));
        };
        // Pods of a DaemonSet belong to their nodes.
        if !self.applications.can_ask(api_version, kind) || kind == NATIVE_DAEMON_SET.at.kind {
            return None;
        }
        let (_, owner) = self.applications.by_uid(&pod.namespace, uid)?;
        match self.applications.application_of(&owner) {
            Applicant::Is(application) => Some(application.labels),
            Applicant::None | Applicant::Unknown => None,
        }
    }

    /// Has nodes filtered by the policy of a pod, if it has one. `judge` returns the group that the pod goes to then, and it
    /// counts there until it is seen.
    pub fn filter(&self, pod: &AskedPod, judge: &mut dyn FnMut(&Judged<'_>) -> Option<Arc<str>>) -> Answer {
        self.ask(pod, judge, |passes, at, asked, group, now| match group {
            Some(group) => passes.note(at, asked, group, now),
            None => passes.forget(asked.uid),
        })
    }

    /// Has nodes scored by the policy of a pod, if it has one. `judge` returns the group that the pod goes to then: if it was
    /// let pass before, it counts there.
    pub fn score(&self, pod: &AskedPod, judge: &mut dyn FnMut(&Judged<'_>) -> Option<Arc<str>>) -> Answer {
        self.ask(pod, judge, |passes, _, asked, group, _| {
            if let Some(group) = group {
                passes.redirect(asked.uid, group);
            }
        })
    }

    fn ask(
        &self,
        pod: &AskedPod,
        judge: &mut dyn FnMut(&Judged<'_>) -> Option<Arc<str>>,
        note: impl FnOnce(&mut Passes<OwnerKey>, &OwnerKey, PodName<'_>, Option<Arc<str>>, Duration),
    ) -> Answer {
        let is_ours = is_served(&pod.namespace, &self.own_namespace) && !pod.labels.contains_key(GATE);
        let labels = if is_ours && self.is_complete() { self.labels_of(pod) } else { None };
        let Some(labels) = labels else { return Answer::Untouched };
        let name = match Question::of(&labels) {
            Question::None => return Answer::Untouched,
            Question::Refused(reason) => return Answer::Refused(reason),
            Question::Divide(policy) => policy,
        };
        let unknown = || Answer::Refused(Reason::NoPolicy { policy: name.to_owned() });
        let Some(policy) = self.propagations.get(&Key::new(&pod.namespace, name)) else { return unknown() };
        let controller = pod.controller.as_ref().map(|controller| Arc::from(&*controller.uid));
        let label = |key: &str| pod.labels.get(key).map(|value| Arc::from(&**value));
        let at = OwnerKey::by(Arc::from(&*pod.namespace), controller, label);
        let asked = PodName { uid: &pod.uid, name: &pod.name };
        let (now, mut passes) = (self.begun.elapsed(), lock(&self.seen.passes));
        let shares = self.seen.seatings.look(&at, &policy, |placing| passes.shares(&at, asked, placing, now));
        let Some(shares) = shares else { return unknown() };
        let roster = self.seen.roster.read().unwrap_or_else(PoisonError::into_inner);
        let group = judge(&Judged::new(&roster, name, shares));
        note(&mut passes, &at, asked, group, now);
        Answer::Judged
    }
}

/// What a change of a pod means: it counts where it is now.
fn on_pod(seen: Arc<Seen>, pods: Arc<Store<Pod>>) -> impl FnMut(&Change<Pod>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        let versions = || [old, new].into_iter().flatten();
        let owners: BTreeSet<OwnerKey> = versions().map(|pod| OwnerKey::of(pod)).collect();
        let mut passes = lock(&seen.passes);
        seen.seatings.pod_changed(key, owners);
        let now = pods.get(key);
        let is_on_its_way =
            |uid: &str| now.as_ref().is_some_and(|pod| *pod.meta.uid == *uid && is_live(pod) && !pod.is_bound);
        for pod in versions().filter(|pod| !is_on_its_way(&pod.meta.uid)) {
            passes.forget(&pod.meta.uid);
        }
    }
}

/// What a change of a node means: it may be in other groups.
fn on_node(seen: Arc<Seen>, nodes: Arc<Store<Node>>) -> impl FnMut(&Change<Node>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        if let (Some(old), Some(new)) = (old, new)
            && old.labels == new.labels
        {
            return;
        }
        {
            let mut roster = seen.roster.write().unwrap_or_else(PoisonError::into_inner);
            // As it is now: a group that came meanwhile was held against that.
            match nodes.get(key) {
                Some(node) => roster.node_changed(&key.name, &node.labels),
                None => roster.node_removed(&key.name),
            }
        }
        seen.seatings.groups_changed();
    }
}

/// What a change of a group means: other nodes are in it.
fn on_group(seen: Arc<Seen>, nodes: Arc<Store<Node>>) -> impl FnMut(&Change<Group>) + Send + 'static {
    move |change| {
        let Change::Object { key, old, new, .. } = change else { return };
        if old.as_ref().map(|group| &group.spec) == new.as_ref().map(|group| &group.spec) {
            return;
        }
        {
            let mut roster = seen.roster.write().unwrap_or_else(PoisonError::into_inner);
            match new {
                Some(group) => roster.group_changed(&key.name, Rule::from(&group.spec), |visit| {
                    nodes.for_each(|node| visit(node.name(), &node.labels));
                }),
                None => roster.group_removed(&key.name),
            }
        }
        seen.seatings.groups_changed();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
