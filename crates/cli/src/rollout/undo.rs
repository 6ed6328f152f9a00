//! `dapple rollout undo`: an earlier revision of a DaemonSet, or of an application in pools.

mod daemonset;
mod pool;

use std::process::ExitCode;

use dapple_api::kinds::Name;

use crate::args::{DryRun, UndoArgs};
use crate::reach::Reach;

pub(crate) async fn run(args: UndoArgs) -> anyhow::Result<ExitCode> {
    let (reach, name) = Reach::connect_for(&args.object).await?;
    match reach.own.name {
        Name::DaemonSet => daemonset::run(&reach, &name, &args).await,
        _ => pool::run(&reach, &name, &args).await,
    }
}

/// The revision that was asked for. As kubectl: 0 is the one before the newest.
fn asked(args: &UndoArgs) -> Option<i64> {
    Some(args.to_revision).filter(|number| *number > 0)
}

/// How it was done, behind what was done.
fn how(dry_run: DryRun) -> &'static str {
    match dry_run {
        DryRun::None => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    }
}
