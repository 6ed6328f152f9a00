//! A slim cache of one kind, with indexes, kept by a watch.
//!
//! Invariants:
//! - Nothing reads a store before its first full list, and nothing is decided in a term of leading before a full list
//!   that was begun in it: [`Store::synced`] says when.
//! - A watch event never takes an object back in time; only a list, which is a quorum read, may.
//! - An object that cannot be read never changes the view: what was known of it stays, and it is listed by name in
//!   [`Store::malformed`]. Forgetting it would look like a deletion.
//! - [`Store::caught_up`] is false from our own write to an object until the view includes that write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::observed::{Observed, Wire};
use crate::signal::Signal;
use crate::slim::Interner;

/// Namespace and name. The namespace of a cluster-wide object is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, empty for cluster-wide objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key made of plain strings.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// What names one version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// UID: the same name after a deletion is another object.
    pub uid: Arc<str>,
    /// `resourceVersion`, which Kubernetes guarantees to be an increasing number.
    pub version: u64,
}

impl Meta {
    fn read(meta: &ObjectMeta, strings: &mut Interner) -> Result<Self, String> {
        let version = meta.resource_version.as_deref().unwrap_or_default();
        Ok(Self {
            key: Key {
                namespace: strings.share(meta.namespace.as_deref().unwrap_or_default()),
                name: Arc::from(meta.name.as_deref().unwrap_or_default()),
            },
            uid: Arc::from(meta.uid.as_deref().unwrap_or_default()),
            version: version.parse().map_err(|_| format!("metadata.resourceVersion {version:?} is not a number"))?,
        })
    }
}

/// The ways to find objects besides their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Index {
    /// By the UID of the controlling owner.
    Owner,
    /// By the name of the node.
    Node,
}

/// A kind that can be cached.
pub trait Cached: Send + Sync + Sized + 'static {
    /// What is read off the wire.
    type Wire: Wire;
    /// Makes the slim form, sharing its strings.
    fn slim(meta: Meta, wire: Self::Wire, strings: &mut Interner) -> Self;
    /// What names it.
    fn meta(&self) -> &Meta;
    /// Tells every index entry it wants to be found under.
    fn index(&self, add: &mut dyn FnMut(Index, Arc<str>));
}

/// Reads one object as a cache would.
pub fn read<T: Cached>(object: &Value, strings: &mut Interner) -> Result<T, String> {
    let observed: Observed<T::Wire> = serde_json::from_str(&object.to_string()).map_err(|error| error.to_string())?;
    let meta = Meta::read(kube::Resource::meta(&observed), strings)?;
    Ok(T::slim(meta, observed.object?, strings))
}

/// What one watch event did to the view.
#[derive(Debug)]
pub enum Change<T> {
    /// An object came, changed or went.
    Object {
        /// Its key.
        key: Key,
        /// What was known before.
        old: Option<Arc<T>>,
        /// What is known now; `None` if it is gone.
        new: Option<Arc<T>>,
        /// Whether a list told it, rather than an event.
        listed: bool,
    },
    /// An object could not be read and was passed over.
    Malformed {
        /// Its key.
        key: Key,
        /// Its UID, for events about it.
        uid: String,
        /// Why.
        reason: String,
    },
}

/// A slim cache of one kind.
pub struct Store<T> {
    state: RwLock<State<T>>,
    /// The term in which the last full list was begun, and one more; 0 before the first.
    synced: Signal,
}

struct State<T> {
    objects: BTreeMap<Key, Arc<T>>,
    index: BTreeSet<(Index, Arc<str>, Key)>,
    malformed: BTreeMap<Key, String>,
    strings: Interner,
    /// The newest version up to which the view is complete.
    position: u64,
    /// The list under way, if there is one.
    listing: Option<Listing>,
    lists_begun: u64,
    lists_done: u64,
    /// The term in which lists are begun.
    term: u64,
    /// What is to be signalled once everybody knows what the last list changed.
    synced: u64,
    /// Our own writes that the view does not include yet.
    writes: BTreeMap<Key, Write>,
}

/// A list under way. It tells objects by name, not by age: its newest version counts only when it is done.
#[derive(Default)]
struct Listing {
    keys: BTreeSet<Key>,
    newest: u64,
}

#[derive(Clone, Copy)]
struct Write {
    version: u64,
    /// The number of lists begun when it was made. A list begun later is a quorum read, so it includes the write.
    lists_begun: u64,
}

impl<T: Cached> Default for Store<T> {
    fn default() -> Self {
        let state = State {
            objects: BTreeMap::new(),
            index: BTreeSet::new(),
            malformed: BTreeMap::new(),
            strings: Interner::default(),
            position: 0,
            listing: None,
            lists_begun: 0,
            lists_done: 0,
            term: 0,
            synced: 0,
            writes: BTreeMap::new(),
        };
        Self { state: RwLock::new(state), synced: Signal::default() }
    }
}

impl<T: Cached> Store<T> {
    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in one watch event, and tells what it changed.
    pub fn apply(&self, event: Event<Observed<T::Wire>>) -> Vec<Change<T>> {
        let mut state = self.write();
        match event {
            Event::Init => {
                state.lists_begun += 1;
                state.listing = Some(Listing::default());
                Vec::new()
            }
            Event::InitApply(observed) => state.put(observed, true).into_iter().collect(),
            Event::Apply(observed) => state.put(observed, false).into_iter().collect(),
            Event::Delete(observed) => state.delete(&observed).into_iter().collect(),
            Event::InitDone => {
                let gone = state.finish_list();
                state.synced = state.term + 1;
                gone
            }
        }
    }

