//! Sees everything that happens to the pods of a namespace, however short: what polling misses.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::AbortHandle;

/// Watches the pods of a namespace; dropping it ends that.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    watching: AbortHandle,
}

#[derive(Debug, Default)]
struct Seen {
    /// Of the pods that are there, by UID: whether they are ready, and not on their way out.
    ready: BTreeMap<String, bool>,
    fewest_ready: Option<usize>,
    evicted: BTreeSet<String>,
    preempted: BTreeSet<String>,
    /// Pods that were bound to a node, by UID, with their labels at that time.
    bound: BTreeMap<String, BTreeMap<String, String>>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Observer {
    /// Begins with the pods that are there.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let told = seen.clone();
        let watching = tokio::spawn(async move {
            // With pauses after errors: one that comes at once, as when the test ends, would be asked for without end.
            let mut events = pin!(watcher(pods, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                // What ends a watch is not the test's concern: the next one goes on from there.
                if let Ok(event) = event {
                    told.lock().unwrap_or_else(PoisonError::into_inner).take(event);
                }
            }
        });
        Self { seen, watching: watching.abort_handle() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pods were evicted by way of the Eviction API.
    pub fn evicted(&self) -> usize {
        self.seen().evicted.len()
    }

    /// How many pods a scheduler has preempted.
    pub fn preempted(&self) -> usize {
        self.seen().preempted.len()
    }

    /// How many pods were without this label when they were first seen on a node.
    pub fn bound_without(&self, label: &str) -> usize {
        self.seen().bound.values().filter(|labels| !labels.contains_key(label)).count()
    }

    /// The fewest pods that were ready at any time, since [`Self::count_anew`].
    pub fn fewest_ready(&self) -> usize {
        self.seen().fewest_ready.unwrap_or_default()
    }

    /// Waits until this many pods are ready, and counts the fewest from here on.
    pub async fn count_anew(&self, ready: usize) {
        super::eventually(&format!("{ready} pods are seen to be ready"), || async {
            let mut seen = self.seen();
            let now = seen.now_ready();
            seen.fewest_ready = Some(now);
            if now == ready { Ok(()) } else { Err(format!("{now} are")) }
        })
        .await;
    }
}

impl Seen {
    fn now_ready(&self) -> usize {
        self.ready.values().filter(|is_ready| **is_ready).count()
    }

    fn take(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.ready.clear(),
            // Counted when all are known.
            Event::InitApply(pod) => return self.note(&pod),
            Event::InitDone => {}
            Event::Apply(pod) => self.note(&pod),
            Event::Delete(pod) => {
                self.note(&pod);
                self.ready.remove(&pod.uid().unwrap_or_default());
            }
        }
        let now = self.now_ready();
        self.fewest_ready = self.fewest_ready.map(|fewest| fewest.min(now));
    }

    fn note(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut is_ready = false;
        for condition in conditions.filter(|condition| condition.status == "True") {
            match (condition.type_.as_str(), condition.reason.as_deref()) {
                ("Ready", _) => is_ready = true,
                ("DisruptionTarget", Some("EvictionByEvictionAPI")) => _ = self.evicted.insert(uid.clone()),
                ("DisruptionTarget", Some("PreemptionByScheduler")) => _ = self.preempted.insert(uid.clone()),
                _ => {}
            }
        }
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            self.bound.entry(uid.clone()).or_insert_with(|| pod.labels().clone());
        }
        self.ready.insert(uid, is_ready && pod.metadata.deletion_timestamp.is_none());
    }
}
