//! An API server that is away for a while, and comes back as it was.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dapple_testbed::Cluster;
use http::Request;
use kube::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::until;

/// An API server that comes back takes no longer.
const BACK_WITHIN: Duration = Duration::from_secs(120);

/// The API server that was started in place of the one that was killed. Dropping it ends it.
pub struct Again(Child);

impl Drop for Again {
    fn drop(&mut self) {
        // It is ours, and nobody else's.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Kills the API server of a cluster, waits for so long, and starts it as it was. Returns once it says that it is ready, with
/// how long that took from the start.
pub async fn restart(cluster: &Cluster, client: &Client, away: Duration) -> anyhow::Result<(Again, Duration)> {
    let processes = cluster.processes();
    let (_, id) = processes.iter().find(|(name, _)| name == "kube-apiserver").context("there is no API server")?;
    let line = std::fs::read(format!("/proc/{}/cmdline", id.pid))?;
    let words: Vec<&str> = line.split(|byte| *byte == 0).map(std::str::from_utf8).collect::<Result<_, _>>()?;
    let [program, args @ .., _] = words.as_slice() else { anyhow::bail!("the API server has no command line") };
    let program = std::fs::read_link(format!("/proc/{}/exe", id.pid)).unwrap_or_else(|_| (*program).into());
    kill_process(Pid::from_raw(id.pid).context("no process")?, Signal::KILL)?;
    until("the API server is gone", || async { Ok(!id.is_alive()) }).await?;
    tokio::time::sleep(away).await;
    let start = || {
        let log = std::fs::File::create(cluster.log("kube-apiserver-again"))?;
        Command::new(&program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    };
    let begun = Instant::now();
    let mut again = Again(start()?);
    loop {
        let ready = Request::get("/readyz").body(Vec::new())?;
        if client.request_text(ready).await.is_ok_and(|said| said == "ok") {
            return Ok((again, begun.elapsed()));
        }
        ensure!(begun.elapsed() < BACK_WITHIN, "the API server is not back after {BACK_WITHIN:?}");
        // The port of the one before may be taken for a moment.
        if again.0.try_wait()?.is_some() {
            again = Again(start()?);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
