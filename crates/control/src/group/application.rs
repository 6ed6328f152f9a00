//! Workloads and pods that may ask for policies, as far as their metadata tells: of a cluster's ReplicaSets and Jobs, few ask
//! for any, and their templates are read when they are needed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::kinds::{KindInfo, NATIVE_JOB, POD, find_native};
use dapple_plan::group::binding::Pair;
use dapple_plan::group::repair::MOVED;
use dapple_plan::mutant::{Mutant, is_on};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::asking::{Application, PODS_LABELLED, group_of, policies, policy};
pub(super) use super::asking::{ApplicationKey, Asking};
use super::listed::{self, Workload, Workloads};
use crate::caches::store::{Change, Store};
use crate::caches::{Caches, Subscription};
use crate::slim::{Index, Key, Pod};

/// The cluster's own namespace.
const CLUSTERS_OWN: &str = "kube-system";
/// So many owners above each other are looked at: owners can be written to go in a circle.
const MOST_OWNERS: usize = 8;
/// Kinds that users have listed are waited for so long.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// What asks for policies in the name of a workload or a pod.
#[derive(Debug)]
pub(super) enum Applicant {
    /// This does.
    Is(Asking),
    /// Nothing does.
    None,
    /// An owner of it is not known here yet.
    Unknown,
}

/// All workloads and pods that may ask for policies.
pub(super) struct Applications {
    workloads: Arc<Workloads>,
    pods: Subscription<Pod>,
    /// Ends with it: what follows the list of kinds.
    _follows: DropGuard,
}

impl Applications {
    /// Pods that nobody controls, by each policy that they ask for.
    pub(super) const PODS_BY_POLICY: Index<Pod> = Index {
        name: "policy",
        values: |pod, add| {
            if pod.owner.is_none() {
                policies(&pod.meta.key, &pod.labels).for_each(add);
            }
        },
    };

