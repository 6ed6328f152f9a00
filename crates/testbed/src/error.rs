//! What can go wrong, each as one line that names the thing and the remedy.

use std::{io, path::PathBuf};

/// Every failure of the testbed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// No home folder and no override: nowhere to keep things.
    #[error("no folder for {what}: set HOME or {variable}")]
    NoHome {
        /// What would have been kept there.
        what: &'static str,
        /// The variable that would settle it.
        variable: &'static str,
    },
    /// Go is not on PATH.
    #[error(
        "Go is missing, and {missing} must be built: install Go 1.26.6 or newer (Debian: apt-get install golang-1.26; or https://go.dev/dl), or point KUBEBUILDER_ASSETS at ready binaries"
    )]
    GoMissing {
        /// The binaries wanted.
        missing: String,
    },
    /// Go is on PATH but too old.
    #[error("{found} is too old to build {missing}: install Go 1.26.6 or newer (https://go.dev/dl)")]
    GoTooOld {
        /// What `go version` said.
        found: String,
        /// The binaries wanted.
        missing: String,
    },
    /// Not enough room on a disk.
    #[error("{path} has {free_gb:.1} GB free and {purpose} needs {needed_gb:.1} GB: free some, or set {variable} to a folder on a larger disk", path = path.display())]
    Disk {
        /// The folder that is short of room.
        path: PathBuf,
        /// Gigabytes free now.
        free_gb: f64,
        /// Gigabytes wanted.
        needed_gb: f64,
        /// What for.
        purpose: String,
        /// The variable that moves the folder.
        variable: &'static str,
    },
    /// `go build` failed.
    #[error("building {module} failed; the whole log is in {log}; it ends with:\n{tail}", log = log.display())]
    Build {
        /// The module set.
        module: &'static str,
        /// Where the whole output is.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A port that was asked for is in use.
    #[error(
        "port {port} on 127.0.0.1 is taken: stop what listens there (ss -ltnp 'sport = :{port}') or choose another"
    )]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// No free port could be found.
    #[error("no free port on 127.0.0.1 between {from} and {to}: stop some listeners")]
    NoPort {
        /// First port tried.
        from: u16,
        /// Last port tried.
        to: u16,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}; {remedy}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A component ended while the cluster was starting.
    #[error("{component} ended while the cluster was starting; its log is {log} and ends with:\n{tail}", log = log.display())]
    Died {
        /// The component.
        component: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A component did not become ready in time.
    #[error("{component} was not ready after {seconds} s ({last}); its log is {log} and ends with:\n{tail}", log = log.display())]
    Slow {
        /// The component.
        component: String,
        /// How long we waited.
        seconds: u64,
        /// What the last try said.
        last: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A cluster already lives in that folder.
    #[error("a cluster runs in {dir} already: use it (dapple status shows it), or stop it first (dapple down)", dir = dir.display())]
    Running {
        /// The folder.
        dir: PathBuf,
    },
    /// The cluster was stopped by somebody else, who may have started another one in its folder.
    #[error("the cluster in {dir} was stopped meanwhile: start it again (dapple up)", dir = dir.display())]
    Gone {
        /// The folder.
        dir: PathBuf,
    },
    /// A start that should give up its folder does not.
    #[error("a start in {dir} does not give up ({holder}): end that process and try again", dir = dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
        /// The process that starts a cluster there.
        holder: String,
    },
    /// The record of a cluster can't be understood.
    #[error("{path} is not a record of a cluster ({reason}): remove the folder if nothing of it runs", path = path.display())]
    State {
        /// The record.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Processes that would not end.
    #[error("still running after SIGKILL: {names}; look at them with ps -p {pids}")]
    WontDie {
        /// Their names.
        names: String,
        /// Their pids, comma separated.
        pids: String,
    },
    /// Making a certificate failed.
    #[error("cannot make the certificate of {subject}: {source}")]
    Certificate {
        /// Whose certificate.
        subject: String,
        /// Why.
        source: rcgen::Error,
    },
    /// The API server refused, or can't be reached.
    #[error("{what}: {source}")]
    Kube {
        /// What was tried.
        what: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// The kubeconfig we wrote can't be used.
    #[error("cannot use {name}: {reason}")]
    Kubeconfig {
        /// Its file, or what it was for.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A fleet description is wrong.
    #[error("{file}:{line}: {field}: {message}")]
    Fleet {
        /// The file's name as given.
        file: String,
        /// The line, counted from one; 0 where the whole file is meant.
        line: u64,
        /// The field.
        field: String,
        /// What is wrong and what is expected.
        message: String,
    },
    /// A real node was asked for by somebody who isn't root.
    #[error("a real node needs root (containers, mounts and network namespaces): run as root, or use kwok nodes")]
    NotRoot,
    /// A real node of that name runs already.
    #[error("a real node {name} runs in this cluster already: choose another name, or stop it first")]
    NodeRunning {
        /// The name.
        name: String,
    },
    /// Debian packages that a real node needs are missing.
    #[error(
        "a real node needs {missing}: run apt-get update && apt-get install -y --no-install-recommends {missing} as root (installing them failed: {said})"
    )]
    Packages {
        /// The packages, separated by spaces.
        missing: String,
        /// The last thing that installing them said.
        said: String,
    },
    /// A tool ran and failed.
    #[error("{command} failed: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// The end of what it printed.
        output: String,
    },
    /// The cluster shared by the tests of this process could not be started.
    #[error("the shared cluster: {reason}")]
    Shared {
        /// Why not.
        reason: String,
    },
    /// A background task of ours ended early.
    #[error("{what} was interrupted: try again")]
    Interrupted {
        /// The task.
        what: &'static str,
    },
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Turns an I/O error into one that names the file.
pub(crate) fn io_error(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { what, path, source }
}

/// Turns an API error into one that says what was tried.
pub(crate) fn kube_error(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let what = what.into();
    move |source| Error::Kube { what, source: Box::new(source) }
}
