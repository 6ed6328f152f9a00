//! Which Events are written, and when: what client-go's `EventCorrelator` does, without losing what had to wait.
//!
//! - Of each object and type (Normal, Warning) 25 writes go at once, then one in five minutes. A rollout of ten thousand
//!   pods is Normal, and holds back no Warning.
//! - The same words again are counted in the Event that has them, and so are words that differ, once there are ten of
//!   one reason in ten minutes, or no write is left: in one Event for that reason, which says the last of them.
//! - What waits is written when it may be, so a count is right in the end. client-go forgets it.
//!
//! Invariant: of an object no more is kept than a few Events for each reason, and no more objects than [`MOST_OBJECTS`].

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Report;
use crate::slim::Key;

/// Writes at once about one object.
pub(super) const BURST: u32 = 25;
/// After those, one in so long.
pub(super) const REFILL: Duration = Duration::from_secs(300);
/// So many different words of one reason make an Event for all of them, unless so long ago.
const SIMILAR: usize = 10;
pub(super) const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// A count is written this often, so that a burst takes one write and not all.
pub(super) const PACE: Duration = Duration::from_secs(10);
/// Objects that are remembered, as many as client-go does.
pub(super) const MOST_OBJECTS: usize = 4096;

/// What is known of all objects.
#[derive(Default)]
pub(super) struct Correlator {
    objects: BTreeMap<ObjectId, Object>,
    /// The number of the next Event that waits: the first to wait is the first to be written.
    turn: u64,
}

/// Kind and key.
type ObjectId = (&'static str, Key);

struct Object {
    uid: String,
    seen: Instant,
    /// Normal and Warning.
    sources: [Source; 2],
}

/// Events of one type about one object.
struct Source {
    bucket: Bucket,
    series: BTreeMap<SeriesId, Series>,
}

/// The reason, and the words; none for the Event of all similar ones.
type SeriesId = (&'static str, Option<String>);

/// One Event, written or not.
struct Series {
    /// What it says; of similar ones, the last.
    report: Report,
    first: Timestamp,
    last: Timestamp,
    count: u32,
    /// How many of them were written.
    written: u32,
    /// If it was made: the count that it had before us.
    before: Option<u32>,
    turn: u64,
    not_before: Instant,
    failures: u32,
    seen: Instant,
}

/// An Event that may be written now.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) report: Report,
    /// Whether it stands for similar ones.
    pub(super) is_combined: bool,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
    /// If it was made: the count that it had before us.
    pub(super) before: Option<u32>,
    pub(super) failures: u32,
    series: SeriesId,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    Write(Box<Due>),
    WaitUntil(Instant),
    Nothing,
}

/// What came of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventOutcome {
    /// Done, on top of so many that were counted before us.
    Wrote { before: u32 },
    /// It is never to be taken.
    Refused,
    /// To be tried again, after so long.
    Failed { again: Duration },
}

impl Correlator {
    /// Takes in something to say, at this time of day.
    pub(super) fn observe(&mut self, report: Report, at: Timestamp, now: Instant) {
        let id = (report.about.kind, report.key.clone());
        if !self.objects.contains_key(&id) {
            self.make_room(now);
        }
        let object = self.objects.entry(id).or_insert_with(|| Object::new(&report.uid, now));
        if object.uid != report.uid {
            // One of the same name is another.
            *object = Object::new(&report.uid, now);
        }
        object.seen = now;
        object.sources[report.event_type as usize].observe(report, at, now, self.turn);
        self.turn += 1;
    }

    /// An object is gone, and with it all there was to say about it.
    pub(super) fn forget(&mut self, kind: &'static str, key: &Key) {
        self.objects.remove(&(kind, key.clone()));
    }

