//! Time in a simulated run: tokio's paused clock, which jumps to the next timer whenever nobody has anything to do, and
//! how far off a process's own wall clock is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use dapple_control::env::Clock;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The second at which every run begins: 2026-01-01.
pub const FIRST_SECOND: i64 = 1_767_225_600;

/// Whoever asks for the time so often while none passes does nothing else any more, and time never will.
const MOST_ASKED: u64 = 100_000;

/// A wall clock. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct WallClock {
    begun: Instant,
    ahead: Arc<AtomicI64>,
    /// When it was asked last, and how often since time has passed.
    asked: Arc<(AtomicI64, AtomicU64)>,
}

impl WallClock {
    /// A clock that is right, begun at the same moment as all others of the run.
    pub fn new(begun: Instant) -> Self {
        Self { begun, ahead: Arc::default(), asked: Arc::default() }
    }

    /// The clock jumps by so many seconds.
    pub fn jump(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.begun.elapsed()).unwrap_or(SignedDuration::MAX);
        let (last, count) = &*self.asked;
        let millis = passed.as_millis() as i64;
        if last.swap(millis, Ordering::Relaxed) != millis {
            count.store(0, Ordering::Relaxed);
        }
        assert!(count.fetch_add(1, Ordering::Relaxed) < MOST_ASKED, "it is busy for ever, and no time passes");
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        let begun = Timestamp::from_second(FIRST_SECOND).unwrap_or(Timestamp::UNIX_EPOCH);
        begun.saturating_add(passed.saturating_add(ahead)).unwrap_or(Timestamp::MAX)
    }
}
