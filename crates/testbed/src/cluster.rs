//! A cluster: starting it, finding it again, using it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kube::Client;
use tokio::time::Instant;

use crate::{
    cancel::blocking,
    certs::Certs,
    control_plane::{self, Ports},
    disk::{self, Room},
    error::{Error, Result},
    files::{is_ours, make_dir, make_private_dir, remove_dir, tail, temporary_root, unique, write_atomically},
    lock::Lock,
    process::{self, Launch, Lifetime, ProcessId, TOKEN_VARIABLE},
    progress::Progress,
    spec::ClusterSpec,
    state::{self, Record, Recorded, Role, Starting, State},
    stop::{self, Ending, Keep},
    upstream::{Binaries, Binary},
};

mod access;

/// How long a component may take: generous, since a busy machine is no error.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long one question to a component may take: one that accepts and never answers must not use up all patience.
const TRY: Duration = Duration::from_secs(15);
/// How many lines of a log an error shows.
const TAIL: usize = 20;
/// etcd alone sets 128 MB aside for its log of writes.
const GIGABYTES: f64 = 0.5;
const A_CLUSTER: &str = "a cluster";

/// A running control plane with its nodes.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    state: State,
    admin: PathBuf,
    /// Whether dropping this ends the cluster: only for the one that started it and never let it go.
    ends_on_drop: bool,
    /// Whether the start is still under way, and so holds the folder's lock.
    is_starting: bool,
    /// What stays when dropping this ends the cluster.
    keep: Keep,
}

/// A program that runs beside the cluster and is stopped with it.
#[derive(Debug, Clone)]
pub struct Attached {
    /// The process.
    pub process: ProcessId,
    /// Where its output goes.
    pub log: PathBuf,
}

impl Attached {
    /// The last lines of its output, for an error that says it ended.
    pub fn tail(&self) -> String {
        tail(&self.log, TAIL)
    }
}

impl Cluster {
    /// Starts a control plane and waits until it is ready; what a failed start began is ended again.
    ///
    /// While another process starts one in the same folder, this waits. Afterwards, or if one ran there all along, it
    /// fails with [`Error::Running`] and [`Cluster::open`] has it. A cluster of which a part ended is ended and replaced.
    pub async fn start(spec: ClusterSpec, binaries: &Binaries, progress: &dyn Progress) -> Result<Self> {
        make_private_dir(&spec.dir)?;
        let parent = spec.dir.parent().unwrap_or(&spec.dir);
        if !is_ours(&spec.dir) || (parent.starts_with(temporary_root()) && !is_ours(parent)) {
            let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it belongs to another user");
            return Err(Error::Io { what: "use", path: spec.dir, source });
        }
        let _lock = Lock::wait(&stop::start_lock(&spec.dir), |holder| {
            progress.note(&format!("waiting for {holder}, which is starting a cluster in {}", spec.dir.display()));
        })
        .await?;
        make_way(&spec.dir, progress).await?;
        let room = room(&spec.dir);
        disk::check(std::slice::from_ref(&room), A_CLUSTER)?;
        progress.started(&format!("starting cluster {}", spec.name));
        let mut tries_left = 3;
        let result = loop {
            tries_left -= 1;
            match Self::try_start(&spec, binaries, progress).await {
                // Somebody took a port between our choosing it and the component's binding it: choose others.
                Err(Error::Died { tail, .. }) if tries_left > 0 && tail.contains("address already in use") => {}
                Err(error) if is_disk_full(&error) => break Err(disk::full(&room, room.gigabytes, A_CLUSTER)),
                other => break other,
            }
        };
        progress.finished();
        result
    }

