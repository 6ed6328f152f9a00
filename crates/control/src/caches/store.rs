//! A slim cache of one kind, with indexes, kept by a watch.
//!
//! Invariants:
//! - Nothing reads a store before its first full list, and nothing is decided in a term of leading before a full list
//!   that was begun in it: [`Subscription::synced`](super::Subscription::synced) says when.
//! - A watch event never takes an object back in time; only a list, which is a quorum read, may.
//! - An object that cannot be read never changes the view: what was known of it stays, and it is listed by name in
//!   [`Store::malformed`]. Forgetting it would look like a deletion.
//! - [`Store::caught_up`] is false from our own write to an object until the view includes that write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use crate::observed::Observed;
use crate::slim::{Cached, Index, Interner, Key, Meta};

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

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Object { key, old, new, listed } => {
                Self::Object { key: key.clone(), old: old.clone(), new: new.clone(), listed: *listed }
            }
            Self::Malformed { key, uid, reason } => {
                Self::Malformed { key: key.clone(), uid: uid.clone(), reason: reason.clone() }
            }
        }
    }
}

/// A slim cache of one kind.
pub struct Store<T> {
    state: RwLock<State<T>>,
}

struct State<T> {
    objects: BTreeMap<Key, Arc<T>>,
    /// By name.
    indexes: BTreeMap<&'static str, Indexed<T>>,
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
    /// The term in which the last full list was begun, and one more; 0 before the first.
    synced: u64,
    /// Our own writes that the view does not include yet.
    writes: BTreeMap<Key, Write>,
    /// The same by version.
    written: BTreeSet<(u64, Key)>,
    /// How many writes of ours are under way, by object.
    under_way: BTreeMap<Key, usize>,
}

/// An index that was declared, kept with every change.
struct Indexed<T> {
    index: Index<T>,
    entries: BTreeSet<(Arc<str>, Key)>,
    /// How many of them each value has.
    counts: BTreeMap<Arc<str>, usize>,
}

impl<T> Indexed<T> {
    fn update(&mut self, key: &Key, old: Option<&T>, new: Option<&T>) {
        let Self { index, entries, counts } = self;
        if let Some(old) = old {
            (index.values)(old, &mut |value| {
                if !entries.remove(&(value.clone(), key.clone())) {
                    return;
                }
                let left = counts.get(&value).map_or(0, |count| count.saturating_sub(1));
                if left == 0 {
                    counts.remove(&value);
                } else {
                    counts.insert(value, left);
                }
            });
        }
        if let Some(new) = new {
            (index.values)(new, &mut |value| {
                if entries.insert((value.clone(), key.clone())) {
                    *counts.entry(value).or_default() += 1;
                }
            });
        }
    }
}

/// A list under way. It tells objects by name, not by age: its newest version counts only when it is done.
struct Listing {
    keys: BTreeSet<Key>,
    newest: u64,
    /// When it was begun, or the first one before it of which nothing came either.
    since: Instant,
}

impl Listing {
    fn begun(since: Instant) -> Self {
        Self { keys: BTreeSet::new(), newest: 0, since }
    }
}

/// So many of our own writes are kept before those are dropped that the view includes.
const MOST_WRITES: usize = 16_384;

