//! `dapple rollout status`: a line for each change, until the rollout is over.

mod daemonset;
mod pool;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::kinds::Name;
use dapple_testbed::progress::{Progress, Quiet, Spinner};
use dapple_view::harmless;
use dapple_view::step::Step;

use crate::args::StatusOfArgs;
use crate::output::{note, put};
use crate::reach::{Reach, reason};

/// The time is over, or there is nothing left to wait for.
const FAILED: u8 = 1;

pub(crate) async fn run(args: StatusOfArgs) -> anyhow::Result<ExitCode> {
    let (reach, name) = Reach::connect_for(&args.object).await?;
    match reach.own.name {
        Name::DaemonSet => daemonset::run(&reach, &name, &args).await,
        _ => pool::run(&reach, &name, &args).await,
    }
}

/// Waits for the end of a rollout, which `follow` tells of, or of the time.
async fn wait<F: Future<Output = ExitCode>>(
    reach: &Reach,
    name: &str,
    args: &StatusOfArgs,
    follow: impl FnOnce(Arc<dyn Progress>) -> F,
) -> ExitCode {
    let spinner: Arc<dyn Progress> =
        if std::io::stderr().is_terminal() { Arc::new(Spinner::default()) } else { Arc::new(Quiet) };
    spinner.started("waiting");
    let ended = tokio::select! {
        biased;
        code = follow(spinner.clone()) => Some(code),
        () = over(args.timeout) => None,
    };
    spinner.finished();
    ended.unwrap_or_else(|| {
        let after = jiff::SignedDuration::try_from(args.timeout).map(|time| format!("{time:#}")).unwrap_or_default();
        note(&format!(
            "error: the rollout of {} is not over after {after}; `dapple get {}/{name}` shows what it waits for",
            reach.shown(name),
            reach.word()
        ));
        ExitCode::from(FAILED)
    })
}

/// Ends when the time is over; never if there is no limit.
async fn over(timeout: Duration) {
    if timeout.is_zero() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(timeout).await;
}

/// Says that a watch broke, once: it is tried again until it works, or the time is over.
fn say_broken(is_broken: &mut bool, error: &(dyn std::error::Error + 'static), spinner: &dyn Progress) {
    if !std::mem::replace(is_broken, true) {
        spinner.finished();
        note(&harmless(&format!("warning: the watch broke and is tried again: {}", reason(error))));
        spinner.started("waiting");
    }
}

/// Says what a step has to say; how it ends, if it does.
fn said(step: Step, spinner: &dyn Progress) -> Option<ExitCode> {
    let (text, code) = match step {
        Step::Same => return None,
        Step::Line(text) => (text, None),
        Step::Done(text) => (text, Some(ExitCode::SUCCESS)),
        Step::Failed(text) => {
            spinner.finished();
            note(&format!("error: {text}"));
            return Some(ExitCode::from(FAILED));
        }
    };
    spinner.finished();
    put(format_args!("{text}\n"));
    if code.is_none() {
        spinner.started("waiting");
    }
    code
}
