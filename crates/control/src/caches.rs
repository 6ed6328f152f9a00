//! One watch and one slim store for each kind, shared by all who read it. A kind that is read in two slim forms has one of each.
//!
//! Invariants:
//! - There is one watch of a kind in one slim form at most. It begins with the first who opens the kind, and ends with the last.
//! - A subscriber is told everything that is there when it comes, then every change, in order, none lost and none twice.
//! - Subscribers are told apart from each other and from the watch: one that is slow or panics holds up nobody else.
//! - A kind that is not installed is not known to have no objects: [`Subscription::is_known`] is false.

pub mod store;
mod watch;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dapple_plan::mutant::{Mutant, is_on};
use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::error;

pub use watch::WatchContext;

use crate::observed::{KindInfo, KindWire, Observed, Wire};
use crate::signal::Signal;
use crate::slim::{Cached, Index, Key};
use store::{Change, Position, Store};

/// The caches of a manager.
#[derive(Clone)]
pub struct Caches(Arc<Registry>);

struct Registry {
    watches: WatchContext,
    /// By slim form and kind: a `Weak<Cache<T>>`.
    open: Mutex<BTreeMap<(TypeId, KindInfo), Box<dyn Any + Send>>>,
    /// Names of kinds that are known only at run time, each kept once for as long as the process runs.
    names: Mutex<BTreeSet<&'static str>>,
}

/// A kind that is watched for as long as somebody has it open.
struct Cache<T: Cached> {
    kind: KindInfo,
    /// What logs and metrics call it.
    name: Arc<str>,
    store: Arc<Store<T>>,
    subscribers: Mutex<Subscribers<T>>,
    _watch: DropGuard,
}

struct Subscribers<T> {
    next: u64,
    /// Whether the API server said last that it does not serve the kind.
    is_missing: bool,
    all: BTreeMap<u64, UnboundedSender<Delivery<T>>>,
}

/// What a subscriber is told.
enum Delivery<T> {
    /// Something changed; and how far the view has come with it.
    Change(Change<T>, Position),
    /// The view is whole, of a list that was begun in the term before this number.
    Synced(u64, Position),
    /// The API server does not serve the kind.
    Missing,
}

impl Caches {
    /// Nothing is watched yet.
    pub fn new(watches: WatchContext) -> Self {
        Self(Arc::new(Registry { watches, open: Mutex::default(), names: Mutex::default() }))
    }

    /// What asks the API server.
    pub fn client(&self) -> Client {
        self.0.watches.client.clone()
    }

    /// A kind that is known only at run time. There are few, and their names stay.
    pub fn kind(&self, group: &str, version: &str, kind: &str, plural: &str) -> KindInfo {
        let mut names = lock(&self.0.names);
        let mut name = |text: &str| {
            names.get(text).copied().unwrap_or_else(|| {
                let kept: &'static str = Box::leak(text.into());
                names.insert(kept);
                kept
            })
        };
        KindInfo { group: name(group), version: name(version), kind: name(kind), plural: name(plural) }
    }

    /// Opens a kind in all namespaces. The first who does starts its watch.
    pub fn open<T: Cached<Wire: KindWire>>(&self) -> Opened<T> {
        self.open_named(T::Wire::KIND, T::Wire::KIND.kind.into())
    }

    /// Opens one of several kinds that have the same slim form. Logs and metrics name it with its group, since kinds of several
    /// groups may have one name, and with the label that its objects must have, since others may read all of the kind.
    pub fn open_kind<T: Cached>(&self, kind: KindInfo) -> Opened<T> {
        let name = match T::Wire::LABELLED {
            Some(label) => format!("{} with {label}", kind.qualified()),
            None => kind.qualified(),
        };
        self.open_named(kind, name.into())
    }

    fn open_named<T: Cached>(&self, kind: KindInfo, name: Arc<str>) -> Opened<T> {
        let mut open = lock(&self.0.open);
        let form = (TypeId::of::<T>(), kind);
        let known = open.get(&form).and_then(|cache| cache.downcast_ref::<Weak<Cache<T>>>());
        if let Some(cache) = known.and_then(Weak::upgrade) {
            return Opened(cache);
        }
        let stop = self.0.watches.stop.child_token();
        let cache = Arc::new(Cache {
            kind,
            name,
            store: Arc::new(Store::default()),
            subscribers: Mutex::new(Subscribers { next: 0, is_missing: false, all: BTreeMap::new() }),
            _watch: stop.clone().drop_guard(),
        });
        open.insert(form, Box::new(Arc::downgrade(&cache)));
        self.0.watches.start(&cache, stop);
        Opened(cache)
    }
}

impl<T: Cached> Cache<T> {
    /// Takes in an event of the watch, and has everybody told what it changed.
    fn take_in(&self, event: Event<Observed<T::Wire>>) -> Vec<Change<T>> {
        // Held over both: who comes meanwhile finds the change in the store, or is told of it.
        let mut subscribers = lock(&self.subscribers);
        let is_whole = matches!(event, Event::InitDone);
        let changes = self.store.apply(event);
        let position = self.store.position();
        for change in &changes {
            subscribers.tell(|| Delivery::Change(change.clone(), position));
        }
        if is_whole {
            subscribers.is_missing = false;
            subscribers.tell(|| Delivery::Synced(self.store.synced(), position));
        }
        changes
    }

