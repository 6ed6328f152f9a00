//! Which group a new pod will probably get, as far as this replica knows. The leader decides; a pod that was made for another
//! group than it gets is corrected or made anew, so a guess need only be right most of the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_api::group::PropagationPolicySpec;
use dapple_plan::group::division::Division;
use dapple_plan::group::placing::{GATE, probable_group};
use tokio::time::Instant;

use super::owner::{OwnerKey, is_live};
use super::policy::Policy;
use crate::slim::{Key, Pod};

/// A guess counts for so long, whether its pod was seen or not: quotas and other webhooks refuse pods after us.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// A pod that is about to be made.
pub(super) struct NewPod<'p> {
    pub(super) uid: &'p str,
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
    /// By the UID of the pod.
    made: BTreeMap<Arc<str>, Guess>,
    /// How policies divide pods: finding out takes longer than the rest.
    divisions: BTreeMap<Key, KnownDivision>,
}

struct KnownDivision {
    /// The policy's UID and generation.
    said_by: (Arc<str>, Option<i64>),
    division: Division,
}

struct Guess {
    owner: OwnerKey,
    group: Arc<str>,
    at: Instant,
}

impl Guesses {
    /// The group of one more pod of an owner, which has these pods.
    pub(super) fn guess(
        &self,
        policy: &Policy<PropagationPolicySpec>,
        owner: &OwnerKey,
        pods: &[Arc<Pod>],
        NewPod { uid, ordinal, allowed }: NewPod<'_>,
    ) -> Option<Arc<str>> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { made, divisions } = &mut *state;
        made.retain(|_, guess| now.duration_since(guess.at) < KEPT_FOR);
        let said_by = (policy.meta.uid.clone(), policy.generation);
        if divisions.get(&policy.meta.key).is_none_or(|known| known.said_by != said_by) {
            let division = Division::of(&policy.spec)?;
            divisions.insert(policy.meta.key.clone(), KnownDivision { said_by, division });
        }
        let KnownDivision { division, .. } = divisions.get_mut(&policy.meta.key)?;
        let live: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_live(pod)).collect();
        let group_of = |pod: &&Arc<Pod>| {
            let said = pod.labels.get_shared(GATE);
            said.or_else(|| made.get(&pod.meta.uid).map(|guess| guess.group.clone()))
        };
        let is_unseen = |uid: &Arc<str>| !pods.iter().any(|pod| pod.meta.uid == *uid);
        let unseen = made.iter().filter(|(uid, guess)| guess.owner == *owner && is_unseen(uid));
        let groups: Vec<Option<Arc<str>>> =
            live.iter().map(group_of).chain(unseen.map(|(_, guess)| Some(guess.group.clone()))).collect();
        let group = probable_group(division, groups.iter().map(Option::as_deref), ordinal, allowed)?;
        made.insert(Arc::from(uid), Guess { owner: owner.clone(), group: group.clone(), at: now });
        Some(group)
    }
}
