//! Building from the pinned modules.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use super::{
    cache::Cache,
    modules::{Binary, Module},
};
use crate::{
    error::{Error, Result, io_error},
    files::{make_dir, remove_dir, tail, unique},
    process::{dying_with_parent, on_spawner},
    progress::Progress,
};

/// The oldest Go that builds the pinned modules.
const OLDEST_GO: (u32, u32) = (1, 26);
/// Sources, Go's build cache and the results of a first build.
const GIGABYTES: u64 = 6;

/// Builds the programs and takes them into the cache, whose lock the caller holds.
pub(super) fn build(cache: &Cache, wanted: &[Binary], progress: &dyn Progress) -> Result<BTreeMap<Binary, PathBuf>> {
    let missing = wanted.iter().map(|binary| binary.name()).collect::<Vec<_>>().join(", ");
    let go = find_go(&missing)?;
    check_disk(cache.root(), &missing)?;
    sweep(cache.root());
    let mut by_module: BTreeMap<Module, Vec<Binary>> = BTreeMap::new();
    for binary in wanted {
        by_module.entry(binary.module()).or_default().push(*binary);
    }
    let mut built = BTreeMap::new();
    let total = by_module.len();
    for (index, (module, binaries)) in by_module.into_iter().enumerate() {
        let title = format!("building {} {} ({} of {total})", module.name(), module.version(), index + 1);
        progress.started(&title);
        let result = build_module(cache, &go, module, &binaries, &missing, progress);
        progress.finished();
        built.extend(result?);
    }
    Ok(built)
}

fn build_module(
    cache: &Cache,
    go: &Path,
    module: Module,
    binaries: &[Binary],
    missing: &str,
    progress: &dyn Progress,
) -> Result<BTreeMap<Binary, PathBuf>> {
    // In the cache's own file system, so that the results can be renamed into place.
    let work = cache.root().join(format!("work-{}-{}", module.name(), unique()));
    let output = work.join("out");
    make_dir(&output)?;
    for (name, content) in [("go.mod", module.go_mod()), ("go.sum", module.go_sum())] {
        let path = work.join(name);
        std::fs::write(&path, content).map_err(io_error("write", path))?;
    }
    let logs = cache.root().join("logs");
    make_dir(&logs)?;
    let log = logs.join(format!("{}.log", module.name()));
    let status = run_go(go, module, binaries, &work, &output, &log, progress)?;
    if !status.success() {
        let tail = tail(&log, 20);
        remove_dir(&work)?;
        if tail.contains("no space left on device") {
            return Err(disk_error(cache.root(), missing));
        }
        return Err(Error::Build { module: module.name(), log, tail });
    }
    let mut built = BTreeMap::new();
    for binary in binaries {
        built.insert(*binary, cache.put(*binary, &output.join(produced_name(*binary)))?);
    }
    remove_dir(&work)?;
    Ok(built)
}

/// What `go build -o <folder>/` calls it: the last element of its package that isn't a major version.
fn produced_name(binary: Binary) -> String {
    let package = binary.package();
    let mut elements = package.rsplit('/');
    let last = elements.next().unwrap_or_default();
    let is_major = last.strip_prefix('v').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_major { elements.next().unwrap_or_default() } else { last }.to_owned()
}

fn run_go(
    go: &Path,
    module: Module,
    binaries: &[Binary],
    work: &Path,
    output: &Path,
    log: &Path,
    progress: &dyn Progress,
) -> Result<ExitStatus> {
    let file = File::create(log).map_err(io_error("create", log))?;
    let errors = file.try_clone().map_err(io_error("open", log))?;
    let mut command = dying_with_parent(go);
    command.args(["build", "-v"]).args(module.build_flags()).arg("-o").arg(format!("{}/", output.display()));
    command.args(binaries.iter().map(|binary| binary.package()));
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off").current_dir(work);
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let mut child = on_spawner(command).map_err(|source| Error::Spawn {
        program: go.display().to_string(),
        source,
        remedy: "setpriv comes with util-linux (apt-get install util-linux)",
    })?;
    wait(&mut child, log, progress).map_err(|source| Error::Spawn {
        program: go.display().to_string(),
        source,
        remedy: "try again",
    })
}

fn wait(child: &mut Child, log: &Path, progress: &dyn Progress) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // `-v` names each package as it is compiled.
        progress.detail(&tail(log, 1));
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn find_go(missing: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = [PathBuf::from("/usr/local/go/bin"), PathBuf::from("/usr/lib/go-1.26/bin")];
    find_go_in(std::env::split_paths(&path).chain(usual), missing)
}

