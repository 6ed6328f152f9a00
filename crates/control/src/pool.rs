//! NodePools by name, and replacements by what they are about.

use dapple_api::kinds;
use dapple_api::pool::Subject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use crate::observed::{KindInfo, KindWire, Wire};
use crate::slim::{Cached, Interner, Meta};

/// A cached NodePool: its name is all that is asked for.
#[derive(Debug)]
pub struct Pool {
    meta: Meta,
}

/// The fields of a NodePool that are read off the wire: none.
#[derive(Debug, Clone, Deserialize)]
pub struct PoolWire {}

impl Wire for PoolWire {}

impl KindWire for PoolWire {
    const KIND: KindInfo = kinds::NODE_POOL.at;
}

impl Cached for Pool {
    type Wire = PoolWire;

    fn slim(meta: Meta, _: PoolWire, _: &mut Interner) -> Self {
        Self { meta }
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
    /// What it changes.
    pub subject: Subject,
}

/// The fields of a replacement that are read off the wire.
#[derive(Debug, Clone, Deserialize)]
pub struct ReplacementWire {
    metadata: ReplacementMeta,
    subject: Subject,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplacementMeta {
    creation_timestamp: Option<Time>,
}

impl Wire for ReplacementWire {}

impl KindWire for ReplacementWire {
    const KIND: KindInfo = kinds::REPLACEMENT.at;
}

impl Cached for Replacement {
    type Wire = ReplacementWire;

    fn slim(meta: Meta, wire: ReplacementWire, _: &mut Interner) -> Self {
        Self { meta, created: wire.metadata.creation_timestamp, subject: wire.subject }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
