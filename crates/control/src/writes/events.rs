//! Kubernetes Events about objects, limited as [`correlate`] says.
//!
//! An Event's name follows from what it says, so saying it again after a restart counts on in the Event that is there, and
//! a repeated write changes nothing.
//!
//! They are written to the core API, as those of Kubernetes' own controllers: `kubectl describe`, `kubectl get events` and
//! `kubectl events` show its count, `--sort-by=.lastTimestamp` sorts by its time, and its message may change. An Event of
//! `events.k8s.io` has no such time, and its note is for ever the first of those that it counts.

mod correlate;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::env::{Backoff, Env};
use crate::observed::KindInfo;
use crate::signal::Signal;
use crate::slim::Key;
use crate::writes::client::in_words;
use correlate::{Correlator, Due, EventOutcome, Next};

/// Longest message: what `events.k8s.io` takes.
const LONGEST_MESSAGE: usize = 1000;
/// Longest part of an object's name in the name of an Event, which has 253 letters in all.
const LONGEST_NAME: usize = 230;
/// How often an Event is tried to be written.
const TRIES: u32 = 6;
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// How client-go begins what an Event says that stands for several.
const COMBINED: &str = "(combined from similar events): ";
/// Who says it.
const CONTROLLER: &str = "dapple.dev/manager";

/// Whether somebody should look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// All is well.
    Normal = 0,
    /// Somebody should look at it.
    Warning = 1,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something to say about an object.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its kind.
    pub about: KindInfo,
    /// Its key.
    pub key: Key,
    /// Its UID.
    pub uid: String,
    /// Whether somebody should look at it.
    pub event_type: EventType,
    /// What was done or tried, one word in CamelCase.
    pub action: &'static str,
    /// One word in CamelCase, for machines.
    pub reason: &'static str,
    /// One sentence, for people.
    pub note: String,
}

/// Writes Events in the background.
pub struct Recorder(Arc<Shared>);

struct Shared {
    correlator: Mutex<Correlator>,
    /// There is something new to say.
    news: Notify,
    env: Env,
}

impl Shared {
    fn correlator(&self) -> MutexGuard<'_, Correlator> {
        self.correlator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// Starts to write Events as `instance` until stopped. A standby sees the same as the leader and leaves the saying
    /// to it; what it saw waits, in case it leads next.
    pub fn start(client: Client, instance: String, env: Env, leading: Signal, stop: CancellationToken) -> Self {
        let shared = Arc::new(Shared { correlator: Mutex::default(), news: Notify::new(), env });
        let writer = EventWriter { shared: shared.clone(), client, instance };
        tokio::spawn(async move {
            tokio::select! { biased; () = stop.cancelled() => {}, () = writer.run(leading) => {} }
        });
        Self(shared)
    }

    /// Says something about an object. Never waits.
    pub fn report(&self, report: Report) {
        self.0.correlator().observe(report, self.0.env.now(), Instant::now());
        self.0.news.notify_one();
    }

    /// An object is gone: nothing is kept of it, and what was yet to be said about it is not.
    pub fn forget(&self, about: KindInfo, key: &Key) {
        self.0.correlator().forget(about.kind, key);
    }
}

struct EventWriter {
    shared: Arc<Shared>,
    client: Client,
    instance: String,
}

impl EventWriter {
    async fn run(self, leading: Signal) {
        loop {
            leading.until(|term| term != 0).await;
            let next = self.shared.correlator().next(Instant::now());
            match next {
                Next::Write(due) => {
                    let outcome = self.write(&due).await;
                    self.shared.correlator().wrote(&due, outcome, Instant::now());
                }
                Next::WaitUntil(at) => {
                    let news = self.shared.news.notified();
                    tokio::select! { biased; () = news => {}, () = tokio::time::sleep_until(at) => {} }
                }
                Next::Nothing => self.shared.news.notified().await,
            }
        }
    }