    /// The object with this key.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.read().objects.get(key).cloned()
    }

    /// Every object, by key.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read().objects.values().cloned().collect()
    }

    /// Visits every object, by key, without copying the list of them.
    pub fn for_each(&self, mut visit: impl FnMut(&T)) {
        for object in self.read().objects.values() {
            visit(object);
        }
    }

    /// The objects of one namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let state = self.read();
        let in_it = state.objects.range(Key::new(namespace, "")..);
        in_it.take_while(|(key, _)| key.namespace.as_ref() == namespace).map(|(_, object)| object.clone()).collect()
    }

    /// The objects under one index entry, by key.
    pub fn find(&self, index: Index, value: &str) -> Vec<Arc<T>> {
        let state = self.read();
        let entries = state.index.range((index, Arc::from(value), Key::new("", ""))..);
        entries
            .take_while(|(known, entry, _)| *known == index && entry.as_ref() == value)
            .filter_map(|(_, _, key)| state.objects.get(key).cloned())
            .collect()
    }

    /// The objects that cannot be read, with the reason for each.
    pub fn malformed(&self) -> BTreeMap<Key, String> {
        self.read().malformed.clone()
    }

    /// Whether the last that was seen of this object could not be read. What is known of it is old: decide nothing.
    pub fn is_malformed(&self, key: &Key) -> bool {
        self.read().malformed.contains_key(key)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether the store holds no object.
    pub fn is_empty(&self) -> bool {
        self.read().objects.is_empty()
    }

    /// Whether the first full view is there.
    pub fn is_synced(&self) -> bool {
        self.synced.get() != 0
    }

    /// Signals a full view, if there is one. Called after those have been told who are told of changes.
    pub fn note_synced(&self) {
        let synced = self.read().synced;
        self.synced.set(synced);
    }

    /// Waits for a full view that was begun in this term, or later.
    pub async fn synced(&self, term: u64) {
        self.synced.until(|synced| synced > term).await;
    }

    /// Everything is listed anew from here on, in this term: what of the list before is still to come is not taken in.
    pub fn begin(&self, term: u64) {
        let mut state = self.write();
        state.term = term;
        state.listing = None;
    }

    /// Remembers that we wrote this version of an object.
    pub fn wrote(&self, key: &Key, version: u64) {
        let mut state = self.write();
        let lists_begun = state.lists_begun;
        state.writes.insert(key.clone(), Write { version, lists_begun });
    }

    /// Whether the view includes our own last write to this object. Decide nothing about it before.
    pub fn caught_up(&self, key: &Key) -> bool {
        let Some(write) = self.read().writes.get(key).copied() else { return true };
        let mut state = self.write();
        let seen = state.position >= write.version || state.lists_done > write.lists_begun;
        if seen {
            state.writes.remove(key);
        }
        seen
    }
}

impl<T: Cached> State<T> {
    fn put(&mut self, observed: Observed<T::Wire>, listing: bool) -> Option<Change<T>> {
        let uid = observed.uid().unwrap_or_default();
        let name = Key::new(&observed.namespace().unwrap_or_default(), &observed.name_any());
        let meta = Meta::read(kube::Resource::meta(&observed), &mut self.strings);
        if let Some(list) = self.listing.as_mut().filter(|_| listing) {
            list.keys.insert(meta.as_ref().map_or_else(|_| name.clone(), |meta| meta.key.clone()));
            list.newest = list.newest.max(meta.as_ref().map_or(0, |meta| meta.version));
        }
        if let Ok(meta) = meta.as_ref()
            && !listing
        {
            self.position = self.position.max(meta.version);
        }
        let (meta, wire) = match (meta, observed.object) {
            (Ok(meta), Ok(wire)) => (meta, wire),
            (Err(reason), _) | (Ok(_), Err(reason)) => {
                self.malformed.insert(name.clone(), reason.clone());
                return Some(Change::Malformed { key: name, uid, reason });
            }
        };
        if !listing && self.objects.get(&meta.key).is_some_and(|known| known.meta().version > meta.version) {
            return None;
        }
        self.malformed.remove(&meta.key);
        let key = meta.key.clone();
        let new = Arc::new(T::slim(meta, wire, &mut self.strings));
        let old = self.objects.insert(key.clone(), new.clone());
        self.reindex(&key, old.as_deref(), Some(&new));
        Some(Change::Object { key, old, new: Some(new), listed: listing })
    }

    fn delete(&mut self, observed: &Observed<T::Wire>) -> Option<Change<T>> {
        let meta = Meta::read(kube::Resource::meta(observed), &mut self.strings).ok()?;
        self.position = self.position.max(meta.version);
        self.malformed.remove(&meta.key);
        self.forget(meta.key, false)
    }

    fn forget(&mut self, key: Key, listed: bool) -> Option<Change<T>> {
        let old = self.objects.remove(&key)?;
        self.reindex(&key, Some(&old), None);
        Some(Change::Object { key, old: Some(old), new: None, listed })
    }

    /// Ends a list: what it did not name is gone.
    fn finish_list(&mut self) -> Vec<Change<T>> {
        self.lists_done = self.lists_begun;
        let Some(Listing { keys, newest }) = self.listing.take() else { return Vec::new() };
        // Also back: after a restored backup, versions start again from an older one.
        self.position = newest;
        self.malformed.retain(|key, _| keys.contains(key));
        let gone: Vec<Key> = self.objects.keys().filter(|key| !keys.contains(key)).cloned().collect();
        gone.into_iter().filter_map(|key| self.forget(key, true)).collect()
    }

    fn reindex(&mut self, key: &Key, old: Option<&T>, new: Option<&T>) {
        if let Some(old) = old {
            old.index(&mut |index, value| {
                self.index.remove(&(index, value, key.clone()));
            });
        }
        if let Some(new) = new {
            new.index(&mut |index, value| {
                self.index.insert((index, value, key.clone()));
            });
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
