//! Which group a new pod will probably get, as far as this replica knows. The leader decides; a pod that was made for another
//! group than it gets is corrected or made anew, so a guess need only be right most of the time.
//!
//! A new pod has no UID yet, so a guess goes by the question that the API server asked, which is noted on the pod. A guess counts
//! until its pod is seen; from then on the pod itself says which group it was made for, to every replica.
//!
//! Pods are counted as they are told, so that a guess costs the same however many pods its owner has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_plan::group::division::Division;
use dapple_plan::group::gate::{MADE_FOR, group_made_for, made_for};
use dapple_plan::group::placing::{GATE, probable_group};
use tokio::time::Instant;

use super::owner::{OwnerKey, is_live};
use super::policy::Policy;
use crate::slim::{Key, Pod};

/// How so many policies divide pods is known at once.
const MOST_DIVISIONS: usize = 4_096;
/// A guess whose pod is not seen counts for so long: quotas and other webhooks refuse pods after us.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// A pod that is about to be made.
#[derive(Clone, Copy, Default)]
pub(super) struct NewPod<'p> {
    /// The UID of the question about it; none if nothing is to be remembered, since it will not be made.
    pub(super) question: Option<&'p str>,
    /// Its number, if its owner numbers its pods.
    pub(super) ordinal: Option<usize>,
    /// The only groups that its volumes allow, by their places in the policy.
    pub(super) allowed: Option<&'p BTreeSet<usize>>,
}

/// The last guesses.
#[derive(Default)]
pub(super) struct Guesses {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those whose pods were not seen yet, by owner, oldest first.
    unseen: BTreeMap<OwnerKey, VecDeque<Guess>>,
    /// Whose guesses are the next to be given up, and when.
    ending: VecDeque<(Instant, OwnerKey)>,
    /// How many live pods of an owner there are by the group that they say, or were made for.
    there: BTreeMap<OwnerKey, BTreeMap<Arc<str>, usize>>,
    /// How policies divide pods: finding out takes longer than the rest.
    divisions: BTreeMap<Key, KnownDivision>,
}

struct KnownDivision {
    /// The policy's UID and generation.
    said_by: (Arc<str>, Option<i64>),
    division: Division,
}

struct Guess {
    /// What its pod will say.
    made_for: Arc<str>,
    at: Instant,
}

impl Guesses {
    /// A pod came, changed or went. One that is there speaks for itself.
    pub(super) fn pod_changed(&self, old: Option<&Pod>, new: Option<&Pod>) {
        let said = [old, new].map(|pod| pod.filter(|pod| is_live(pod)).and_then(said_by));
        let seen = new.and_then(|pod| Some((OwnerKey::of(pod), pod.annotations.get_shared(MADE_FOR)?)));
        if said[0] == said[1] && seen.is_none() {
            return;
        }
        let mut state = self.lock();
        let [before, after] = said;
        before.into_iter().for_each(|(owner, group)| state.leaves(&owner, &group));
        if let Some((owner, group)) = after {
            *state.there.entry(owner).or_default().entry(group).or_default() += 1;
        }
        if let Some((owner, made_for)) = seen
            && let Some(own) = state.unseen.get_mut(&owner)
        {
            own.retain(|guess| guess.made_for != made_for);
        }
    }

    /// The group of one more pod of an owner.
    pub(super) fn guess(
        &self,
        policy: &Policy<PropagationPolicySpec>,
        owner: &OwnerKey,
        NewPod { question, ordinal, allowed }: NewPod<'_>,
    ) -> Option<Arc<str>> {
        let now = Instant::now();
        let mut state = self.lock();
        state.give_up(now);
        let State { unseen, ending, divisions, there } = &mut *state;
        let said_by = (policy.meta.uid.clone(), policy.generation);
        if divisions.get(&policy.meta.key).is_none_or(|known| known.said_by != said_by) {
            let division = Division::of(&policy.spec)?;
            if divisions.len() >= MOST_DIVISIONS {
                divisions.pop_first();
            }
            divisions.insert(policy.meta.key.clone(), KnownDivision { said_by, division });
        }
        let KnownDivision { division, .. } = divisions.get_mut(&policy.meta.key)?;
        let there = there.get(owner).into_iter().flatten().map(|(group, pods)| (Some(&**group), *pods));
        let coming = unseen.get(owner).into_iter().flatten().map(|guess| (Some(group_made_for(&guess.made_for)), 1));
        let group = probable_group(division, there.chain(coming), ordinal, allowed)?;
        if let Some(question) = question {
            let made_for = Arc::from(made_for(&group, question));
            unseen.entry(owner.clone()).or_default().push_back(Guess { made_for, at: now });
            ending.push_back((now, owner.clone()));
        }
        Some(group)
    }

