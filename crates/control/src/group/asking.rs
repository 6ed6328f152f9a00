//! A workload or a pod that may ask for policies, as far as its metadata tells.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dapple_api::kinds::KindInfo;
use dapple_plan::group::binding::Pair;
use dapple_plan::mutant::{Mutant, is_on};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::observed::Wire;
use crate::slim::{Cached, Index, Interner, Key, Meta, Pod, Set, StringMap};

/// A workload of any kind.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) meta: Meta,
    generation: Option<i64>,
    /// What controls it.
    owner: Option<OwnerRef>,
    /// Those of its labels by which policies are asked for and confirmed.
    pub(super) labels: StringMap,
    is_terminating: bool,
}

/// What controls a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnerRef {
    pub(super) uid: Arc<str>,
    /// Its API group.
    pub(super) group: Arc<str>,
    pub(super) kind: Arc<str>,
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
            group: strings.share(group_of(&owner.api_version)),
            kind: strings.share(&owner.kind),
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
    pub(super) const BY_UID: Index<Self> =
        Index { name: "uid", values: |workload, add| add(workload.meta.uid.clone()) };
    /// By the UID of what controls it.
    pub(super) const BY_OWNER: Index<Self> =
        Index { name: "owner", values: |workload, add| workload.owner.iter().for_each(|owner| add(owner.uid.clone())) };
    /// Those with a label of policies, by namespace.
    pub(super) const LABELLED: Index<Self> = Index {
        name: "labelled",
        values: |workload, add| {
            if workload.labels.iter().next().is_some() {
                add(workload.meta.key.namespace.clone());
            }
        },
    };
    /// By each policy that it asks for.
    pub(super) const BY_POLICY: Index<Self> =
        Index { name: "policy", values: |workload, add| policies(&workload.meta.key, &workload.labels).for_each(add) };
}

/// Pods that nobody controls and that have a label of policies, by namespace.
pub(super) const PODS_LABELLED: Index<Pod> = Index {
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
pub(super) fn policies(key: &Key, labels: &StringMap) -> impl Iterator<Item = Arc<str>> {
    let asked = |pair: Pair| Some(Arc::from(policy(pair, &key.namespace, labels.get(pair.required())?)));
    Pair::ALL.into_iter().filter_map(asked)
}

pub(super) fn policy(pair: Pair, namespace: &str, name: &str) -> String {
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
    /// What controls it.
    pub(super) owner: Option<OwnerRef>,
    is_terminating: bool,
}

impl Asking {
    pub(super) fn of_workload(workload: &Application) -> Self {
        let Application { meta, generation, owner, labels, is_terminating } = workload;
        Self {
            meta: meta.clone(),
            labels: labels.clone(),
            owner: owner.clone(),
            generation: *generation,
            is_terminating: *is_terminating,
        }
    }

    /// Of a DaemonSet of ours. Nothing that can ask is above it, so it counts as nobody's.
    pub(super) fn of_set(set: &Set) -> Self {
        Self {
            meta: set.meta.clone(),
            labels: set.policies.clone(),
            owner: None,
            generation: set.generation,
            is_terminating: set.is_terminating,
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

    /// Whether it is on its way out.
    pub(super) fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// Whether it has one of the four labels.
    pub(super) fn has_labels(&self) -> bool {
        self.labels.iter().any(|(key, _)| is_label_of_policy(key))
    }

    /// Whether two versions of it differ in what matters.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let told = |asking: &Self| {
            let labels =
                Pair::ALL.map(|pair| [pair.required(), pair.binding()].map(|key| asking.labels.get_shared(key)));
            (asking.meta.uid.clone(), labels, asking.owner.clone(), asking.generation, asking.is_terminating)
        };
        told(self) != told(other)
    }
}

/// What a pod that leaves the gate is given of the four labels of policies, as in a merge patch: it says what its application
/// says by now, whatever was copied to it when it came. What it has by its template stays: its owner may select on it, and
/// would make another pod for one that it has lost. Where the template is not known, whatever it has counts as that.
pub(super) fn copied_labels(asking: Option<&Asking>, pod: &StringMap, template: Option<&Value>) -> Map<String, Value> {
    let is_own = |key: &str| template.is_none_or(|template| template["metadata"]["labels"][key].is_string());
    let wanted = |key: &str| asking.and_then(|asking| asking.labels.get(key));
    let changed = Pair::labels().filter(|key| wanted(key) != pod.get(key));
    let ours = changed.filter(|key| pod.get(key).is_none() || !is_own(key));
    ours.map(|key| (key.to_owned(), wanted(key).into())).collect()
}

/// Whether a pod has one of the four labels that its application does not have, or has with another value.
pub(super) fn has_outdated_labels(asking: Option<&Asking>, pod: &StringMap) -> bool {
    let wanted = |key: &str| asking.and_then(|asking| asking.labels.get(key));
    Pair::labels().any(|key| pod.get(key).is_some_and(|has| wanted(key) != Some(has)))
        && !is_on(Mutant::CopiedLabelsKept)
}

/// The API group of a version, as objects have it.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
