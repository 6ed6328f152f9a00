//! What a real node needs from Debian.

use std::path::{Path, PathBuf};

use crate::{
    error::{Error, Result, io_error},
    files::{tail, write_atomically},
    progress::Progress,
};

/// What the packages must provide, by where it may be.
const NEEDED: [(&str, &[&str]); 6] = [
    ("runc", &["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"]),
    ("containernetworking-plugins", &["/usr/lib/cni/bridge", "/opt/cni/bin/bridge"]),
    ("nftables", &["/usr/sbin/nft", "/sbin/nft"]),
    ("conntrack", &["/usr/sbin/conntrack", "/sbin/conntrack"]),
    ("socat", &["/usr/bin/socat"]),
    ("busybox-static", &["/bin/busybox", "/usr/bin/busybox"]),
];

/// Where the CNI plugins are.
pub(super) fn cni_plugins() -> &'static str {
    if Path::new("/usr/lib/cni/bridge").exists() { "/usr/lib/cni" } else { "/opt/cni/bin" }
}

/// The static busybox.
pub(super) fn busybox() -> PathBuf {
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    places.iter().map(PathBuf::from).find(|path| path.exists()).unwrap_or_else(|| PathBuf::from("/bin/busybox"))
}

fn missing() -> Vec<&'static str> {
    let is_there = |places: &[&str]| places.iter().any(|place| Path::new(place).exists());
    NEEDED.iter().filter(|(_, places)| !is_there(places)).map(|(package, _)| *package).collect()
}

/// Installs what is missing with the project's script.
pub(super) fn ensure(dir: &Path, progress: &dyn Progress) -> Result<()> {
    let before = missing();
    if before.is_empty() {
        return Ok(());
    }
    // Written out from this program, so that it works without the sources at hand.
    let script = dir.join("install-node-packages");
    write_atomically(&script, include_bytes!("../../scripts/install-node-packages"))?;
    let log = dir.join("logs").join("install-node-packages.log");
    let output = std::fs::File::create(&log).map_err(io_error("create", &log))?;
    let errors = output.try_clone().map_err(io_error("open", &log))?;
    progress.started(&format!("installing {}", before.join(", ")));
    let status = std::process::Command::new("sh").arg(&script).stdout(output).stderr(errors).status();
    progress.finished();
    let left = missing();
    if left.is_empty() {
        return Ok(());
    }
    let said = match status {
        Ok(_) => tail(&log, 1),
        Err(error) => error.to_string(),
    };
    Err(Error::Packages { missing: left.join(" "), said })
}
