//! Which nodes others keep changing, and how long they are left alone.
//!
//! It is not in the cluster, so a new leader begins to count anew: it puts a node right three times more at most. To note each
//! repair on the node would be a write for every write.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_plan::mutant::{Mutant, is_on};
use dapple_plan::pool::fight::{COUNTED_FOR, REPAIRS, RESTS_FOR};
use tokio::time::Instant;

use super::standings::PoolVersion;

/// Repairs of nodes, by name.
#[derive(Default)]
pub(super) struct Fights(Mutex<BTreeMap<Arc<str>, Fight>>);

struct Fight {
    /// What the pool said then: when it says something else, all of this is over.
    pool: PoolVersion,
    repairs: VecDeque<Instant>,
    /// Since when the node is left alone.
    rests_since: Option<Instant>,
    /// Who has changed what, as of the last repair.
    blamed: String,
}

impl Fights {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Fight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If a node is to be left alone: for how long, and who has changed what there.
    pub(super) fn rests(&self, node: &Arc<str>, pool: &PoolVersion) -> Option<(Duration, String)> {
        let mut all = self.all();
        let fight = all.get_mut(node)?;
        let rested = fight.rests_since.map(|since| Duration::from_secs(RESTS_FOR).saturating_sub(since.elapsed()));
        if fight.pool != *pool || rested.is_some_and(|left| left.is_zero()) {
            all.remove(node);
            return None;
        }
        fight.repairs.retain(|at| at.elapsed().as_secs() < COUNTED_FOR);
        if fight.rests_since.is_none() && (fight.repairs.len() < REPAIRS || is_on(Mutant::FoughtForEver)) {
            return None;
        }
        fight.rests_since.get_or_insert_with(Instant::now);
        Some((rested.unwrap_or(Duration::from_secs(RESTS_FOR)), fight.blamed.clone()))
    }

    /// A node was put right.
    pub(super) fn repaired(&self, node: &Arc<str>, pool: PoolVersion, blamed: String) {
        let mut all = self.all();
        let fight = all.entry(node.clone()).or_insert_with(|| Fight {
            pool: pool.clone(),
            repairs: VecDeque::new(),
            rests_since: None,
            blamed: String::new(),
        });
        if fight.pool != pool {
            *fight = Fight { pool, repairs: VecDeque::new(), rests_since: None, blamed: String::new() };
        }
        fight.repairs.push_back(Instant::now());
        fight.blamed = blamed;
    }

    /// A node is gone, or in no pool.
    pub(super) fn forget(&self, node: &Arc<str>) {
        self.all().remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::slim::{Interner, read};

    #[tokio::test(start_paused = true)]
    async fn after_three_repairs_a_node_is_left_alone_for_an_hour_or_until_its_pool_changes() {
        let version = |generation: i64| {
            let pool = serde_json::json!({"metadata":
                {"name": "p", "uid": "u", "resourceVersion": "1", "generation": generation}});
            PoolVersion::of(&read::<Pool>(&pool, &mut Interner::default()).unwrap())
        };
        let (fights, node) = (Fights::default(), Arc::from("n"));
        let repair = |generation| fights.repaired(&node, version(generation), "x changes it".to_owned());
        for _ in 0..3 {
            assert_eq!(fights.rests(&node, &version(1)), None);
            repair(1);
        }
        let rest = (Duration::from_secs(RESTS_FOR), "x changes it".to_owned());
        assert_eq!(fights.rests(&node, &version(1)), Some(rest));
        tokio::time::advance(Duration::from_secs(RESTS_FOR - 1)).await;
        assert!(fights.rests(&node, &version(1)).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(fights.rests(&node, &version(1)), None, "an hour");
        (0..3).for_each(|_| repair(1));
        assert_eq!(fights.rests(&node, &version(2)), None, "the pool says something else");
        for _ in 0..5 {
            repair(2);
            tokio::time::advance(Duration::from_secs(COUNTED_FOR / 2)).await;
            assert_eq!(fights.rests(&node, &version(2)), None, "they are far apart");
        }
    }
}
