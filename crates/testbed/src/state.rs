//! The record of a cluster: who runs in it, written before and after every start, so that anybody can stop it later.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result, io_error},
    files::{is_ours, unique, write_atomically},
    lock::Lock,
    process::{Lifetime, ProcessId},
};

/// The record's file in a cluster's folder.
pub(crate) const FILE: &str = "state.json";
/// Held while the record is changed: the record's own file is replaced each time, and a lock on it would be lost.
pub(crate) const LOCK: &str = "state.lock";
const VERSION: u32 = 2;
/// Changes take milliseconds.
const PAUSE: Duration = Duration::from_millis(2);

/// What a cluster's folder says about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    /// No other cluster has it: who knows a cluster knows by it whether the folder has another one now.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) lifetime: Lifetime,
    /// Who started it.
    pub(crate) owner: ProcessId,
    /// Set once the start went through: before that, a dead owner means a half-started cluster.
    pub(crate) ready: bool,
    /// Set when somebody begins to stop it.
    pub(crate) ending: bool,
    pub(crate) api_port: u16,
    pub(crate) ports: Vec<u16>,
    pub(crate) service_cidr: String,
    pub(crate) kubectl: PathBuf,
    /// Starts under way: the token finds a child whose pid could not be written any more.
    pub(crate) starting: Vec<Starting>,
    pub(crate) processes: Vec<Recorded>,
    /// What real nodes leave outside their namespaces.
    #[serde(default)]
    pub(crate) nodes: Vec<crate::node::NodeRecord>,
}

/// A start under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Starting {
    pub(crate) name: String,
    pub(crate) token: String,
}

/// A process of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) program: PathBuf,
    #[serde(flatten)]
    pub(crate) process: ProcessId,
}

/// What a process is to the cluster; they are stopped in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Somebody's program beside the cluster: it may want to say goodbye to the API server.
    Attached,
    /// The holder of a real node's namespaces, and its programs.
    Node,
    /// The first process inside those namespaces: gone when all others there are.
    Runtime,
    /// kwok, scheduler, controller manager.
    Client,
    /// kube-apiserver.
    Api,
    /// etcd.
    Store,
}

/// The record of one cluster: the file is the truth, since other processes change it too.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    id: String,
    /// As it was last seen, for when the file is gone.
    last: Mutex<Record>,
}

impl State {
    /// A fresh record, written at once.
    pub(crate) fn create(dir: &Path, record: Record) -> Result<Self> {
        let record = Record { version: VERSION, id: unique(), ..record };
        let lock = dir.join(LOCK);
        while Lock::attempt(&lock, true).map_err(io_error("lock", &lock))?.is_none() {
            std::thread::sleep(PAUSE);
        }
        write(dir, &record)?;
        Ok(Self { dir: dir.to_owned(), id: record.id.clone(), last: Mutex::new(record) })
    }

    /// The record in a folder, if there is one.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let record = read(dir)?;
        Ok(record.map(|record| Self { dir: dir.to_owned(), id: record.id.clone(), last: Mutex::new(record) }))
    }

    /// Which cluster this is, among all that were ever in the folder.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The record as it is now, or was when the cluster was stopped.
    pub(crate) fn get(&self) -> Record {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(Some(now)) = read(&self.dir)
            && now.id == self.id
        {
            *last = now;
        }
        last.clone()
    }

    /// Whether somebody has stopped, or is stopping, this cluster.
    pub(crate) fn is_gone(&self) -> bool {
        read(&self.dir).is_ok_and(|now| now.is_none_or(|now| now.id != self.id || now.ending))
    }

    /// Changes the record as it is now, before anybody else can; fails when the cluster is gone.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T> {
        let gone = || Error::Gone { dir: self.dir.clone() };
        let _lock = lock(&self.dir)?.ok_or_else(gone)?;
        let mut record = read(&self.dir)?.filter(|now| now.id == self.id && !now.ending).ok_or_else(gone)?;
        let result = change(&mut record);
        write(&self.dir, &record)?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = record;
        Ok(result)
    }
}

/// Marks the cluster in a folder as ending, if it is the one meant: from then on nothing is started in it any more.
pub(crate) fn mark_ending(dir: &Path, is_meant: impl Fn(&Record) -> bool) -> Result<Option<Record>> {
    let Some(_lock) = lock(dir)? else { return Ok(None) };
    let Some(mut record) = read(dir)?.filter(is_meant) else { return Ok(None) };
    record.ending = true;
    if let Err(error) = write(dir, &record) {
        // A full disk must not keep anybody from stopping a cluster.
        tracing::warn!(%error, "a cluster is stopped without saying so first");
    }
    Ok(Some(record))
}

/// The lock of a folder's record, held for the moment of a change; nothing where there is no record.
fn lock(dir: &Path) -> Result<Option<Lock>> {
    let path = dir.join(LOCK);
    loop {
        match Lock::attempt(&path, false) {
            Ok(Some(lock)) => return Ok(Some(lock)),
            Ok(None) => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("lock", path)(error)),
        }
    }
}

fn read(dir: &Path) -> Result<Option<Record>> {
    let path = dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    let broken = |reason: String| Error::State { path: path.clone(), reason };
    if !is_ours(&path) {
        return Err(broken("it belongs to another user".to_owned()));
    }
    let record: Record = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if record.version != VERSION {
        return Err(broken(format!("version {} where this dapple knows {VERSION}", record.version)));
    }
    Ok(Some(record))
}

