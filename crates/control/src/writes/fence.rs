//! The fence before writes: open only while this process holds the lease, and only to what was decided in this term.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_plan::mutant::{Mutant, is_on};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::env::Env;

tokio::task_local! {
    /// The term that what a task does was decided in.
    static DECIDED_IN: u64;
}

/// Does something that is decided on what is known in this term: in another, nothing of it is written any more.
pub async fn in_term<T>(term: u64, work: impl Future<Output = T>) -> T {
    DECIDED_IN.scope(term, work).await
}

/// Whether this process may write. Every write to the cluster passes it last thing before it is sent.
#[derive(Clone)]
pub struct Fence {
    open_until: Arc<Mutex<Option<(Instant, Timestamp)>>>,
    term: Arc<AtomicU64>,
    env: Env,
}

impl Fence {
    /// A closed fence.
    pub fn new(env: Env) -> Self {
        Self { open_until: Arc::default(), term: Arc::default(), env }
    }

    /// What it takes the time from.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Whether writes may be sent now. Both clocks must agree: the monotonic one stands still while a machine sleeps,
    /// and the wall clock can be set back.
    pub fn is_open(&self) -> bool {
        let until = *self.open_until.lock().unwrap_or_else(PoisonError::into_inner);
        let is_timely = |(instant, wall)| Instant::now() < instant && self.env.now() < wall;
        let is_of_now = DECIDED_IN.try_with(|term| *term == self.term.load(Ordering::SeqCst)).unwrap_or(true);
        until.is_some_and(|until| (is_timely(until) && is_of_now) || is_on(Mutant::LeaderForLife))
    }

    /// The term that writes have to be decided in, if they are decided in one.
    pub(crate) fn set_term(&self, term: u64) {
        self.term.store(term, Ordering::SeqCst);
    }

    /// Opens it for so long after a renewal was sent.
    pub(crate) fn open(&self, sent: Instant, sent_wall: Timestamp, length: Duration) {
        let wall = sent_wall.checked_add(jiff::SignedDuration::try_from(length).unwrap_or_default());
        let until = (sent + length, wall.unwrap_or(sent_wall));
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Opens it without an election.
    #[cfg(test)]
    pub(crate) fn open_for_test(&self, length: Duration) {
        self.open(Instant::now(), self.env.now(), length);
    }

    /// Closes it, before it would by itself.
    pub(crate) fn close(&self) {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn the_fence_closes_by_itself() {
        let fence = Fence::new(Env::new(SystemClock, 1));
        assert!(!fence.is_open());
        fence.open(Instant::now(), Timestamp::now(), Duration::from_secs(10));
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert!(fence.is_open());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_finds_the_fence_closed() {
        let fence = Fence::new(Env::new(SystemClock, 1));
        let before_the_sleep = Timestamp::now() - jiff::SignedDuration::from_secs(60);
        fence.open(Instant::now(), before_the_sleep, Duration::from_secs(10));
        assert!(!fence.is_open(), "the monotonic clock stood still, the wall clock did not");
    }
}
