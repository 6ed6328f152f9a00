//! DaemonSets of ours.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use dapple_api::daemonset::{DaemonSetSpec, DaemonSetStatus};
use dapple_api::kinds;
use dapple_api::selector::Selector;
use dapple_plan::group::binding::Pair;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Cached, Index, Interner, Meta, StringMap};
use crate::observed::{KindInfo, KindWire, Wire};

/// A cached DaemonSet of apps.kruise.io. They are few: spec and status are kept whole.
#[derive(Debug)]
pub struct Set {
    pub(crate) meta: Meta,
    pub(crate) generation: Option<i64>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Those of its labels by which policies are asked for and confirmed.
    pub(crate) policies: StringMap,
    pub(crate) is_terminating: bool,
    pub(crate) spec: DaemonSetSpec,
    /// Which pods are its own; none if the selector cannot be used.
    pub(crate) selector: Option<Selector>,
    pub(crate) status: DaemonSetStatus,
}

/// The fields of a DaemonSet that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct SetWire {
    metadata: SetMeta,
    spec: DaemonSetSpec,
    #[serde(default)]
    status: Option<DaemonSetStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetMeta {
    generation: Option<i64>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<Timestamp>,
}

impl Wire for SetWire {}

impl KindWire for SetWire {
    const KIND: KindInfo = kinds::DAEMON_SET.at;
}

impl Cached for Set {
    type Wire = SetWire;

    fn slim(meta: Meta, wire: SetWire, strings: &mut Interner) -> Self {
        let SetMeta { generation, annotations, mut labels, deletion_timestamp } = wire.metadata;
        labels.retain(|key, _| Pair::labels().any(|label| label == key));
        Self {
            meta,
            generation,
            annotations,
            policies: StringMap::new(&labels, strings),
            is_terminating: deletion_timestamp.is_some(),
            selector: Selector::new(&wire.spec.selector).ok(),
            spec: wire.spec,
            status: wire.status.unwrap_or_default(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Set {
    /// Whether both ask for the same. Of our own words about a set only these have consequences: the revision that nodes
    /// are held back at, and the number that it was complete with.
    pub(crate) fn asks_as(&self, other: &Self) -> bool {
        let held_at = |set: &Self| (set.status.current_revision.clone(), set.status.current_revision_number);
        self.generation == other.generation
            && self.annotations == other.annotations
            && self.policies == other.policies
            && self.meta.uid == other.meta.uid
            && held_at(self) == held_at(other)
    }

    /// By namespace and one label that it selects on: what has labels is selected by none that is not found so, or under
    /// the namespace alone.
    pub(crate) const BY_SELECTED: Index<Self> = Index {
        name: "selected",
        values: |set, add| {
            let label = set.spec.selector.match_labels.as_ref().and_then(BTreeMap::first_key_value);
            if set.selector.is_some() {
                add(Arc::from(selected(&set.meta.key.namespace, label)));
            }
        },
    };
    /// By each policy that they ask for; all that ask for an OverridePolicy are under [`Set::OVERRIDDEN`] too.
    pub(crate) const BY_POLICY: Index<Self> = Index {
        name: "policy",
        values: |set, add| {
            for pair in Pair::ALL {
                if let Some(policy) = set.policies.get(pair.required()) {
                    add(Arc::from(Self::asking(pair, &set.meta.key.namespace, policy)));
                }
            }
            if set.policies.get(Pair::Override.required()).is_some() {
                add(Arc::from(Self::OVERRIDDEN));
            }
        },
    };

    /// What sets are found under that ask for an OverridePolicy, whichever it is.
    pub(crate) const OVERRIDDEN: &str = "";

    /// What sets are found under that ask for this policy.
    pub(crate) fn asking(pair: Pair, namespace: &str, policy: &str) -> String {
        format!("{pair:?}/{namespace}/{policy}")
    }
}

/// What sets of a namespace that may select this label are found under.
pub(crate) fn selected(namespace: &str, label: Option<(impl Display, impl Display)>) -> String {
    label.map_or_else(|| format!("{namespace}/"), |(key, value)| format!("{namespace}/{key}={value}"))
}
