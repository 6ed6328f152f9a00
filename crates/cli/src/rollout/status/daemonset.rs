//! Following the rollout of a DaemonSet.

use std::process::ExitCode;
use std::sync::Arc;

use dapple_api::daemonset::DaemonSet;
use dapple_testbed::progress::{Progress, Quiet};
use dapple_view::daemonset::rollout::Follower;
use futures::StreamExt;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};

use super::{FAILED, said, say_broken, wait};
use crate::args::StatusOfArgs;
use crate::reach::{Reach, typed};
use crate::sources::with_notice;

pub(super) async fn run(reach: &Reach, name: &str, args: &StatusOfArgs) -> anyhow::Result<ExitCode> {
    let mut follower = Follower::default();
    // What cannot be read at all is an error now, not something to wait for.
    let first = with_notice(&format!("reading {} ...", reach.shown(name)), reach.find(name)).await?;
    let first: Option<DaemonSet> = first.map(|object| reach.read(name, &object, typed)).transpose()?;
    if let Some(code) = said(follower.step(name, first.as_ref()), &Quiet) {
        return Ok(code);
    }
    if !args.watch {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(wait(reach, name, args, |spinner| follow(reach, name, follower, spinner)).await)
}

/// Watches it to the end of the rollout.
async fn follow(reach: &Reach, name: &str, mut follower: Follower, spinner: Arc<dyn Progress>) -> ExitCode {
    let namespace = reach.namespace.as_deref().unwrap_or_default();
    let api: Api<DaemonSet> = Api::namespaced(reach.client.clone(), namespace);
    let mut looks = watcher::watch_object(api, name).default_backoff().boxed();
    let mut is_broken = false;
    while let Some(look) = looks.next().await {
        let set = match look {
            Ok(set) => set,
            Err(error) => {
                say_broken(&mut is_broken, &error, &*spinner);
                continue;
            }
        };
        is_broken = false;
        if let Some(code) = said(follower.step(name, set.as_ref()), &*spinner) {
            return code;
        }
    }
    ExitCode::from(FAILED)
}
