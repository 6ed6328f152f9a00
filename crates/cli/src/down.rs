//! `dapple down`.

use std::process::ExitCode;

use dapple_testbed::Cluster;
use dapple_testbed::progress::to_stderr;

use crate::args::DownArgs;
use crate::install::out_of_cluster;
use crate::output::say;
use crate::up::cluster_dir;

pub(crate) async fn run(args: DownArgs) -> anyhow::Result<ExitCode> {
    if args.cluster {
        return out_of_cluster(&args).await;
    }
    let name = args.local.name;
    let dir = cluster_dir(&name)?;
    let progress = to_stderr();
    progress.started(&format!("stopping cluster {name}"));
    let ran = match Cluster::open(&dir)? {
        Some(cluster) => cluster.stop().await.map(|()| true),
        // Nothing answers, but a killed run may have left processes or files.
        None => tokio::task::spawn_blocking(move || dapple_testbed::stop(&dir)).await?,
    };
    progress.finished();
    if ran? {
        say!("Cluster {name:?} is down.");
    } else {
        say!("No local cluster {name:?} runs; nothing to stop.");
    }
    Ok(ExitCode::SUCCESS)
}
