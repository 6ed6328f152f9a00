//! Lets writes through one after another, with a time between them.

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
