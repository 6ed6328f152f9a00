//! Ending clusters: in order, by pid and start time, and never by name.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    error::{Error, Result, io_error},
    files::{is_ours, remove_dir},
    lock::{self, Lock},
    node, ports,
    process::{self, ProcessId},
    state::{self, Record, Role, State},
};

/// The order of stopping, and how long each gets before SIGKILL: data are throw-away, so only guests get time.
const ORDER: [(Role, Duration); 6] = [
    (Role::Attached, Duration::from_secs(10)),
    // The kernel ends all of a node with the holder of its namespaces; its first process goes last.
    (Role::Node, Duration::from_secs(1)),
    (Role::Runtime, Duration::from_secs(1)),
    (Role::Client, Duration::from_secs(2)),
    // Left to itself kube-apiserver takes up to a minute to see its watchers off.
    (Role::Api, Duration::from_secs(1)),
    (Role::Store, Duration::from_secs(2)),
];

/// How long a start that was interrupted may take to give its folder up.
const GIVE_UP: Duration = Duration::from_secs(60);

/// What stays of a cluster that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Not even its folder.
    Nothing,
    /// `logs/`, since an error points there.
    Logs,
}

/// How to end a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) keep: Keep,
    /// Whether processes get time to end by themselves.
    pub(crate) gently: bool,
    /// Whether the caller holds the folder's `start.lock`.
    pub(crate) locked: bool,
}

impl Ending {
    /// As `stop` does it.
    pub(crate) const WHOLLY: Self = Self { keep: Keep::Nothing, gently: true, locked: false };
}

/// The lock that a start holds from before its record until it is ready or has given up.
pub(crate) fn start_lock(dir: &Path) -> PathBuf {
    dir.join(START_LOCK)
}

const START_LOCK: &str = "start.lock";

/// Stops the cluster in this folder and removes the folder; says whether there was one.
///
/// A start that is under way there fails with [`Error::Gone`]. Logs that a failed start left are removed too.
pub fn stop(dir: &Path) -> Result<bool> {
    if end(dir, |_| true, Ending::WHOLLY)? {
        return Ok(true);
    }
    if start_lock(dir).exists() {
        remove_unused(dir)?;
    }
    Ok(false)
}

/// Ends the cluster in this folder if this very process started it, keeping its `logs/`; does nothing otherwise.
///
/// For a program that gives up: it harms no cluster that somebody else started there meanwhile. The logs are removed by
/// the next start or [`stop()`] in this folder, or by [`clean_leftovers`] after a day.
pub fn abandon(dir: &Path) -> Result<()> {
    let Some(me) = ProcessId::current() else { return Ok(()) };
    end(dir, |record| record.owner == me, Ending { keep: Keep::Logs, ..Ending::WHOLLY }).map(|_| ())
}

/// Ends what a killed run left behind in any folder below `root`, and removes those folders.
pub fn clean_leftovers(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", root)(error)),
    };
    if !is_ours(root) {
        let source = std::io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user");
        return Err(io_error("clean up", root)(source));
    }
    let mut cleaned = Vec::new();
    for dir in entries.flatten().map(|entry| entry.path()) {
        match State::load(&dir) {
            // Looked at again under the lock of its record: somebody may use it by then.
            Ok(Some(_)) => {
                if end(&dir, Record::is_left_behind, Ending::WHOLLY)? {
                    cleaned.push(dir);
                }
            }
            // Logs of a start that failed are kept for a day.
            Ok(None) => {
                if is_old(&dir) && start_lock(&dir).exists() {
                    remove_unused(&dir)?;
                }
            }
            Err(error) => tracing::warn!(%error, "passed over while cleaning up"),
        }
    }
    Ok(cleaned)
}

fn is_old(dir: &Path) -> bool {
    let age = std::fs::metadata(dir).and_then(|data| data.modified()).map(|time| time.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age > Duration::from_secs(24 * 60 * 60))
}

/// Ends the cluster in a folder if it is the one meant, and says whether it was; never harms one that came after it.
pub(crate) fn end(dir: &Path, is_meant: impl Fn(&Record) -> bool, ending: Ending) -> Result<bool> {
    // First the mark, then the processes: whoever is about to start one more is refused, or ends it again.
    let Some(record) = state::mark_ending(dir, is_meant)? else { return Ok(false) };
    if ending.gently {
        end_processes(&record)?;
    } else {
        end_in_order(&record, |_| Duration::ZERO)?;
    }
    // A start that we interrupted still writes into the folder until it notices.
    let path = start_lock(dir);
    let _lock = if ending.locked {
        None
    } else {
        let lock = Lock::within(&path, GIVE_UP)?;
        Some(lock.ok_or_else(|| Error::Busy { dir: dir.to_owned(), holder: lock::holder(&path) })?)
    };
    match State::load(dir)? {
        // While we waited for the lock, somebody began anew.
        Some(now) if now.id() != record.id => {}
        _ => remove(dir, ending.keep)?,
    }
    Ok(true)
}

/// Removes a folder without a record, unless somebody is starting a cluster there.
fn remove_unused(dir: &Path) -> Result<()> {
    let Some(_lock) = Lock::within(&start_lock(dir), Duration::ZERO)? else { return Ok(()) };
    if State::load(dir)?.is_none() { remove(dir, Keep::Nothing) } else { Ok(()) }
}

/// Removes what a cluster had in its folder; the caller holds `start.lock`.
fn remove(dir: &Path, keep: Keep) -> Result<()> {
    // The record goes after what it describes, so that a removal cut short is found and done again.
    let last = [state::FILE, state::LOCK, START_LOCK];
    for entry in std::fs::read_dir(dir).map_err(io_error("list", dir))?.flatten() {
        let name = entry.file_name();
        if last.iter().all(|other| name != *other) && !(keep == Keep::Logs && name == "logs") {
            remove_any(&entry.path())?;
        }
    }
    for name in [state::FILE, state::LOCK] {
        remove_any(&dir.join(name))?;
    }
    if keep == Keep::Logs && dir.join("logs").exists() {
        return Ok(());
    }
    remove_any(&start_lock(dir))?;
    match std::fs::remove_dir(dir) {
        // Without the lock's file the folder is anybody's: who has put something there since then may keep it.
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
            Err(io_error("remove", dir)(error))
        }
        _ => Ok(()),
    }
}

fn remove_any(path: &Path) -> Result<()> {
    if path.is_dir() && !path.is_symlink() {
        return remove_dir(path);
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Ends all processes of a cluster in order, and waits until they and their ports are gone.
pub(crate) fn end_processes(record: &Record) -> Result<()> {
    end_in_order(record, |grace| grace)
}

fn end_in_order(record: &Record, grace_for: impl Fn(Duration) -> Duration) -> Result<()> {
    let mut left = Vec::new();
    // Children that were started but whose pid nobody could write down any more.
    let lost: Vec<ProcessId> =
        record.starting.iter().flat_map(|starting| process::with_token(&starting.token)).collect();
    left.extend(process::end(&lost, Duration::ZERO));
    for (role, grace) in ORDER {
        left.extend(process::end(&record.in_role(role), grace_for(grace)));
    }
    node::clean_up(record);
    if !left.is_empty() {
        let names = record.processes.iter().filter(|process| left.contains(&process.process));
        return Err(Error::WontDie {
            names: names.map(|process| process.name.clone()).collect::<Vec<_>>().join(", "),
            pids: left.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(","),
        });
    }
    ports::wait_until_free(&record.ports, Duration::from_secs(5));
    Ok(())
}