fn write(dir: &Path, record: &Record) -> Result<()> {
    let path = dir.join(FILE);
    let text = serde_json::to_vec_pretty(record)
        .map_err(|error| Error::State { path: path.clone(), reason: error.to_string() })?;
    write_atomically(&path, &text)
}

impl Record {
    fn control_plane(&self) -> impl Iterator<Item = &Recorded> {
        self.processes.iter().filter(|process| process.role >= Role::Client)
    }

    /// Whether it was ready and all processes of the control plane live.
    pub(crate) fn is_running(&self) -> bool {
        self.is_usable() && self.control_plane().next().is_some() && self.dead().is_empty()
    }

    /// Whether it was ready and something of it lives: enough to look at it.
    pub(crate) fn is_usable(&self) -> bool {
        self.ready && !self.ending && self.processes.iter().any(|process| process.process.is_alive())
    }

    /// The names of those of the control plane that ended.
    pub(crate) fn dead(&self) -> Vec<&str> {
        self.control_plane()
            .filter(|process| !process.process.is_alive())
            .map(|process| process.name.as_str())
            .collect()
    }

    /// Whether this was left behind: nobody uses it any more, or it can't be used.
    pub(crate) fn is_left_behind(&self) -> bool {
        let owned = self.owner.is_alive();
        match self.lifetime {
            Lifetime::WithParent => !owned,
            Lifetime::Detached => !owned && !self.is_running(),
        }
    }

    /// All processes of one role.
    pub(crate) fn in_role(&self, role: Role) -> Vec<ProcessId> {
        self.processes.iter().filter(|process| process.role == role).map(|process| process.process.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(lifetime: Lifetime, owner: &ProcessId, ready: bool, process: &ProcessId) -> Record {
        let recorded =
            |name: &str, role| Recorded { name: name.into(), role, program: "/x".into(), process: process.clone() };
        Record {
            version: VERSION,
            id: String::new(),
            name: "x".into(),
            lifetime,
            owner: owner.clone(),
            ready,
            ending: false,
            api_port: 1,
            ports: vec![1],
            service_cidr: String::new(),
            kubectl: "/k".into(),
            starting: Vec::new(),
            processes: vec![recorded("etcd", Role::Store), recorded("kube-apiserver", Role::Api)],
            nodes: Vec::new(),
        }
    }

    #[test]
    fn who_is_left_behind() {
        let alive = ProcessId::current().unwrap();
        let dead = ProcessId { start_time: 0, ..alive.clone() };
        for (lifetime, owner, ready, process, expected) in [
            (Lifetime::WithParent, &alive, true, &alive, false),
            (Lifetime::WithParent, &alive, false, &alive, false),
            (Lifetime::WithParent, &dead, true, &alive, true),
            (Lifetime::Detached, &dead, true, &alive, false),
            (Lifetime::Detached, &dead, false, &alive, true),
            (Lifetime::Detached, &dead, true, &dead, true),
            (Lifetime::Detached, &alive, false, &dead, false),
        ] {
            let record = record(lifetime, owner, ready, process);
            assert_eq!(record.is_left_behind(), expected, "{record:?}");
        }
    }

    #[test]
    fn two_who_change_one_record_keep_each_others_changes() {
        let dir = tempfile::tempdir().unwrap();
        let me = ProcessId::current().unwrap();
        let one = State::create(dir.path(), record(Lifetime::Detached, &me, true, &me)).unwrap();
        let two = State::load(dir.path()).unwrap().unwrap();
        std::thread::scope(|scope| {
            for (state, base) in [(&one, 100), (&two, 200)] {
                scope.spawn(move || (base..base + 20).for_each(|port| state.change(|r| r.ports.push(port)).unwrap()));
            }
        });
        let mut ports = State::load(dir.path()).unwrap().unwrap().get().ports;
        ports.sort_unstable();
        assert_eq!(ports, [1].into_iter().chain(100..120).chain(200..220).collect::<Vec<_>>());
    }

    #[test]
    fn who_knows_an_earlier_cluster_changes_nothing_of_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let me = ProcessId::current().unwrap();
        let earlier = State::create(dir.path(), record(Lifetime::Detached, &me, true, &me)).unwrap();
        let later = State::create(dir.path(), record(Lifetime::Detached, &me, true, &me)).unwrap();
        assert!(matches!(earlier.change(|record| record.ports.push(7)), Err(Error::Gone { .. })));
        assert!(earlier.is_gone() && !later.is_gone());
        assert!(mark_ending(dir.path(), |record| record.id == earlier.id()).unwrap().is_none());
        assert_eq!((earlier.get().ports, later.get().ports), (vec![1], vec![1]));
        // Once somebody has begun to stop it, nothing is started in it any more.
        assert!(mark_ending(dir.path(), |record| record.id == later.id()).unwrap().is_some());
        assert!(matches!(later.change(|record| record.ports.push(7)), Err(Error::Gone { .. })));
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(mark_ending(dir.path(), |_| true).unwrap().is_none());
        assert_eq!(later.get().ports, [1]);
    }

    #[test]
    fn a_record_is_read_as_written_and_a_broken_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(State::load(dir.path()).unwrap().is_none());
        let me = ProcessId::current().unwrap();
        let written = State::create(dir.path(), record(Lifetime::Detached, &me, true, &me)).unwrap();
        let read = State::load(dir.path()).unwrap().unwrap();
        assert_eq!(format!("{:?}", read.get()), format!("{:?}", written.get()));
        written.change(|record| record.version = 99).unwrap();
        let message = State::load(dir.path()).unwrap_err().to_string();
        assert!(message.contains("version 99"), "{message}");
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(matches!(State::load(dir.path()), Err(Error::State { .. })));
    }
}
