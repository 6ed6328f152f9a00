//! NodePools by name, nodes by their pool, and replacements by what they are about.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::kinds;
use dapple_api::pool::{
    ALLOW_NO_EXECUTE, CONFIRM_REMOVAL, NODE_POOL_LABEL, NodePoolSpec, NodePoolStatus, ReplacementStatus,
    SUSPEND_ANNOTATION, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{Cached, Index, Interner, Meta, Node, StringMap};

/// Finds nodes by the pool that their label names.
pub(crate) const BY_POOL: Index<Node> =
    Index { name: "pool", values: |node, tell| node.labels.get_shared(NODE_POOL_LABEL).into_iter().for_each(tell) };

/// Finds nodes by the pool that has put there what is there still.
pub(crate) const BY_REMEMBERED: Index<Node> =
    Index { name: "remembered pool", values: |node, tell| node.pool.remembered.iter().cloned().for_each(tell) };

/// Finds nodes that have left a pool by that pool, which has put there what is there still.
pub(crate) const BY_LEFT: Index<Node> = Index {
    name: "left pool",
    values: |node, tell| {
        let label = node.labels.get_shared(NODE_POOL_LABEL);
        let left = node.pool.remembered.iter().filter(|pool| label.as_ref() != Some(*pool));
        left.cloned().for_each(tell);
    },
};

/// Finds nodes that have something of a pool by the pool that their label names.
pub(crate) const BY_POOL_WITH_ATTRIBUTES: Index<Node> = Index {
    name: "pool of attributes",
    values: |node, tell| {
        let label = node.labels.get_shared(NODE_POOL_LABEL).filter(|_| node.pool.remembered.is_some());
        label.into_iter().for_each(tell);
    },
};

/// A cached NodePool. Pools are few: spec and status are kept whole.
#[derive(Debug)]
pub struct Pool {
    /// What names it.
    pub meta: Meta,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Labels of the pool itself, by which applications select it.
    pub labels: StringMap,
    /// What its annotations ask for.
    pub settings: Settings,
    /// What its nodes get.
    pub spec: Arc<NodePoolSpec>,
    /// What was told of it last.
    pub status: Option<NodePoolStatus>,
}

/// What the annotations of a NodePool ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// No node of it is written.
    pub is_suspended: bool,
    /// Its taints with the effect NoExecute may be put on nodes.
    pub allows_no_execute: bool,
    /// Nodes that were meant to leave, though many left at once; `*` for all.
    pub confirmed: Option<String>,
}

/// The fields of a NodePool that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct PoolWire {
    metadata: PoolMeta,
    #[serde(default)]
    spec: NodePoolSpec,
    status: Option<NodePoolStatus>,
}

#[derive(Debug, Clone, Deserialize)]
struct PoolMeta {
    generation: Option<i64>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Wire for PoolWire {}

impl KindWire for PoolWire {
    const KIND: KindInfo = kinds::NODE_POOL.at;
}

impl Cached for Pool {
    type Wire = PoolWire;

    fn slim(meta: Meta, wire: PoolWire, strings: &mut Interner) -> Self {
        let PoolMeta { generation, labels, annotations } = wire.metadata;
        let is_true = |annotation: &str| annotations.get(annotation).is_some_and(|said| said == "true");
        Self {
            meta,
            generation,
            labels: StringMap::new(&labels, strings),
            settings: Settings {
                is_suspended: is_true(SUSPEND_ANNOTATION),
                allows_no_execute: is_true(ALLOW_NO_EXECUTE),
                confirmed: annotations.get(CONFIRM_REMOVAL).cloned(),
            },
            spec: Arc::new(wire.spec),
            status: wire.status,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A cached YurtAppConfigurationReplacement.
#[derive(Debug)]
pub struct Replacement {
    /// What names it.
    pub meta: Meta,
    /// When it was made.
    pub created: Option<Time>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What its annotations ask for.
    pub annotations: BTreeMap<String, String>,
    /// What it changes.
    pub subject: Subject,
    /// How.
    pub replacements: Arc<Vec<dapple_api::pool::Replacement>>,
    /// What was told of it last.
    pub status: Option<ReplacementStatus>,
}

/// The fields of a replacement that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct ReplacementWire {
    metadata: ReplacementMeta,
    subject: Subject,
    #[serde(default)]
    replacements: Vec<dapple_api::pool::Replacement>,
    status: Option<ReplacementStatus>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplacementMeta {
    creation_timestamp: Option<Time>,
    generation: Option<i64>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Wire for ReplacementWire {}

impl KindWire for ReplacementWire {
    const KIND: KindInfo = kinds::REPLACEMENT.at;
}

impl Cached for Replacement {
    type Wire = ReplacementWire;

    fn slim(meta: Meta, wire: ReplacementWire, _: &mut Interner) -> Self {
        let ReplacementMeta { creation_timestamp, generation, mut annotations } = wire.metadata;
        annotations.retain(|key, _| key.starts_with("dapple.dev/"));
        Self {
            meta,
            created: creation_timestamp,
            generation,
            annotations,
            subject: wire.subject,
            replacements: Arc::new(wire.replacements),
            status: wire.status,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
