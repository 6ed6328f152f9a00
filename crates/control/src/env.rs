//! What a process gets from outside: wall time and randomness. Both are passed in, so that the simulator can hand out
//! its own and a seed repeats a run. Monotonic time is tokio's, which a test can pause and turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// Wall time. Used for what people read (lease records, events), and never alone to decide who leads.
pub trait Clock: Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Wall time and randomness, handed to everything that needs them.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl Env {
    /// An environment with this clock, whose randomness follows from the seed.
    pub fn new(clock: impl Clock, seed: u64) -> Self {
        Self { clock: Arc::new(clock), random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    /// The machine's clock, and a seed of its own.
    pub fn system() -> Self {
        Self::new(SystemClock, fastrand::Rng::new().u64(..))
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

/// Exponential backoff between two bounds.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// No delay is longer.
    pub longest: Duration,
}

impl Backoff {
    /// The delay after this many failures in a row. Half of it is fixed and half is random, so that many who failed
    /// together do not come back together.
    pub fn delay(&self, failures: u32, env: &Env) -> Duration {
        self.doubled(failures).min(self.longest).mul_f64(0.5 + env.fraction() / 2.0)
    }

    /// Whether the delay after this many failures in a row is as long as it gets.
    pub fn is_longest(&self, failures: u32) -> bool {
        self.doubled(failures) >= self.longest
    }

    fn doubled(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_bound_and_stays() {
        let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
        let env = Env::new(SystemClock, 7);
        for (failures, full) in [(1, 0.1), (2, 0.2), (5, 1.6), (8, 10.0), (40, 10.0), (u32::MAX, 10.0)] {
            let delay = backoff.delay(failures, &env).as_secs_f64();
            assert!(delay >= full / 2.0 && delay <= full, "{failures} failures: {delay} s, expected at most {full} s");
        }
    }

    #[test]
    fn a_seed_repeats_its_numbers() {
        let draw = |seed| {
            let env = Env::new(SystemClock, seed);
            [env.fraction(), env.fraction(), env.fraction()]
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