    /// The API server does not serve the kind.
    fn note_missing(&self) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.is_missing = true;
        subscribers.tell(|| Delivery::Missing);
    }

    fn subscribe(&self, sender: UnboundedSender<Delivery<T>>) -> u64 {
        let mut subscribers = lock(&self.subscribers);
        let is_late = !self.store.is_synced() && is_on(Mutant::LateSubscriberMisses);
        // The watch waits for the subscribers' lock: the store does not move on meanwhile.
        let position = self.store.position();
        for object in self.store.all().into_iter().filter(|_| !is_late) {
            let (key, new) = (object.meta().key.clone(), Some(object));
            // One that has ended already is told no more.
            let change = Change::Object { key, old: None, new, listed: true };
            let _ = sender.send(Delivery::Change(change, position));
        }
        // What was known of a kind before it went is no view of it.
        if subscribers.is_missing {
            let _ = sender.send(Delivery::Missing);
        } else if self.store.is_synced() {
            let _ = sender.send(Delivery::Synced(self.store.synced(), position));
        }
        subscribers.next += 1;
        let number = subscribers.next;
        subscribers.all.insert(number, sender);
        number
    }
}

impl<T> Subscribers<T> {
    fn tell(&self, delivery: impl Fn() -> Delivery<T>) {
        for subscriber in self.all.values() {
            // One that has ended is about to leave.
            let _ = subscriber.send(delivery());
        }
    }
}

/// A kind that was opened, to be subscribed to.
pub struct Opened<T: Cached>(Arc<Cache<T>>);

impl<T: Cached> Opened<T> {
    /// The store, for what is told of changes of other kinds. It is kept for as long as the subscription.
    pub fn store(&self) -> Arc<Store<T>> {
        self.0.store.clone()
    }

    /// Has these indexes kept: what is found by others is found by a look at every object.
    pub fn indexed_by<const COUNT: usize>(self, indexes: [Index<T>; COUNT]) -> Self {
        indexes.into_iter().for_each(|index| self.0.store.declare(index));
        self
    }

    /// Has `on_change` told what is there, then of every change, in a task of its own. If it panics, `life` is cancelled:
    /// what it is for has to begin anew.
    pub fn subscribe(
        self,
        life: &CancellationToken,
        on_change: impl FnMut(&Change<T>) + Send + 'static,
    ) -> Subscription<T> {
        let (sender, receiver) = unbounded_channel();
        let told = Told::default();
        tokio::spawn(deliver(self.0.name.clone(), receiver, told.clone(), life.clone(), on_change));
        Subscription { number: self.0.subscribe(sender), cache: self.0, told }
    }
}

/// How far a subscriber is.
#[derive(Clone, Default)]
struct Told {
    /// The term in which the last list was begun whose outcome it was told, and one more.
    synced: Signal,
    is_missing: Signal,
    /// How far the view had come with the last that it was told.
    position: Arc<Mutex<Position>>,
}

async fn deliver<T: Cached>(
    kind: Arc<str>,
    mut deliveries: UnboundedReceiver<Delivery<T>>,
    told: Told,
    life: CancellationToken,
    mut on_change: impl FnMut(&Change<T>),
) {
    while let Some(delivery) = deliveries.recv().await {
        match delivery {
            Delivery::Change(change, position) => {
                if catch_unwind(AssertUnwindSafe(|| on_change(&change))).is_err() {
                    error!(kind = &*kind, "a subscriber panicked; what it is for begins anew");
                    life.cancel();
                    return;
                }
                *lock(&told.position) = position;
            }
            Delivery::Synced(synced, position) => {
                *lock(&told.position) = position;
                told.is_missing.set(0);
                told.synced.set(synced);
            }
            Delivery::Missing => _ = told.is_missing.set(1),
        }
    }
}

/// A subscription: the store, which may know more than the subscriber has been told yet. Dropping it ends it.
pub struct Subscription<T: Cached> {
    cache: Arc<Cache<T>>,
    number: u64,
    told: Told,
}

impl<T: Cached> Subscription<T> {
    /// Waits until it was told a full view that was begun in this term, or later.
    pub async fn synced(&self, term: u64) {
        self.told.synced.until(|synced| synced > term).await;
    }

    /// Waits until it was told a full view, or that the kind is not installed.
    pub async fn settled(&self) {
        self.synced_or_missing(0).await;
    }

    /// Whether it is known which objects there are: not before the first full view, and not while the kind is not
    /// installed.
    pub fn is_known(&self) -> bool {
        self.told.synced.get() != 0 && self.told.is_missing.get() == 0
    }

    /// Whether it was told a full view that was begun in this term, or later.
    pub fn is_synced_in(&self, term: u64) -> bool {
        self.told.synced.get() > term
    }

    /// Whether it was told last that the kind is not installed.
    pub fn is_missing(&self) -> bool {
        self.told.is_missing.get() != 0
    }

    /// Waits until it was told a full view that was begun in this term, or later, or that the kind is not installed.
    pub async fn synced_or_missing(&self, term: u64) {
        tokio::select! {
            biased;
            () = self.synced(term) => {}
            _ = self.told.is_missing.until(|is_missing| is_missing != 0) => {}
        }
    }

    /// Whether it was told our own last write to this object, whichever family made it. Decide nothing about it before.
    pub fn caught_up(&self, key: &Key) -> bool {
        self.cache.store.includes_write(key, *lock(&self.told.position))
    }
}

impl<T: Cached> Deref for Subscription<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.cache.store
    }
}

impl<T: Cached> Drop for Subscription<T> {
    fn drop(&mut self) {
        lock(&self.cache.subscribers).all.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "caches/tests.rs"]
mod tests;
