//! The commands and flags of `get` and `rollout`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{ConnectArgs, ViewOutput};

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to show: a kind for all of a namespace, KIND/NAME or KIND NAME for one. Kinds are daemonset (of apps.kruise.io),
    /// podmarker, nodepool, yurtappset, yurtappdaemon and yurtappconfigurationreplacement, or their short names ds, pmark, np,
    /// yas, yad, yacr.
    #[arg(value_name = "KIND[/NAME]", required = true, num_args = 1..=2)]
    pub(crate) target: Vec<String>,
    /// The namespace; otherwise the context's. NodePools are in none.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Go on showing what changes until Ctrl-C: in place on a terminal, else each changed object anew.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// How to print it; wide has more columns: strategy and images, what a marker asks for, nodes of pools, every pool of an
    /// application.
    #[arg(short, long, value_enum, default_value_t = GetOutput::Text)]
    pub(crate) output: GetOutput,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GetOutput {
    Text,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    pub(crate) command: RolloutCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Say how far a rollout is, and wait for its end.
    ///
    /// Prints a line for each change: how many nodes are updated, or how many pools are done, and what it waits for. Ends
    /// with 0 once everything is updated that should be, and available; with 1 if the time is over, the object is gone, or
    /// the rollout over pools was stopped; with 2 for an error. A DaemonSet that is updated on deletion (OnDelete) is not
    /// waited for: how many pods wait is said, and it ends with 0.
    Status(StatusOfArgs),
    /// Stop updating pods until `resume`. Pods of a DaemonSet that are missing are still created; of an application in
    /// pools nothing at all is written (dapple.dev/suspend).
    Pause(ObjectArgs),
    /// Let a rollout go on that was paused, or, over pools, stopped because pools were not done in time.
    Resume(ObjectArgs),
    /// Go back to an earlier revision: the template and the patches as they were.
    ///
    /// Of an application in pools, the template, the pools and the replacements: two objects may be written, which is said
    /// first.
    Undo(UndoArgs),
    /// Replace every pod by one like it, at the pace of a rolling update, or pool by pool.
    Restart(ObjectArgs),
    /// Show the revisions: what they were for, and how many pods or pools have each.
    History(HistoryArgs),
}

/// Which DaemonSet, YurtAppSet or YurtAppDaemon.
#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    /// What is rolled out: KIND/NAME, or KIND NAME. Kinds are daemonset (ds, of apps.kruise.io), yurtappset (yas) and
    /// yurtappdaemon (yad).
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    pub(crate) target: Vec<String>,
    /// The namespace; otherwise the context's.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOfArgs {
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    /// Wait for the end of the rollout; --watch=false says how far it is, and ends with 0.
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "true|false")]
    pub(crate) watch: bool,
    /// How long to wait, such as 90s, 5m or 1h30m; 0 means for ever.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    /// The revision to go back to, as `history` numbers them; otherwise the one before the newest.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) to_revision: i64,
    /// Change nothing: client shows what would change, server also asks the API server whether it takes it.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRun::None,
          default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    None,
    Client,
    Server,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    /// Show this revision in full: its template, and its patches or pools and replacements.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) revision: i64,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = ViewOutput::Text)]
    pub(crate) output: ViewOutput,
}

/// A time as kubectl takes it.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "give a time such as 90s, 5m or 1h30m".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let read = text.parse::<jiff::SignedDuration>().map_err(|_| wrong())?;
    Duration::try_from(read).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn rollout(words: &[&str]) -> RolloutCommand {
        match Cli::try_parse_from([&["dapple", "rollout"], words].concat()).unwrap().command {
            Command::Rollout(args) => args.command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn times_are_read_as_kubectl_reads_them() {
        for (text, seconds) in [("0", 0), ("0s", 0), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "5", "-5s", "soon", "5 parsecs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_are_those_that_kubectl_users_know() {
        let RolloutCommand::Status(status) = rollout(&["status", "ds", "a", "--watch=false"]) else { panic!() };
        assert_eq!((status.object.target.len(), status.watch), (2, false));
        for words in [&["status", "ds/a"][..], &["status", "ds/a", "-w"], &["status", "-w", "ds/a", "--timeout=5s"]] {
            let RolloutCommand::Status(status) = rollout(words) else { panic!() };
            assert!(status.watch && status.object.target == ["ds/a"], "{words:?}");
        }
        let dry = |words: &[&str]| match rollout(words) {
            RolloutCommand::Undo(undo) => undo.dry_run,
            other => panic!("{other:?}"),
        };
        assert_eq!(dry(&["undo", "ds/a"]), DryRun::None);
        assert_eq!(dry(&["undo", "--dry-run", "ds/a"]), DryRun::Client);
        assert_eq!(dry(&["undo", "ds/a", "--dry-run=server", "--to-revision=3"]), DryRun::Server);
    }
}
