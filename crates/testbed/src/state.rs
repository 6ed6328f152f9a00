//! The record of a cluster: who runs in it, written before and after every start, so that anybody can stop it later.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    files::{is_ours, write_atomically},
    process::{Lifetime, ProcessId},
};

const FILE: &str = "state.json";
const VERSION: u32 = 1;

/// What a cluster's folder says about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) name: String,
    pub(crate) lifetime: Lifetime,
    /// Who started it.
    pub(crate) owner: ProcessId,
    /// Set once the start went through: before that, a dead owner means a half-started cluster.
    pub(crate) ready: bool,
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

/// The record in memory and on disk.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    record: Mutex<Record>,
}

impl State {
    /// A fresh record, written at once.
    pub(crate) fn create(dir: &Path, record: Record) -> Result<Self> {
        let state = Self { path: dir.join(FILE), record: Mutex::new(Record { version: VERSION, ..record }) };
        state.change(|_| {})?;
        Ok(state)
    }

    /// The record in a folder, if there is one.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(crate::error::io_error("read", path)(error)),
        };
        let broken = |reason: String| Error::State { path: path.clone(), reason };
        if !is_ours(&path) {
            return Err(broken("it belongs to another user".to_owned()));
        }
        let record: Record = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if record.version != VERSION {
            return Err(broken(format!("version {} where this dapple knows {VERSION}", record.version)));
        }
        Ok(Some(Self { path, record: Mutex::new(record) }))
    }

    /// A copy of the record.
    pub(crate) fn get(&self) -> Record {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the record and writes it before anybody else can change it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Record)) -> Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut record);
        let text = serde_json::to_vec_pretty(&*record)
            .map_err(|error| Error::State { path: self.path.clone(), reason: error.to_string() })?;
        write_atomically(&self.path, &text)
    }
}

impl Record {
    /// Whether all processes of the control plane live.
    pub(crate) fn is_running(&self) -> bool {
        let mut control_plane = self.processes.iter().filter(|process| process.role >= Role::Client).peekable();
        self.ready && control_plane.peek().is_some() && control_plane.all(|process| process.process.is_alive())
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
            name: "x".into(),
            lifetime,
            owner: owner.clone(),
            ready,
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