    async fn try_start(spec: &ClusterSpec, binaries: &Binaries, progress: &dyn Progress) -> Result<Self> {
        for part in ["pki", "etcd", "logs", "users", "nodes"] {
            remove_dir(&spec.dir.join(part))?;
        }
        make_dir(&spec.dir.join("logs"))?;
        let ports = Ports::choose(spec.api_port)?;
        let certs = Certs::at(&spec.dir.join("pki"));
        certs.make_all(&spec.service_ip())?;
        let owner = ProcessId::current().ok_or(Error::Interrupted { what: "reading /proc/self" })?;
        let record = Record {
            version: 0,
            id: String::new(),
            name: spec.name.clone(),
            lifetime: spec.lifetime,
            owner,
            ready: false,
            ending: false,
            api_port: ports.api,
            ports: ports.all(),
            service_cidr: spec.service_cidr.clone(),
            kubectl: binaries.path(Binary::Kubectl)?.to_owned(),
            starting: Vec::new(),
            processes: Vec::new(),
            nodes: Vec::new(),
        };
        let state = State::create(&spec.dir, record)?;
        let admin = spec.dir.join("admin.kubeconfig");
        let keep = if spec.keeps_logs { Keep::Logs } else { Keep::Nothing };
        // From here on dropping the cluster, on an error or when the caller gives up waiting, ends what was started.
        let mut cluster = Self { dir: spec.dir.clone(), state, admin, ends_on_drop: true, is_starting: true, keep };
        match cluster.bring_up(spec, binaries, &certs, ports, progress).await {
            Ok(()) => {
                cluster.state.change(|record| record.ready = true)?;
                cluster.ends_on_drop = spec.lifetime == Lifetime::WithParent;
                cluster.is_starting = false;
                Ok(cluster)
            }
            Err(error) => {
                let gone = cluster.state.is_gone();
                // Whatever the spec says: the error points to the logs.
                cluster.keep = Keep::Logs;
                Err(if gone { Error::Gone { dir: spec.dir.clone() } } else { error })
            }
        }
    }

    async fn bring_up(
        &self,
        spec: &ClusterSpec,
        binaries: &Binaries,
        certs: &Certs,
        ports: Ports,
        progress: &dyn Progress,
    ) -> Result<()> {
        progress.detail("etcd");
        let users: [(&str, &str, &[&str]); 4] = [
            ("admin", "dapple:admin", &["system:masters"]),
            ("kwok", "dapple:kwok", &["system:masters"]),
            ("kube-controller-manager", "system:kube-controller-manager", &[]),
            ("kube-scheduler", "system:kube-scheduler", &[]),
        ];
        let run = |binary: Binary, role: Role, args: Vec<String>| {
            self.launch(binary.name(), role, binaries.path(binary)?, &args, &[])
        };
        run(Binary::Etcd, Role::Store, control_plane::etcd(&self.dir, certs, ports))?;
        for (name, user, groups) in users {
            self.write_user(certs, name, user, groups)?;
        }
        self.wait_for("etcd", async || listens(ports.etcd)).await?;

        progress.detail("kube-apiserver");
        run(Binary::KubeApiserver, Role::Api, control_plane::api_server(spec, certs, ports))?;
        self.wait_for("kube-apiserver", async || listens(ports.api)).await?;
        let client = self.client().await?;
        self.wait_for("kube-apiserver", async || get(&client, "/readyz").await).await?;

        if spec.controllers {
            progress.detail("kube-controller-manager, kube-scheduler");
            let config = self.dir.join("kube-scheduler.config");
            let scheduler_config =
                control_plane::scheduler_config(spec.scheduler_config.as_ref(), &self.user_file("kube-scheduler"));
            write_atomically(&config, scheduler_config.to_string().as_bytes())?;
            let manager = self.user_file("kube-controller-manager");
            let args = control_plane::controller_manager(spec, certs, ports, &manager);
            run(Binary::KubeControllerManager, Role::Client, args)?;
            run(Binary::KubeScheduler, Role::Client, control_plane::scheduler(certs, ports, &config))?;
        }
        if spec.kwok {
            progress.detail("kwok");
            let installed = tokio::time::timeout(PATIENCE, crate::kwok::install(&client)).await;
            installed.map_err(|_| self.slow("kube-apiserver", "it does not answer"))??;
            let config = self.dir.join("kwok.config");
            write_atomically(&config, crate::kwok::CONFIG.as_bytes())?;
            run(Binary::Kwok, Role::Client, control_plane::kwok(spec, &self.user_file("kwok"), &config))?;
        }
        if spec.controllers {
            self.wait_for("kube-scheduler", async || listens(ports.scheduler)).await?;
            // Pods are refused before the controller manager has made their service account.
            let account = "/api/v1/namespaces/default/serviceaccounts/default";
            self.wait_for("kube-controller-manager", async || get(&client, account).await).await?;
        }
        if spec.kwok { self.wait_until_kwok_plays(&client).await } else { Ok(()) }
    }

    /// Starts a process of this cluster and records it, before and after, so that it can't get lost.
    pub(crate) fn launch(
        &self,
        name: &str,
        role: Role,
        program: &Path,
        args: &[String],
        env: &[(String, String)],
    ) -> Result<ProcessId> {
        let token = unique();
        self.state.change(|record| record.starting.push(Starting { name: name.into(), token: token.clone() }))?;
        let mut env = env.to_vec();
        env.push((TOKEN_VARIABLE.to_owned(), token.clone()));
        let lifetime = self.state.get().lifetime;
        let process = match process::spawn(&Launch { program, args, env: &env, log: &self.log(name), lifetime }) {
            Ok(process) => process,
            Err(error) => {
                self.state.change(|record| record.starting.retain(|starting| starting.token != token))?;
                return Err(error);
            }
        };
        self.record_started(name, role, program, &process, &token)?;
        Ok(process)
    }

