//! Small helpers around files: atomic writes, log tails and the folders of the user.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::error::{Error, Result, io_error};

/// Writes a file so that a reader sees either the old or the new content, even after a crash.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let mut file = File::create(&temporary).map_err(io_error("create", &temporary))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(io_error("write", &temporary))?;
    fs::rename(&temporary, path).map_err(io_error("replace", path))
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(io_error("create", path))?;
    file.write_all(content).map_err(io_error("write", path))
}

/// Makes a folder and its parents.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(io_error("create", path))
}

/// Makes a folder that only its owner may enter: it will hold keys.
pub(crate) fn make_private_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_error("create", path))
}

/// Removes a folder; one that isn't there is fine.
pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Whether a file or folder is this user's own: what others wrote must not decide whom we signal or what we remove.
pub(crate) fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let ours = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|data| data.uid() == ours)
}

/// The last `lines` lines of a file, as far as they are in its last 64 KiB; empty where it can't be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64 * 1024)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A folder of the user's, by the XDG rules.
fn user_folder(what: &'static str, variable: &'static str, below_home: &str) -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable)
        .or_else(|| absolute("HOME").map(|home| home.join(below_home)))
        .map(|folder| folder.join("dapple"))
        .ok_or(Error::NoHome { what, variable })
}

/// Where built binaries are kept: `DAPPLE_CACHE`, or `dapple` in the user's cache folder.
pub fn cache_root() -> Result<PathBuf> {
    match std::env::var_os("DAPPLE_CACHE").filter(|value| !value.is_empty()) {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => user_folder("built binaries", "XDG_CACHE_HOME", ".cache"),
    }
}

/// Where clusters live that have a name: `dapple/clusters` in the user's state folder.
pub fn clusters_root() -> Result<PathBuf> {
    Ok(user_folder("clusters", "XDG_STATE_HOME", ".local/state")?.join("clusters"))
}

/// Where clusters of test runs live: one folder per user, so that nobody cleans up after somebody else.
pub fn temporary_root() -> PathBuf {
    std::env::temp_dir().join(format!("dapple-testbed-{}", rustix::process::getuid().as_raw()))
}

/// A name that no other process and no other call has: the process, a counter and the clock.
pub(crate) fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    format!("{}-{}-{nanos:08x}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}
