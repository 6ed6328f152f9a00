//! `dapple node`.

use std::process::ExitCode;

use dapple_control::env::Env;
use dapple_node::marker::{Options, run as run_prober};
use tokio_util::sync::CancellationToken;

use crate::args::{NodeArgs, NodeCommand, ProberArgs};
use crate::connect;
use crate::daemon::{allow_open_files, end_on_panic, log, stop_on_signals};

pub(crate) async fn run(args: NodeArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        NodeCommand::Prober(args) => prober(*args).await,
    }
}

async fn prober(args: ProberArgs) -> anyhow::Result<ExitCode> {
    log(&args.log, args.log_format)?;
    end_on_panic();
    allow_open_files();
    let config = connect::config(&args.connect).await?;
    let stop = CancellationToken::new();
    stop_on_signals(stop.clone())?;
    let runtime = args.exec.then_some(args.runtime_socket);
    let options = Options { node: args.node_name, runtime, listen: args.listen };
    run_prober(config, options, Env::system(), stop).await?;
    Ok(ExitCode::SUCCESS)
}
