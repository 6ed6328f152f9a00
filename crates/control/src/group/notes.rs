//! What was decided about single pods lately, for those who tell people of it. Nothing is decided by it: what it does not know is
//! found out anew by whoever leads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::group::PodMove;
use dapple_plan::group::binding::{Pair, Situation};
use dapple_plan::group::status::MOVES;
use dapple_plan::group::why::Why;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::application::Asking;
use super::owner::is_gated;
use crate::caches::store::Store;
use crate::slim::{Key, Pod};

/// Why pods wait, and which were moved.
#[derive(Default)]
pub(super) struct Notes {
    waits: Mutex<BTreeMap<Key, &'static str>>,
    /// By PropagationPolicy, as many as a status tells, the last ones last.
    moves: Mutex<BTreeMap<Key, VecDeque<PodMove>>>,
}

impl Notes {
    /// These pods wait, each for this reason.
    pub(super) fn waiting<'p>(&self, pods: &Store<Pod>, waiting: impl Iterator<Item = (&'p Arc<Pod>, &'p Why)>) {
        let mut waits = lock(&self.waits);
        for (pod, why) in waiting {
            // Under the lock: of one that is gone nobody would tell any more.
            if pods.get(&pod.meta.key).is_some_and(|now| is_gated(&now)) {
                waits.insert(pod.meta.key.clone(), why.reason());
            }
        }
    }

    /// Why a pod waits, if that is decided.
    pub(super) fn why(&self, pod: &Key) -> Option<&'static str> {
        lock(&self.waits).get(pod).copied()
    }

    /// A pod may not wait any more.
    pub(super) fn pod_changed(&self, pods: &Store<Pod>, pod: &Key) {
        let mut waits = lock(&self.waits);
        if pods.get(pod).is_none_or(|now| !is_gated(&now)) {
            waits.remove(pod);
        }
    }

    /// Why pods wait is decided anew.
    pub(super) fn forget_waits(&self) {
        lock(&self.waits).clear();
    }

    /// A pod of an application was evicted from one group, to be placed in another, at this second.
    pub(super) fn moved(&self, asking: &Asking, pod: &str, (from, to): (Option<&str>, &str), second: i64) {
        let Situation::Bound(policy) = Pair::Propagation.situation(&asking.labels) else { return };
        let policy = Key { namespace: asking.meta.key.namespace.clone(), name: Arc::from(policy) };
        let time = Time(Timestamp::from_second(second).unwrap_or_default());
        let mut moves = lock(&self.moves);
        let own = moves.entry(policy).or_default();
        own.push_back(PodMove { pod: pod.to_owned(), from: from.map(str::to_owned), to: to.to_owned(), time });
        while own.len() > MOVES {
            own.pop_front();
        }
    }

    /// The last moves for a PropagationPolicy.
    pub(super) fn moves_for(&self, policy: &Key) -> Vec<PodMove> {
        lock(&self.moves).get(policy).into_iter().flatten().cloned().collect()
    }

    /// A PropagationPolicy is gone.
    pub(super) fn policy_gone(&self, policy: &Key) {
        lock(&self.moves).remove(policy);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
