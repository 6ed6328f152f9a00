//! What is stored: objects, and the log of every change.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::CRDS;
use super::kinds::{CATALOGUE, Kind};

/// One version of an object.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) value: Arc<Value>,
    /// Written once, however many read and watch it: without kind and API version, which lists leave out.
    bare: OnceLock<Box<[u8]>>,
}

/// One version of an object, shared.
pub(super) type Object = Arc<Stored>;

impl Stored {
    pub(super) fn new(value: Value) -> Object {
        Self::shared(Arc::new(value))
    }

    pub(super) fn shared(value: Arc<Value>) -> Object {
        Arc::new(Self { value, bare: OnceLock::new() })
    }

    /// The text without kind and API version.
    pub(super) fn bare(&self) -> &[u8] {
        self.bare.get_or_init(|| bare(&self.value).into_boxed_slice())
    }
}

/// The text of an object without kind and API version.
pub(super) fn bare(value: &Value) -> Vec<u8> {
    struct Bare<'a>(&'a Map<String, Value>);
    impl Serialize for Bare<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            for (name, value) in self.0.iter().filter(|(name, _)| *name != "apiVersion" && *name != "kind") {
                map.serialize_entry(name, value)?;
            }
            map.end()
        }
    }
    // A JSON value can always be written.
    value.as_object().and_then(|fields| serde_json::to_vec(&Bare(fields)).ok()).unwrap_or_else(|| b"{}".to_vec())
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// A change, for those who check what happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The version it made.
    pub version: u64,
    /// The resource, such as `pods` or `deployments.apps`.
    pub resource: &'static str,
    /// What happened.
    pub kind: ChangeKind,
    /// The object; of a deletion, as it last was, with the version of the deletion.
    pub object: Arc<Value>,
    /// The object before.
    pub previous: Option<Arc<Value>>,
}

/// A change in the log.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) version: u64,
    pub(super) store: usize,
    pub(super) key: String,
    pub(super) kind: ChangeKind,
    pub(super) object: Object,
    pub(super) previous: Option<Object>,
}

/// Everything a server knows.
pub(super) struct State {
    stores: Vec<BTreeMap<String, Object>>,
    log: Vec<Entry>,
    version: u64,
    compacted: u64,
    /// Pages of lists are no longer than this, whatever is asked for.
    pub(super) longest_page: usize,
    /// Requests that a policy forbids.
    pub(super) forbidden: Option<(http::Method, &'static str)>,
    random: fastrand::Rng,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

/// The letters that Kubernetes makes names of.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    pub(super) fn new(now: Box<dyn Fn() -> Timestamp + Send + Sync>, seed: u64) -> Self {
        let mut stores = vec![BTreeMap::new(); CATALOGUE.stores];
        let crds = CATALOGUE.named(CRDS).map_or(0, |kind| kind.store);
        for crd in &CATALOGUE.crds {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            stores[crds].insert(name, Stored::shared(crd.clone()));
        }
        let version = CATALOGUE.crds.len() as u64;
        let random = fastrand::Rng::with_seed(seed);
        Self { stores, log: Vec::new(), version, compacted: 0, longest_page: usize::MAX, forbidden: None, random, now }
    }

    /// Whether a kind is built in, or its CRD is there.
    pub(super) fn is_served(&self, kind: &Kind) -> bool {
        !kind.is_custom() || CATALOGUE.named(CRDS).is_some_and(|crds| self.get(crds, &kind.qualified).is_some())
    }

    /// Deletes a CRD with all of its objects, or installs it again. What is so already stays.
    pub(super) fn set_served(&mut self, resource: &str, is_served: bool) {
        let Some((crds, kind)) = CATALOGUE.named(CRDS).zip(CATALOGUE.named(resource)) else { return };
        if self.is_served(kind) == is_served {
            return;
        }
        if is_served {
            let mut all = CATALOGUE.crds.iter();
            let Some(crd) = all.find(|crd| crd["metadata"]["name"] == *resource) else { return };
            let mut crd = Value::clone(crd);
            crd["metadata"]["uid"] = json!(self.uid());
            crd["metadata"]["creationTimestamp"] = json!(self.now());
            self.put(crds, resource, crd);
        } else {
            let objects: Vec<String> = self.all(kind.store).keys().cloned().collect();
            for key in objects {
                self.remove(kind, &key);
            }
            self.remove(crds, resource);
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The newest version that watches can no longer start from.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// The present, as the API writes it.
    pub(super) fn now(&self) -> String {
        written(self.instant())
    }

    pub(super) fn instant(&self) -> Timestamp {
        (self.now)()
    }

    pub(super) fn uid(&mut self) -> String {
        let (high, low) = (self.random.u64(..), self.random.u64(..));
        // The marks of a random UUID, in the places they have.
        let (high, low) = ((high & !0xf000) | 0x4000, (low & (u64::MAX >> 2)) | (1 << 63));
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// The end of a generated name.
    pub(super) fn suffix(&mut self) -> String {
        (0..5).map(|_| char::from(LETTERS[self.random.usize(..LETTERS.len())])).collect()
    }

    pub(super) fn get(&self, kind: &Kind, key: &str) -> Option<&Object> {
        self.stores[kind.store].get(key)
    }

    pub(super) fn all(&self, store: usize) -> &BTreeMap<String, Object> {
        &self.stores[store]
    }

    /// Every change after a version.
    pub(super) fn log_after(&self, version: u64) -> &[Entry] {
        let start = self.log.partition_point(|entry| entry.version <= version);
        &self.log[start..]
    }

    /// The entry at a place of the log.
    pub(super) fn entry(&self, index: usize) -> Option<&Entry> {
        self.log.get(index)
    }

    /// The place in the log of the first change after a version.
    pub(super) fn place_after(&self, version: u64) -> usize {
        self.log.partition_point(|entry| entry.version <= version)
    }

    /// The objects of a store as they were at a version that is not compacted.
    pub(super) fn all_at(&self, store: usize, version: u64) -> BTreeMap<String, Object> {
        let mut objects = self.stores[store].clone();
        for entry in self.log_after(version).iter().rev().filter(|entry| entry.store == store) {
            match &entry.previous {
                Some(previous) => objects.insert(entry.key.clone(), previous.clone()),
                None => objects.remove(&entry.key),
            };
        }
        objects
    }

    /// Stores a new version of an object.
    pub(super) fn put(&mut self, kind: &Kind, key: &str, mut value: Value) -> Object {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Stored::new(value);
        let previous = self.stores[kind.store].insert(key.to_owned(), object.clone());
        let change = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.record(kind.store, key, change, object.clone(), previous);
        object
    }

    /// Takes an object out. What is returned has the version of the deletion.
    pub(super) fn remove(&mut self, kind: &Kind, key: &str) -> Option<Object> {
        let previous = self.stores[kind.store].remove(key)?;
        self.version += 1;
        let mut value = Value::clone(&previous.value);
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Stored::new(value);
        self.record(kind.store, key, ChangeKind::Deleted, object.clone(), Some(previous));
        Some(object)
    }

    fn record(&mut self, store: usize, key: &str, kind: ChangeKind, object: Object, previous: Option<Object>) {
        self.log.push(Entry { version: self.version, store, key: key.to_owned(), kind, object, previous });
    }
}

/// A time as the API writes it.
pub(super) fn written(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
