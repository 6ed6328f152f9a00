//! The upstream programs: found on this machine where their versions fit, built once otherwise.

mod build;
mod cache;
mod modules;
mod probe;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use modules::Binary;

use crate::{
    cancel::{Cancel, blocking},
    error::{Error, Result},
    files::cache_root,
    lock::Lock,
    progress::Progress,
};

/// What somebody wants to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok.
    ControlPlane,
    /// kubelet, kube-proxy and containerd.
    RealNode,
}

impl Need {
    fn binaries(self) -> &'static [Binary] {
        match self {
            Self::ControlPlane => &[
                Binary::Etcd,
                Binary::KubeApiserver,
                Binary::KubeControllerManager,
                Binary::KubeScheduler,
                Binary::Kubectl,
                Binary::Kwok,
            ],
            Self::RealNode => {
                &[Binary::Kubelet, Binary::KubeProxy, Binary::Containerd, Binary::ContainerdShim, Binary::Ctr]
            }
        }
    }
}

/// Where each program is.
#[derive(Debug, Clone, Default)]
pub struct Binaries {
    paths: BTreeMap<Binary, PathBuf>,
}

impl Binaries {
    /// The path of one program.
    pub fn path(&self, binary: Binary) -> Result<&Path> {
        self.paths.get(&binary).map(PathBuf::as_path).ok_or_else(|| Error::Spawn {
            program: binary.name().to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
            remedy: "it was not among the needs given to Upstream::obtain",
        })
    }

    /// The same programs, with another in the place of one: for tests of what a program may do wrong.
    pub fn with(mut self, binary: Binary, path: PathBuf) -> Self {
        self.paths.insert(binary, path);
        self
    }
}

/// Finds or builds the upstream programs.
#[derive(Debug)]
pub struct Upstream;

impl Upstream {
    /// All programs that the needs ask for: from `KUBEBUILDER_ASSETS` or PATH, the cache, or a build.
    ///
    /// Dropping the future ends waiting for another build, and a build of our own.
    pub async fn obtain(needs: &[Need], progress: Arc<dyn Progress>) -> Result<Binaries> {
        let wanted: Vec<Binary> = needs.iter().flat_map(|need| need.binaries()).copied().collect();
        blocking("looking for the upstream programs", move |cancel| obtain(&wanted, cancel, progress.as_ref())).await
    }
}

fn obtain(wanted: &[Binary], cancel: &Cancel, progress: &dyn Progress) -> Result<Binaries> {
    let mut binaries = Binaries { paths: probe::on_this_machine(wanted, progress) };
    let missing: Vec<Binary> = wanted.iter().filter(|binary| !binaries.paths.contains_key(binary)).copied().collect();
    if missing.is_empty() {
        return Ok(binaries);
    }
    let cache = cache::Cache::at(&cache_root()?)?;
    if missing.iter().all(|binary| cache.find(*binary, &|_| {}).is_some()) {
        binaries.paths.extend(missing.iter().filter_map(|binary| Some((*binary, cache.find(*binary, &|_| {})?))));
        return Ok(binaries);
    }
    // Only who has to build needs the lock; whoever waited for it finds everything built.
    let _lock = Lock::acquire(&cache.lock_path(), cancel, |holder| {
        progress.note(&format!("waiting for another run ({holder}) that is building the upstream programs"));
    })?;
    let mut to_build = Vec::new();
    for binary in missing {
        match cache.find(binary, &|line| progress.note(line)) {
            Some(path) => drop(binaries.paths.insert(binary, path)),
            None => to_build.push(binary),
        }
    }
    if !to_build.is_empty() {
        binaries.paths.extend(build::build(&cache, &to_build, cancel, progress)?);
    }
    Ok(binaries)
}

/// Writes a script that can be run at once. Another process writes it: a child that another test starts just then would
/// have our descriptor for a moment, and what anybody has open for writing cannot be run.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
fn write_script(path: &Path, text: &str) {
    use std::io::Write;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(std::process::Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}
