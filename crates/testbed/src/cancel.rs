//! Blocking work that ends when nobody waits for it any more.
//!
//! A thread can't be stopped from outside, and a runtime waits for its blocking threads when it is dropped: work that may
//! take long looks at its [`Cancel`] again and again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::error::{Error, Result};

/// Says whether anybody still waits for the work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Fails once nobody waits any more.
    pub(crate) fn check(&self, what: &'static str) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted { what }) } else { Ok(()) }
    }
}

/// Cancels when the future it is part of is dropped.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work on a thread of its own; dropping the future cancels it.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
) -> Result<T> {
    let cancel = Cancel::default();
    let _guard = CancelOnDrop(cancel.clone());
    tokio::task::spawn_blocking(move || work(&cancel)).await.map_err(|_| Error::Interrupted { what })?
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::lock::Lock;

    #[test]
    fn waiting_for_a_lock_ends_with_its_future() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _held = Lock::attempt(&path, true).unwrap().unwrap();
        let (waits, is_waiting) = mpsc::channel();
        let (ends, has_ended) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let waiter = runtime.spawn(blocking("waiting", move |cancel| {
            let lock = Lock::acquire(&path, cancel, |_| waits.send(()).unwrap());
            ends.send(lock.map(|_| ())).unwrap();
            Ok(())
        }));
        is_waiting.recv().unwrap();
        waiter.abort();
        let ended = has_ended.recv_timeout(Duration::from_secs(60)).expect("the thread waits on");
        assert!(matches!(ended, Err(Error::Interrupted { .. })), "{ended:?}");
    }
}
