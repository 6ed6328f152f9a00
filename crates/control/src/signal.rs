//! A number that others can wait for.
//!
//! Those who wait are woken in the order in which they came, so that a simulated run can be repeated. tokio's `watch`
//! wakes them in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The number, shared by all who set it and wait for it. 0 at first.
#[derive(Debug, Clone, Default)]
pub struct Signal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    value: AtomicU64,
    changed: Notify,
}

impl Signal {
    /// What it is now.
    pub fn get(&self) -> u64 {
        self.0.value.load(Ordering::SeqCst)
    }

    /// Sets it. Returns whether that changed it.
    pub fn set(&self, value: u64) -> bool {
        let is_changed = self.0.value.swap(value, Ordering::SeqCst) != value;
        if is_changed {
            self.0.changed.notify_waiters();
        }
        is_changed
    }

    /// Waits until it is such, and returns it.
    pub async fn until(&self, is_such: impl Fn(u64) -> bool) -> u64 {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            // Before looking, or a change between the look and the wait would be missed.
            changed.as_mut().enable();
            let value = self.get();
            if is_such(value) {
                return value;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_they_came() {
        let signal = Signal::default();
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..20 {
            let (signal, said) = (signal.clone(), said.clone());
            tokio::spawn(async move {
                assert_eq!(signal.until(|value| value > 1).await, 2);
                said.send(number)
            });
        }
        tokio::task::yield_now().await;
        assert!(signal.set(1) && signal.set(2) && !signal.set(2), "only what is new changes it");
        for number in 0..20 {
            assert_eq!(heard.recv().await, Some(number));
        }
        assert_eq!(signal.until(|value| value == 2).await, 2);
    }
}
