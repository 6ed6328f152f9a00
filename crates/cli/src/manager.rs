//! `dapple manager`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use dapple_admit::Webhooks;
use dapple_admit::callers::Callers;
use dapple_admit::hooks::Reach;
use dapple_admit::register::Source;
use dapple_admit::unregister::notice;
use dapple_control::env::Env;
use dapple_control::families;
use dapple_control::family::{Family, MarkerLimits, PoolLimits, RepairLimits};
use dapple_control::lease::LeaseDurations;
use dapple_control::manager::{Options, Shared, run as run_manager};
use dapple_control::writes::rate::Limits;
use dapple_extend::Extender;
use dapple_plan::certificate::Lifetimes;
use dapple_plan::marker::allowance::Limit;
use tokio_util::sync::CancellationToken;

use crate::args::ManagerArgs;
use crate::connect;
use crate::daemon::{allow_open_files, end_on_panic, log, stop_on_signals};

/// However long a lease is, its holder renews it at least so often: pods are put behind the gate only for a leader that has
/// renewed within a minute.
const RENEW_EVERY: Duration = Duration::from_secs(20);

pub(crate) async fn run(args: ManagerArgs) -> anyhow::Result<ExitCode> {
    log(&args.log, args.log_format)?;
    end_on_panic();
    allow_open_files();
    let env = Env::system();
    let (options, extender) = (options(&args, &env)?, extender(&args)?);
    let config = connect::config(&args.connect).await?;
    let stop = CancellationToken::new();
    stop_on_signals(stop.clone())?;
    let webhooks = match webhooks(&args, &options.families)? {
        Some(webhooks) => Some(Webhooks::listen(webhooks).await?),
        None => None,
    };
    let extender = match extender {
        Some(extender) => Some(Extender::listen(extender).await?),
        None => None,
    };
    run_manager(config, options, env, stop, |shared| beside(shared, webhooks, extender)).await?;
    Ok(ExitCode::SUCCESS)
}

/// What runs beside the controllers.
async fn beside(shared: Shared, webhooks: Option<Webhooks>, extender: Option<Extender>) {
    let extended = async {
        if let Some(extender) = extender {
            extender.run(shared.clone()).await;
        }
    };
    let admitted = async {
        match webhooks {
            Some(webhooks) => webhooks.run(shared.clone()).await,
            None => notice(shared.clone()).await,
        }
    };
    tokio::join!(extended, admitted);
}

/// How to serve the scheduler extender, if it is to be served.
fn extender(args: &ManagerArgs) -> anyhow::Result<Option<dapple_extend::Options>> {
    let Some(listen) = args.extender.extender_listen else { return Ok(None) };
    let group = families::GROUP.name;
    if !args.families.iter().any(|family| family == group) {
        bail!("--extender-listen is for the family {group}, which is not served: add it to --families");
    }
    let (secret, namespace) = (args.extender.extender_secret.clone(), args.namespace.clone());
    Ok(Some(dapple_extend::Options { listen, secret, namespace }))
}

/// How to serve webhooks, if they are to be served.
fn webhooks(args: &ManagerArgs, families: &[&Family]) -> anyhow::Result<Option<dapple_admit::Options>> {
    let asked = &args.webhooks;
    let Some(listen) = asked.webhook_listen else { return Ok(None) };
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let reach = match &asked.webhook_url {
        Some(url) => Reach::Url(url.clone()),
        None => Reach::Service {
            name: asked.webhook_service.clone(),
            namespace: args.namespace.clone(),
            port: asked.webhook_service_port,
        },
    };
    let source = match &asked.webhook_cert_dir {
        Some(folder) => Source::Files(folder.clone()),
        None => Source::Own {
            secret: asked.webhook_secret.clone(),
            lifetimes: Lifetimes {
                authority: seconds(asked.webhook_ca_lifetime),
                serving: seconds(asked.webhook_cert_lifetime.min(asked.webhook_ca_lifetime)),
            },
        },
    };
    let callers = asked.webhook_client_ca.clone().map(Callers::of).transpose()?;
    let serves = |asked: &Family| families.iter().any(|family| family.name == asked.name);
    Ok(Some(dapple_admit::Options {
        listen,
        reach,
        source,
        callers,
        namespace: args.namespace.clone(),
        lease: args.lease.clone(),
        serves_groups: serves(families::GROUP),
        serves_pools: serves(families::POOL),
    }))
}

fn options(args: &ManagerArgs, env: &Env) -> anyhow::Result<Options> {
    let limits = Limits { per_second: args.kube_api_qps.into(), burst: args.kube_api_burst.into() };
    let duration = args.lease_duration;
    // The same proportions as Kubernetes' own 15, 10 and 2 seconds.
    let retry = (duration * 2 / 15).min(RENEW_EVERY);
    let durations = LeaseDurations { duration, renew_within: duration * 2 / 3, retry };
    Ok(Options {
        families: families::find(&args.families).map_err(anyhow::Error::msg).context("--families")?,
        listen: args.listen,
        identity: identity(env),
        namespace: args.namespace.clone(),
        lease: args.lease.clone(),
        durations,
        limits,
        workers: args.workers.into(),
        gates: args.feature_gates.clone(),
        repair: RepairLimits { per_minute: args.repair_per_minute.into(), after: args.repair_after },
        pool: PoolLimits { node_writes_per_second: args.pool_node_writes_per_second },
        marker: MarkerLimits {
            patches_per_second: args.marker.marker_patches_per_second,
            in_a_minute: Limit {
                least: args.marker.marker_pods_per_minute.into(),
                percent: args.marker.marker_percent_per_minute.into(),
            },
        },
    })
}

/// Unlike every other process there ever was: a restarted one must not be taken for the one before.
fn identity(env: &Env) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let chance = (env.fraction() * f64::from(u32::MAX)) as u32;
    format!("{}_{}_{chance:08x}", host.trim(), std::process::id())
}
