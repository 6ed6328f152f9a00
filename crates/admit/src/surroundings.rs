//! What webhooks know of the cluster beside the object they are asked about: names and labels of nodes, names of groups
//! and pools, and which replacements there are. Kept by watches of metadata, and no more than that is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use dapple_api::group::NodeGroup;
use dapple_api::pool::{NodePool, Subject, YurtAppConfigurationReplacement};
use dapple_control::client::in_words;
use dapple_control::env::{Backoff, Env};
use dapple_control::retry::{Recovery, Retry, is_expired};
use dapple_plan::census::Census;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// A first view that takes longer is worth a line.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// What is known.
#[derive(Debug, Default)]
pub struct Surroundings {
    census: RwLock<Census>,
    groups: RwLock<Names>,
    pools: RwLock<Names>,
    replacements: RwLock<Replacements>,
    unknown: AtomicUsize,
    is_known: Notify,
}

/// Something that a watch keeps.
trait Kept<K>: Send {
    fn put(&mut self, object: &K);
    fn remove(&mut self, namespace: &str, name: &str);
    fn all(&self) -> Vec<(String, String)>;
}

/// Names, which compare without case; those of objects have none.
#[derive(Debug, Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// Whether there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(&name.to_lowercase())
    }
}

/// Replacements, by namespace and name.
type Replacements = BTreeMap<(String, String), Replacement>;

/// What one replacement is about.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// When it was made.
    pub created: Option<Time>,
    /// What it changes.
    pub subject: Subject,
}

impl<K: ResourceExt> Kept<K> for Census {
    fn put(&mut self, object: &K) {
        let labels = object.labels().iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())));
        Census::put(self, &object.name_any(), labels);
    }

    fn remove(&mut self, _: &str, name: &str) {
        Census::remove(self, name);
    }

    fn all(&self) -> Vec<(String, String)> {
        self.names().map(|name| (String::new(), name.to_string())).collect()
    }
}

impl<K: ResourceExt> Kept<K> for Names {
    fn put(&mut self, object: &K) {
        self.0.insert(object.name_any());
    }

    fn remove(&mut self, _: &str, name: &str) {
        self.0.remove(name);
    }

    fn all(&self) -> Vec<(String, String)> {
        self.0.iter().map(|name| (String::new(), name.clone())).collect()
    }
}

impl Kept<DynamicObject> for Replacements {
    fn put(&mut self, object: &DynamicObject) {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        // One that cannot be read keeps nobody else from being known.
        match serde_json::from_value(object.data["subject"].clone()) {
            Ok(subject) => {
                let created = object.metadata.creation_timestamp.clone();
                self.insert(key, Replacement { created, subject });
            }
            Err(_) => _ = BTreeMap::remove(self, &key),
        }
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        BTreeMap::remove(self, &(namespace.to_owned(), name.to_owned()));
    }

    fn all(&self) -> Vec<(String, String)> {
        self.keys().cloned().collect()
    }
}

impl Surroundings {
    /// Starts to watch, until stopped.
    pub fn start(client: &Client, recovery: &Recovery, env: &Env, stop: &CancellationToken) -> Arc<Self> {
        let known = Arc::new(Self { unknown: AtomicUsize::new(4), ..Self::default() });
        let follower = || {
            let retry = Retry::new(BACKOFF, recovery.clone(), env.clone());
            Follower { known: known.clone(), retry, stop: stop.clone() }
        };
        let config = watcher::Config::default;
        let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        tokio::spawn(follower().follow(move || watcher(nodes.clone(), config()), |known| &known.census));
        let groups: Api<PartialObjectMeta<NodeGroup>> = Api::all(client.clone());
        tokio::spawn(follower().follow(move || watcher(groups.clone(), config()), |known| &known.groups));
        let pools: Api<PartialObjectMeta<NodePool>> = Api::all(client.clone());
        tokio::spawn(follower().follow(move || watcher(pools.clone(), config()), |known| &known.pools));
        let kind = ApiResource::erase::<YurtAppConfigurationReplacement>(&());
        let replacements: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        tokio::spawn(follower().follow(move || watcher(replacements.clone(), config()), |known| &known.replacements));
        known
    }

    /// Waits until everything was read once, or is known not to be there, for as long as it takes: who judges without it
    /// takes what another replica would refuse.
    pub async fn read_once(&self) {
        while tokio::time::timeout(READ_WITHIN, self.all_read()).await.is_err() {
            let open = self.unknown.load(Ordering::Acquire);
            warn!(
                open,
                "nodes, groups, pools or replacements could not be read yet; webhooks are not served without them"
            );
        }
    }

