//! Lets writes through one after another, and looks at one thing, with a time between them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Who has to wait for the next turn does so by [`Pacer::turn`].
pub(crate) struct Pacer {
    between: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pacer {
    pub(crate) fn new(between: Duration) -> Self {
        Self { between, next: Mutex::default() }
    }

    /// Waits for the next turn.
    pub(crate) async fn turn(&self) {
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.unwrap_or_else(Instant::now).max(Instant::now());
            *next = Some(turn + self.between);
            turn
        };
        tokio::time::sleep_until(turn).await;
    }
}

/// Each of some things is looked at no more often than this.
pub(crate) struct Pace<K> {
    between: Duration,
    looked: Mutex<BTreeMap<K, Instant>>,
}

impl<K: Ord + Clone> Pace<K> {
    pub(crate) fn new(between: Duration) -> Self {
        Self { between, looked: Mutex::default() }
    }

    /// It is to be looked at: how long to wait, if it was a moment ago.
    pub(crate) fn note_look(&self, key: &K) -> Option<Duration> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let left = looked.get(key).map_or(Duration::ZERO, |last| self.between.saturating_sub(last.elapsed()));
        if left.is_zero() {
            looked.insert(key.clone(), Instant::now());
        }
        Some(left).filter(|left| !left.is_zero())
    }

    /// It is gone.
    pub(crate) fn forget(&self, key: &K) {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn twenty_writes_a_second() {
        let (pacer, began) = (Pacer::new(Duration::from_millis(50)), Instant::now());
        // However many ask at once.
        futures::future::join_all((0..41).map(|_| pacer.turn())).await;
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let later = Instant::now();
        pacer.turn().await;
        assert_eq!(later.elapsed(), Duration::ZERO, "nothing is saved up, and nothing owed");
        pacer.turn().await;
        assert_eq!(later.elapsed(), Duration::from_millis(50));
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_looked_at_once_in_a_while() {
        let pace = Pace::new(Duration::from_secs(2));
        assert_eq!((pace.note_look(&"one"), pace.note_look(&"two")), (None, None));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(pace.note_look(&"one"), Some(Duration::from_millis(1500)));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!((pace.note_look(&"one"), pace.note_look(&"one")), (None, Some(Duration::from_secs(2))));
        pace.forget(&"one");
        assert_eq!(pace.note_look(&"one"), None);
    }
}
