//! A work queue of keys.
//!
//! Invariants:
//! - A key is worked on by one worker at a time, and is never lost: added while it is worked on, it comes again.
//! - Adding a key that waits already costs nothing but may move it forward.
//! - Each key has its own backoff: one that keeps failing delays nobody else.
//! - Order is by urgency, then by arrival. Nothing about it is random.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::env::{Backoff, Env};

/// How urgent a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Something changed.
    Change,
    /// A first look after a start, or a look in case something was missed.
    Sweep,
}

/// A work queue of keys.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    backoff: Backoff,
    env: Env,
}

struct State<K> {
    /// Keys to work on now, in order.
    ready: BTreeMap<(Urgency, u64), K>,
    /// Keys to work on later, by time.
    delayed: BTreeMap<(Instant, u64), K>,
    keys: BTreeMap<K, Place>,
    failures: BTreeMap<K, Failures>,
    next: u64,
    closed: bool,
}

/// What is known of a key that fails.
#[derive(Clone, Copy, Default)]
struct Failures {
    in_a_row: u32,
    /// Whether its backoff was ended early since it succeeded, and none of the longest has passed after that.
    was_early: bool,
}

/// Where a key is.
#[derive(Clone, Copy)]
enum Place {
    Ready { at: (Urgency, u64), since: Instant },
    Delayed { at: (Instant, u64) },
    Working { again: Option<Urgency> },
}

/// A key taken off the queue.
#[derive(Debug)]
pub struct Taken<K> {
    /// The key.
    pub key: K,
    /// How long it waited.
    pub waited: Duration,
}

/// How the work on a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Done; the key's backoff starts anew.
    Done,
    /// Done for now; look again after this time.
    Again(Duration),
    /// Failed; look again after the key's backoff.
    Failed,
    /// What could be done is done, and a part of it fails, for this reason; look again after this time.
    Failing {
        /// One word, for machines.
        reason: &'static str,
        /// When to look again.
        again: Duration,
    },
}

impl<K: Ord + Clone> Queue<K> {
    /// An empty queue with this backoff for keys that fail.
    pub fn new(backoff: Backoff, env: Env) -> Self {
        let state = State {
            ready: BTreeMap::new(),
            delayed: BTreeMap::new(),
            keys: BTreeMap::new(),
            failures: BTreeMap::new(),
            next: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), wake: Notify::new(), backoff, env }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key. Returns whether it was not waiting already.
    pub fn add(&self, key: K, urgency: Urgency) -> bool {
        let added = self.lock().add(key, urgency);
        self.wake.notify_one();
        added
    }

    /// Waits for a key to work on; `None` once the queue is closed.
    pub async fn take(&self) -> Option<Taken<K>> {
        loop {
            let woken = self.wake.notified();
            let next_due = {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                state.release_due(Instant::now(), &self.backoff);
                if let Some(taken) = state.take() {
                    // Another worker may sleep while more is ready.
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(taken);
                }
                state.delayed.first_key_value().map(|((due, _), _)| *due)
            };
            match next_due {
                Some(due) => {
                    tokio::select! { biased; () = woken => {}, () = tokio::time::sleep_until(due) => {} }
                }
                None => woken.await,
            }
        }
    }

    /// Says how the work on a taken key ended. Every key that was taken must come back here.
    pub fn finish(&self, key: &K, ended: Ended) {
        let mut state = self.lock();
        let delay = match ended {
            Ended::Done => {
                state.failures.remove(key);
                None
            }
            Ended::Again(delay) | Ended::Failing { again: delay, .. } => {
                state.failures.remove(key);
                Some(delay)
            }
            Ended::Failed => {
                let failures = state.failures.entry(key.clone()).or_default();
                failures.in_a_row = failures.in_a_row.saturating_add(1);
                Some(self.backoff.delay(failures.in_a_row, &self.env))
            }
        };
        state.put_back(key, delay);
        drop(state);
        self.wake.notify_one();
    }