    /// Subscribes to all kinds. `on_change` is told which of them may have to be looked at.
    pub(super) fn subscribe(
        caches: &Caches,
        life: &CancellationToken,
        on_change: impl Fn(ApplicationKey) + Clone + Send + 'static,
    ) -> Self {
        let workloads = Arc::new(Workloads::of_kubernetes(caches, life, &on_change));
        let follows = life.child_token();
        tokio::spawn(listed::follow(
            caches.clone(),
            workloads.clone(),
            life.clone(),
            follows.clone(),
            on_change.clone(),
        ));
        let pods = caches.open().indexed_by([Self::PODS_BY_POLICY, PODS_LABELLED, Pod::BY_OWNER]).subscribe(
            life,
            move |change| {
                let is_bare = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| pod.owner.is_none());
                let Change::Object { key, old, new, .. } = change else { return };
                if (is_bare(old) || is_bare(new)) && is_news(change, Asking::of_pod) {
                    on_change(ApplicationKey { kind: POD, key: key.clone() });
                }
            },
        );
        Self { workloads, pods, _follows: follows.drop_guard() }
    }

    /// Waits until all kinds have a full view that was begun in this term, or later. Kinds that users have listed hold up nothing
    /// for long: those that have no view by then are not served.
    pub(super) async fn synced(&self, term: u64) {
        for known in self.workloads.of_kubernetes_alone() {
            known.found.synced(term).await;
        }
        self.pods.synced(term).await;
        let listed = async {
            self.workloads.read_once.until(|times| times > 0).await;
            for known in self.workloads.all().iter() {
                known.found.synced(term).await;
            }
        };
        // What is late is told of when it comes.
        let _ = tokio::time::timeout(LISTED_WITHIN, listed).await;
    }

    /// Waits until all kinds were read once.
    pub(super) async fn settled(&self) {
        for known in self.workloads.of_kubernetes_alone() {
            known.found.settled().await;
        }
        self.pods.settled().await;
    }

    /// Whether all kinds of Kubernetes are known.
    pub(super) fn is_known(&self) -> bool {
        self.workloads.of_kubernetes_alone().all(|known| known.found.is_known()) && self.pods.is_known()
    }

    /// Whether objects of this kind can ask for policies, pods aside: those of Kubernetes, and those of kinds that are listed and
    /// of which a view was had.
    pub(super) fn can_ask(&self, api_version: &str, kind: &str) -> bool {
        self.knows(group_of(api_version), kind)
    }

    fn knows(&self, group: &str, kind: &str) -> bool {
        let all = self.workloads.all();
        let found = all.iter().find(|known| known.kind.group == group && known.kind.kind == kind);
        found.is_some_and(|known| !known.is_listed || known.found.is_known())
    }

    /// Whether another pod is made for one that is evicted: by these kinds of Kubernetes, and by all that are listed.
    pub(super) fn makes_others(&self, kind: KindInfo) -> bool {
        let all = self.workloads.all();
        let is_listed = all.iter().any(|known| known.kind == kind && known.is_listed);
        let is_job = kind == NATIVE_JOB.at && is_on(Mutant::JobsMoved);
        is_listed || is_job || MOVED.contains(&kind.kind) && find_native(kind.group, kind.kind).is_some()
    }

    /// Whether pods of such an application, controlled by such an owner, are ever changed once they are placed. Those of Jobs never
    /// are, whatever is above them: they would keep a policy from being done, and its groups from their turns.
    pub(super) fn has_pods_changed(&self, kinds: [Option<KindInfo>; 2]) -> bool {
        kinds.into_iter().all(|kind| kind.is_some_and(|kind| self.makes_others(kind)))
    }

    /// The field of an object of a kind that users have listed that says how many pods it should have. None of other kinds.
    pub(super) fn replicas_field(&self, kind: KindInfo) -> Option<Arc<str>> {
        let all = self.workloads.all();
        let found = all.iter().find(|known| known.kind == kind);
        found.and_then(|known| known.replicas_field.clone())
    }

    /// The field of an object of this kind that has its pod template; a pod is one itself.
    pub(super) fn template_field(&self, kind: KindInfo) -> Arc<str> {
        let all = self.workloads.all();
        let found = all.iter().find(|known| known.kind == kind);
        found.map_or_else(|| Arc::from(""), |known| known.template_field.clone())
    }

    /// The kinds that users have listed, as far as they are served.
    pub(super) fn listed(&self) -> Vec<KindInfo> {
        self.workloads.all().iter().filter(|known| known.is_listed).map(|known| known.kind).collect()
    }

    /// Whether something in this namespace has a label of policies.
    pub(super) fn has_labelled(&self, namespace: &str) -> bool {
        self.workloads.all().iter().any(|known| !known.found.find(Application::LABELLED, namespace).is_empty())
            || !self.pods.find(PODS_LABELLED, namespace).is_empty()
    }

    /// All workloads that have a label of policies.
    pub(super) fn labelled(&self) -> Vec<ApplicationKey> {
        let all = self.workloads.all();
        let of_kind = |known: &Arc<Workload>| {
            let found = known.found.all_under(Application::LABELLED).into_iter();
            found.map(|at| ApplicationKey { kind: known.kind, key: at.meta.key.clone() }).collect::<Vec<_>>()
        };
        all.iter().flat_map(of_kind).collect()
    }

    /// All pods of nobody's that have a label of policies.
    pub(super) fn pods_labelled(&self) -> Vec<ApplicationKey> {
        let pods = self.pods.all_under(PODS_LABELLED);
        pods.iter().map(|pod| ApplicationKey { kind: POD, key: pod.meta.key.clone() }).collect()
    }

    /// The namespaces in which something has a label of policies.
    pub(super) fn namespaces(&self) -> BTreeSet<Arc<str>> {
        let all = self.workloads.all();
        let workloads = all.iter().flat_map(|known| known.found.values_of(Application::LABELLED));
        workloads.chain(self.pods.values_of(PODS_LABELLED)).collect()
    }

    /// What asks, as it is known.
    pub(super) fn get(&self, at: &ApplicationKey) -> Option<Asking> {
        if at.kind == POD {
            return self.pods.get(&at.key).map(|pod| Asking::of_pod(&pod));
        }
        self.of_kind(at.kind)?.found.get(&at.key).map(|workload| Asking::of_workload(&workload))
    }

    /// Whether the view includes our own last write of it.
    pub(super) fn caught_up(&self, at: &ApplicationKey) -> bool {
        if at.kind == POD {
            return self.pods.caught_up(&at.key);
        }
        self.of_kind(at.kind).is_none_or(|known| known.found.caught_up(&at.key))
    }

    /// Notes that we have written it.
    pub(super) fn wrote(&self, at: &ApplicationKey, version: u64) {
        if at.kind == POD {
            self.pods.wrote(&at.key, version);
        } else if let Some(known) = self.of_kind(at.kind) {
            known.found.wrote(&at.key, version);
        }
    }

    /// What asks for policies in its name: the topmost of it and its owners that has a label of policies.
    pub(super) fn application_of(&self, asking: &Asking) -> Applicant {
        let (mut topmost, mut at) = (Applicant::None, asking.clone());
        for _ in 0..MOST_OWNERS {
            let owner = at.owner.clone().filter(|owner| self.knows(&owner.group, &owner.kind));
            let above = owner.as_ref().and_then(|owner| self.by_uid(&at.meta.key.namespace, &owner.uid));
            if at.has_labels() {
                topmost = Applicant::Is(at);
            }
            // Each kind has a watch of its own: an owner may be told of after what it owns.
            at = match (owner, above) {
                (None, _) => break,
                (Some(_), Some((_, above))) => above,
                (Some(_), None) => return Applicant::Unknown,
            };
        }
        topmost
    }

    /// The topmost of a workload and its owners, as far as they are known.
    pub(super) fn topmost(&self, asking: &Asking) -> Asking {
        let mut at = asking.clone();
        for _ in 0..MOST_OWNERS {
            let owner = at.owner.clone().filter(|owner| self.knows(&owner.group, &owner.kind));
            match owner.and_then(|owner| self.by_uid(&at.meta.key.namespace, &owner.uid)) {
                Some((_, above)) => at = above,
                None => break,
            }
        }
        at
    }

    /// Pods of nobody's that ask for a policy.
    pub(super) fn pods_asking(pods: &Store<Pod>, pair: Pair, namespace: &str, name: &str) -> Vec<Arc<Pod>> {
        pods.find(Self::PODS_BY_POLICY, &policy(pair, namespace, name))
    }

    /// All pods that are known.
    pub(super) fn pods(&self) -> &Store<Pod> {
        &self.pods
    }

    /// Everything that asks for a policy.
    pub(super) fn asking_for(&self, pair: Pair, namespace: &str, name: &str) -> Vec<ApplicationKey> {
        let value = policy(pair, namespace, name);
        let mut found = Vec::new();
        for known in self.workloads.all().iter() {
            let asking = known.found.find(Application::BY_POLICY, &value);
            found.extend(asking.iter().map(|at| ApplicationKey { kind: known.kind, key: at.meta.key.clone() }));
        }
        let pods = self.pods.find(Self::PODS_BY_POLICY, &value);
        found.extend(pods.iter().map(|pod| ApplicationKey { kind: POD, key: pod.meta.key.clone() }));
        found
    }

    /// Everything that an object controls, and that has a label of policies.
    pub(super) fn below(&self, uid: &str) -> Vec<ApplicationKey> {
        let mut found = Vec::new();
        for known in self.workloads.all().iter() {
            let below = known.found.find(Application::BY_OWNER, uid);
            let asking = below.iter().filter(|workload| workload.labels.iter().next().is_some());
            found.extend(asking.map(|at| ApplicationKey { kind: known.kind, key: at.meta.key.clone() }));
        }
        found
    }

    /// The UIDs of all workloads that an application controls, and of those that these control. If it asks for nothing, then not of
    /// those below it that do: they are applications of their own, and no pod may be in the budgets of two.
    pub(super) fn owned_by(&self, application: &Asking) -> Vec<Arc<str>> {
        let asks = application.has_labels() || is_on(Mutant::TwoBudgets);
        self.owned_where(application, |workload| asks || workload.labels.iter().next().is_none())
    }

    /// The UIDs of all workloads that it controls, and of those that these control, whatever they ask for.
    pub(super) fn all_owned_by(&self, application: &Asking) -> Vec<Arc<str>> {
        self.owned_where(application, |_| true)
    }

    fn owned_where(&self, application: &Asking, is_its: impl Fn(&Application) -> bool) -> Vec<Arc<str>> {
        let all = self.workloads.all();
        let (mut found, mut next): (Vec<Arc<str>>, Vec<Arc<str>>) = (Vec::new(), vec![application.meta.uid.clone()]);
        for _ in 0..MOST_OWNERS {
            let below = |uid: &Arc<str>| {
                let below = all.iter().flat_map(|known| known.found.find(Application::BY_OWNER, uid));
                below.filter(|workload| is_its(workload)).map(|workload| workload.meta.uid.clone()).collect::<Vec<_>>()
            };
            next = next.iter().flat_map(below).collect();
            if next.is_empty() {
                break;
            }
            found.extend(next.iter().cloned());
        }
        found
    }

    /// Those workloads right below an application, itself among them, that these workloads are, or are below of.
    pub(super) fn branches(&self, application: &Asking, workloads: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let namespace = &application.meta.key.namespace;
        let branch_of = |uid: &Arc<str>| {
            let mut at = uid.clone();
            for _ in 0..MOST_OWNERS {
                let owner = self.by_uid(namespace, &at).and_then(|(_, known)| known.owner);
                match owner {
                    Some(owner) if owner.uid != application.meta.uid && at != application.meta.uid => at = owner.uid,
                    _ => break,
                }
            }
            at
        };
        workloads.iter().map(branch_of).collect()
    }

    fn of_kind(&self, kind: KindInfo) -> Option<Arc<Workload>> {
        self.workloads.all().iter().find(|known| known.kind == kind).cloned()
    }

    /// The workload that controls a pod, and its kind.
    pub(super) fn owner_of(&self, pod: &Pod) -> Option<(KindInfo, Asking)> {
        self.by_uid(&pod.meta.key.namespace, pod.owner.as_ref()?)
    }

    /// The workload of this UID, and its kind. One of another namespace is nobody's owner, whatever a reference says.
    pub(super) fn by_uid(&self, namespace: &str, uid: &str) -> Option<(KindInfo, Asking)> {
        self.workloads.all().iter().find_map(|known| {
            let found = known.found.find(Application::BY_UID, uid);
            let mut here = found.iter().filter(|workload| *workload.meta.key.namespace == *namespace);
            here.next().map(|workload| (known.kind, Asking::of_workload(workload)))
        })
    }
}

/// Whether applications of a namespace are served: those of the cluster itself and dapple's own never are.
pub(crate) fn is_served(namespace: &str, own: &str) -> bool {
    ![CLUSTERS_OWN, own].contains(&namespace)
}

pub(super) fn key_of<T>(change: &Change<T>) -> &Key {
    match change {
        Change::Object { key, .. } | Change::Malformed { key, .. } => key,
    }
}

/// Whether a change is of something that asks for policies, or did, and of what matters for them.
pub(super) fn is_news<T>(change: &Change<T>, asking: impl Fn(&T) -> Asking) -> bool {
    let Change::Object { old, new, .. } = change else { return false };
    let [old, new] = [old, new].map(|version| version.as_ref().map(|version| asking(version)));
    let has_labels = |version: &Option<Asking>| version.as_ref().is_some_and(Asking::has_labels);
    let differs = match (&old, &new) {
        (Some(old), Some(new)) => old.differs(new),
        _ => true,
    };
    differs && (has_labels(&old) || has_labels(&new))
}
