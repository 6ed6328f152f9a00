//! Keeps a [`Store`] true by a watch, and tells a controller what changed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::in_words;
use crate::env::{Backoff, Env};
use crate::events::{EventType, Recorder, Report};
use crate::gates::Gates;
use crate::metrics::Metrics;
use crate::observed::{Observed, Wire};
use crate::retry::{Recovery, Retry, is_expired};
use crate::signal::Signal;
use crate::store::{Cached, Change, Store};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// What every feed needs.
#[derive(Clone)]
pub struct Feeds {
    /// The client to watch with.
    pub client: Client,
    /// Wall time and randomness.
    pub env: Env,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Where to report objects that cannot be read.
    pub recorder: Arc<Recorder>,
    /// What is switched on.
    pub gates: Gates,
    /// The term in which this process leads.
    pub leading: Signal,
    /// When the API server is back.
    pub recovery: Recovery,
    /// Ends all watches.
    pub stop: CancellationToken,
}

impl Feeds {
    /// Starts to watch a kind in all namespaces. `on_change` is called after the store has taken in a change, in the
    /// order of changes, and must not wait for anything.
    pub fn watch<T: Cached>(&self, on_change: impl FnMut(&Change<T>) + Send + 'static) -> Arc<Store<T>> {
        let store = Arc::new(Store::default());
        self.watch_into(store.clone(), on_change);
        store
    }

    /// Like [`Feeds::watch`], into a store made before, for an `on_change` that reads the store itself.
    pub fn watch_into<T: Cached>(&self, store: Arc<Store<T>>, on_change: impl FnMut(&Change<T>) + Send + 'static) {
        let last_told = Arc::new(Mutex::new(Instant::now()));
        let (measured, told) = (Arc::downgrade(&store), last_told.clone());
        self.metrics.before_scrape(move |metrics| {
            let age = told.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
            metrics.cache(T::Wire::KIND.kind, measured.upgrade()?.len(), age);
            Some(())
        });
        tokio::spawn(self.clone().run(store, last_told, on_change));
    }

    async fn run<T: Cached>(
        self,
        store: Arc<Store<T>>,
        last_told: Arc<Mutex<Instant>>,
        mut on_change: impl FnMut(&Change<T>) + Send + 'static,
    ) {
        let kind = T::Wire::KIND.kind;
        let api = Api::<Observed<T::Wire>>::all(self.client.clone());
        // Lists are quorum reads. kube's streaming lists ask for "any version", which may be an old one.
        let watch = || watcher::watcher(api.clone(), watcher::Config::default()).boxed();
        let mut term = self.leading.get();
        store.begin(term);
        let mut retry = Retry::new(BACKOFF, self.recovery.clone(), self.env.clone());
        let mut events = watch();
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                // A watch may have been dead for a while without anybody knowing: whoever takes over lists anew.
                next = self.leading.until(|now| now > term) => {
                    term = next;
                    store.begin(term);
                    events = watch();
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    *last_told.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                    // An `Init` only says that a list is about to be tried.
                    if !matches!(event, Event::Init) {
                        retry.succeed();
                    }
                    if matches!(event, Event::InitDone) && !store.is_synced() {
                        info!(kind, objects = store.len(), "first full view");
                    }
                    for change in store.apply(event) {
                        self.report(kind, T::Wire::KIND, &change);
                        on_change(&change);
                    }
                    store.note_synced();
                }
                Some(Err(error)) if is_expired(&error) && retry.expire() => {
                    self.metrics.watch_error(kind);
                    info!(kind, "the watch is too old; listing anew");
                    events = watch();
                }
                Some(Err(error)) => {
                    self.metrics.watch_error(kind);
                    let pause = retry.fail();
                    warn!(kind, error = in_words(&error), ?pause, "the watch broke; trying again");
                    tokio::select! {
                        biased;
                        () = self.stop.cancelled() => return,
                        _ = self.leading.until(|now| now > term) => {}
                        () = retry.pause(pause) => {}
                    }
                }
                None => return,
            }
        }
    }

    fn report<T>(&self, kind: &str, info: crate::observed::KindInfo, change: &Change<T>) {
        let Change::Malformed { key, uid, reason } = change else { return };
        self.metrics.malformed(kind);
        warn!(kind, object = %key, %reason, "passed over an object that cannot be read");
        self.recorder.report(Report {
            about: info,
            key: key.clone(),
            uid: uid.clone(),
            event_type: EventType::Warning,
            action: "Reading",
            reason: "Malformed",
            note: format!(
                "dapple passes this {kind} over, because it cannot be read: {reason}. Mend the field to have it served."
            ),
        });
    }
}