    /// Writes down a process just started; one that can't be written down is ended, since nobody else knows of it.
    fn record_started(&self, name: &str, role: Role, program: &Path, process: &ProcessId, token: &str) -> Result<()> {
        let recorded = self.state.change(|record| {
            record.starting.retain(|starting| starting.token != token);
            add_process(record, name, role, program, process.clone());
        });
        if recorded.is_err() {
            process::end(std::slice::from_ref(process), Duration::ZERO);
        }
        recorded
    }

    /// Writes down a process that belongs to the cluster.
    pub(crate) fn record_process(&self, name: &str, role: Role, program: &Path, process: ProcessId) -> Result<()> {
        self.state.change(|record| add_process(record, name, role, program, process))
    }

    /// Polls until `ready` says so (`Err` is what is missing), as long as all processes live.
    pub(crate) async fn wait_for<F>(&self, component: &str, ready: F) -> Result<()>
    where
        F: AsyncFn() -> Result<(), String>,
    {
        let begun = Instant::now();
        loop {
            let last = match tokio::time::timeout(TRY, ready()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(last)) => last,
                Err(_) => format!("no answer within {} s", TRY.as_secs()),
            };
            self.check_alive()?;
            if begun.elapsed() > PATIENCE {
                return Err(self.slow(component, &last));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn slow(&self, component: &str, last: &str) -> Error {
        let (log, seconds) = (self.log(component), PATIENCE.as_secs());
        Error::Slow { component: component.to_owned(), seconds, last: last.to_owned(), tail: tail(&log, TAIL), log }
    }

    /// Fails with the end of the log of the first process found dead.
    pub(crate) fn check_alive(&self) -> Result<()> {
        let record = self.state.get();
        match record.processes.iter().find(|process| process.role != Role::Attached && !process.process.is_alive()) {
            None => Ok(()),
            Some(dead) => {
                let log = self.log(&dead.name);
                Err(Error::Died { component: dead.name.clone(), tail: tail(&log, TAIL), log })
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.ends_on_drop {
            return;
        }
        let ending = Ending { keep: self.keep, gently: false, locked: self.is_starting };
        if let Err(error) = stop::end(&self.dir, |record| record.id == self.state.id(), ending) {
            tracing::warn!(dir = %self.dir.display(), %error, "a dropped cluster left something behind");
        }
    }
}

/// Ends what is left of a cluster in the folder, whose lock we hold; fails if that cluster is well.
async fn make_way(dir: &Path, progress: &dyn Progress) -> Result<()> {
    let Some(state) = State::load(dir)? else { return Ok(()) };
    let record = state.get();
    if record.is_running() && !record.is_left_behind() {
        return Err(Error::Running { dir: dir.to_owned() });
    }
    if record.is_usable() {
        for name in record.dead() {
            progress.note(&format!("{name} ended; starting anew"));
        }
    }
    let dir = dir.to_owned();
    blocking("ending the cluster before", move |_| {
        let left = state::mark_ending(&dir, |now| now.id == state.id())?;
        left.map_or(Ok(()), |left| stop::end_processes(&left))
    })
    .await
}

fn add_process(record: &mut Record, name: &str, role: Role, program: &Path, process: ProcessId) {
    record.processes.retain(|other| other.name != name || other.process.is_alive());
    record.processes.push(Recorded { name: name.to_owned(), role, program: program.to_owned(), process });
}

fn room(dir: &Path) -> Room {
    let variable = if dir.starts_with(std::env::temp_dir()) { "TMPDIR" } else { "XDG_STATE_HOME" };
    Room { folder: dir.to_owned(), gigabytes: GIGABYTES, variable }
}

/// Whether a full disk is behind an error, so that it can be named instead.
fn is_disk_full(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
        Error::Died { tail, .. } | Error::Slow { tail, .. } => disk::is_complaint(tail),
        _ => false,
    }
}

/// Whether somebody listens on the port.
fn listens(port: u16) -> Result<(), String> {
    let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port));
    std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))
        .map(|_| ())
        .map_err(|error| format!("port {port}: {error}"))
}

async fn get(client: &Client, path: &str) -> Result<(), String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    client.request_text(request).await.map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
