//! Room on disks.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// A folder and what will be written there.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) folder: PathBuf,
    pub(crate) gigabytes: f64,
    /// The variable that moves the folder elsewhere.
    pub(crate) variable: &'static str,
}

/// Fails with the first folder whose disk lacks the room that all folders on it need together.
pub(crate) fn check(rooms: &[Room], purpose: &str) -> Result<()> {
    for room in rooms {
        let here = device(&room.folder);
        let needed = rooms.iter().filter(|other| device(&other.folder) == here).map(|other| other.gigabytes).sum();
        if free_gigabytes(&room.folder).is_some_and(|free| free < needed) {
            return Err(full(room, needed, purpose));
        }
    }
    Ok(())
}

/// The error that names a folder whose disk is full.
pub(crate) fn full(room: &Room, needed_gb: f64, purpose: &str) -> Error {
    Error::Disk {
        free_gb: free_gigabytes(&room.folder).unwrap_or_default(),
        path: room.folder.clone(),
        needed_gb,
        purpose: purpose.to_owned(),
        variable: room.variable,
    }
}

/// The folder, or the one above it that is there already.
fn existing(folder: &Path) -> &Path {
    folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}

fn device(folder: &Path) -> Option<u64> {
    std::fs::metadata(existing(folder)).ok().map(|data| data.dev())
}

/// Nothing where the file system does not say.
#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn free_gigabytes(folder: &Path) -> Option<f64> {
    let stat = rustix::fs::statvfs(existing(folder)).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize) as f64 / f64::from(1_u32 << 30))
}

/// Whether a text complains of a full disk.
pub(crate) fn is_complaint(text: &str) -> bool {
    text.to_ascii_lowercase().contains("no space left on device")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_too_small_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let room = |name: &str, gigabytes, variable| Room { folder: dir.path().join(name), gigabytes, variable };
        check(&[room("a", 0.0, "A"), room("not/there/yet", 0.0, "B")], "nothing").unwrap();
        let message = check(&[room("b", 1e9, "GOCACHE")], "building etcd").unwrap_err().to_string();
        assert!(message.starts_with(&dir.path().join("b").display().to_string()), "{message}");
        assert!(message.contains("building etcd needs 1000000000.0 GB: free some, or set GOCACHE"), "{message}");
        assert!(!message.contains('\n'));
    }

    #[test]
    fn folders_on_one_disk_share_its_room() {
        let dir = tempfile::tempdir().unwrap();
        let half = free_gigabytes(dir.path()).unwrap() * 0.6;
        let room = Room { folder: dir.path().to_owned(), gigabytes: half, variable: "A" };
        check(std::slice::from_ref(&room), "one").unwrap();
        let Err(Error::Disk { variable, .. }) = check(&[room.clone(), room], "two") else { panic!("it fits twice") };
        assert_eq!(variable, "A");
    }
}
