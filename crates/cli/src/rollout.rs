//! `dapple rollout`: following and steering the rollout of a DaemonSet.

mod change;
mod history;
mod status;
mod undo;

use std::process::ExitCode;

use dapple_plan::daemonset::rollout::{pause, restart};
use jiff::Timestamp;

use crate::args::{RolloutArgs, RolloutCommand};

pub(crate) async fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        RolloutCommand::Status(args) => status::run(args).await,
        RolloutCommand::Pause(args) => change::run(&args, "paused", |set| pause(set, true)).await,
        RolloutCommand::Resume(args) => change::run(&args, "resumed", |set| pause(set, false)).await,
        RolloutCommand::Restart(args) => {
            // Whole seconds, as kubectl writes them.
            let at = Timestamp::from_second(Timestamp::now().as_second())?.to_string();
            change::run(&args, "restarted", |set| restart(set, &at)).await
        }
        RolloutCommand::Undo(args) => undo::run(args).await,
        RolloutCommand::History(args) => history::run(args).await,
    }
}