    /// The Event to be written next, or when to ask again.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        self.expire(now);
        let (mut first, mut soonest): (Option<(&SeriesId, &Series)>, Option<Instant>) = (None, None);
        for source in self.objects.values().flat_map(|object| &object.sources) {
            let may_write = source.bucket.next(now);
            for (id, series) in source.series.iter().filter(|(_, series)| series.waits()) {
                let due = may_write.max(series.not_before);
                if due > now {
                    soonest = Some(soonest.map_or(due, |known| known.min(due)));
                } else if first.is_none_or(|(_, known)| series.turn < known.turn) {
                    first = Some((id, series));
                }
            }
        }
        match (first, soonest) {
            (Some((id, series)), _) => Next::Write(Box::new(series.due(id))),
            (None, Some(soonest)) => Next::WaitUntil(soonest),
            (None, None) if self.objects.is_empty() => Next::Nothing,
            // Nothing is to be written: to be forgotten by then.
            (None, None) => Next::WaitUntil(now + SIMILAR_WITHIN),
        }
    }

    /// Takes in what came of writing an Event.
    pub(super) fn wrote(&mut self, due: &Due, outcome: EventOutcome, now: Instant) {
        let id = (due.report.about.kind, due.report.key.clone());
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.uid == due.report.uid) else { return };
        let source = &mut object.sources[due.report.event_type as usize];
        let Some(series) = source.series.get_mut(&due.series) else { return };
        match outcome {
            EventOutcome::Failed { again } => {
                series.failures += 1;
                series.not_before = now + again;
                return;
            }
            EventOutcome::Wrote { before } => series.before = Some(before),
            EventOutcome::Refused => {}
        }
        (series.written, series.failures, series.not_before) = (due.count, 0, now + PACE);
        source.bucket.take(now);
    }

    /// Drops what makes no difference any more: objects about which nothing is to be said or was said for so long that
    /// they are as good as new.
    fn expire(&mut self, now: Instant) {
        self.objects.retain(|_, object| {
            for source in &mut object.sources {
                source.series.retain(|_, series| series.waits() || now - series.seen < SIMILAR_WITHIN);
            }
            object.sources.iter().any(|source| !source.series.is_empty() || !source.bucket.is_full(now))
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    #[cfg(test)]
    pub(super) fn series_of(&self, kind: &'static str, key: &Key) -> usize {
        let object = self.objects.get(&(kind, key.clone()));
        object.map_or(0, |object| object.sources.iter().map(|source| source.series.len()).sum())
    }

    fn make_room(&mut self, now: Instant) {
        self.expire(now);
        if self.objects.len() >= MOST_OBJECTS {
            let oldest = self.objects.iter().min_by_key(|(_, object)| object.seen).map(|(id, _)| id.clone());
            oldest.map(|id| self.objects.remove(&id));
        }
    }
}

impl Object {
    fn new(uid: &str, now: Instant) -> Self {
        let source = || Source { bucket: Bucket { full_at: now }, series: BTreeMap::new() };
        Self { uid: uid.to_owned(), seen: now, sources: [source(), source()] }
    }
}

impl Source {
    fn observe(&mut self, report: Report, at: Timestamp, now: Instant, turn: u64) {
        let id = (report.reason, self.words(&report, now));
        let not_before = if id.1.is_some() { now } else { now + PACE };
        let series = self.series.entry(id).or_insert_with(|| Series {
            report: report.clone(),
            first: at,
            last: at,
            count: 0,
            written: 0,
            before: None,
            turn,
            not_before,
            failures: 0,
            seen: now,
        });
        if !series.waits() {
            series.turn = turn;
        }
        series.count = series.count.saturating_add(1);
        (series.report, series.last, series.seen) = (report, at, now);
    }

    /// The words under which a report is counted; none if together with similar ones.
    fn words(&self, report: &Report, now: Instant) -> Option<String> {
        let words = Some(report.note.clone());
        let waiting = self.series.values().filter(|series| series.waits()).count();
        let has_room = waiting < self.bucket.left(now) as usize;
        let is_new = |series: &Series| now - series.seen < SIMILAR_WITHIN;
        let is_own = match self.series.get(&(report.reason, words.clone())) {
            Some(known) => known.waits() || has_room,
            None => {
                let similar = |(id, series): &(&SeriesId, &Series)| id.0 == report.reason && is_new(series);
                has_room && self.series.iter().filter(similar).count() < SIMILAR - 1
            }
        };
        words.filter(|_| is_own)
    }
}

impl Series {
    /// Whether there is something to write.
    fn waits(&self) -> bool {
        self.count > self.written
    }

    fn due(&self, id: &SeriesId) -> Due {
        Due {
            report: self.report.clone(),
            is_combined: id.1.is_none(),
            first: self.first,
            last: self.last,
            count: self.count,
            before: self.before,
            failures: self.failures,
            series: id.clone(),
        }
    }
}

/// A token bucket.
struct Bucket {
    /// When it is full again, unless something is taken before.
    full_at: Instant,
}

impl Bucket {
    fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// How many may be taken now.
    fn left(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos().div_ceil(REFILL.as_nanos());
        BURST.saturating_sub(u32::try_from(missing).unwrap_or(BURST))
    }

    /// When one may be taken.
    fn next(&self, now: Instant) -> Instant {
        if self.left(now) > 0 { now } else { self.full_at.checked_sub(REFILL * (BURST - 1)).unwrap_or(now) }
    }

    fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + REFILL;
    }
}
