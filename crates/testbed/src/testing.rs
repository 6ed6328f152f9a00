//! For tests on a cluster: one of their own, waiting for what a cluster does in its own time, and kubectl.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::progress::Quiet;
use crate::{Cluster, ClusterSpec, Need, Upstream};

mod observer;
pub use observer::Observer;

/// Nothing takes this long on a busy machine unless it never happens.
const PATIENCE: Duration = Duration::from_secs(300);

/// Starts a cluster of a test's own, without a word about how far it has come.
pub async fn start(spec: ClusterSpec) -> Result<Cluster> {
    let binaries = Upstream::obtain(&[Need::ControlPlane], Arc::new(Quiet)).await?;
    Cluster::start(spec, &binaries, &Quiet).await
}

/// Polls until `look` finds something; `Err` says what is still missing.
///
/// # Panics
/// When it is never found: that is a test's failure.
#[allow(clippy::panic, reason = "a test that waits in vain has failed")]
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(missing) if begun.elapsed() > PATIENCE => panic!("{what}: after {PATIENCE:?} still {missing}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Runs kubectl as whoever this kubeconfig names, with `input` on its standard input.
pub fn kubectl(cluster: &Cluster, kubeconfig: &Path, args: &[&str], input: &str) -> std::io::Result<Output> {
    let mut child = Command::new(cluster.kubectl())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    child.wait_with_output()
}
