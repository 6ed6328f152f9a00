//! The test binary run again as another process: an owner that can be killed.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use dapple_testbed::{ClusterSpec, Lifetime, Need, RealNodeSpec, Upstream, progress};

use crate::support::start;

const DIR: &str = "DAPPLE_TESTBED_HELPER_DIR";
const DETACHED: &str = "DAPPLE_TESTBED_HELPER_DETACHED";
const REAL_NODE: &str = "DAPPLE_TESTBED_HELPER_REAL_NODE";

/// Only does something when started by [`owner`]: starts a cluster, says so, and waits to be killed.
#[tokio::test]
async fn helper_owner() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let mut spec = ClusterSpec::at("owned", PathBuf::from(dir));
    if std::env::var_os(DETACHED).is_some() {
        spec.lifetime = Lifetime::Detached;
    }
    let cluster = start(spec).await;
    if std::env::var_os(REAL_NODE).is_some() {
        let binaries = Upstream::obtain(&[Need::RealNode], progress::to_stderr()).await.unwrap();
        cluster.start_real_node(&RealNodeSpec::new("real"), &binaries, &progress::Quiet).await.unwrap();
    }
    println!("\nREADY");
    std::future::pending::<()>().await;
}

/// Starts a process that owns a cluster in `dir`.
pub(crate) fn owner(dir: &Path, lifetime: Lifetime) -> Child {
    owner_with(dir, lifetime, false)
}

/// Starts a process that owns a cluster in `dir`, and a real node in it where asked for.
pub(crate) fn owner_with(dir: &Path, lifetime: Lifetime, real_node: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "helper::helper_owner", "--nocapture"]).env(DIR, dir).stdout(Stdio::piped());
    if lifetime == Lifetime::Detached {
        command.env(DETACHED, "1");
    }
    if real_node {
        command.env(REAL_NODE, "1");
    }
    command.spawn().unwrap()
}

/// Waits until the owner's cluster is ready.
pub(crate) fn wait_until_ready(owner: &mut Child) {
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "READY"), "the owner ended early");
}
