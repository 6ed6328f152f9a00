//! DaemonSets and their revisions as the controller keeps them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use dapple_api::daemonset::{DaemonSetSpec, DaemonSetStatus};
use dapple_api::kinds;
use dapple_api::selector::Selector;
use dapple_plan::daemonset::pod::{HASH_LABEL, is_set};
use dapple_plan::daemonset::revision::{
    FORM_ANNOTATION, REPLACES_ANNOTATION, Revision, SINCE_ANNOTATION, began, form_of, number_of,
};
use dapple_plan::group::binding::Pair;
use jiff::Timestamp;
use serde::Deserialize;

use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{self, Cached, Index, Interner, Meta, StringMap};

/// A cached DaemonSet. They are few: spec and status are kept whole.
#[derive(Debug)]
pub struct Set {
    pub(super) meta: Meta,
    pub(super) generation: Option<i64>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Those of its labels by which policies are asked for and confirmed.
    pub(super) policies: StringMap,
    pub(super) is_terminating: bool,
    pub(super) spec: DaemonSetSpec,
    /// Which pods are its own; none if the selector cannot be used.
    pub(super) selector: Option<Selector>,
    pub(super) status: DaemonSetStatus,
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
        labels.retain(|key, _| Pair::ALL.iter().any(|pair| [pair.required(), pair.binding()].contains(&key.as_str())));
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
    pub(super) fn asks_as(&self, other: &Self) -> bool {
        let held_at = |set: &Self| (set.status.current_revision.clone(), set.status.current_revision_number);
        self.generation == other.generation
            && self.annotations == other.annotations
            && self.policies == other.policies
            && self.meta.uid == other.meta.uid
            && held_at(self) == held_at(other)
    }

    /// By namespace and one label that it selects on: what has labels is selected by none that is not found so, or under
    /// the namespace alone.
    pub(super) const BY_SELECTED: Index<Self> = Index {
        name: "selected",
        values: |set, add| {
            let label = set.spec.selector.match_labels.as_ref().and_then(BTreeMap::first_key_value);
            if set.selector.is_some() {
                add(Arc::from(selected(&set.meta.key.namespace, label)));
            }
        },
    };
}

/// What others know of sets: the policies that they ask for.
impl Set {
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
    pub(super) const OVERRIDDEN: &str = "";

    /// What sets are found under that ask for this policy.
    pub(crate) fn asking(pair: Pair, namespace: &str, policy: &str) -> String {
        format!("{pair:?}/{namespace}/{policy}")
    }

    /// The labels by which policies are asked for and confirmed.
    pub(crate) fn policies(&self) -> &StringMap {
        &self.policies
    }

    /// Its `metadata.generation`.
    pub(crate) fn generation(&self) -> Option<i64> {
        self.generation
    }

    /// Whether it is on its way out.
    pub(crate) fn is_terminating(&self) -> bool {
        self.is_terminating
    }
}

/// What sets of a namespace that may select this label are found under.
pub(super) fn selected(namespace: &str, label: Option<(impl Display, impl Display)>) -> String {
    label.map_or_else(|| format!("{namespace}/"), |(key, value)| format!("{namespace}/{key}={value}"))
}

/// A ControllerRevision, as one of a DaemonSet.
#[derive(Debug, Clone)]
pub(super) struct SetRevision {
    known: Arc<slim::Revision>,
    pub(super) number: i64,
    pub(super) hash: Option<String>,
    /// The form of hash that it notes.
    pub(super) form: u8,
    /// Since when it notes to be the newest again.
    newest_since: Option<String>,
}

impl Deref for SetRevision {
    type Target = slim::Revision;

    fn deref(&self) -> &slim::Revision {
        &self.known
    }
}

impl SetRevision {
    pub(super) fn new(known: Arc<slim::Revision>) -> Arc<Self> {
        Arc::new(Self {
            number: number_of(known.number),
            hash: known.label(HASH_LABEL).map(str::to_owned),
            form: form_of(known.annotation(FORM_ANNOTATION)),
            newest_since: known.annotation(SINCE_ANNOTATION).map(str::to_owned),
            known,
        })
    }

    /// Whether it is the set's own. The policy on authors goes by kind and name, so these count as well as the UID: else one
    /// could name an owner to the policy and another to us.
    pub(super) fn is_of(&self, set: &Set) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            owner.uid == set.meta.uid && owner.name == set.meta.key.name && is_set(&owner.api_version, &owner.kind)
        })
    }

    /// The hash that pods of an unpatched node carry: the revision's own, or the end of its name.
    pub(super) fn hash(&self, set: &Set) -> String {
        let name = &self.meta.key.name;
        let end = || name.strip_prefix(&format!("{}-", set.meta.key.name)).unwrap_or(name).to_owned();
        self.hash.clone().unwrap_or_else(end)
    }

    /// Whether it was made for the one of this name.
    pub(super) fn replaces(&self, name: &str) -> bool {
        self.replaced() == Some(name)
    }

    /// Whether it was made for this one, and says the same.
    pub(super) fn stands_in_for(&self, old: &Self) -> bool {
        self.replaces(&old.meta.key.name) && self.data == old.data && self.number >= old.number
    }

    /// The name of the one that it was made for.
    pub(super) fn replaced(&self) -> Option<&str> {
        self.annotation(REPLACES_ANNOTATION)
    }

    /// As it is once it has become the newest again.
    pub(super) fn renumbered(&self, number: i64, now: Timestamp) -> Self {
        Self { number, newest_since: Some(now.to_string()), ..self.clone() }
    }

    /// As deciding sees it, now.
    pub(super) fn as_revision(&self, set: &Set, now: Timestamp) -> Revision {
        Revision {
            name: self.meta.key.name.to_string(),
            replaces: self.replaced().map(str::to_owned),
            number: self.number,
            hash: self.hash(set),
            form: self.form,
            began: began(self.created, self.newest_since.as_deref(), now),
            data: self.data.clone(),
        }
    }
}