    async fn all_read(&self) {
        loop {
            let changed = self.is_known.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.unknown.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Nodes and their labels.
    pub fn census(&self) -> RwLockReadGuard<'_, Census> {
        read(&self.census)
    }

    /// Names of groups.
    pub fn groups(&self) -> RwLockReadGuard<'_, Names> {
        read(&self.groups)
    }

    /// Names of pools.
    pub fn pools(&self) -> RwLockReadGuard<'_, Names> {
        read(&self.pools)
    }

    /// The replacements of a namespace, by name.
    pub fn replacements(&self, namespace: &str) -> Vec<(String, Replacement)> {
        let of_namespace = |(known, _): &(&(String, String), &Replacement)| known.0 == namespace;
        let all = read(&self.replacements);
        all.iter().filter(of_namespace).map(|((_, name), known)| (name.clone(), known.clone())).collect()
    }

    fn note_known(&self) {
        self.unknown.fetch_sub(1, Ordering::AcqRel);
        self.is_known.notify_waiters();
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

struct Follower {
    known: Arc<Surroundings>,
    retry: Retry,
    stop: CancellationToken,
}

impl Follower {
    /// Keeps something by a watch.
    async fn follow<K, T, S>(mut self, watch: impl Fn() -> S, of: impl Fn(&Surroundings) -> &RwLock<T>)
    where
        K: ResourceExt + Clone + Debug,
        T: Kept<K>,
        S: Stream<Item = watcher::Result<Event<K>>>,
    {
        let kept = of(&self.known);
        let (mut is_known, mut listed) = (false, BTreeSet::new());
        let mut events = Box::pin(watch());
        loop {
            let event = tokio::select! { biased; () = self.stop.cancelled() => return, event = events.next() => event };
            match event {
                Some(Ok(event)) => {
                    if !matches!(event, Event::Init) {
                        self.retry.succeed();
                    }
                    let is_whole = matches!(event, Event::InitDone);
                    take_in(kept, event, &mut listed);
                    if is_whole && !std::mem::replace(&mut is_known, true) {
                        self.known.note_known();
                    }
                }
                Some(Err(error)) if is_expired(&error) && self.retry.expire() => events = Box::pin(watch()),
                Some(Err(error)) => {
                    // A kind that is not installed has no objects.
                    if is_missing(&error) && !std::mem::replace(&mut is_known, true) {
                        self.known.note_known();
                    }
                    if !is_missing(&error) {
                        warn!(error = in_words(&error), "a watch of the webhooks broke; trying again");
                    }
                    let pause = self.retry.fail();
                    tokio::select! { biased; () = self.stop.cancelled() => return, () = self.retry.pause(pause) => {} }
                }
                None => return,
            }
        }
    }
}

/// Takes in one event. What a list does not name is gone.
fn take_in<K: ResourceExt, T: Kept<K>>(kept: &RwLock<T>, event: Event<K>, listed: &mut BTreeSet<(String, String)>) {
    let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(key(&object));
            write(kept).put(&object);
        }
        Event::InitDone => {
            let mut kept = write(kept);
            let gone = kept.all().into_iter().filter(|known| !listed.contains(known));
            gone.for_each(|(namespace, name)| kept.remove(&namespace, &name));
            listed.clear();
        }
        Event::Apply(object) => write(kept).put(&object),
        Event::Delete(object) => {
            let (namespace, name) = key(&object);
            write(kept).remove(&namespace, &name);
        }
    }
}

fn is_missing(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status,
        _ => return false,
    };
    status.code == 404
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::api::TypeMeta;

    use super::*;

    type Meta = PartialObjectMeta<NodeGroup>;

    fn group(name: &str) -> Meta {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Meta { types: Some(TypeMeta::default()), metadata, _phantom: std::marker::PhantomData }
    }

    #[test]
    fn what_a_list_does_not_name_is_gone() {
        let (names, mut listed) = (RwLock::new(Names::default()), BTreeSet::new());
        let mut take = |event: Event<Meta>| take_in(&names, event, &mut listed);
        take(Event::Apply(group("beijing")));
        take(Event::Apply(group("shanghai")));
        take(Event::Init);
        take(Event::InitApply(group("beijing")));
        take(Event::InitApply(group("hangzhou")));
        assert!(read(&names).has("shanghai"), "until the list is whole");
        take(Event::InitDone);
        assert!(read(&names).has("BEIJING") && read(&names).has("hangzhou") && !read(&names).has("shanghai"));
        take(Event::Delete(group("hangzhou")));
        assert!(!read(&names).has("hangzhou"));
    }
}
