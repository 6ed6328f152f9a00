//! Finding a cluster again, using it, and stopping it.

use std::path::{Path, PathBuf};

use kube::Client;

use super::{Attached, Cluster, TAIL};
use crate::{
    cancel::blocking,
    certs::{CLUSTER, Certs, MOST_GROUPS, Use},
    error::{Error, Result},
    files::{make_private_dir, tail},
    kubeconfig, ports,
    process::ProcessId,
    state::{Role, State},
    stop::{self, Ending, Keep},
};

impl Cluster {
    /// The cluster in this folder, if one was ready there and anything of it lives.
    ///
    /// Parts of it may have ended: [`Cluster::processes`] tells.
    pub fn open(dir: &Path) -> Result<Option<Self>> {
        let Some(state) = State::load(dir)? else {
            return Ok(None);
        };
        let admin = dir.join("admin.kubeconfig");
        let open = |state| Self {
            dir: dir.to_owned(),
            state,
            admin,
            ends_on_drop: false,
            is_starting: false,
            keep: Keep::Nothing,
        };
        Ok(state.get().is_usable().then(|| open(state)))
    }

    /// Stops everything of this cluster, waits until it is gone and removes its folder.
    ///
    /// One that somebody else has stopped already is fine, and another that runs in the folder by now is left alone.
    pub async fn stop(mut self) -> Result<()> {
        self.ends_on_drop = false;
        let (dir, id) = (self.dir.clone(), self.state.id().to_owned());
        let stopped =
            blocking("stopping the cluster", move |_| stop::end(&dir, |record| record.id == id, Ending::WHOLLY));
        stopped.await.map(|_| ())
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.state.get().name
    }

    /// The kubeconfig of its administrator.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// Where its API server listens.
    pub fn api_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.state.get().api_port)
    }

    /// A kubectl of the fitting version.
    pub fn kubectl(&self) -> PathBuf {
        self.state.get().kubectl
    }

    /// The ports it listens on, all on 127.0.0.1.
    pub fn ports(&self) -> Vec<u16> {
        self.state.get().ports
    }

    /// A free port on 127.0.0.1 for a program beside the cluster, recorded as one of [`Cluster::ports`].
    pub fn choose_port(&self) -> Result<u16> {
        loop {
            let port = ports::choose()?;
            // Another process may have recorded the same one and not listen yet.
            let is_new = self.state.change(|record| {
                let is_new = !record.ports.contains(&port);
                record.ports.extend(is_new.then_some(port));
                is_new
            })?;
            if is_new {
                return Ok(port);
            }
        }
    }

    /// The names of its processes, which may have ended.
    pub fn processes(&self) -> Vec<(String, ProcessId)> {
        self.state.get().processes.into_iter().map(|process| (process.name, process.process)).collect()
    }

    /// The log of a component or an attached program.
    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }

    /// The last lines of such a log, for a message about what did not happen.
    pub fn tail(&self, name: &str) -> String {
        tail(&self.log(name), TAIL)
    }

    /// A client with the administrator's rights; it belongs to the runtime it is made in.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client(&self.admin).await
    }

    /// A kubeconfig for another user, by a client certificate; at most two groups fit in one.
    pub async fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        if groups.len() > MOST_GROUPS {
            let name = self.user_file(user).display().to_string();
            let reason = format!("{} groups for {user}, and {MOST_GROUPS} fit: leave some out", groups.len());
            return Err(Error::Kubeconfig { name, reason });
        }
        // A file name of its own for each user and groups, whatever characters they have.
        let name: String = [&[user], groups].concat().join("+");
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        self.write_user(&Certs::at(&self.dir.join("pki")), &name, user, groups)?;
        Ok(self.user_file(&name))
    }

    /// Starts a program beside the cluster, with its lifetime; it is stopped first when the cluster stops.
    pub fn spawn_attached(
        &self,
        name: &str,
        program: &Path,
        args: &[String],
        env: &[(String, String)],
    ) -> Result<Attached> {
        let process = self.launch(name, Role::Attached, program, args, env)?;
        Ok(Attached { process, log: self.log(name) })
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn certs(&self) -> Certs {
        Certs::at(&self.dir.join("pki"))
    }

    pub(crate) fn user_file(&self, name: &str) -> PathBuf {
        if name == "admin" { self.admin.clone() } else { self.dir.join("users").join(format!("{name}.kubeconfig")) }
    }

    pub(crate) fn write_user(&self, certs: &Certs, name: &str, user: &str, groups: &[&str]) -> Result<()> {
        make_private_dir(&self.dir.join("users"))?;
        let certificate = format!("user-{name}");
        certs.issue(CLUSTER, &certificate, user, groups, &Use::Client)?;
        let cluster = format!("dapple-{}", self.name());
        kubeconfig::write(&self.user_file(name), certs, &certificate, user, &cluster, &self.api_url())
    }
}
