//! How long a local cluster takes from nothing to ready, beside its limit of 15 seconds.

use std::time::{Duration, Instant};

use anyhow::ensure;
use dapple_testbed::progress::to_stderr;
use dapple_testbed::{Cluster, ClusterSpec, Need, Upstream};

const LIMIT: Duration = Duration::from_secs(15);
const RUNS: u32 = 3;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let progress = to_stderr();
    let binaries = Upstream::obtain(&[Need::ControlPlane], progress.clone()).await?;
    let mut slowest = Duration::ZERO;
    for run in 1..=RUNS {
        let begun = Instant::now();
        let cluster = Cluster::start(ClusterSpec::temporary(), &binaries, progress.as_ref()).await?;
        let ready = begun.elapsed();
        println!("run {run}: ready / limit = {:.3}", ready.as_secs_f64() / LIMIT.as_secs_f64());
        slowest = slowest.max(ready);
        cluster.stop().await?;
    }
    let ratio = slowest.as_secs_f64() / LIMIT.as_secs_f64();
    println!("\na control plane with kwok, ready / limit of {LIMIT:?}: at most {ratio:.3}");
    ensure!(ratio <= 1.0, "starting took longer than {LIMIT:?}");
    Ok(())
}
