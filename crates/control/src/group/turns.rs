//! Which groups of an application keep an earlier edition of its policy, since their turn has not come. The leader and the
//! webhooks find it out alike, from the pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_api::group::OverridePolicySpec;
use dapple_plan::group::edition::EDITION;
use dapple_plan::group::editions::Editions;
use dapple_plan::group::placing::GATE;
use dapple_plan::group::rollout::{EditionName, Facts, PodEdition};
use dapple_plan::group::running::is_well;
use dapple_plan::inplace::STATE_ANNOTATION;

use super::owner::is_gated;
use super::policy::Policy;
use super::standing::is_protected;
use crate::slim::Pod;

/// Of so many applications it is remembered that all their pods have the newest edition.
const MOST_DONE: usize = 10_000;

/// Applications whose pods all have the newest edition: nothing needs to be found out of them.
#[derive(Default)]
pub(super) struct Turns {
    /// By the UID of the application.
    done: Mutex<BTreeMap<Arc<str>, Version>>,
}

/// UID and generation of a policy.
type Version = (Arc<str>, Option<i64>);

/// Tells the group that a pod counts for, if any.
type GroupOf<'a> = &'a dyn Fn(&Pod) -> Option<Arc<str>>;

/// When a pod counts as available.
#[derive(Clone, Copy)]
pub(super) struct Availability {
    /// It has been ready for so many seconds.
    pub(super) min_ready: i64,
    /// In seconds since 1970.
    pub(super) now: i64,
}

impl Availability {
    /// Whether a pod is available, and has done what was last changed of it.
    pub(super) fn has(self, pod: &Pod) -> bool {
        let state = pod.annotations.get(STATE_ANNOTATION);
        is_well(state, &pod.running(), pod.ready_since, self.min_ready, self.now)
    }
}

impl Turns {
    fn done(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Version>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has groups keep earlier editions whose turn has not come, and tells whether some do. `pods` are all live ones of the
    /// application.
    pub(super) fn hold(
        &self,
        application: &Arc<str>,
        policy: &Policy<OverridePolicySpec>,
        pods: impl FnOnce() -> Vec<Arc<Pod>>,
        available: Availability,
        (groups, editions): (&[Arc<str>], &mut Editions),
    ) -> bool {
        let version = (policy.meta.uid.clone(), policy.generation);
        if self.done().get(application) == Some(&version) {
            return false;
        }
        // All pods are looked at: nobody who asks about another application waits for that.
        let order = policy.ordered(groups);
        let said = |pod: &Pod| pod.labels.get_shared(GATE).filter(|_| !is_gated(pod));
        let (facts, _) = facts(&pods(), (&order, &said), editions, available);
        if facts.is_done() {
            let mut done = self.done();
            if done.len() >= MOST_DONE {
                done.clear();
            }
            done.insert(application.clone(), version);
            return false;
        }
        let earlier: Vec<Vec<EditionName>> = order.iter().map(|group| editions.earlier(group)).collect();
        let held = order.iter().zip(facts.held(&earlier, policy.is_suspended));
        let held: Vec<_> = held.filter_map(|(group, name)| Some((group, name?))).collect();
        held.iter().for_each(|(group, name)| editions.hold(group, name));
        !held.is_empty()
    }
}

/// How the pods of an application stand with their editions, groups in this order; and the pods that the facts are about.
pub(super) fn facts(
    pods: &[Arc<Pod>],
    (order, group_of): (&[Arc<str>], GroupOf<'_>),
    editions: &Editions,
    available: Availability,
) -> (Facts, Vec<Arc<Pod>>) {
    let place = |pod: &Pod| {
        let said = group_of(pod)?;
        order.iter().position(|group| group.eq_ignore_ascii_case(&said))
    };
    let (mut own, mut known, mut others_down) = (Vec::new(), Vec::new(), 0);
    for pod in pods {
        let is_available = available.has(pod);
        let Some(group) = place(pod) else {
            others_down += usize::from(!is_available);
            continue;
        };
        own.push(PodEdition {
            name: pod.meta.key.name.clone(),
            group,
            edition: pod.annotations.get_shared(EDITION),
            is_available,
            is_left: is_protected(pod),
            is_to_move: false,
            helps_early: false,
        });
        known.push(pod.clone());
    }
    let wanted = order.iter().map(|group| editions.of_group(group).name.as_deref().map(Arc::from)).collect();
    (Facts { wanted, pods: own, others_down, most_away: 1 }, known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::slim::{Interner, read};

    #[test]
    fn while_pods_are_looked_at_others_may_ask() {
        let object = json!({"metadata": {"name": "p", "namespace": "d", "uid": "p", "resourceVersion": "1"},
            "spec": {"overrideRules": []}});
        let policy: Policy<OverridePolicySpec> = read(&object, &mut Interner::default()).expect("a policy");
        let (turns, mut editions) = (Turns::default(), Editions::default());
        let available = Availability { min_ready: 0, now: 0 };
        let mut looks = 0;
        for _ in 0..2 {
            let pods = || {
                assert!(turns.done.try_lock().is_ok(), "nobody has to wait");
                looks += 1;
                Vec::new()
            };
            assert!(!turns.hold(&Arc::from("web"), &policy, pods, available, (&[], &mut editions)));
        }
        assert_eq!(looks, 1, "what is done is not looked at again");
    }
}