fn find_go_in(folders: impl Iterator<Item = PathBuf>, missing: &str) -> Result<PathBuf> {
    let go = folders.map(|folder| folder.join("go")).find(|path| path.is_file());
    let go = go.ok_or_else(|| Error::GoMissing { missing: missing.to_owned() })?;
    let output = Command::new(&go).arg("version").output().map_err(|source| Error::Spawn {
        program: go.display().to_string(),
        source,
        remedy: "install Go 1.26 or newer (https://go.dev/dl)",
    })?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match go_version(&found) {
        Some(version) if version >= OLDEST_GO => Ok(go),
        _ => Err(Error::GoTooOld { found, missing: missing.to_owned() }),
    }
}

fn go_version(answer: &str) -> Option<(u32, u32)> {
    let version = answer.split_ascii_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((1, digits.parse().ok()?))
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn check_disk(path: &Path, missing: &str) -> Result<()> {
    if free_bytes(path) < GIGABYTES << 30 { Err(disk_error(path, missing)) } else { Ok(()) }
}

#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn disk_error(path: &Path, missing: &str) -> Error {
    let free_gb = free_bytes(path) as f64 / f64::from(1_u32 << 30);
    Error::Disk { path: path.to_owned(), free_gb, needed_gb: GIGABYTES, missing: missing.to_owned() }
}

/// Removes the work of builds that were killed: we hold the lock, so none of it is in use.
fn sweep(root: &Path) {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("work-")) {
        if let Err(error) = remove_dir(&entry.path()) {
            tracing::debug!(%error, "left for the next build");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_versions() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(go_version("go version go1.27rc1 linux/amd64"), Some((1, 27)));
        assert_eq!(go_version("go version go1.9 linux/amd64"), Some((1, 9)));
        assert_eq!(go_version("gccgo"), None);
    }

    #[test]
    fn knows_what_go_calls_its_results() {
        assert_eq!(produced_name(Binary::Etcd), "server");
        assert_eq!(produced_name(Binary::KubeApiserver), "kube-apiserver");
        assert_eq!(produced_name(Binary::ContainerdShim), "containerd-shim-runc-v2");
    }

    /// A `go` that does as the script says.
    fn fake_go(dir: &Path, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let go = dir.join("go");
        std::fs::write(&go, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&go, std::fs::Permissions::from_mode(0o755)).unwrap();
        go
    }

    #[test]
    fn a_missing_or_old_go_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let find = || find_go_in(std::iter::once(dir.path().to_owned()), "etcd, kwok");
        let message = find().unwrap_err().to_string();
        assert!(message.starts_with("Go is missing, and etcd, kwok must be built: install Go 1.26"), "{message}");
        fake_go(dir.path(), "echo go version go1.22.2 linux/amd64");
        let message = find().unwrap_err().to_string();
        assert!(message.contains("go1.22.2 linux/amd64 is too old") && !message.contains('\n'), "{message}");
        let go = fake_go(dir.path(), "echo go version go1.26.0 linux/amd64");
        assert_eq!(find().unwrap(), go);
    }

    fn build_etcd(script: &str) -> (tempfile::TempDir, Cache, Result<BTreeMap<Binary, PathBuf>>) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let go = fake_go(dir.path(), script);
        let built = build_module(&cache, &go, Module::Etcd, &[Binary::Etcd], "etcd", &crate::progress::Quiet);
        (dir, cache, built)
    }

    #[test]
    fn what_go_builds_is_taken_into_the_cache() {
        let script = r#"test -f go.mod && test -f go.sum || exit 1
            while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
            echo built > "$out/server"; chmod +x "$out/server""#;
        let (_dir, cache, built) = build_etcd(script);
        let path = built.unwrap().remove(&Binary::Etcd).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "built\n");
        assert_eq!(cache.find(Binary::Etcd, &|line| panic!("{line}")), Some(path));
        let work = std::fs::read_dir(cache.root()).unwrap().flatten();
        assert_eq!(work.filter(|entry| entry.file_name().to_string_lossy().starts_with("work-")).count(), 0);
    }

    #[test]
    fn a_failed_build_shows_the_end_of_its_log_and_where_it_is() {
        let (_dir, cache, built) = build_etcd("for i in $(seq 30); do echo line $i; done; exit 1");
        let Err(Error::Build { log, tail, .. }) = built else { panic!("{built:?}") };
        assert_eq!((tail.lines().next(), tail.lines().last()), (Some("line 11"), Some("line 30")));
        assert!(log.exists());
        assert_eq!(cache.find(Binary::Etcd, &|line| panic!("{line}")), None);
    }

    #[test]
    fn a_full_disk_is_called_one() {
        let (_dir, _cache, built) = build_etcd("echo 'write /x: no space left on device'; exit 1");
        assert!(matches!(built, Err(Error::Disk { .. })), "{built:?}");
    }
}