    async fn write(&self, due: &Due) -> EventOutcome {
        let error = match self.send(due).await {
            Ok(before) => return EventOutcome::Wrote { before },
            Err(error) => error,
        };
        let failures = due.failures + 1;
        match error {
            kube::Error::Api(status) if (400..500).contains(&status.code) && ![409, 429].contains(&status.code) => {
                warn!(object = %due.report.key, reason = %status.message, "an event was refused");
                EventOutcome::Refused
            }
            error if failures >= TRIES => {
                warn!(object = %due.report.key, error = in_words(&error), "an event could not be written");
                EventOutcome::Refused
            }
            error => {
                debug!(object = %due.report.key, error = in_words(&error), failures, "an event could not be written; trying again");
                EventOutcome::Failed { again: BACKOFF.delay(failures, &self.shared.env) }
            }
        }
    }

    /// Makes an Event, or counts on in the one that is there. Returns the count that it had before us.
    async fn send(&self, due: &Due) -> Result<u32, kube::Error> {
        let api = Api::<Event>::namespaced(self.client.clone(), namespace(&due.report));
        // It may be gone: the API server keeps Events for an hour.
        if let Some(before) = due.before
            && count_on(&api, due, before).await?
        {
            return Ok(before);
        }
        let before = due.before.unwrap_or(0);
        let event = event(due, before, &self.instance);
        match api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => return answer.map(|_| before),
        }
        // Said before: by another process, by this one a while ago, or just now, if the answer was lost.
        let found = api.get(&name(due)).await?;
        let second = |time: &Option<Time>| time.as_ref().map(|time| time.0.as_second());
        let is_this = found.reporting_instance == event.reporting_instance
            && second(&found.first_timestamp) == second(&event.first_timestamp);
        let counted = u32::try_from(found.count.unwrap_or(1)).unwrap_or(1);
        let before = if is_this { before } else { counted };
        count_on(&api, due, before).await?;
        Ok(before)
    }
}

/// Has an Event say and count what it should now. False if it is gone. It is given the count, not what to add to it: so a
/// repeated write is harmless.
async fn count_on(api: &Api<Event>, due: &Due, before: u32) -> Result<bool, kube::Error> {
    let patch = json!({"count": count(due, before), "lastTimestamp": Time(due.last), "message": message(due)});
    match api.patch(&name(due), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        answer => answer.map(|_| true),
    }
}

fn event(due: &Due, before: u32, instance: &str) -> Event {
    let report = &due.report;
    let KindInfo { group, version, kind, .. } = report.about;
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let some = |text: &str| Some(text.to_owned());
    Event {
        metadata: ObjectMeta { name: Some(name(due)), namespace: some(namespace(report)), ..ObjectMeta::default() },
        type_: some(report.event_type.name()),
        action: some(report.action),
        reason: some(report.reason),
        message: Some(message(due)),
        count: Some(count(due, before)),
        first_timestamp: Some(Time(due.first)),
        last_timestamp: Some(Time(due.last)),
        source: Some(EventSource { component: some(CONTROLLER), host: None }),
        reporting_component: some(CONTROLLER),
        reporting_instance: some(instance),
        involved_object: ObjectReference {
            api_version: Some(api_version),
            kind: some(kind),
            namespace: Some(report.key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: some(&report.key.name),
            uid: some(&report.uid),
            ..ObjectReference::default()
        },
        ..Event::default()
    }
}

fn namespace(report: &Report) -> &str {
    if report.key.namespace.is_empty() { "default" } else { &report.key.namespace }
}

/// The same for the same words about the same object, and for all similar ones.
fn name(due: &Due) -> String {
    let report = &due.report;
    let words = if due.is_combined { COMBINED } else { &report.note };
    let mut hasher = DefaultHasher::new();
    (report.about.kind, &report.uid, report.reason, words).hash(&mut hasher);
    let name = &report.key.name[..report.key.name.floor_char_boundary(LONGEST_NAME)];
    format!("{name}.{:016x}", hasher.finish())
}

fn message(due: &Due) -> String {
    let prefix = if due.is_combined && due.count > 1 { COMBINED } else { "" };
    let mut message = format!("{prefix}{}", due.report.note);
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
}

fn count(due: &Due, before: u32) -> i32 {
    i32::try_from(before.saturating_add(due.count)).unwrap_or(i32::MAX)
}
