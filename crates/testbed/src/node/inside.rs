//! Running programs inside a node's namespaces.

use std::path::Path;

use super::Layout;
use crate::{
    cluster::Cluster,
    error::{Error, Result},
    process::ProcessId,
    state::Role,
};

/// The name of a node's program in records and logs; node names have no `@`, so it can be taken apart again.
pub(super) fn named(program: &str, node: &str) -> String {
    format!("{program}@{node}")
}

/// Running things inside a node's namespaces.
pub(super) struct Inside<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) layout: &'a Layout,
    pub(super) init: &'a ProcessId,
}

impl Inside<'_> {
    pub(super) fn log_name(&self, program: &str) -> String {
        named(program, &self.layout.name)
    }

    fn enter(&self) -> Vec<String> {
        let target = format!("--target={}", self.init.pid);
        [&target, "--mount", "--net", "--pid", "--"].map(str::to_owned).to_vec()
    }

    /// Starts a program inside; what is returned lives as long as the program.
    pub(super) fn run(&self, name: &str, program: &Path, args: &[String], path: Option<&Path>) -> Result<ProcessId> {
        let mut line = self.enter();
        line.push(program.display().to_string());
        line.extend(args.iter().cloned());
        let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let path = path.map_or_else(|| usual.to_owned(), |folder| format!("{}:{usual}", folder.display()));
        let env = [("PATH".to_owned(), path)];
        self.cluster.launch(&self.log_name(name), Role::Node, Path::new("/usr/bin/nsenter"), &line, &env)
    }

    pub(super) fn ctr(&self, ctr: &Path, args: &[&str]) -> Result<()> {
        let mut command = std::process::Command::new("/usr/bin/nsenter");
        command.args(self.enter()).arg(ctr).arg("--address").arg(self.layout.socket()).args(args);
        run_tool(&mut command)
    }

    /// The program that nsenter started: it waits outside, since a pid namespace is entered by forking.
    pub(super) fn child_of(&self, process: &ProcessId) -> Option<ProcessId> {
        children(process).into_iter().next()
    }
}

/// Runs a short command and fails with the end of what it printed.
pub(super) fn run_tool(command: &mut std::process::Command) -> Result<()> {
    let line = format!("{command:?}").replace('"', "");
    let output = command.stdin(std::process::Stdio::null()).output().map_err(|source| Error::Spawn {
        program: line.clone(),
        source,
        remedy: "ip and nsenter come with iproute2 and util-linux (apt-get install iproute2 util-linux)",
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Error::Tool { command: line, output: said.trim().lines().last().unwrap_or("it said nothing").to_owned() })
}

pub(super) fn children(process: &ProcessId) -> Vec<ProcessId> {
    let path = format!("/proc/{pid}/task/{pid}/children", pid = process.pid);
    let pids = std::fs::read_to_string(path).unwrap_or_default();
    pids.split_ascii_whitespace().filter_map(|pid| ProcessId::of(pid.parse().ok()?)).collect()
}
