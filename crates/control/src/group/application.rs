//! Workloads and pods that may ask for policies, as far as their metadata tells: of a cluster's ReplicaSets and Jobs, few ask
//! for any, and their templates are read when they are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use dapple_api::kinds::{KindInfo, NATIVE, POD, find_native};
use dapple_plan::group::binding::Pair;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::caches::store::{Change, Store};
use crate::caches::{Caches, Subscription};
use crate::observed::Wire;
use crate::slim::{Cached, Index, Interner, Key, Meta, Pod, StringMap};

/// The cluster's own namespace.
const CLUSTERS_OWN: &str = "kube-system";

/// So many owners above each other are looked at: owners can be written to go in a circle.
const MOST_OWNERS: usize = 8;

/// A workload of any kind.
#[derive(Debug)]
pub(super) struct Application {
    meta: Meta,
    generation: Option<i64>,
    /// What controls it.
    owner: Option<OwnerRef>,
    /// Those of its labels by which policies are asked for and confirmed.
    labels: StringMap,
    is_terminating: bool,
}

/// What controls a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnerRef {
    uid: Arc<str>,
    /// Whether it is of a kind that can ask for policies itself, so that it is known here, or soon.
    can_ask: bool,
}

/// The metadata of a workload.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ApplicationWire {
    metadata: ApplicationMeta,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApplicationMeta {
    generation: Option<i64>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

/// Whether objects of this kind can ask for policies, pods aside.
pub(super) fn can_ask(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    find_native(group, kind).is_some()
}

impl Wire for ApplicationWire {
    const IS_METADATA: bool = true;
}

impl Cached for Application {
    type Wire = ApplicationWire;

    fn slim(meta: Meta, wire: ApplicationWire, strings: &mut Interner) -> Self {
        let ApplicationMeta { generation, mut labels, owner_references, deletion_timestamp } = wire.metadata;
        labels.retain(|key, _| is_label_of_policy(key));
        let owner = owner_references.iter().find(|owner| owner.controller);
        let owner = owner.map(|owner| OwnerRef {
            uid: strings.share(&owner.uid),
            can_ask: can_ask(&owner.api_version, &owner.kind),
        });
        Self {
            meta,
            generation,
            owner,
            labels: StringMap::new(&labels, strings),
            is_terminating: deletion_timestamp.is_some(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Application {
    /// By its UID.
    const BY_UID: Index<Self> = Index { name: "uid", values: |workload, add| add(workload.meta.uid.clone()) };
    /// By the UID of what controls it.
    const BY_OWNER: Index<Self> =
        Index { name: "owner", values: |workload, add| workload.owner.iter().for_each(|owner| add(owner.uid.clone())) };
    /// Those with a label of policies, by namespace.
    const LABELLED: Index<Self> = Index {
        name: "labelled",
        values: |workload, add| {
            if workload.labels.iter().next().is_some() {
                add(workload.meta.key.namespace.clone());
            }
        },
    };
    /// By each policy that it asks for.
    const BY_POLICY: Index<Self> =
        Index { name: "policy", values: |workload, add| policies(&workload.meta.key, &workload.labels).for_each(add) };
}

/// Pods that nobody controls and that have a label of policies, by namespace.
const PODS_LABELLED: Index<Pod> = Index {
    name: "labelled",
    values: |pod, add| {
        if pod.owner.is_none() && pod.labels.iter().any(|(key, _)| is_label_of_policy(key)) {
            add(pod.meta.key.namespace.clone());
        }
    },
};

/// Whether policies are asked for or confirmed by a label.
fn is_label_of_policy(key: &str) -> bool {
    Pair::ALL.iter().any(|pair| key == pair.required() || key == pair.binding())
}

/// The policies that labels ask for, as indexes have them.
fn policies(key: &Key, labels: &StringMap) -> impl Iterator<Item = Arc<str>> {
    let asked = |pair: Pair| Some(Arc::from(policy(pair, &key.namespace, labels.get(pair.required())?)));
    Pair::ALL.into_iter().filter_map(asked)
}

fn policy(pair: Pair, namespace: &str, name: &str) -> String {
    format!("{pair:?}/{namespace}/{name}")
}

/// What names a workload or a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApplicationKey {
    /// Its kind.
    pub(super) kind: KindInfo,
    /// Namespace and name.
    pub(super) key: Key,
}

impl fmt::Display for ApplicationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.qualified(), self.key)
    }
}

/// What of a workload or a pod matters for its policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asking {
    /// What names the version that was looked at.
    pub(super) meta: Meta,
    /// Labels, those of policies among them.
    pub(super) labels: StringMap,
    /// Its `metadata.generation`.
    pub(super) generation: Option<i64>,
    owner: Option<OwnerRef>,
    is_terminating: bool,
}

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