/// How far a view has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The newest version up to which it is complete.
    pub version: u64,
    /// How many lists it has taken in.
    pub lists_done: u64,
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
            indexes: BTreeMap::new(),
            malformed: BTreeMap::new(),
            strings: Interner::default(),
            position: 0,
            listing: None,
            lists_begun: 0,
            lists_done: 0,
            term: 0,
            synced: 0,
            writes: BTreeMap::new(),
            written: BTreeSet::new(),
            under_way: BTreeMap::new(),
        };
        Self { state: RwLock::new(state) }
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
                // One of which nothing came is tried again.
                let since = state.listing.take().filter(|list| list.keys.is_empty()).map(|list| list.since);
                state.listing = Some(Listing::begun(since.unwrap_or_else(Instant::now)));
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

    /// Has an index kept from now on, for as long as the store is.
    pub fn declare(&self, index: Index<T>) {
        let mut state = self.write();
        let State { objects, indexes, .. } = &mut *state;
        indexes.entry(index.name).or_insert_with(|| {
            let mut indexed = Indexed { index, entries: BTreeSet::new(), counts: BTreeMap::new() };
            objects.iter().for_each(|(key, object)| indexed.update(key, None, Some(object)));
            indexed
        });
    }

    /// The objects that an index has under a value, by key. One that was not declared costs a look at every object.
    pub fn find(&self, index: Index<T>, value: &str) -> Vec<Arc<T>> {
        self.find_some(index, value, usize::MAX, |_| true)
    }

    /// As [`Store::find`], but the first of them only, so many for which this holds. The others are neither copied nor looked at.
    pub fn find_some(&self, index: Index<T>, value: &str, most: usize, is_wanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let state = self.read();
        let Some(indexed) = state.indexes.get(index.name) else {
            let found = state.objects.values().filter(|object| index.has(object, value) && is_wanted(object));
            return found.take(most).cloned().collect();
        };
        let entries = indexed.entries.range((Arc::from(value), Key::new("", ""))..);
        let entries = entries.take_while(|(entry, _)| entry.as_ref() == value);
        let found = entries.filter_map(|(_, key)| state.objects.get(key)).filter(|object| is_wanted(object));
        found.take(most).cloned().collect()
    }

    /// How many objects an index has under a value. One that was not declared costs a look at every object.
    pub fn count(&self, index: Index<T>, value: &str) -> usize {
        let state = self.read();
        match state.indexes.get(index.name) {
            Some(indexed) => indexed.counts.get(value).copied().unwrap_or_default(),
            None => state.objects.values().filter(|object| index.has(object, value)).count(),
        }
    }

    /// The values that an index has objects under.
    pub fn values_of(&self, index: Index<T>) -> BTreeSet<Arc<str>> {
        let state = self.read();
        let entries = state.indexes.get(index.name).into_iter().flat_map(|indexed| &indexed.entries);
        entries.map(|(value, _)| value.clone()).collect()
    }

    /// The objects that an index has under any value.
    pub fn all_under(&self, index: Index<T>) -> Vec<Arc<T>> {
        let state = self.read();
        let entries = state.indexes.get(index.name).into_iter().flat_map(|indexed| &indexed.entries);
        entries.filter_map(|(_, key)| state.objects.get(key).cloned()).collect()
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
        self.synced() != 0
    }

    /// Whether a list is being taken in, page by page: until it is done, some objects are newer in the view than others.
    pub fn is_listing(&self) -> bool {
        self.read().listing.is_some()
    }

    /// For how long lists have been tried of which not even a first page has come.
    pub fn listed_in_vain(&self) -> Duration {
        let state = self.read();
        let in_vain = state.listing.as_ref().filter(|list| list.keys.is_empty());
        in_vain.map_or(Duration::ZERO, |list| list.since.elapsed())
    }

    /// The term in which the last full list was begun, and one more; 0 before the first.
    pub fn synced(&self) -> u64 {
        self.read().synced
    }

    /// Everything is listed anew from here on, in this term: what of the list before is still to come is not taken in.
    pub fn begin(&self, term: u64) {
        let mut state = self.write();
        state.term = term;
        state.listing = None;
    }

    /// How far the view has come.
    pub fn position(&self) -> Position {
        let state = self.read();
        Position { version: state.position, lists_done: state.lists_done }
    }

    /// Remembers that we wrote this version of an object.
    pub fn wrote(&self, key: &Key, version: u64) {
        let mut state = self.write();
        state.forget_old_writes();
        let lists_begun = state.lists_begun;
        // Answers may come in another order than the writes were done in.
        let known = state.writes.get(key).map(|known| known.version);
        let version = known.map_or(version, |known| version.max(known));
        if let Some(known) = known {
            state.written.remove(&(known, key.clone()));
        }
        state.written.insert((version, key.clone()));
        state.writes.insert(key.clone(), Write { version, lists_begun });
    }

    /// A write of ours to this object is under way until the answer is dropped.
    #[must_use = "the write is over when this is dropped"]
    pub fn begin_write(self: &Arc<Self>, key: &Key) -> UnderWay<T> {
        *self.write().under_way.entry(key.clone()).or_default() += 1;
        UnderWay { store: self.clone(), key: key.clone() }
    }

    /// The objects that we are writing, and those of which the view does not include our last write yet.
    pub fn behind(&self) -> Vec<Key> {
        let state = self.read();
        let unseen = state.written.range((state.position + 1, Key::new("", ""))..).map(|(_, key)| key);
        let unseen = unseen.filter(|key| {
            let write = state.writes.get(key);
            write.is_some_and(|write| state.lists_done <= write.lists_begun) && !state.is_listed_since_write(key)
        });
        unseen.chain(state.under_way.keys()).cloned().collect()
    }

    /// Whether a view that has come so far includes our own last write to this object.
    pub fn includes_write(&self, key: &Key, at: Position) -> bool {
        let write = self.read().writes.get(key).copied();
        write.is_none_or(|write| at.version >= write.version || at.lists_done > write.lists_begun)
    }

    /// Whether this view does. Of an object that the list under way has told of already, it may before the list is done.
    pub fn caught_up(&self, key: &Key) -> bool {
        self.includes_write(key, self.position()) || self.read().is_listed_since_write(key)
    }
}

/// A write that is under way.
pub struct UnderWay<T: Cached> {
    store: Arc<Store<T>>,
    key: Key,
}

impl<T: Cached> Drop for UnderWay<T> {
    fn drop(&mut self) {
        let mut state = self.store.write();
        let left = state.under_way.get(&self.key).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            state.under_way.remove(&self.key);
        } else {
            state.under_way.insert(self.key.clone(), left);
        }
    }
}

impl<T: Cached> State<T> {
    /// Drops writes that the view includes, once there are many.
    fn forget_old_writes(&mut self) {
        if self.writes.len() >= MOST_WRITES {
            let (position, lists_done) = (self.position, self.lists_done);
            self.writes.retain(|_, write| position < write.version && lists_done <= write.lists_begun);
            self.written = self.writes.iter().map(|(key, write)| (write.version, key.clone())).collect();
        }
    }

    /// Whether the list under way was begun after our own last write to an object, and has told of it.
    fn is_listed_since_write(&self, key: &Key) -> bool {
        let listed = self.listing.as_ref().is_some_and(|list| list.keys.contains(key));
        listed && self.writes.get(key).is_none_or(|write| write.lists_begun < self.lists_begun)
    }

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
        let Some(Listing { keys, newest, .. }) = self.listing.take() else { return Vec::new() };
        // Also back: after a restored backup, versions start again from an older one.
        self.position = newest;
        self.malformed.retain(|key, _| keys.contains(key));
        let gone: Vec<Key> = self.objects.keys().filter(|key| !keys.contains(key)).cloned().collect();
        gone.into_iter().filter_map(|key| self.forget(key, true)).collect()
    }

    fn reindex(&mut self, key: &Key, old: Option<&T>, new: Option<&T>) {
        self.indexes.values_mut().for_each(|indexed| indexed.update(key, old, new));
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
