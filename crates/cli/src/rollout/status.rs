//! `dapple rollout status`: a line for each change, until the rollout is over.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dapple_api::daemonset::DaemonSet;
use dapple_testbed::progress::{Progress, Quiet, Spinner};
use dapple_view::daemonset::rollout::{Follower, Step};
use dapple_view::harmless;
use futures::StreamExt;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};

use crate::args::StatusOfArgs;
use crate::output::{note, put};
use crate::sets::{Sets, reason};
use crate::sources::with_notice;

/// The time is over, or there is nothing left to wait for.
const FAILED: u8 = 1;

pub(crate) async fn run(args: StatusOfArgs) -> anyhow::Result<ExitCode> {
    let (sets, name) = Sets::connect_for(&args.set).await?;
    let mut follower = Follower::default();
    // What cannot be read at all is an error now, not something to wait for.
    let notice = format!("reading {} ...", sets.shown(&name));
    let first = with_notice(&notice, sets.find(&name)).await?;
    let step = follower.step(&name, first.as_ref().map(|found| &found.set));
    if let Some(code) = said(step, &Quiet) {
        return Ok(code);
    }
    if !args.watch {
        return Ok(ExitCode::SUCCESS);
    }
    let spinner: Arc<dyn Progress> =
        if std::io::stderr().is_terminal() { Arc::new(Spinner::default()) } else { Arc::new(Quiet) };
    spinner.started("waiting");
    let ended = tokio::select! {
        biased;
        code = follow(&sets, &name, follower, &*spinner) => Some(code),
        () = over(args.timeout) => None,
    };
    spinner.finished();
    Ok(ended.unwrap_or_else(|| {
        let after = jiff::SignedDuration::try_from(args.timeout).map(|time| format!("{time:#}")).unwrap_or_default();
        note(&format!(
            "error: the rollout of {} is not over after {after}; `dapple get daemonset/{name}` shows what it waits for",
            sets.shown(&name)
        ));
        ExitCode::from(FAILED)
    }))
}

/// Ends when the time is over; never if there is no limit.
async fn over(timeout: Duration) {
    if timeout.is_zero() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(timeout).await;
}

/// Watches it to the end of the rollout.
async fn follow(sets: &Sets, name: &str, mut follower: Follower, spinner: &dyn Progress) -> ExitCode {
    let namespace = sets.namespace.as_deref().unwrap_or_default();
    let api: Api<DaemonSet> = Api::namespaced(sets.client.clone(), namespace);
    let mut looks = watcher::watch_object(api, name).default_backoff().boxed();
    let mut is_broken = false;
    while let Some(look) = looks.next().await {
        let set = match look {
            Ok(set) => set,
            Err(error) => {
                // Once: it is tried again until it works, or the time is over.
                if !std::mem::replace(&mut is_broken, true) {
                    spinner.finished();
                    note(&harmless(&format!("warning: the watch broke and is tried again: {}", reason(&error))));
                    spinner.started("waiting");
                }
                continue;
            }
        };
        is_broken = false;
        if let Some(code) = said(follower.step(name, set.as_ref()), spinner) {
            return code;
        }
    }
    ExitCode::from(FAILED)
}

/// Says what a step has to say; how it ends, if it does.
fn said(step: Step, spinner: &dyn Progress) -> Option<ExitCode> {
    let (text, code) = match step {
        Step::Same => return None,
        Step::Line(text) => (text, None),
        Step::Done(text) => (text, Some(ExitCode::SUCCESS)),
        Step::Gone(text) => {
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
