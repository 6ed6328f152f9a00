//! Locks between processes, held by an open file: the kernel lets go of them when the holder dies, however it dies.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use crate::{
    cancel::Cancel,
    error::{Result, io_error},
    files::make_private_dir,
};

/// How often a held lock is tried. A blocking `flock` would leave nobody a way to give up waiting.
const PAUSE: Duration = Duration::from_millis(50);

/// An exclusive lock, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Tries once: nothing where somebody else holds it. The folder must be there, and the file too unless `create`.
    pub(crate) fn attempt(path: &Path, create: bool) -> io::Result<Option<Self>> {
        let mut file = OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // The last holder may have removed the file (with its folder) meanwhile: a lock on it protects nothing.
        let same = match (file.metadata(), std::fs::metadata(path)) {
            (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
            _ => false,
        };
        if !same {
            return Ok(None);
        }
        // Only for people who wonder who holds it; nothing is decided by it.
        let _ = file.set_len(0).and_then(|()| write!(file, "pid {}", std::process::id()));
        Ok(Some(Self { _file: file }))
    }

    /// Takes the lock, waiting for it until cancelled; `on_wait` hears who holds it, once.
    pub(crate) fn acquire(path: &Path, cancel: &Cancel, on_wait: impl Fn(&str)) -> Result<Self> {
        let mut wait = Wait { path, on_wait, told: false };
        loop {
            if let Some(lock) = wait.attempt()? {
                return Ok(lock);
            }
            cancel.check("waiting for another run")?;
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes the lock, waiting for it for as long as the future is wanted; `on_wait` hears who holds it, once.
    pub(crate) async fn wait(path: &Path, on_wait: impl Fn(&str)) -> Result<Self> {
        let mut wait = Wait { path, on_wait, told: false };
        loop {
            if let Some(lock) = wait.attempt()? {
                return Ok(lock);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Takes the lock if it can be had within `limit`.
    pub(crate) fn within(path: &Path, limit: Duration) -> Result<Option<Self>> {
        let mut wait = Wait { path, on_wait: |_: &str| {}, told: false };
        let deadline = Instant::now() + limit;
        loop {
            let lock = wait.attempt()?;
            if lock.is_some() || Instant::now() >= deadline {
                return Ok(lock);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Somebody who wants a lock.
struct Wait<'a, F> {
    path: &'a Path,
    on_wait: F,
    told: bool,
}

impl<F: Fn(&str)> Wait<'_, F> {
    fn attempt(&mut self) -> Result<Option<Lock>> {
        // Made each time: who held the lock may have removed the folder.
        if let Some(parent) = self.path.parent() {
            make_private_dir(parent)?;
        }
        match Lock::attempt(self.path, true) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => {
                if !self.told {
                    self.told = true;
                    (self.on_wait)(&holder(self.path));
                }
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("lock", self.path)(error)),
        }
    }
}

/// Who holds a lock, as far as it says.
pub(crate) fn holder(path: &Path) -> String {
    let said = std::fs::read_to_string(path).unwrap_or_default();
    if said.trim().is_empty() { "another process".to_owned() } else { said.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_second_waits_for_the_first_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::acquire(&path, &Cancel::default(), |_| panic!("nobody holds it")).unwrap();
        assert!(Lock::within(&path, Duration::ZERO).unwrap().is_none());
        let (told, hear) = mpsc::channel();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                Lock::acquire(&path, &Cancel::default(), |holder| told.send(holder.to_owned()).unwrap()).unwrap();
            })
        };
        assert_eq!(hear.recv().unwrap(), format!("pid {}", std::process::id()));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap();
    }

    #[test]
    fn a_lock_whose_folder_was_removed_is_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder").join("lock");
        let first = Lock::within(&path, Duration::ZERO).unwrap().unwrap();
        let (told, hear) = mpsc::channel();
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || Lock::acquire(&path, &Cancel::default(), |_| told.send(()).unwrap()).unwrap())
        };
        hear.recv().unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        drop(first);
        let _second = waiter.join().unwrap();
        assert!(path.exists());
    }
}
