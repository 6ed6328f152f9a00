//! Webhooks as callers see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod hostile;
mod judged;
mod put_back;
mod served;
mod strangers;
mod surrounded;

use std::sync::Arc;

use dapple_control::caches::{Caches, WatchContext};
use dapple_control::env::Env;
use dapple_control::metrics::Metrics;
use dapple_control::retry::Recovery;
use dapple_control::signal::Signal;
use dapple_control::writes::events::Recorder;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// The caches of a process that does not lead.
fn caches(client: Client, stop: &CancellationToken) -> Caches {
    let (env, leading) = (Env::system(), Signal::default());
    let recorder = Recorder::start(client.clone(), "test".to_owned(), env.clone(), leading.clone(), stop.clone());
    let (metrics, recorder) = (Arc::new(Metrics::new()), Arc::new(recorder));
    let (recovery, stop) = (Recovery::default(), stop.clone());
    let namespace = Arc::from("dapple-system");
    Caches::new(WatchContext { client, namespace, env, metrics, recorder, leading, recovery, stop })
}
