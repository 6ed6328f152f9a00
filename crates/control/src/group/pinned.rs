//! Pods that are not where their seats are, and the groups that their volumes allow: volumes come before seats. Claims are read once
//! of a pod that has a node: while it uses them, they stay bound as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_plan::group::division::Division;
use dapple_plan::group::repair::{PodState, misplaced};
use dapple_plan::group::volumes::{Claims, Reach};

use super::repair::Repairs;
use super::volumes::Volumes;
use crate::caches::store::Store;
use crate::slim::{Key, Pod};

/// The claims of so many pods are read in a look; those of others in the next ones.
const MOST_READ: usize = 50;

/// What is known of such pods: repair finds it out, and whoever tells how pods stand goes by it.
#[derive(Default)]
pub(super) struct Pinned(Mutex<BTreeMap<Key, Known>>);

struct Known {
    /// Of the pod.
    uid: Arc<str>,
    claims: Arc<Claims>,
    /// The listed groups that they allow; none if they allow all.
    allowed: Option<BTreeSet<Arc<str>>>,
}

impl Pinned {
    /// The groups that the volumes of a pod allow, by their places in the list; none if they allow all, or that is not known.
    pub(super) fn reach(&self, pod: &Pod, groups: &[Arc<str>]) -> Option<BTreeSet<usize>> {
        let known = self.lock();
        let allowed = known.get(&pod.meta.key).filter(|known| known.uid == pod.meta.uid)?.allowed.as_ref()?;
        Some((0..groups.len()).filter(|group| allowed.contains(&groups[*group])).collect())
    }

    fn claims(&self, pod: &Pod) -> Option<Arc<Claims>> {
        let known = self.lock();
        known.get(&pod.meta.key).filter(|known| known.uid == pod.meta.uid).map(|known| known.claims.clone())
    }

    /// Keeps what was read of some pods. What is known of pods that are gone is dropped.
    fn keep(&self, pods: &Store<Pod>, read: &[Arc<Pod>], claims: Claims) {
        let claims = Arc::new(claims);
        let mut known = self.lock();
        known.retain(|key, known| pods.get(key).is_some_and(|pod| pod.meta.uid == known.uid));
        for pod in read {
            let found = Known { uid: pod.meta.uid.clone(), claims: claims.clone(), allowed: None };
            known.insert(pod.meta.key.clone(), found);
        }
    }

    fn allow(&self, pod: &Pod, allowed: Option<BTreeSet<Arc<str>>>) {
        if let Some(known) = self.lock().get_mut(&pod.meta.key).filter(|known| known.uid == pod.meta.uid) {
            known.allowed = allowed;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repairs {
    /// Has pods say which groups their volumes allow, those that are not where their seats are. Returns whether that is known of all.
    pub(super) async fn pin(
        &self,
        (division, states): (&mut Division, &mut [PodState]),
        pods: &[Arc<Pod>],
    ) -> Result<bool, kube::Error> {
        let mut elsewhere: Vec<usize> = misplaced(division, states).into_iter().map(|known| known.pod).collect();
        elsewhere.retain(|pod| pods[*pod].is_bound && !pods[*pod].claims.is_empty());
        let Some(first) = elsewhere.first() else { return Ok(true) };
        let volumes = Volumes { client: &self.client, nodes: &self.stores.nodes, groups: &self.stores.groups };
        let pinned = &self.counted.pinned;
        let unread = elsewhere.iter().map(|pod| &pods[*pod]).filter(|pod| pinned.claims(pod).is_none());
        let unread: Vec<Arc<Pod>> = unread.cloned().collect();
        let (read, left) = unread.split_at(unread.len().min(MOST_READ));
        if !read.is_empty() {
            let claims: BTreeSet<Arc<str>> = read.iter().flat_map(|pod| pod.claims.iter().cloned()).collect();
            let claims = volumes.ask(&pods[*first].meta.key.namespace, claims).await?;
            pinned.keep(&self.stores.pods, read, claims);
        }
        let groups = division.groups().to_vec();
        for number in elsewhere {
            let pod = &pods[number];
            let Some(claims) = pinned.claims(pod) else { continue };
            let allowed = match volumes.reach(&pod.claims, &claims, &groups) {
                Reach::Only(allowed) => Some(allowed),
                Reach::All | Reach::Unbound(_) => None,
            };
            let named = allowed.as_ref().map(|allowed| allowed.iter().map(|group| groups[*group].clone()).collect());
            pinned.allow(pod, named);
            states[number].reach = allowed;
        }
        Ok(left.is_empty())
    }
}
