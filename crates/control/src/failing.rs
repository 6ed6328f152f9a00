//! Which objects fail, why, and since when: what fails for long must not show in a log alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::writes::client::in_words;

/// An object that has failed for so long is told of, and again each time that it has failed for as long since.
const TOLD_AFTER: Duration = Duration::from_secs(60);

/// Why an object fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One word in CamelCase, for machines.
    pub reason: String,
    /// One sentence, for people.
    pub text: String,
}

impl Failure {
    /// From an error of the API server, or of the way to it.
    pub fn of(error: &kube::Error) -> Self {
        let reason = match error {
            kube::Error::Api(status) if !status.reason.is_empty() => status.reason.clone(),
            kube::Error::Api(status) => format!("Code{}", status.code),
            _ => "NoAnswer".to_owned(),
        };
        Self { reason, text: in_words(error) }
    }
}

/// The objects of a controller that fail.
#[derive(Debug)]
pub struct Failing<K>(Mutex<State<K>>);

#[derive(Debug)]
struct State<K> {
    keys: BTreeMap<K, Since>,
    /// Every reason that there was: what is over counts as none, and does not vanish.
    reasons: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Since {
    reason: String,
    /// Since when it fails, or when it was last told of.
    at: Instant,
}

impl<K> Default for Failing<K> {
    fn default() -> Self {
        Self(Mutex::new(State { keys: BTreeMap::new(), reasons: BTreeSet::new() }))
    }
}

impl<K: Ord + Clone> Failing<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object has failed. True if it has for so long that it is to be told of now.
    pub fn note(&self, key: &K, reason: &str) -> bool {
        let (mut state, now) = (self.lock(), Instant::now());
        state.reasons.insert(reason.to_owned());
        let known = state.keys.entry(key.clone()).or_insert_with(|| Since { reason: String::new(), at: now });
        known.reason = reason.to_owned();
        let is_due = now.duration_since(known.at) >= TOLD_AFTER;
        if is_due {
            known.at = now;
        }
        is_due
    }

    /// An object does not fail any more.
    pub fn clear(&self, key: &K) {
        self.lock().keys.remove(key);
    }

    /// Another looks after the objects now.
    pub fn clear_all(&self) {
        self.lock().keys.clear();
    }

    /// How many fail, by reason.
    pub fn by_reason(&self) -> BTreeMap<String, usize> {
        let state = self.lock();
        let mut counts: BTreeMap<String, usize> = state.reasons.iter().map(|reason| (reason.clone(), 0)).collect();
        for since in state.keys.values() {
            *counts.entry(since.reason.clone()).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_a_minute_is_told_of_and_again_after_another() {
        let failing = Failing::default();
        let minute = |part: u64| tokio::time::advance(Duration::from_secs(60 / part));
        assert!(!failing.note(&"a", "Forbidden"));
        minute(2).await;
        assert!(!failing.note(&"a", "Forbidden") && !failing.note(&"b", "Invalid"));
        minute(2).await;
        assert!(failing.note(&"a", "Invalid"), "a minute");
        assert!(!failing.note(&"a", "Invalid") && !failing.note(&"b", "Invalid"));
        let none = ("Forbidden".to_owned(), 0);
        assert_eq!(failing.by_reason(), BTreeMap::from([none, ("Invalid".to_owned(), 2)]), "as they fail now");
        minute(1).await;
        assert!(failing.note(&"a", "Invalid"), "another");
        failing.clear(&"a");
        assert!(!failing.note(&"a", "Invalid"), "it begins anew");
        assert!(failing.note(&"b", "Forbidden"));
        assert_eq!(failing.by_reason(), BTreeMap::from([("Forbidden".to_owned(), 1), ("Invalid".to_owned(), 1)]));
    }

    #[test]
    fn an_error_has_a_reason_for_machines() {
        let status = |reason: &str, code: u16| {
            let status = kube::core::Status { reason: reason.to_owned(), code, ..kube::core::Status::default() };
            Failure::of(&kube::Error::Api(Box::new(status))).reason
        };
        assert_eq!(status("Forbidden", 403), "Forbidden");
        assert_eq!(status("", 418), "Code418");
        assert_eq!(Failure::of(&kube::Error::LinesCodecMaxLineLengthExceeded).reason, "NoAnswer");
    }
}
