//! Building from the pinned modules.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{
    cache::Cache,
    modules::{Binary, Module},
};
use crate::{
    cancel::Cancel,
    disk::{self, Room},
    error::{Error, Result, io_error},
    files::{make_dir, remove_dir, tail, unique},
    process::{dying_with_parent, on_spawner},
    progress::Progress,
};

/// The oldest Go that builds the pinned modules.
const OLDEST_GO: (u32, u32, u32) = (1, 26, 6);

/// Builds the programs and takes them into the cache, whose lock the caller holds.
pub(super) fn build(
    cache: &Cache,
    wanted: &[Binary],
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<BTreeMap<Binary, PathBuf>> {
    let missing = wanted.iter().map(|binary| binary.name()).collect::<Vec<_>>().join(", ");
    let go = find_go(&missing)?;
    disk::check(&rooms(cache.root(), &go), &format!("building {missing}"))?;
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
        let result = build_module(cache, &go, module, &binaries, cancel, progress);
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
    cancel: &Cancel,
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
    let status = run_go(go_build(go, module, binaries, &work, &output), &log, cancel, progress);
    if !matches!(&status, Ok(status) if status.success()) {
        remove_dir(&work)?;
        status?;
        return Err(build_error(cache, go, module, log));
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

/// Why a build failed: the end of its log, or the disk that is full.
fn build_error(cache: &Cache, go: &Path, module: Module, log: PathBuf) -> Error {
    let tail = tail(&log, 20);
    if !disk::is_complaint(&tail) {
        return Error::Build { module: module.name(), log, tail };
    }
    let (rooms, purpose) = (rooms(cache.root(), go), format!("building {}", module.name()));
    // Cleaning up after the failure may have made just enough room again: name the cache then.
    match disk::check(&rooms, &purpose) {
        Err(full) => full,
        Ok(()) => disk::full(&rooms[0], rooms.iter().map(|room| room.gigabytes).sum(), &purpose),
    }
}

fn go_build(go: &Path, module: Module, binaries: &[Binary], work: &Path, output: &Path) -> Command {
    let mut command = dying_with_parent(go);
    command.args(["build", "-v"]).args(module.build_flags()).arg("-o").arg(format!("{}/", output.display()));
    command.args(binaries.iter().map(|binary| binary.package()));
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off").current_dir(work);
    command
}

fn run_go(mut command: Command, log: &Path, cancel: &Cancel, progress: &dyn Progress) -> Result<ExitStatus> {
    let file = File::create(log).map_err(io_error("create", log))?;
    let errors = file.try_clone().map_err(io_error("open", log))?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let failed = |source, remedy| Error::Spawn { program: "go build".to_owned(), source, remedy };
    let mut child = on_spawner(command)
        .map_err(|source| failed(source, "setpriv comes with util-linux (apt-get install util-linux)"))?;
    loop {
        if let Some(status) = child.try_wait().map_err(|source| failed(source, "try again"))? {
            return Ok(status);
        }
        if let Err(cancelled) = cancel.check("building the upstream programs") {
            end_group(&mut child);
            return Err(cancelled);
        }
        // `-v` names each package as it is compiled.
        progress.detail(&tail(log, 1));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Ends Go with the compilers it started: they are in its group, and it is not reaped yet, so its pid is still its own.
fn end_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && let Err(error) = kill_process_group(group, Signal::KILL)
    {
        tracing::warn!(%error, "cannot end go build");
    }
    // Fails only when it was reaped already.
    let _ = child.wait();
}

/// What a first build writes where: results, compiled packages, sources, and what Go works with.
fn rooms(cache: &Path, go: &Path) -> Vec<Room> {
    let output = Command::new(go).args(["env", "GOCACHE", "GOMODCACHE"]).stdin(Stdio::null()).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut folders = said.lines().map(PathBuf::from);
    let room = |folder, gigabytes, variable| Room { folder, gigabytes, variable };
    let mut rooms = vec![room(cache.to_owned(), 1.0, "DAPPLE_CACHE"), room(std::env::temp_dir(), 1.0, "TMPDIR")];
    rooms.extend(folders.next().map(|folder| room(folder, 3.0, "GOCACHE")));
    rooms.extend(folders.next().map(|folder| room(folder, 1.0, "GOMODCACHE")));
    rooms
}

fn find_go(missing: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = [PathBuf::from("/usr/local/go/bin"), PathBuf::from("/usr/lib/go-1.26/bin")];
    find_go_in(std::env::split_paths(&path).chain(usual), missing)
}

/// The first Go that is new enough; an old one earlier on the PATH does not hide it.
fn find_go_in(folders: impl Iterator<Item = PathBuf>, missing: &str) -> Result<PathBuf> {
    let mut too_old = None;
    for go in folders.map(|folder| folder.join("go")).filter(|path| path.is_file()) {
        let output = Command::new(&go).arg("version").output().map_err(|source| Error::Spawn {
            program: go.display().to_string(),
            source,
            remedy: "install Go 1.26.6 or newer (https://go.dev/dl)",
        })?;
        let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if go_version(&found).is_some_and(|version| version >= OLDEST_GO) {
            return Ok(go);
        }
        too_old.get_or_insert(found);
    }
    let missing = missing.to_owned();
    Err(too_old.map_or(Error::GoMissing { missing: missing.clone() }, |found| Error::GoTooOld { found, missing }))
}

fn go_version(answer: &str) -> Option<(u32, u32, u32)> {
    let version = answer.split_ascii_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let mut numbers = version.split('.').map(|part| {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        part[..digits].parse().ok()
    });
    Some((1, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
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
    use crate::{cancel, process::ProcessId, progress::Quiet};

    #[test]
    fn reads_go_versions() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64"), Some((1, 26, 8)));
        assert_eq!(go_version("go version go1.27rc1 linux/amd64"), Some((1, 27, 0)));
        assert_eq!(go_version("go version go1.9 linux/amd64"), Some((1, 9, 0)));
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
        let go = dir.join("go");
        crate::upstream::write_script(&go, &format!("#!/bin/sh\n{script}\n"));
        go
    }

    #[test]
    fn a_missing_or_old_go_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let find = || find_go_in(std::iter::once(dir.path().to_owned()), "etcd, kwok");
        let message = find().unwrap_err().to_string();
        assert!(message.starts_with("Go is missing, and etcd, kwok must be built: install Go 1.26.6"), "{message}");
        fake_go(dir.path(), "echo go version go1.22.2 linux/amd64");
        let message = find().unwrap_err().to_string();
        assert!(message.contains("go1.22.2 linux/amd64 is too old") && !message.contains('\n'), "{message}");
        let go = fake_go(dir.path(), "echo go version go1.26.6 linux/amd64");
        assert_eq!(find().unwrap(), go);
    }

    fn build_etcd(script: &str) -> (tempfile::TempDir, Cache, Result<BTreeMap<Binary, PathBuf>>) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let go = fake_go(dir.path(), script);
        let built = build_module(&cache, &go, Module::Etcd, &[Binary::Etcd], &Cancel::default(), &Quiet);
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

    #[test]
    fn every_folder_that_go_fills_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let go = fake_go(dir.path(), "echo /the/cache; echo /the/sources");
        let folders: Vec<PathBuf> = rooms(dir.path(), &go).into_iter().map(|room| room.folder).collect();
        let expected = [dir.path().to_owned(), std::env::temp_dir(), "/the/cache".into(), "/the/sources".into()];
        assert_eq!(folders, expected);
    }

    #[tokio::test]
    async fn a_build_that_nobody_waits_for_ends_with_its_compilers() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, pids) = (Cache::at(dir.path()).unwrap(), dir.path().join("pids"));
        let script = format!("sleep 600 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", pids.display());
        let go = fake_go(dir.path(), &script);
        let (ends, mut has_ended) = tokio::sync::mpsc::unbounded_channel();
        let build = tokio::spawn(cancel::blocking("building", move |cancel| {
            let built = build_module(&cache, &go, Module::Etcd, &[Binary::Etcd], cancel, &Quiet);
            ends.send(built.map(|_| ())).unwrap();
            Ok(())
        }));
        while !pids.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let processes: Vec<ProcessId> = std::fs::read_to_string(&pids)
            .unwrap()
            .split_ascii_whitespace()
            .map(|pid| ProcessId::of(pid.parse().unwrap()).unwrap())
            .collect();
        build.abort();
        let ended = tokio::time::timeout(Duration::from_secs(60), has_ended.recv()).await.unwrap().unwrap();
        assert!(matches!(ended, Err(Error::Interrupted { .. })), "{ended:?}");
        while processes.iter().any(ProcessId::is_alive) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
