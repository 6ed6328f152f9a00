//! Kubernetes Events about objects.
//!
//! An Event's name follows from what it says, so saying it again is a write that changes nothing: events do not flood,
//! and a restart does not repeat them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::env::{Backoff, Env};
use crate::observed::KindInfo;
use crate::signal::Signal;
use crate::store::Key;

/// Longest note that Kubernetes takes.
const LONGEST_NOTE: usize = 1000;
/// Longest part of an object's name in the name of an Event, which has 253 letters in all.
const LONGEST_NAME: usize = 230;
/// How often an Event is tried to be written.
const TRIES: u32 = 6;
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// Reports that wait to be written. More are dropped: they are a help, and must not fill memory.
const WAITING: usize = 1024;

/// Something to say about an object.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its kind.
    pub about: KindInfo,
    /// Its key.
    pub key: Key,
    /// Its UID.
    pub uid: String,
    /// One word in CamelCase, for machines.
    pub reason: &'static str,
    /// One sentence, for people.
    pub note: String,
}

/// Writes Events in the background, in order.
pub struct Recorder {
    reports: mpsc::Sender<Report>,
}

impl Recorder {
    /// Starts to write Events as `instance` until stopped. A standby sees the same as the leader and leaves the saying
    /// to it; what it saw waits, in case it leads next.
    pub fn start(client: Client, instance: String, env: Env, leading: Signal, stop: CancellationToken) -> Self {
        let (reports, mut waiting) = mpsc::channel::<Report>(WAITING);
        tokio::spawn(async move {
            loop {
                let report =
                    tokio::select! { biased; () = stop.cancelled() => return, report = waiting.recv() => report };
                let Some(report) = report else { return };
                tokio::select! { biased; () = stop.cancelled() => return, _ = leading.until(|term| term != 0) => {} }
                let event = event(&report, &instance, &env);
                let saying = write(&client, &event, &env);
                tokio::select! { biased; () = stop.cancelled() => return, () = saying => {} }
            }
        });
        Self { reports }
    }

    /// Says something about an object. Never waits.
    pub fn report(&self, report: Report) {
        if let Err(error) = self.reports.try_send(report) {
            debug!(%error, "an event was dropped");
        }
    }
}

/// Writes an Event, and tries again a few times: its name follows from its words, so a repeated write is harmless.
async fn write(client: &Client, event: &Event, env: &Env) {
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let api = Api::<Event>::namespaced(client.clone(), namespace);
    for failures in 1..=TRIES {
        match api.create(&PostParams::default(), event).await {
            Ok(_) => return,
            // Said before, or never to be taken.
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                if status.code != 409 {
                    warn!(reason = %status.message, "an event was refused");
                }
                return;
            }
            Err(error) => debug!(%error, failures, "an event could not be written"),
        }
        tokio::time::sleep(BACKOFF.delay(failures, env)).await;
    }
}

fn event(report: &Report, instance: &str, env: &Env) -> Event {
    let KindInfo { group, version, kind, .. } = report.about;
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut note = report.note.clone();
    note.truncate(note.floor_char_boundary(LONGEST_NOTE));
    let name = &report.key.name[..report.key.name.floor_char_boundary(LONGEST_NAME)];
    let namespace = if report.key.namespace.is_empty() { "default" } else { &report.key.namespace };
    let some = |text: &str| Some(text.to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:016x}", fingerprint(report))),
            namespace: some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(env.now())),
        type_: some("Warning"),
        action: some("Reading"),
        reason: some(report.reason),
        note: Some(note),
        reporting_controller: some("dapple.dev/manager"),
        reporting_instance: some(instance),
        regarding: Some(ObjectReference {
            api_version: Some(api_version),
            kind: some(kind),
            namespace: Some(report.key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: some(&report.key.name),
            uid: some(&report.uid),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// The same for the same words about the same object.
fn fingerprint(report: &Report) -> u64 {
    let mut hasher = DefaultHasher::new();
    (report.about.kind, &report.uid, report.reason, &report.note).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SystemClock;

    fn report(note: &str) -> Report {
        let about = KindInfo { group: "g", version: "v1", kind: "Thing", plural: "things" };
        Report { about, key: Key::new("", "a"), uid: "u".into(), reason: "Malformed", note: note.into() }
    }

    #[test]
    fn the_same_words_have_the_same_name() {
        let env = Env::new(SystemClock, 1);
        let name = |note: &str| event(&report(note), "me", &env).metadata.name;
        assert_eq!(name("x"), name("x"));
        assert_ne!(name("x"), name("y"));
    }

    #[test]
    fn a_long_note_is_cut_at_a_letter() {
        let note = "ä".repeat(LONGEST_NOTE);
        let written = event(&report(&note), "me", &Env::new(SystemClock, 1)).note.expect("a note");
        assert!(written.len() <= LONGEST_NOTE && note.starts_with(&written));
    }
}
