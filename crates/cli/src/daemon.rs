//! What the commands have in common that run until they are stopped.

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Logs to the standard error, which every runtime of containers keeps.
pub(crate) fn log(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let chosen = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?} is not a filter"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(chosen).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}

/// A task that panics would leave a manager that leads and does half its work. Another takes over from one that ended.
pub(crate) fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // A request that cannot be answered concerns nobody else.
        if !dapple_admit::serve::is_answering() {
            std::process::abort();
        }
    }));
}

/// Each connection is an open file, and many shells allow no more of them than there are places for connections: a full house
/// would leave none for our own requests.
pub(crate) fn allow_open_files() {
    let known = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: known.maximum, ..known }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// The first SIGTERM or SIGINT asks for a graceful stop; a second one ends the process at once.
pub(crate) fn stop_on_signals(stop: CancellationToken) -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! { biased; _ = term.recv() => {}, _ = interrupt.recv() => {} }
        stop.cancel();
        tokio::select! { biased; _ = term.recv() => {}, _ = interrupt.recv() => {} }
        std::process::exit(130);
    });
    Ok(())
}
