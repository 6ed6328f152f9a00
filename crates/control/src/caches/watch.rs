//! Keeps a cache true by a watch.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dapple_plan::mutant::{Mutant, is_on};
use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Cache;
use super::store::Change;
use crate::env::{Backoff, Env};
use crate::metrics::Metrics;
use crate::observed::{KindInfo, Observed, Wire};
use crate::retry::{Recovery, Retry, is_expired, is_missing};
use crate::signal::Signal;
use crate::slim::Cached;
use crate::writes::client::in_words;
use crate::writes::events::{EventType, Recorder, Report};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// A kind that is not installed is looked for this often: whoever waits for its CRD goes on soon after it is there.
const LONGEST_MISSING: Duration = Duration::from_secs(2);

/// What every watch needs.
#[derive(Clone)]
pub struct WatchContext {
    /// The client to watch with.
    pub client: Client,
    /// dapple's own namespace.
    pub namespace: Arc<str>,
    /// Wall time and randomness.
    pub env: Env,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Where to report objects that cannot be read.
    pub recorder: Arc<Recorder>,
    /// The term in which this process leads.
    pub leading: Signal,
    /// When the API server is back.
    pub recovery: Recovery,
    /// Ends all watches.
    pub stop: CancellationToken,
}

/// The watch of one cache. It does not keep the cache: who reads it does.
struct Watch<T: Cached> {
    kind: KindInfo,
    name: Arc<str>,
    cache: Weak<Cache<T>>,
    last_told: Arc<Mutex<Instant>>,
    shared: WatchContext,
    stop: CancellationToken,
    /// In which everything is listed anew.
    term: u64,
    retry: Retry,
    /// Whether the API server said last that it does not serve the kind.
    is_missing: bool,
}

impl WatchContext {
    /// Starts to watch, until `stop`.
    pub(super) fn start<T: Cached>(&self, cache: &Arc<Cache<T>>, stop: CancellationToken) {
        let last_told = Arc::new(Mutex::new(Instant::now()));
        let (name, measured, told) = (cache.name.clone(), Arc::downgrade(cache), last_told.clone());
        self.metrics.before_scrape(move |metrics| {
            let age = told.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
            metrics.cache(&name, measured.upgrade()?.store.len(), age);
            Some(())
        });
        let watch = Watch {
            kind: cache.kind,
            name: cache.name.clone(),
            cache: Arc::downgrade(cache),
            last_told,
            shared: self.clone(),
            stop,
            term: self.leading.get(),
            retry: Retry::new(BACKOFF, self.recovery.clone(), self.env.clone()),
            is_missing: false,
        };
        cache.store.begin(watch.term);
        tokio::spawn(watch.run());
    }

    fn report<T>(&self, info: KindInfo, change: &Change<T>) {
        let Change::Malformed { key, uid, reason } = change else { return };
        let kind = info.kind;
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

impl<T: Cached> Watch<T> {
    async fn run(mut self) {
        let kind = self.name.clone();
        let client = self.shared.client.clone();
        // Lists are quorum reads. kube's streaming lists ask for "any version", which may be an old one.
        let (api, config) = match (T::Wire::ONLY, T::Wire::NAMESPACE) {
            (Some(name), _) => (
                Api::<Observed<T::Wire>>::namespaced_with(client, &self.shared.namespace, &self.kind),
                watcher::Config::default().fields(&format!("metadata.name={name}")),
            ),
            (None, Some(namespace)) => {
                (Api::namespaced_with(client, namespace, &self.kind), watcher::Config::default())
            }
            (None, None) => (Api::all_with(client, &self.kind), watcher::Config::default()),
        };
        let config = match T::Wire::LABELLED {
            Some(label) => config.labels(label),
            None => config,
        };
        let watch = || watcher::watcher(api.clone(), config.clone()).boxed();
        let leading = self.shared.leading.clone();
        let mut events = watch();
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                // A watch may have been dead for a while without anybody knowing: whoever takes over lists anew.
                next = leading.until(|now| now > self.term) => {
                    let Some(cache) = self.cache.upgrade() else { return };
                    self.term = next;
                    cache.store.begin(next);
                    events = watch();
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    let Some(cache) = self.cache.upgrade() else { return };
                    self.take_in(&cache, event);
                }
                Some(Err(error)) if is_expired(&error) && self.retry.expire() => {
                    self.shared.metrics.watch_error(&kind);
                    info!(kind = &*kind, "the watch is too old; listing anew");
                    events = watch();
                }
                Some(Err(error)) => {
                    self.pause(&error).await;
                    // A kind that comes back is another: only a list tells what there is of it.
                    if self.is_missing {
                        events = watch();
                    }
                }
                None => return,
            }
        }
    }

    fn take_in(&mut self, cache: &Cache<T>, event: Event<Observed<T::Wire>>) {
        *self.last_told.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        // An `Init` only says that a list is about to be tried.
        if !matches!(event, Event::Init) {
            self.retry.succeed();
            self.is_missing = false;
        }
        let is_first = matches!(event, Event::InitDone) && !cache.store.is_synced();
        for change in cache.take_in(event) {
            self.shared.report(self.kind, &change);
        }
        if is_first {
            info!(kind = &*self.name, objects = cache.store.len(), "first full view");
        }
    }

    /// After an error, until it is time to try again.
    async fn pause(&mut self, error: &watcher::Error) {
        let kind = self.name.clone();
        let mut pause = self.retry.fail();
        if is_missing(error) {
            pause = pause.min(LONGEST_MISSING);

            if !std::mem::replace(&mut self.is_missing, true) {
                info!(kind = &*kind, "the API server does not serve the kind");
            }
            let Some(cache) = self.cache.upgrade() else { return };
            if is_on(Mutant::MissingIsEmpty) {
                cache.take_in(Event::Init);
                cache.take_in(Event::InitDone);
            } else {
                cache.note_missing();
            }
        } else {
            self.shared.metrics.watch_error(&kind);
            warn!(kind = &*kind, error = in_words(error), ?pause, "the watch broke; trying again");
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            _ = self.shared.leading.until(|now| now > self.term) => {}
            () = self.retry.pause(pause) => {}
        }
    }
}
