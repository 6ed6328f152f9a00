//! A Node as dapple keeps it: names, labels, taints, readiness, and what pools remember on it. Not its images, addresses or
//! managed fields, which make up nine tenths of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::pool::{PREVIOUS_ATTRIBUTES, REPLACED_ATTRIBUTES};
use dapple_plan::fit;
use dapple_plan::health::Health;
use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::node::NodeChange;
use dapple_plan::pool::attributes::remembered_pool;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::hashes::hash_of_pair;
use super::{Cached, Interner, Key, Meta, StringMap};
use crate::observed::{KindInfo, KindWire, Wire};

/// A cached Node.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    /// Name, UID and version.
    pub meta: Meta,
    /// Labels.
    pub labels: StringMap,
    /// Taints, in the node's own order.
    pub taints: Box<[Taint]>,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// What its condition Ready says.
    pub health: Health,
    /// What of its annotations pools have to do with.
    pub pool: PoolAttributes,
    /// `status.allocatable`, as JSON. It is read where it matters, which is seldom.
    pub allocatable: Arc<str>,
}

/// What of a node's annotations pools have to do with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PoolAttributes {
    /// What a pool has put on the node, as it is remembered there.
    pub previous: Option<Arc<str>>,
    /// What was there before, as it is remembered there.
    pub replaced: Option<Arc<str>>,
    /// The pool that has put there what is there still; empty if it is not known which.
    pub remembered: Option<Arc<str>>,
    /// A hash of each annotation: enough to know whether one has a value.
    pairs: Box<[u64]>,
}

impl PoolAttributes {
    fn of(annotations: &BTreeMap<String, String>, strings: &mut Interner) -> Self {
        let text = |annotation: &str| annotations.get(annotation).map(String::as_str);
        let (previous, replaced) = (text(PREVIOUS_ATTRIBUTES), text(REPLACED_ATTRIBUTES));
        let remembered = remembered_pool(previous, replaced);
        Self {
            previous: previous.map(|text| strings.share(text)),
            replaced: replaced.map(|text| strings.share(text)),
            remembered: remembered.map(|pool| strings.share(&pool)),
            pairs: annotations.iter().map(|(key, value)| hash_of_pair(key, value)).collect(),
        }
    }

    /// Whether the node has this annotation with this value.
    pub fn has(&self, key: &str, value: &str) -> bool {
        self.pairs.contains(&hash_of_pair(key, value))
    }
}

/// A cached taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value, empty if there is none.
    pub value: Arc<str>,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TaintEffect {
    /// Keeps new pods away.
    NoSchedule,
    /// Prefers other nodes.
    PreferNoSchedule,
    /// Keeps new pods away and evicts running ones.
    NoExecute,
    /// An effect that Kubernetes added after this was written; treated as not ours to judge.
    #[serde(other)]
    Unknown,
}

/// The fields of a Node that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeWire {
    metadata: NodeMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    creation_timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    taints: Vec<TaintWire>,
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct TaintWire {
    key: String,
    #[serde(default)]
    value: String,
    effect: TaintEffect,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
    allocatable: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

impl Wire for NodeWire {}

impl KindWire for NodeWire {
    const KIND: KindInfo = dapple_api::kinds::NODE;
}

impl Cached for Node {
    type Wire = NodeWire;

    fn slim(meta: Meta, wire: NodeWire, strings: &mut Interner) -> Self {
        let NodeWire { metadata, spec, status } = wire;
        let ready = status.conditions.iter().find(|is| is.kind == "Ready");
        // One whose kubelet has said nothing yet is silent since it is there.
        let since = ready.map_or(metadata.creation_timestamp, |is| is.last_transition_time);
        let health = Health::read(ready.map(|is| is.status.as_str()), since.map_or(0, Timestamp::as_second));
        let share_taint = |taint: TaintWire| Taint {
            key: strings.share(&taint.key),
            value: strings.share(&taint.value),
            effect: taint.effect,
        };
        Self {
            meta,
            taints: spec.taints.into_iter().map(share_taint).collect(),
            labels: StringMap::new(&metadata.labels, strings),
            unschedulable: spec.unschedulable,
            health,
            pool: PoolAttributes::of(&metadata.annotations, strings),
            allocatable: strings.share(status.allocatable.as_deref().map_or("", RawValue::get)),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Taint {
    /// As deciding sees it.
    pub fn as_fit(&self) -> fit::Taint {
        let effect = match self.effect {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
            TaintEffect::Unknown => "",
        };
        fit::Taint { key: self.key.to_string(), value: self.value.to_string(), effect: effect.to_owned() }
    }
}

impl Node {
    /// What has changed of a node.
    pub fn change(old: Option<&Self>, new: Option<&Self>) -> NodeChange {
        let (Some(old), Some(new)) = (old, new) else { return NodeChange { is_whole: true, ..NodeChange::default() } };
        if is_on(Mutant::LabelsIgnored) {
            return NodeChange { is_whole: old.health != new.health, ..NodeChange::default() };
        }
        let gone = old.taints.iter().filter(|taint| !new.taints.contains(taint));
        let come = new.taints.iter().filter(|taint| !old.taints.contains(taint));
        NodeChange {
            is_whole: old.health != new.health || old.meta.uid != new.meta.uid,
            labels: old.labels.changed_keys(&new.labels),
            taints: gone.chain(come).map(Taint::as_fit).collect(),
        }
    }

    /// Its taints, as deciding sees them.
    pub fn fit_taints(&self) -> Vec<fit::Taint> {
        self.taints.iter().map(Taint::as_fit).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        let Key { name, .. } = &self.meta.key;
        name
    }
}
