//! Writes of ours that the view does not include yet, by object, each with what it is about.
//!
//! Invariant: an object is in the ledger from the moment a write to it is sent until it is known what has come of it and the
//! view includes that. Whoever decides leaves alone what such a write is about.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::slim::Key;

/// After so long a write that was done should be in the view.
pub const OVERDUE: Duration = Duration::from_secs(10);

/// Writes that are in flight or unconfirmed.
#[derive(Debug)]
pub struct Ledger<T> {
    open: BTreeMap<Key, (T, Write)>,
}

/// How far a write has come.
#[derive(Debug, Clone, Copy)]
enum Write {
    /// It was sent.
    InFlight,
    /// It was done, and is to be seen.
    Unconfirmed { since: Instant },
    /// Nobody knows what has come of it: to be asked then. `is_gone` once it was found that the object is gone.
    Unknown { ask: Instant, is_gone: bool },
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<T: Clone> Ledger<T> {
    /// A write is sent. True if none to this object was open.
    pub fn begin(&mut self, key: Key, about: T) -> bool {
        self.put(key, about, Write::InFlight)
    }

    /// It was done. True if none to this object was open.
    pub fn wrote(&mut self, key: Key, about: T) -> bool {
        self.put(key, about, Write::Unconfirmed { since: Instant::now() })
    }

    /// Nobody knows what has come of it. True if none to this object was open.
    pub fn doubt(&mut self, key: Key, about: T) -> bool {
        self.put(key, about, Write::Unknown { ask: Instant::now(), is_gone: false })
    }

    fn put(&mut self, key: Key, about: T, write: Write) -> bool {
        self.open.insert(key, (about, write)).is_none()
    }

    /// Nothing was done. Returns what it was about, if it was in flight.
    pub fn abandon(&mut self, key: &Key) -> Option<T> {
        let is_in_flight = matches!(self.open.get(key), Some((_, Write::InFlight)));
        is_in_flight.then(|| self.settle(key)).flatten()
    }

    /// It is known what has come of it, and the view includes that. Returns what it was about.
    pub fn settle(&mut self, key: &Key) -> Option<T> {
        self.open.remove(key).map(|(about, _)| about)
    }

    /// Objects to be asked for now, since nobody knows what has come of a write.
    pub fn to_ask(&self) -> Vec<(Key, T)> {
        let now = Instant::now();
        self.select(|_, write| matches!(write, Write::Unknown { ask, .. } if *ask <= now))
    }

    /// The object is gone, and the view still has it: it is asked for again, should no watch tell.
    pub fn ask_later(&mut self, key: &Key) {
        if let Some((_, write)) = self.open.get_mut(key) {
            *write = Write::Unknown { ask: Instant::now() + OVERDUE, is_gone: true };
        }
    }

    /// Takes out writes that the view includes.
    pub fn take_confirmed(&mut self, is_in_view: impl Fn(&Key) -> bool) -> Vec<(Key, T)> {
        self.take(|key, write| matches!(write, Write::Unconfirmed { .. }) && is_in_view(key))
    }

    /// Takes out objects that were found to be gone, once the view does not have them any more.
    pub fn take_gone(&mut self, is_in_view: impl Fn(&Key) -> bool) -> Vec<(Key, T)> {
        self.take(|key, write| matches!(write, Write::Unknown { is_gone: true, .. }) && !is_in_view(key))
    }

    /// Doubts writes that should be in the view by now: an object that was deleted may be passed over by a list that was begun
    /// before, and then no watch ever tells of it.
    pub fn doubt_overdue(&mut self) {
        for (_, write) in self.open.values_mut() {
            if matches!(write, Write::Unconfirmed { since } if since.elapsed() >= OVERDUE) {
                *write = Write::Unknown { ask: Instant::now(), is_gone: false };
            }
        }
    }

    /// Lets go of writes that should be in the view by now.
    pub fn forget_overdue(&mut self) {
        self.open.retain(|_, (_, write)| !matches!(write, Write::Unconfirmed { since } if since.elapsed() >= OVERDUE));
    }

    /// Whether a write to this object is open.
    pub fn is_open(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What open writes are about.
    pub fn about(&self) -> impl Iterator<Item = &T> {
        self.open.values().map(|(about, _)| about)
    }

    fn select(&self, wanted: impl Fn(&Key, &Write) -> bool) -> Vec<(Key, T)> {
        let open = self.open.iter().filter(|(key, (_, write))| wanted(key, write));
        open.map(|(key, (about, _))| (key.clone(), about.clone())).collect()
    }

    fn take(&mut self, wanted: impl Fn(&Key, &Write) -> bool) -> Vec<(Key, T)> {
        let taken = self.select(wanted);
        taken.iter().for_each(|(key, _)| _ = self.open.remove(key));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("default", "agent-1")
    }

    /// A list that was begun before a deletion and read after it does not name the object, and its versions may all be older
    /// than the deletion: no watch ever says that the view includes it. Found by the simulator: nothing was done any more.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_no_watch_tells_of_is_asked_for() {
        let mut ledger = Ledger::default();
        assert!(ledger.wrote(key(), "node-1"));
        ledger.doubt_overdue();
        assert!(ledger.to_ask().is_empty(), "it may still come");
        tokio::time::advance(OVERDUE).await;
        ledger.doubt_overdue();
        assert_eq!(ledger.to_ask(), [(key(), "node-1")]);
        assert!(ledger.take_confirmed(|_| true).is_empty(), "nobody knows what has come of it");
        ledger.ask_later(&key());
        assert!(ledger.to_ask().is_empty() && ledger.take_gone(|_| true).is_empty(), "the view still has it");
        assert_eq!(ledger.take_gone(|_| false), [(key(), "node-1")]);
        assert!(ledger.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_open_from_sending_until_it_is_seen() {
        let mut ledger = Ledger::default();
        assert!(ledger.begin(key(), 1));
        assert!(!ledger.wrote(key(), 1), "it was open before");
        assert!(ledger.abandon(&key()).is_none() && ledger.is_open(&key()), "something was done");
        assert!(ledger.take_confirmed(|_| false).is_empty() && ledger.is_open(&key()));
        assert_eq!(ledger.take_confirmed(|_| true), [(key(), 1)]);
        assert!(ledger.begin(key(), 2) && ledger.about().eq([&2]));
        assert_eq!(ledger.abandon(&key()), Some(2));
        assert!(!ledger.is_open(&key()));
    }
}
