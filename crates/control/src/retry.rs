//! Asking the API server again: with growing pauses while it fails, and at once when it is known to be back.
//!
//! Invariants:
//! - A success after failures, of any part of this process, ends the pauses of all others: nobody sits out half a minute
//!   before an API server that has been back for long.
//! - Who is woken early begins with short pauses anew, as an API server that has just started may still refuse; and is woken so
//!   again only after a success, or once its pauses have become as long as they get. So an API server that answers some and
//!   refuses others is asked once more in a while, not all the time.
//! - Pauses that end early do so spread over [`SPREAD`]: lists do not come all at once.

use std::time::Duration;

use kube::runtime::watcher;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::env::{Backoff, Env};
use crate::signal::Signal;

/// Over so long those come back who waited for the API server.
const SPREAD: Duration = Duration::from_millis(500);

/// A watch that is told twice within this time that it is too old waits before it lists.
const LIST_ANEW_EVERY: Duration = Duration::from_secs(10);

/// How often the API server answered after it had failed.
#[derive(Debug, Clone, Default)]
pub struct Recovery(Signal);

impl Recovery {
    /// Says that it has answered after it had failed.
    pub fn note(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// How often that has been so.
    pub fn count(&self) -> u64 {
        self.0.get()
    }

    /// Waits until it has been so more often than this.
    pub async fn after(&self, count: u64) -> u64 {
        self.0.until(|now| now > count).await
    }
}

/// One who asks again after failures.
pub struct Retry {
    backoff: Backoff,
    recovery: Recovery,
    env: Env,
    failures: u32,
    /// The recoveries that were known when it was asked last.
    known: u64,
    /// Whether a pause has ended early since the last success, and none of the longest has passed after it.
    was_early: bool,
    /// When it last listed at once, since what it watched had expired.
    listed_anew: Option<Instant>,
}

impl Retry {
    /// One who has not failed yet.
    pub fn new(backoff: Backoff, recovery: Recovery, env: Env) -> Self {
        let known = recovery.count();
        Self { backoff, recovery, env, failures: 0, known, was_early: false, listed_anew: None }
    }

    /// It answered.
    pub fn succeed(&mut self) {
        self.was_early = false;
        if std::mem::take(&mut self.failures) > 0 {
            self.recovery.note();
        }
        self.known = self.recovery.count();
    }

    /// It failed. Returns the pause until it should be asked again.
    pub fn fail(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.delay(self.failures, &self.env)
    }

    /// A watch was told that what it asks for is too old. Returns whether to list at once: the API server is there, so to wait
    /// would be in vain, unless this has just been so.
    pub fn expire(&mut self) -> bool {
        let lists = self.listed_anew.is_none_or(|at| at.elapsed() >= LIST_ANEW_EVERY);
        if lists {
            self.listed_anew = Some(Instant::now());
        }
        lists
    }

    /// Waits for so long, or until the API server is known to be back.
    pub async fn pause(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        if !self.was_early {
            let back = timeout_at(end, self.recovery.after(self.known)).await;
            if let Ok(known) = back {
                (self.known, self.was_early, self.failures) = (known, true, 0);
                let spread = SPREAD.mul_f64(self.env.fraction());
                sleep_until(end.min(Instant::now() + spread)).await;
                return;
            }
        }
        sleep_until(end).await;
        self.known = self.recovery.count();
        self.was_early &= !self.backoff.is_longest(self.failures);
    }
}

/// Whether a watch is told that what it asks for is too old.
pub fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

/// Whether a watch is told that there is no such kind.
pub fn is_missing(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status))) = error else {
        return false;
    };
    status.code == 404
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SystemClock;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

    fn retry(recovery: &Recovery) -> Retry {
        Retry::new(BACKOFF, recovery.clone(), Env::new(SystemClock, 1))
    }

    async fn paused(retry: &mut Retry) -> Duration {
        let began = Instant::now();
        let pause = retry.fail();
        retry.pause(pause).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_the_pauses_of_others() {
        let recovery = Recovery::default();
        let (mut first, mut second) = (retry(&recovery), retry(&recovery));
        first.fail();
        second.failures = 20;
        let others = tokio::spawn(async move { (paused(&mut second).await, second) });
        tokio::time::sleep(Duration::from_secs(3)).await;
        first.succeed();
        let (waited, second) = others.await.expect("it waits");
        assert!(waited >= Duration::from_secs(3) && waited <= Duration::from_secs(3) + SPREAD, "{waited:?}");
        assert!(second.was_early);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_again_waits_to_the_end() {
        let recovery = Recovery::default();
        let mut retry = retry(&recovery);
        recovery.note();
        assert!(paused(&mut retry).await <= SPREAD, "it was back while it was asked");
        for failures in 1..=5 {
            recovery.note();
            let again = paused(&mut retry).await;
            let full = BACKOFF.first * (1 << (failures - 1));
            assert!(again >= full / 2 && again <= full, "{failures} failures: {again:?}");
        }
        recovery.note();
        assert!(paused(&mut retry).await >= Duration::from_secs(15), "the longest pause");
        recovery.note();
        assert!(paused(&mut retry).await <= SPREAD, "the longest pause has passed since");
        retry.succeed();
        recovery.note();
        assert!(paused(&mut retry).await <= SPREAD, "and it has succeeded since");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_expires_over_and_over_does_not_list_all_the_time() {
        let mut retry = retry(&Recovery::default());
        assert!(retry.expire());
        assert!(!retry.expire());
        retry.succeed();
        assert!(!retry.expire(), "a list between them is no reason");
        tokio::time::sleep(LIST_ANEW_EVERY).await;
        assert!(retry.expire());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_without_failures_tells_nobody() {
        let recovery = Recovery::default();
        let mut retry = retry(&recovery);
        retry.succeed();
        assert_eq!(recovery.count(), 0);
        assert!(paused(&mut retry).await >= BACKOFF.first / 2);
        retry.succeed();
        assert_eq!(recovery.count(), 1);
    }
}
