//! How far nodes are with what their pools give them: noted by who writes nodes, told in the status of pools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_plan::pool::status::Standing;

use super::Pool;
use super::adder::Adder;
use crate::queue::Urgency;

/// What is known. It is found out anew by every process: each node is looked at before its pool tells of it.
pub(super) struct Standings {
    known: Mutex<BTreeMap<Arc<str>, Known>>,
    /// Pools of which there is news to tell.
    pub(super) pools: Adder,
}

/// How far a node is with its pool, as the pool was when the node was looked at.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    pool: PoolVersion,
    standing: Standing,
}

/// What a pool says, at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolVersion {
    uid: Arc<str>,
    generation: Option<i64>,
}

impl PoolVersion {
    pub(super) fn of(pool: &Pool) -> Self {
        Self { uid: pool.meta.uid.clone(), generation: pool.generation }
    }
}

impl Standings {
    pub(super) fn new(pools: Adder) -> Self {
        Self { known: Mutex::default(), pools }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node of a pool is so far.
    pub(super) fn note(&self, node: &Arc<str>, pool: &Pool, standing: Standing) {
        let known = Known { pool: PoolVersion::of(pool), standing };
        let before = self.known().insert(node.clone(), known.clone());
        if before.as_ref() != Some(&known) {
            self.pools.add(&pool.meta.key.name, Urgency::Change);
        }
    }

    /// A node is in no pool.
    pub(super) fn forget(&self, node: &Arc<str>) {
        self.known().remove(node);
    }

    /// How far a node of this pool is. None before it was looked at; if the pool said something else then, it is to be looked at
    /// again.
    pub(super) fn of(&self, node: &Arc<str>, pool: &Pool) -> Option<Standing> {
        let known = self.known();
        let known = known.get(node)?;
        Some(if known.pool == PoolVersion::of(pool) { known.standing.clone() } else { Standing::Waiting })
    }
}
