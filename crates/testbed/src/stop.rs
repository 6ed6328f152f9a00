//! Ending clusters: in order, by pid and start time, and never by name.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    error::{Error, Result, io_error},
    files::{is_ours, remove_dir},
    node, ports,
    process::{self, ProcessId},
    state::{Record, Role, State},
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

/// Stops the cluster in this folder and removes the folder; says whether there was one.
pub fn stop(dir: &Path) -> Result<bool> {
    let Some(state) = State::load(dir)? else {
        return Ok(false);
    };
    end_processes(&state.get())?;
    remove_dir(dir)?;
    Ok(true)
}

/// Ends what a killed run left behind in any folder below `root`, and removes those folders.
pub fn clean_leftovers(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", root)(error)),
    };
    if !is_ours(root) {
        let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it belongs to another user");
        return Err(io_error("clean up", root)(source));
    }
    let mut cleaned = Vec::new();
    for dir in entries.flatten().map(|entry| entry.path()) {
        match State::load(&dir) {
            Ok(Some(state)) if state.get().is_left_behind() => {
                end_processes(&state.get())?;
                remove_dir(&dir)?;
                cleaned.push(dir);
            }
            // Used by somebody, or logs of a start that failed: those are kept for a day.
            Ok(Some(_)) => {}
            Ok(None) => {
                if is_old(&dir) && dir.join("start.lock").exists() {
                    remove_dir(&dir)?;
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

/// Ends a start that failed, keeping only the logs that its error points to.
pub(crate) fn abandon(dir: &Path, record: &Record) -> Result<()> {
    kill_processes(record)?;
    for part in ["pki", "etcd", "users", "nodes"] {
        remove_dir(&dir.join(part))?;
    }
    let state = dir.join("state.json");
    std::fs::remove_file(&state).map_err(io_error("remove", state))
}

/// Ends a cluster at once and removes its folder.
pub(crate) fn kill(dir: &Path, record: &Record) -> Result<()> {
    kill_processes(record)?;
    remove_dir(dir)
}

fn kill_processes(record: &Record) -> Result<()> {
    end_in_order(record, |_| Duration::ZERO)
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
