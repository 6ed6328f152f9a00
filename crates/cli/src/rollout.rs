//! `dapple rollout`: following and steering the rollouts of DaemonSets and of applications in pools.

mod change;
mod history;
mod status;
mod undo;

use std::process::ExitCode;

use crate::args::{RolloutArgs, RolloutCommand};
use crate::rollout::change::Course;

pub(crate) async fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        RolloutCommand::Status(args) => status::run(args).await,
        RolloutCommand::Pause(args) => change::run(&args, Course::Pause).await,
        RolloutCommand::Resume(args) => change::run(&args, Course::Resume).await,
        RolloutCommand::Restart(args) => change::run(&args, Course::Restart).await,
        RolloutCommand::Undo(args) => undo::run(args).await,
        RolloutCommand::History(args) => history::run(args).await,
    }
}
