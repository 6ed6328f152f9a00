//! Locks between processes, held by an open file: the kernel lets go of them when the holder dies, however it dies.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Result, io_error};

/// An exclusive lock, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, waiting for it as long as it takes; `on_wait` hears who holds it, once.
    pub(crate) fn acquire(path: &Path, on_wait: impl Fn(&str)) -> Result<Self> {
        let mut told = false;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(io_error("open", path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if !told {
                        told = true;
                        on_wait(std::fs::read_to_string(path).unwrap_or_default().trim());
                    }
                    retry_interrupted(|| flock(&file, FlockOperation::LockExclusive))
                        .map_err(io_error("lock", path))?;
                }
                Err(error) => return Err(io_error("lock", path)(error.into())),
            }
            // Somebody may have removed the file (with its folder) while we waited: a lock on it protects nothing.
            let same = match (file.metadata(), std::fs::metadata(path)) {
                (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
                _ => false,
            };
            if same {
                // Only for people who wonder who holds it; nothing is decided by it.
                let _ = file.set_len(0).and_then(|()| write!(file, "pid {}", std::process::id()));
                return Ok(Self { _file: file });
            }
            if let Some(parent) = path.parent() {
                crate::files::make_dir(parent)?;
            }
        }
    }
}

fn retry_interrupted(mut call: impl FnMut() -> rustix::io::Result<()>) -> std::io::Result<()> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_second_waits_for_the_first_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::acquire(&path, |_| panic!("nobody holds it")).unwrap();
        let (told, hear) = mpsc::channel();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                Lock::acquire(&path, |holder| told.send(holder.to_owned()).unwrap()).unwrap();
            })
        };
        assert_eq!(hear.recv().unwrap(), format!("pid {}", std::process::id()));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap();
    }

    #[test]
    fn a_lock_on_a_removed_file_is_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::acquire(&path, |_| {}).unwrap();
        let (told, hear) = mpsc::channel();
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || Lock::acquire(&path, |_| told.send(()).unwrap()).unwrap())
        };
        hear.recv().unwrap();
        std::fs::remove_file(&path).unwrap();
        drop(first);
        let _second = waiter.join().unwrap();
        assert!(path.exists());
    }
}
