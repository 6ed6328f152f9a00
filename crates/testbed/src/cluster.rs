//! A cluster: starting it, finding it again, using it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kube::Client;

use crate::{
    certs::Certs,
    control_plane::{self, Ports},
    error::{Error, Result},
    files::{is_ours, make_dir, make_private_dir, remove_dir, tail, temporary_root, unique, write_atomically},
    lock::Lock,
    process::{self, Launch, Lifetime, ProcessId, TOKEN_VARIABLE},
    progress::Progress,
    spec::ClusterSpec,
    state::{Record, Recorded, Role, Starting, State},
    stop,
    upstream::{Binaries, Binary},
};

mod access;

/// How long a component may take: generous, since a busy machine is no error.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running control plane with its nodes.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    state: State,
    admin: PathBuf,
    /// Whether dropping this ends the cluster: only for the one that started it and never let it go.
    ends_on_drop: bool,
}

/// A program that runs beside the cluster and is stopped with it.
#[derive(Debug, Clone)]
pub struct Attached {
    /// The process.
    pub process: ProcessId,
    /// Where its output goes.
    pub log: PathBuf,
}

impl Cluster {
    /// Starts a control plane and waits until it is ready; what a failed start began is ended again.
    pub async fn start(spec: ClusterSpec, binaries: &Binaries, progress: &dyn Progress) -> Result<Self> {
        make_private_dir(&spec.dir)?;
        let parent = spec.dir.parent().unwrap_or(&spec.dir);
        if !is_ours(&spec.dir) || (parent.starts_with(temporary_root()) && !is_ours(parent)) {
            let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it belongs to another user");
            return Err(Error::Io { what: "use", path: spec.dir, source });
        }
        let lock_path = spec.dir.join("start.lock");
        let _lock = tokio::task::spawn_blocking(move || Lock::acquire(&lock_path, |_| {}))
            .await
            .map_err(|_| Error::Interrupted { what: "waiting for another start" })??;
        if let Some(state) = State::load(&spec.dir)? {
            let record = state.get();
            if !record.is_left_behind() {
                return Err(Error::Running { dir: spec.dir });
            }
            stop::end_processes(&record)?;
        }
        progress.started(&format!("starting cluster {}", spec.name));
        let mut tries_left = 3;
        let result = loop {
            tries_left -= 1;
            match Self::try_start(&spec, binaries, progress).await {
                // Somebody took a port between our choosing it and the component's binding it: choose others.
                Err(Error::Died { tail, .. }) if tries_left > 0 && tail.contains("address already in use") => {}
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
            name: spec.name.clone(),
            lifetime: spec.lifetime,
            owner,
            ready: false,
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
        // From here on dropping the cluster, on an error or when the caller gives up waiting, ends what was started.
        let mut cluster = Self { dir: spec.dir.clone(), state, admin, ends_on_drop: true };
        match cluster.bring_up(spec, binaries, &certs, ports, progress).await {
            Ok(()) => {
                cluster.state.change(|record| record.ready = true)?;
                cluster.ends_on_drop = spec.lifetime == Lifetime::WithParent;
                Ok(cluster)
            }
            Err(error) => {
                cluster.ends_on_drop = false;
                stop::abandon(&cluster.dir, &cluster.state.get())?;
                Err(error)
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

        progress.detail("kube-controller-manager, kube-scheduler");
        let config = self.dir.join("kube-scheduler.config");
        let scheduler_config =
            control_plane::scheduler_config(spec.scheduler_config.as_ref(), &self.user_file("kube-scheduler"));
        write_atomically(&config, scheduler_config.to_string().as_bytes())?;
        let manager = self.user_file("kube-controller-manager");
        let args = control_plane::controller_manager(spec, certs, ports, &manager);
        run(Binary::KubeControllerManager, Role::Client, args)?;
        run(Binary::KubeScheduler, Role::Client, control_plane::scheduler(certs, ports, &config))?;
        if spec.kwok {
            progress.detail("kwok");
            crate::kwok::install(&client).await?;
            let config = self.dir.join("kwok.config");
            write_atomically(&config, crate::kwok::CONFIG.as_bytes())?;
            run(Binary::Kwok, Role::Client, control_plane::kwok(spec, &self.user_file("kwok"), &config))?;
        }
        self.wait_for("kube-scheduler", async || listens(ports.scheduler)).await?;
        // Pods are refused before the controller manager has made their service account.
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        self.wait_for("kube-controller-manager", async || get(&client, account).await).await
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
        let started = process::spawn(&Launch { program, args, env: &env, log: &self.log(name), lifetime });
        if let Ok(process) = &started {
            self.record_process(name, role, program, process.clone())?;
        }
        self.state.change(|record| record.starting.retain(|starting| starting.token != token))?;
        started
    }

    /// Writes down a process that belongs to the cluster.
    pub(crate) fn record_process(&self, name: &str, role: Role, program: &Path, process: ProcessId) -> Result<()> {
        let (name, program) = (name.to_owned(), program.to_owned());
        self.state.change(|record| {
            record.processes.retain(|other| other.name != name || other.process.is_alive());
            record.processes.push(Recorded { name, role, program, process });
        })
    }

    /// Polls until `ready` says so (`Err` is what is missing), as long as all processes live.
    pub(crate) async fn wait_for<F>(&self, component: &str, ready: F) -> Result<()>
    where
        F: AsyncFn() -> Result<(), String>,
    {
        let begun = Instant::now();
        loop {
            let last = match ready().await {
                Ok(()) => return Ok(()),
                Err(last) => last,
            };
            self.check_alive()?;
            if begun.elapsed() > PATIENCE {
                let (component, seconds) = (component.to_owned(), PATIENCE.as_secs());
                return Err(Error::Slow { log: self.log(&component), component, seconds, last });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Fails with the end of the log of the first process found dead.
    pub(crate) fn check_alive(&self) -> Result<()> {
        let record = self.state.get();
        match record.processes.iter().find(|process| process.role != Role::Attached && !process.process.is_alive()) {
            None => Ok(()),
            Some(dead) => {
                let log = self.log(&dead.name);
                Err(Error::Died { component: dead.name.clone(), tail: tail(&log, 20), log })
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.ends_on_drop
            && let Err(error) = stop::kill(&self.dir, &self.state.get())
        {
            tracing::warn!(dir = %self.dir.display(), %error, "a dropped cluster left something behind");
        }
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