    /// Takes a key off that nobody has to work on any more, with all that is known of it. False if it is being worked on: then
    /// nothing is done.
    pub fn remove(&self, key: &K) -> bool {
        self.lock().remove(key)
    }

    /// Ends the backoffs of keys that failed: what they failed for may be over. A key that fails again begins with short ones
    /// anew, and waits to their ends.
    pub fn end_backoffs(&self) {
        self.lock().end_backoffs();
        self.wake.notify_one();
    }

    /// Number of keys that are ready to be worked on.
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    /// Ends all waiting for keys. What is being worked on goes on.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_waiters();
        self.wake.notify_one();
    }
}

impl<K: Ord + Clone> State<K> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, key: K, urgency: Urgency) -> bool {
        match self.keys.get(&key).copied() {
            None => {
                self.make_ready(key, urgency);
                true
            }
            Some(Place::Ready { at, .. }) if urgency < at.0 => {
                self.ready.remove(&at);
                self.make_ready(key, urgency);
                false
            }
            Some(Place::Ready { .. }) => false,
            Some(Place::Delayed { at }) => {
                // Also out of a backoff: whoever mends an object should not wait for it. The count of failures stays.
                self.delayed.remove(&at);
                self.make_ready(key, urgency);
                true
            }
            Some(Place::Working { again }) => {
                let again = Some(again.map_or(urgency, |known| known.min(urgency)));
                self.keys.insert(key, Place::Working { again });
                true
            }
        }
    }

    fn remove(&mut self, key: &K) -> bool {
        match self.keys.get(key).copied() {
            Some(Place::Working { .. }) => return false,
            Some(Place::Ready { at, .. }) => _ = self.ready.remove(&at),
            Some(Place::Delayed { at }) => _ = self.delayed.remove(&at),
            None => {}
        }
        self.keys.remove(key);
        self.failures.remove(key);
        true
    }

    fn make_ready(&mut self, key: K, urgency: Urgency) {
        let at = (urgency, self.number());
        self.ready.insert(at, key.clone());
        self.keys.insert(key, Place::Ready { at, since: Instant::now() });
    }

    fn release_due(&mut self, now: Instant, backoff: &Backoff) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            if let Some(failures) = self.failures.get_mut(&key) {
                failures.was_early &= !backoff.is_longest(failures.in_a_row);
            }
            self.make_ready(key, Urgency::Change);
        }
    }

    fn end_backoffs(&mut self) {
        let mut early = Vec::new();
        for (key, failures) in self.failures.iter_mut().filter(|(_, failures)| !failures.was_early) {
            match self.keys.get(key) {
                Some(Place::Delayed { at }) => {
                    self.delayed.remove(at);
                    early.push(key.clone());
                }
                // What is under way may have begun before it was over.
                Some(Place::Working { again: None }) => {
                    self.keys.insert(key.clone(), Place::Working { again: Some(Urgency::Change) });
                }
                _ => continue,
            }
            *failures = Failures { in_a_row: 0, was_early: true };
        }
        early.into_iter().for_each(|key| self.make_ready(key, Urgency::Change));
    }

    fn take(&mut self) -> Option<Taken<K>> {
        let (_, key) = self.ready.pop_first()?;
        let since = match self.keys.insert(key.clone(), Place::Working { again: None }) {
            Some(Place::Ready { since, .. }) => since,
            _ => Instant::now(),
        };
        Some(Taken { key, waited: since.elapsed() })
    }

    fn put_back(&mut self, key: &K, delay: Option<Duration>) {
        let again = match self.keys.remove(key) {
            Some(Place::Working { again }) => again,
            _ => None,
        };
        match (again, delay) {
            (Some(urgency), _) => self.make_ready(key.clone(), urgency),
            (None, Some(delay)) => {
                let at = (Instant::now() + delay, self.number());
                self.delayed.insert(at, key.clone());
                self.keys.insert(key.clone(), Place::Delayed { at });
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
