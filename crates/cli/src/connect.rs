//! Which cluster a command talks to.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::args::ConnectArgs;

/// The configuration that the flags, or else the environment, name.
pub(crate) async fn config(args: &ConnectArgs) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &args.kubeconfig {
        let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
        let config = kube::Config::from_custom_kubeconfig(file, &options).await;
        return config.with_context(|| format!("{} does not name a usable cluster", path.display()));
    }
    let config = match &args.context {
        Some(_) => kube::Config::from_kubeconfig(&options).await.map_err(anyhow::Error::from),
        None => kube::Config::infer().await.map_err(anyhow::Error::from),
    };
    config.context("no cluster to talk to: give --kubeconfig, or set KUBECONFIG")
}
