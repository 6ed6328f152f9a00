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

/// Of so many templates it is remembered for a moment which groups keep what.
const MOST_LATELY: usize = 1_024;

/// What is known of applications, so that it need not be found out of all their pods again.
#[derive(Default)]
pub(super) struct Turns {
    /// Those whose pods all have the newest edition, by UID.
    done: Mutex<BTreeMap<Arc<str>, Version>>,
    /// What groups keep of others.
    lately: Mutex<LatelyByTemplate>,
}

/// By the UID of an application and the hash of a template.
type LatelyByTemplate = BTreeMap<(Arc<str>, Arc<str>), Lately>;

/// UID and generation of a policy.
type Version = (Arc<str>, Option<i64>);

/// A group, and the earlier edition that it keeps.
type Held = (Arc<str>, EditionName);

/// What groups kept at a time.
struct Lately {
    version: Version,
    /// In seconds since 1970.
    at: i64,
    held: Arc<[Held]>,
}

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

    fn lately(&self) -> MutexGuard<'_, LatelyByTemplate> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
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
        let held = self.held(application, policy, pods, available, (groups, &*editions));
        held.iter().for_each(|(group, name)| editions.hold(group, name));
        !held.is_empty()
    }

    /// As [`Self::hold`], by what was found out in the same second, if anything was: for those who make one pod after another of a
    /// template, and whom the leader corrects. To go over all pods for each of them would cost more the more there are.
    pub(super) fn hold_lately(
        &self,
        (application, template): (&Arc<str>, &Arc<str>),
        policy: &Policy<OverridePolicySpec>,
        pods: impl FnOnce() -> Vec<Arc<Pod>>,
        available: Availability,
        (groups, editions): (&[Arc<str>], &mut Editions),
    ) {
        let (key, version) = ((application.clone(), template.clone()), version_of(policy));
        let is_of_now = |known: &&Lately| known.version == version && known.at == available.now;
        let found = self.lately().get(&key).filter(is_of_now).map(|known| known.held.clone());
        let held = found.unwrap_or_else(|| {
            let held: Arc<[Held]> = self.held(application, policy, pods, available, (groups, &*editions)).into();
            let mut lately = self.lately();
            if lately.len() >= MOST_LATELY {
                lately.clear();
            }
            lately.insert(key, Lately { version, at: available.now, held: held.clone() });
            held
        });
        held.iter().for_each(|(group, name)| editions.hold(group, name));
    }

    /// Which groups keep which earlier editions, since their turn has not come.
    fn held(
        &self,
        application: &Arc<str>,
        policy: &Policy<OverridePolicySpec>,
        pods: impl FnOnce() -> Vec<Arc<Pod>>,
        available: Availability,
        (groups, editions): (&[Arc<str>], &Editions),
    ) -> Vec<Held> {
        let version = version_of(policy);
        if self.done().get(application) == Some(&version) {
            return Vec::new();
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
            return Vec::new();
        }
        let earlier: Vec<Vec<EditionName>> = order.iter().map(|group| editions.earlier(group)).collect();
        let held = order.iter().zip(facts.held(&earlier, policy.is_suspended));
        held.filter_map(|(group, name)| Some((group.clone(), name?))).collect()
    }
}

fn version_of(policy: &Policy<OverridePolicySpec>) -> Version {
    (policy.meta.uid.clone(), policy.generation)
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

    fn policy(generation: i64) -> Policy<OverridePolicySpec> {
        let object = json!({"metadata": {"name": "p", "namespace": "d", "uid": "p", "resourceVersion": "1",
            "generation": generation}, "spec": {"overrideRules": []}});
        read(&object, &mut Interner::default()).expect("a policy")
    }

    #[test]
    fn of_one_second_all_pods_are_looked_at_once() {
        let says = |word: &str| -> Arc<OverridePolicySpec> {
            let args = json!([{"containerName": "c", "operator": "add", "value": [word]}]);
            Arc::new(serde_json::from_value(json!({"overrideRules": [{"argsOverrider": args}]})).expect("a policy"))
        };
        let template = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
        let groups = ["a", "b"].map(Arc::<str>::from);
        let of =
            |specs: &[Arc<OverridePolicySpec>]| Editions::of("p", specs, &groups, Some(Arc::new(template.clone())));
        let (old, both) = (of(&[says("old")]), of(&["new", "old"].map(says)));
        let edition = |editions: &Editions, group: &str| editions.of_group(group).name.clone();
        assert_ne!(edition(&old, "b"), edition(&both, "b"));
        // Both groups have a pod of the old edition: it is the turn of the first.
        let pod = |group: &Arc<str>| -> Arc<Pod> {
            let object = json!({"metadata": {"name": &**group, "namespace": "d", "uid": &**group, "resourceVersion": "1",
                "labels": {GATE: &**group}, "annotations": {EDITION: edition(&old, group)}}, "spec": {}, "status": {}});
            Arc::new(read(&object, &mut Interner::default()).expect("a pod"))
        };
        let (turns, pods) = (Turns::default(), groups.each_ref().map(pod));
        let mut looks = 0;
        for (generation, template, now, expected) in
            [(1, "t", 0, 1), (1, "t", 0, 1), (1, "t", 1, 2), (1, "u", 1, 3), (2, "t", 1, 4), (2, "t", 1, 4)]
        {
            let all = || {
                looks += 1;
                pods.to_vec()
            };
            let (mut editions, available) = (both.clone(), Availability { min_ready: 0, now });
            let (web, template): (Arc<str>, Arc<str>) = (Arc::from("web"), Arc::from(template));
            turns.hold_lately((&web, &template), &policy(generation), all, available, (&groups, &mut editions));
            assert_eq!(edition(&editions, "a"), edition(&both, "a"));
            assert_eq!(edition(&editions, "b"), edition(&old, "b"), "its turn has not come");
            assert_eq!(looks, expected, "{generation} {template} {now}");
        }
    }

    #[test]
    fn while_pods_are_looked_at_others_may_ask() {
        let policy = policy(1);
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
