//! `dapple extender`.

use std::process::ExitCode;

use dapple_control::env::Env;
use dapple_extend::config::{Config, config, default_url};
use kube::Client;

use crate::args::{ExtenderArgs, ExtenderCommand, ExtenderConfigArgs};
use crate::connect;
use crate::output::{say, yaml};

pub(crate) async fn run(args: ExtenderArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ExtenderCommand::Config(args) => print_config(args).await,
    }
}

async fn print_config(args: ExtenderConfigArgs) -> anyhow::Result<ExitCode> {
    let client = Client::try_from(connect::config(&args.connect).await?)?;
    let url = args.url.unwrap_or_else(|| default_url(&args.namespace));
    let made = config(&client, (&args.namespace, &args.secret), &url, args.weight, Env::system().now()).await?;
    let Config { configuration, until } = made;
    say!("# Holds until {until}. It has a private key in it. Give it to kube-scheduler as --config.");
    say!("{}", yaml(&configuration));
    Ok(ExitCode::SUCCESS)
}
