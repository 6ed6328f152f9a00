//! How fast a manager sends requests: one limit for all of it, and within that fair shares.
//!
//! Invariants:
//! - Together no more is sent than the limits say.
//! - What a share does not use the others may.
//! - While several shares wait, they have a turn each: ten thousand requests of one delay a request of another by as many
//!   turns as there are shares.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How many requests may be sent.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests per second in the long run.
    pub per_second: f64,
    /// Requests that may be sent at once after a quiet time.
    pub burst: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_second: 400.0, burst: 800.0 }
    }
}

/// Who sends: a family, or a part of the manager.
pub type Share = &'static str;

/// A token bucket. Its tokens go to the shares that wait in turn, and within a share to who came first.
#[derive(Debug, Clone)]
pub struct Rate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    limits: Limits,
    /// When the next request may be sent if requests came at exactly the limit; the past means there is burst to spend.
    next: Instant,
    /// By share, in the order they came. A share that nobody waits in is not there.
    waiting: BTreeMap<Share, VecDeque<oneshot::Sender<()>>>,
    /// The share that had the last turn.
    last: Option<Share>,
    /// Whether somebody calls those who wait: one at a time.
    is_calling: bool,
}

impl Rate {
    /// Nothing was sent yet.
    pub fn new(limits: Limits) -> Self {
        let state = State { limits, next: Instant::now(), waiting: BTreeMap::new(), last: None, is_calling: false };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request may be sent.
    pub async fn take(&self, share: Share) {
        let called = {
            let mut state = self.lock();
            if state.waiting.is_empty() && state.due() <= Instant::now() {
                state.spend();
                return;
            }
            let (call, called) = oneshot::channel();
            state.waiting.entry(share).or_default().push_back(call);
            if !std::mem::replace(&mut state.is_calling, true) {
                tokio::spawn(self.clone().call());
            }
            called
        };
        // It is called before its sender is dropped.
        let _ = called.await;
    }

    /// Calls those who wait, until nobody does.
    async fn call(self) {
        loop {
            let due = {
                let mut state = self.lock();
                state.is_calling = !state.waiting.is_empty();
                if !state.is_calling {
                    return;
                }
                state.due()
            };
            sleep_until(due).await;
            // Who is next is found out when there is a token: another share may have come meanwhile.
            let mut state = self.lock();
            let is_called = state.next_call().is_some_and(|call| call.send(()).is_ok());
            // One that does not wait any more takes no token.
            if is_called {
                state.spend();
            }
        }
    }
}

impl State {
    fn spacing(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.limits.per_second)
    }

    /// When the next request may be sent.
    fn due(&self) -> Instant {
        let most_saved = Duration::from_secs_f64((self.limits.burst - 1.0).max(0.0) / self.limits.per_second);
        let now = Instant::now();
        self.next.max(now.checked_sub(most_saved).unwrap_or(now))
    }

    fn spend(&mut self) {
        self.next = self.due() + self.spacing();
    }

    /// The first who waits, of the share after the one that had the last turn.
    fn next_call(&mut self) -> Option<oneshot::Sender<()>> {
        let after = self.last.and_then(|last| self.waiting.keys().find(|share| **share > last));
        let share = *after.or_else(|| self.waiting.keys().next())?;
        self.last = Some(share);
        let line = self.waiting.get_mut(share)?;
        let call = line.pop_front();
        if line.is_empty() {
            self.waiting.remove(share);
        }
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    /// So many requests of a share, all at once.
    async fn line_up(rate: &Rate, share: Share, count: usize) -> JoinSet<(Share, Instant)> {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let rate = rate.clone();
            tasks.spawn(async move {
                rate.take(share).await;
                (share, Instant::now())
            });
        }
        tokio::task::yield_now().await;
        tasks
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_holds_after_the_burst() {
        let rate = Rate::new(Limits { per_second: 10.0, burst: 5.0 });
        tokio::time::advance(Duration::from_secs(60)).await;
        let started = Instant::now();
        for _ in 0..5 {
            rate.take("a").await;
        }
        assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
        for _ in 0..20 {
            rate.take("a").await;
        }
        let elapsed = started.elapsed().as_secs_f64();
        assert!((1.9..2.1).contains(&elapsed), "{elapsed}");
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_of_one_delay_one_of_another_by_less_than_a_second() {
        let rate = Rate::new(Limits::default());
        let greedy = line_up(&rate, "greedy", 10_000).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let started = Instant::now();
        rate.take("modest").await;
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        let last = greedy.join_all().await.into_iter().map(|(_, at)| at).max().unwrap();
        let elapsed = (last - started).as_secs_f64();
        assert!(elapsed > 15.0, "the limit holds for all of them together: {elapsed}");
    }

    #[tokio::test(start_paused = true)]
    async fn shares_that_wait_have_a_turn_each_and_one_alone_has_all() {
        let rate = Rate::new(Limits { per_second: 100.0, burst: 1.0 });
        let started = Instant::now();
        let (one, other) = (line_up(&rate, "one", 300).await, line_up(&rate, "other", 100).await);
        let (one, other) = (one.join_all().await, other.join_all().await);
        let ended = |of: &[(Share, Instant)]| of.iter().map(|(_, at)| *at - started).max().unwrap().as_secs_f64();
        assert!((1.9..2.1).contains(&ended(&other)), "half of the rate: {}", ended(&other));
        assert!((3.9..4.1).contains(&ended(&one)), "half of it, then all: {}", ended(&one));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_wait_any_more_takes_nothing() {
        let rate = Rate::new(Limits { per_second: 1.0, burst: 1.0 });
        rate.take("a").await;
        let mut gone = line_up(&rate, "a", 1_000).await;
        gone.shutdown().await;
        let started = Instant::now();
        rate.take("b").await;
        assert!(started.elapsed() <= Duration::from_secs(2), "{:?}", started.elapsed());
    }
}