    /// A pod is not made for a group after all.
    pub(super) fn withdraw(&self, owner: &OwnerKey, question: &str) {
        if let Some(own) = self.lock().unseen.get_mut(owner) {
            own.retain(|guess| *guess.made_for != made_for(group_made_for(&guess.made_for), question));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leaves(&mut self, owner: &OwnerKey, group: &Arc<str>) {
        let Some(groups) = self.there.get_mut(owner) else { return };
        if let Some(pods) = groups.get_mut(group) {
            *pods = pods.saturating_sub(1);
        }
        groups.retain(|_, pods| *pods > 0);
        if groups.is_empty() {
            self.there.remove(owner);
        }
    }

    /// Pods that have not come by now do not come.
    fn give_up(&mut self, now: Instant) {
        let is_over = |at: Instant| now.duration_since(at) >= KEPT_FOR;
        while let Some((_, owner)) = self.ending.pop_front_if(|(at, _)| is_over(*at)) {
            let Some(own) = self.unseen.get_mut(&owner) else { continue };
            while own.pop_front_if(|guess| is_over(guess.at)).is_some() {}
            if own.is_empty() {
                self.unseen.remove(&owner);
            }
        }
    }
}

/// The owner of a pod, and the group that it says, or was made for.
fn said_by(pod: &Pod) -> Option<(OwnerKey, Arc<str>)> {
    let made_for = || pod.annotations.get(MADE_FOR).map(|said| Arc::from(group_made_for(said)));
    let group = pod.labels.get_shared(GATE).or_else(made_for)?;
    Some((OwnerKey::of(pod), group))
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use serde_json::json;

    use super::*;
    use crate::slim::{Interner, read};

    fn policy(groups: usize) -> Policy<PropagationPolicySpec> {
        let weights: Vec<_> =
            (0..groups).map(|number| json!({"nodeGroupNames": [format!("g{number}")], "weight": 1})).collect();
        let object = json!({"metadata": {"name": "spread", "namespace": "d", "uid": "p", "resourceVersion": "1"},
            "spec": {"propagationStrategy": "StaticWeight", "staticWeightList": weights}});
        read(&object, &mut Interner::default()).expect("a policy")
    }

    fn owner() -> OwnerKey {
        OwnerKey::by(Arc::from("d"), Some(Arc::from("o")), |_| None)
    }

    fn pod(name: &str, made_for: &str) -> Pod {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": true});
        let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1",
            "ownerReferences": [owner], "annotations": {MADE_FOR: made_for}},
            "spec": {"schedulingGates": [{"name": GATE}]}, "status": {}});
        read(&object, &mut Interner::default()).expect("a pod")
    }

    fn counts(groups: impl Iterator<Item = Arc<str>>) -> BTreeMap<Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        groups.for_each(|group| *counts.entry(group).or_default() += 1);
        counts
    }

    fn each(groups: usize, pods: usize) -> BTreeMap<Arc<str>, usize> {
        (0..groups).map(|number| Arc::from(format!("g{number}"))).zip(repeat_n(pods, groups)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_a_burst_are_divided_before_any_of_them_is_seen() {
        let (guesses, policy) = (Guesses::default(), policy(10));
        let guess = |number: usize| {
            let question = format!("{number:08}-x");
            guesses.guess(&policy, &owner(), NewPod { question: Some(&question), ..NewPod::default() })
        };
        assert_eq!(counts((0..20).filter_map(guess)), each(10, 2));
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(counts((20..30).filter_map(guess)), each(10, 1), "the others have not come");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_counts_once_whether_it_was_seen_or_not() {
        let (guesses, policy) = (Guesses::default(), policy(2));
        let new = |question: &'static str| NewPod { question: Some(question), ..NewPod::default() };
        let guess = |question| guesses.guess(&policy, &owner(), new(question)).unwrap();
        let comes = |name: &str, made_for: &str| guesses.pod_changed(None, Some(&pod(name, made_for)));
        assert_eq!(&*guess("aaaaaaaa-1"), "g0");
        comes("web-a", &made_for("g0", "aaaaaaaa-1"));
        assert_eq!(&*guess("bbbbbbbb-1"), "g1");
        assert_eq!(&*guess("cccccccc-1"), "g0", "one of each: one is there, and one is coming");
        // One that is refused after us is not waited for.
        guesses.withdraw(&owner(), "cccccccc-1");
        assert_eq!(&*guess("dddddddd-1"), "g0");
        // Another replica has made this one.
        comes("web-b", &made_for("g1", "bbbbbbbb-1"));
        comes("web-e", "g1/eeeeeeee");
        assert_eq!(&*guess("ffffffff-1"), "g0", "one of each and one of g1 are there, and one of g0 is coming");
        // What is gone does not count, and nothing is left of it.
        for (name, said) in [("web-a", "g0/aaaaaaaa"), ("web-b", "g1/bbbbbbbb"), ("web-e", "g1/eeeeeeee")] {
            guesses.pod_changed(Some(&pod(name, said)), None);
        }
        assert!(guesses.lock().there.is_empty());
    }

    #[test]
    fn of_a_dry_run_nothing_is_remembered() {
        let (guesses, policy) = (Guesses::default(), policy(2));
        for _ in 0..3 {
            let group = guesses.guess(&policy, &owner(), NewPod::default());
            assert_eq!(group.as_deref(), Some("g0"));
        }
    }
}