impl Asking {
    fn of_workload(workload: &Application) -> Self {
        let Application { meta, generation, owner, labels, is_terminating } = workload;
        Self {
            meta: meta.clone(),
            labels: labels.clone(),
            owner: owner.clone(),
            generation: *generation,
            is_terminating: *is_terminating,
        }
    }

    pub(super) fn of_pod(pod: &Pod) -> Self {
        Self {
            meta: pod.meta.clone(),
            labels: pod.labels.clone(),
            // It counts as that of nobody: what is known of a pod's owner does not tell its kind.
            owner: None,
            generation: None,
            is_terminating: pod.leaving_since.is_some(),
        }
    }

    /// Those of the four labels of policies that a pod lacks. What it has by its template stays: its owner may select on it,
    /// and would make another pod for one that it has lost.
    pub(super) fn labels_for(&self, pod: &StringMap) -> Map<String, Value> {
        let keys = Pair::ALL.into_iter().flat_map(|pair| [pair.required(), pair.binding()]);
        let lacking = keys.filter(|key| pod.get(key).is_none());
        lacking.filter_map(|key| Some((key.to_owned(), self.labels.get(key)?.into()))).collect()
    }

    /// Whether it is on its way out.
    pub(super) fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// Whether it has one of the four labels.
    fn has_labels(&self) -> bool {
        self.labels.iter().any(|(key, _)| is_label_of_policy(key))
    }

    /// Whether two versions of it differ in what matters.
    fn differs(&self, other: &Self) -> bool {
        let told = |asking: &Self| {
            let labels =
                Pair::ALL.map(|pair| [pair.required(), pair.binding()].map(|key| asking.labels.get_shared(key)));
            (asking.meta.uid.clone(), labels, asking.owner.clone(), asking.generation, asking.is_terminating)
        };
        told(self) != told(other)
    }
}

