//! Watches: a place in the log, and a selector.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::failure::Failure;
use super::kinds::Kind;
use super::output::write_object;
use super::request::{Query, Shape, Target};
use super::selector::Selector;
use super::store::{ChangeKind, Entry, Object, State, Stored};

/// How long a watch lasts if the client does not say. The real server chooses from half an hour to an hour.
const TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// A line of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The version that the client has seen after it.
    pub version: u64,
    /// The event as JSON, with the end of the line.
    pub bytes: Vec<u8>,
    /// Whether the watch ends with it.
    pub is_last: bool,
}

/// A watch. It hands out its lines when it is asked: how late is up to the caller.
pub struct Watch {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
    /// The version at the last wait.
    heard: u64,
    kind: &'static Kind,
    shape: Shape,
    selector: Selector,
    /// What there was when the watch began, if the client did not name a version.
    first: VecDeque<Object>,
    /// The next place in the log to look at.
    place: usize,
    /// The version up to which everything was looked at.
    seen: u64,
    has_bookmarks: bool,
    timeout: Duration,
    is_over: bool,
}

impl Watch {
    pub(super) fn open(
        (shared, news): (Arc<Mutex<State>>, Arc<Notify>),
        state: &State,
        target: &Target<'_>,
        query: &Query,
        shape: Shape,
    ) -> Result<Self, Failure> {
        let selector = Selector::read(target, query)?;
        let from = query.version()?;
        if from > state.version() {
            return Err(Failure::too_new(from, state.version()));
        }
        let mut first = VecDeque::new();
        let seen = if from == 0 {
            let all = state.all(target.kind.store).iter();
            let wanted = all.filter(|(key, object)| selector.has_key(key) && selector.matches(&object.value));
            first.extend(wanted.map(|(_, object)| object.clone()));
            state.version()
        } else {
            from
        };
        Ok(Self {
            state: shared,
            news,
            heard: state.version(),
            kind: target.kind,
            shape,
            selector,
            first,
            place: state.place_after(seen),
            seen,
            has_bookmarks: query.bookmarks,
            timeout: query.timeout.unwrap_or(TIMEOUT),
            is_over: false,
        })
    }

    /// The resource that is watched, such as `pods` or `deployments.apps`.
    pub fn resource(&self) -> &str {
        &self.kind.qualified
    }

    /// How long the client wants it to last.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The next event, if there is one by now.
    #[expect(clippy::should_implement_trait, reason = "an iterator that has ended has nothing more; this may")]
    pub fn next(&mut self) -> Option<Line> {
        if self.is_over {
            return None;
        }
        if let Some(object) = self.first.pop_front() {
            let version = version_of(&object.value).unwrap_or(self.seen);
            return Some(self.line("ADDED", &object, version));
        }
        let shared = self.state.clone();
        let state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.seen < state.compacted() {
            self.is_over = true;
            let expired = format!("too old resource version: {} ({})", self.seen, state.compacted());
            let status = Failure::expired(expired, None).status();
            let bytes = format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into_bytes();
            return Some(Line { version: self.seen, bytes, is_last: true });
        }
        while let Some(entry) = state.entry(self.place) {
            self.place += 1;
            self.seen = entry.version;
            if let Some((kind, object)) = self.event(entry) {
                return Some(self.line(kind, &object, entry.version));
            }
        }
        // Its CRD is gone: the real server ends it without a word.
        self.is_over = !state.is_served(self.kind);
        None
    }

    /// Whether nothing will come any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// A bookmark at the place the watch is at, if the client wants such.
    pub fn bookmark(&self) -> Option<Line> {
        if !self.has_bookmarks || self.is_over || !self.first.is_empty() {
            return None;
        }
        let metadata = json!({"resourceVersion": self.seen.to_string(), "creationTimestamp": null});
        let object = Stored::new(json!({"metadata": metadata}));
        Some(self.line("BOOKMARK", &object, self.seen))
    }

    /// Resolves when something was written since the last call.
    pub async fn changed(&mut self) {
        loop {
            let news = self.news.clone();
            let mut told = std::pin::pin!(news.notified());
            // Before looking, or what is written between the look and the wait would be missed.
            told.as_mut().enable();
            let version = self.state.lock().unwrap_or_else(PoisonError::into_inner).version();
            if std::mem::replace(&mut self.heard, version) != version {
                return;
            }
            told.await;
        }
    }

    /// What a change means to this watch.
    fn event(&self, entry: &Entry) -> Option<(&'static str, Object)> {
        if entry.store != self.kind.store || !self.selector.has_key(&entry.key) {
            return None;
        }
        let is_in = |object: &Object| self.selector.matches(&object.value);
        let was_in = entry.previous.as_ref().is_some_and(is_in);
        match entry.kind {
            ChangeKind::Deleted => was_in.then(|| ("DELETED", entry.object.clone())),
            _ if is_in(&entry.object) => Some((if was_in { "MODIFIED" } else { "ADDED" }, entry.object.clone())),
            _ => entry.previous.as_ref().filter(|_| was_in).map(|previous| {
                // As it was when it was last selected, at the version that took it out.
                let mut last = Value::clone(&previous.value);
                last["metadata"]["resourceVersion"] = json!(entry.version.to_string());
                ("DELETED", Stored::new(last))
            }),
        }
    }

    fn line(&self, kind: &str, object: &Object, version: u64) -> Line {
        let mut bytes = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
        write_object(&mut bytes, self.kind, self.shape, object, false);
        bytes.extend_from_slice(b"}\n");
        Line { version, bytes, is_last: false }
    }
}

fn version_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
