//! The user's cache of built programs: `<cache>/upstream/<module>-<hash>/<program>` with a manifest beside each.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::modules::{Binary, Module};
use crate::{
    error::{Error, Result, io_error},
    files::{make_dir, write_atomically},
    hash::hex,
};

/// What a whole program looks like. It is written last, so a program without one is not whole.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    sha256: String,
    size: u64,
    /// Nanoseconds since the epoch. Reading 400 MB at every start is too slow; a file that was touched is read.
    modified: i128,
}

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(super) fn at(cache: &Path) -> Result<Self> {
        let root = cache.join("upstream");
        make_dir(&root)?;
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.root.join("build.lock")
    }

    fn folder(&self, module: Module) -> PathBuf {
        self.root.join(format!("{}-{}", module.name(), module.hash()))
    }

    fn path(&self, binary: Binary) -> PathBuf {
        self.folder(binary.module()).join(binary.name())
    }

    /// The program, if it is there and whole. What isn't whole will be built again; `tell` hears why.
    pub(super) fn find(&self, binary: Binary, tell: &dyn Fn(&str)) -> Option<PathBuf> {
        let path = self.path(binary);
        let manifest = manifest_path(&path);
        if !path.exists() && !manifest.exists() {
            return None;
        }
        match check(&path, &manifest) {
            Ok(()) => Some(path),
            Err(reason) => {
                tell(&format!("the cached {} is damaged ({reason}): building it again", path.display()));
                None
            }
        }
    }

    /// Takes a freshly built program into the cache, replacing a damaged one.
    pub(super) fn put(&self, binary: Binary, built: &Path) -> Result<PathBuf> {
        let path = self.path(binary);
        let manifest = manifest_path(&path);
        make_dir(&self.folder(binary.module()))?;
        // In this order a crash at any point leaves a program without manifest, never a manifest that lies.
        match fs::remove_file(&manifest) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", manifest)(error));
            }
            _ => {}
        }
        File::open(built).and_then(|file| file.sync_all()).map_err(io_error("sync", built))?;
        fs::rename(built, &path).map_err(io_error("replace", &path))?;
        let content = describe(&path).map_err(io_error("read", &path))?;
        let text = serde_json::to_vec(&content)
            .map_err(|error| Error::State { path: manifest.clone(), reason: error.to_string() })?;
        write_atomically(&manifest, &text)?;
        Ok(path)
    }
}

fn manifest_path(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}.json", path.file_name().unwrap_or_default().to_string_lossy()))
}

fn modified(data: &fs::Metadata) -> i128 {
    i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec())
}

fn describe(path: &Path) -> std::io::Result<Manifest> {
    let data = fs::metadata(path)?;
    Ok(Manifest { sha256: sha256(path)?, size: data.len(), modified: modified(&data) })
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// Whether the program is the one that was built; the error says what isn't right.
fn check(path: &Path, manifest: &Path) -> Result<(), String> {
    let text = fs::read_to_string(manifest).map_err(|error| format!("manifest: {error}"))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| format!("manifest: {error}"))?;
    let data = fs::metadata(path).map_err(|error| error.to_string())?;
    if data.len() != manifest.size {
        return Err(format!("{} bytes instead of {}", data.len(), manifest.size));
    }
    if data.permissions().mode() & 0o111 == 0 {
        return Err("not executable".to_owned());
    }
    if modified(&data) != manifest.modified {
        let now = sha256(path).map_err(|error| error.to_string())?;
        if now != manifest.sha256 {
            return Err("changed since it was built".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn filled() -> (tempfile::TempDir, Cache, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let built = cache.root().join("built");
        fs::write(&built, "#!/bin/sh\necho hello\n").unwrap();
        fs::set_permissions(&built, fs::Permissions::from_mode(0o755)).unwrap();
        let path = cache.put(Binary::Etcd, &built).unwrap();
        (dir, cache, path)
    }

    fn complaint(cache: &Cache) -> String {
        let said = RefCell::new(String::new());
        assert_eq!(cache.find(Binary::Etcd, &|line| said.borrow_mut().push_str(line)), None);
        said.into_inner()
    }

    #[test]
    fn what_was_put_is_found() {
        let (_dir, cache, path) = filled();
        assert_eq!(cache.find(Binary::Etcd, &|line| panic!("{line}")), Some(path));
        assert_eq!(cache.find(Binary::Kwok, &|line| panic!("{line}")), None);
    }

    #[test]
    fn damage_of_every_kind_is_seen_and_named() {
        let (_dir, cache, path) = filled();
        fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(complaint(&cache).contains("bytes instead of"));

        let (_dir, cache, path) = filled();
        fs::write(&path, "#!/bin/sh\necho jello\n").unwrap();
        assert!(complaint(&cache).contains("changed since it was built"));

        let (_dir, cache, path) = filled();
        fs::remove_file(manifest_path(&path)).unwrap();
        assert!(complaint(&cache).contains("manifest"));

        let (_dir, cache, path) = filled();
        fs::write(manifest_path(&path), "{").unwrap();
        assert!(complaint(&cache).contains("manifest"));

        let (_dir, cache, path) = filled();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(complaint(&cache).contains("not executable"));

        let (_dir, cache, path) = filled();
        fs::remove_file(&path).unwrap();
        assert!(complaint(&cache).contains("building it again"));
    }

    #[test]
    fn a_damaged_entry_is_replaced() {
        let (_dir, cache, path) = filled();
        fs::write(&path, "broken").unwrap();
        let built = cache.root().join("built");
        fs::write(&built, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&built, fs::Permissions::from_mode(0o755)).unwrap();
        cache.put(Binary::Etcd, &built).unwrap();
        assert_eq!(cache.find(Binary::Etcd, &|line| panic!("{line}")), Some(path));
    }
}