/// All workloads and pods that may ask for policies.
pub(super) struct Applications {
    workloads: Vec<(KindInfo, Subscription<Application>)>,
    pods: Subscription<Pod>,
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
        let workloads = NATIVE.iter().map(|native| {
            let opened = caches.open_kind::<Application>(native.at);
            let opened = opened.indexed_by([
                Application::BY_UID,
                Application::BY_OWNER,
                Application::BY_POLICY,
                Application::LABELLED,
            ]);
            let (kind, on_change) = (native.at, on_change.clone());
            let told = move |change: &Change<Application>| {
                if is_news(change, Asking::of_workload) {
                    on_change(ApplicationKey { kind, key: key_of(change).clone() });
                }
            };
            (kind, opened.subscribe(life, told))
        });
        let workloads = workloads.collect();
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
        Self { workloads, pods }
    }

    /// Waits until all kinds have a full view that was begun in this term, or later.
    pub(super) async fn synced(&self, term: u64) {
        for (_, workloads) in &self.workloads {
            workloads.synced(term).await;
        }
        self.pods.synced(term).await;
    }

    /// Waits until all kinds were read once.
    pub(super) async fn settled(&self) {
        for (_, workloads) in &self.workloads {
            workloads.settled().await;
        }
        self.pods.settled().await;
    }

    /// Whether all kinds are known.
    pub(super) fn is_known(&self) -> bool {
        self.workloads.iter().all(|(_, workloads)| workloads.is_known()) && self.pods.is_known()
    }

    /// Whether something in this namespace has a label of policies.
    pub(super) fn has_labelled(&self, namespace: &str) -> bool {
        self.workloads.iter().any(|(_, workloads)| !workloads.find(Application::LABELLED, namespace).is_empty())
            || !self.pods.find(PODS_LABELLED, namespace).is_empty()
    }

    /// All workloads that have a label of policies.
    pub(super) fn labelled(&self) -> Vec<ApplicationKey> {
        let of_kind = |(kind, workloads): &(KindInfo, Subscription<Application>)| {
            let found = workloads.all_under(Application::LABELLED);
            found.into_iter().map(|at| ApplicationKey { kind: *kind, key: at.meta.key.clone() }).collect::<Vec<_>>()
        };
        self.workloads.iter().flat_map(of_kind).collect()
    }

    /// The namespaces in which something has a label of policies.
    pub(super) fn namespaces(&self) -> BTreeSet<Arc<str>> {
        let workloads = self.workloads.iter().flat_map(|(_, workloads)| workloads.values_of(Application::LABELLED));
        workloads.chain(self.pods.values_of(PODS_LABELLED)).collect()
    }

    /// What asks, as it is known.
    pub(super) fn get(&self, at: &ApplicationKey) -> Option<Asking> {
        if at.kind == POD {
            return self.pods.get(&at.key).map(|pod| Asking::of_pod(&pod));
        }
        self.of_kind(at.kind)?.get(&at.key).map(|workload| Asking::of_workload(&workload))
    }

    /// Whether the view includes our own last write of it.
    pub(super) fn caught_up(&self, at: &ApplicationKey) -> bool {
        if at.kind == POD {
            return self.pods.caught_up(&at.key);
        }
        self.of_kind(at.kind).is_none_or(|workloads| workloads.caught_up(&at.key))
    }

    /// Notes that we have written it.
    pub(super) fn wrote(&self, at: &ApplicationKey, version: u64) {
        if at.kind == POD {
            self.pods.wrote(&at.key, version);
        } else if let Some(workloads) = self.of_kind(at.kind) {
            workloads.wrote(&at.key, version);
        }
    }

    /// What asks for policies in its name: the topmost of it and its owners that has a label of policies.
    pub(super) fn application_of(&self, asking: &Asking) -> Applicant {
        let (mut topmost, mut at) = (Applicant::None, asking.clone());
        for _ in 0..MOST_OWNERS {
            let owner = at.owner.clone().filter(|owner| owner.can_ask);
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
            let owner = at.owner.clone().filter(|owner| owner.can_ask);
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
        for (kind, workloads) in &self.workloads {
            let asking = workloads.find(Application::BY_POLICY, &value);
            found.extend(asking.iter().map(|at| ApplicationKey { kind: *kind, key: at.meta.key.clone() }));
        }
        let pods = self.pods.find(Self::PODS_BY_POLICY, &value);
        found.extend(pods.iter().map(|pod| ApplicationKey { kind: POD, key: pod.meta.key.clone() }));
        found
    }

    /// Everything that an object controls, and that has a label of policies.
    pub(super) fn below(&self, uid: &str) -> Vec<ApplicationKey> {
        let mut found = Vec::new();
        for (kind, workloads) in &self.workloads {
            let below = workloads.find(Application::BY_OWNER, uid);
            let asking = below.iter().filter(|workload| workload.labels.iter().next().is_some());
            found.extend(asking.map(|at| ApplicationKey { kind: *kind, key: at.meta.key.clone() }));
        }
        found
    }

    /// The UIDs of all workloads that an object controls.
    pub(super) fn owned_by(&self, uid: &str) -> Vec<Arc<str>> {
        let below = self.workloads.iter().flat_map(|(_, workloads)| workloads.find(Application::BY_OWNER, uid));
        below.map(|workload| workload.meta.uid.clone()).collect()
    }

    fn of_kind(&self, kind: KindInfo) -> Option<&Subscription<Application>> {
        self.workloads.iter().find(|(at, _)| *at == kind).map(|(_, workloads)| workloads)
    }

    /// The workload of this UID, and its kind. One of another namespace is nobody's owner, whatever a reference says.
    pub(super) fn by_uid(&self, namespace: &str, uid: &str) -> Option<(KindInfo, Asking)> {
        self.workloads.iter().find_map(|(kind, workloads)| {
            let found = workloads.find(Application::BY_UID, uid);
            let mut here = found.iter().filter(|workload| *workload.meta.key.namespace == *namespace);
            here.next().map(|workload| (*kind, Asking::of_workload(workload)))
        })
    }
}

/// Whether applications of a namespace are served: those of the cluster itself and dapple's own never are.
pub(super) fn is_served(namespace: &str, own: &str) -> bool {
    ![CLUSTERS_OWN, own].contains(&namespace)
}

fn key_of<T>(change: &Change<T>) -> &Key {
    match change {
        Change::Object { key, .. } | Change::Malformed { key, .. } => key,
    }
}

/// Whether a change is of something that asks for policies, or did, and of what matters for them.
fn is_news<T>(change: &Change<T>, asking: impl Fn(&T) -> Asking) -> bool {
    let Change::Object { old, new, .. } = change else { return false };
    let [old, new] = [old, new].map(|version| version.as_ref().map(|version| asking(version)));
    let has_labels = |version: &Option<Asking>| version.as_ref().is_some_and(Asking::has_labels);
    let differs = match (&old, &new) {
        (Some(old), Some(new)) => old.differs(new),
        _ => true,
    };
    differs && (has_labels(&old) || has_labels(&new))
}
