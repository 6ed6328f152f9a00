//! The `dapple` command; installed as `kubectl-dapple` it is also `kubectl dapple`.

mod adopt;
mod applications;
mod args;
mod checks;
mod completion;
mod connect;
mod crds;
mod daemon;
mod diff;
mod down;
mod explain;
mod extender;
mod get;
mod install;
mod live;
mod manager;
mod markers;
mod mirror;
mod node;
mod output;
mod plan;
mod reach;
mod rollout;
mod sets;
mod sources;
mod status;
mod strangers;
mod target;
mod tenancy;
mod up;

use std::process::ExitCode;

use clap::Parser;
use dapple_control::writes::client::in_words;

use crate::args::{Cli, Command};

/// Gives memory back after a relist, which the system's allocator does not.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let code = match runtime.block_on(run(cli)) {
        Ok(code) => code,
        Err(error) => fail(&error),
    };
    // Whatever still waits in the background waits for nobody.
    runtime.shutdown_background();
    code
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Up(args) => up::run(args).await,
        Command::Down(args) => down::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Plan(args) => plan::run(args).await,
        Command::Explain(args) => explain::run(*args).await,
        Command::Diff(args) => diff::run(*args).await,
        Command::Get(args) => get::run(*args).await,
        Command::Rollout(args) => rollout::run(*args).await,
        Command::Adopt(args) => adopt::run(args).await,
        Command::Tenancy(args) => tenancy::run(*args).await,
        Command::Manager(args) => manager::run(*args).await,
        Command::Extender(args) => extender::run(args).await,
        Command::Node(args) => node::run(args).await,
        Command::Crds(args) => crds::run(&args),
        Command::Completion(args) => completion::run(&args),
    }
}

/// One line: what failed, and all the causes it knows.
fn fail(error: &anyhow::Error) -> ExitCode {
    let mut text = String::new();
    for cause in error.chain().map(in_words) {
        // Many errors name their cause already.
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    // Errors quote what is in files and clusters, which must not steer the terminal.
    let lines: Vec<String> = text.lines().map(dapple_view::harmless).collect();
    #[allow(clippy::print_stderr, reason = "this is where errors end")]
    {
        eprintln!("error: {}", lines.join("\n"));
    }
    ExitCode::from(2)
}
