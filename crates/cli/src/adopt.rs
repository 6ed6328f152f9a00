//! `dapple adopt`: taking a kind over from another product, without a restart.

use std::process::ExitCode;

use anyhow::bail;
use dapple_control::adopt::{Standing, carry_out, look};
use dapple_control::env::Env;
use dapple_control::writes::client;
use dapple_plan::adopt::{Adoption, CRD, judge};
use dapple_view::adopt::AdoptView;
use kube::Client;

use crate::args::{AdoptArgs, AdoptFamily};
use crate::connect;
use crate::output::{confirmed, is_coloured, say};

pub(crate) async fn run(args: AdoptArgs) -> anyhow::Result<ExitCode> {
    let config = connect::config(&args.connect).await?;
    let server = config.cluster_url.to_string();
    let client = client::connect(config)?;
    match args.family {
        AdoptFamily::Daemonset => daemonset(&args, &client, &server).await,
    }
}

async fn daemonset(args: &AdoptArgs, client: &Client, server: &str) -> anyhow::Result<ExitCode> {
    let Some(mut adoption) = judged(args, client).await? else { return Ok(ExitCode::SUCCESS) };
    say!("{}", AdoptView { adoption: &adoption, server, colour: is_coloured() });
    stop_if_refused(&adoption)?;
    if args.dry_run {
        say!("Nothing was changed (--dry-run).");
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        if !confirmed(&format!("adopt {CRD} at {server}"))? {
            say!("Nothing was changed.");
            return Ok(ExitCode::from(1));
        }
        // The answer may have taken a while: what was found may not hold any more.
        match judged(args, client).await? {
            Some(now) => adoption = now,
            None => return Ok(ExitCode::SUCCESS),
        }
        if !adoption.refusals.is_empty() {
            say!("\n{}", AdoptView { adoption: &adoption, server, colour: is_coloured() });
        }
        stop_if_refused(&adoption)?;
    }
    carry_out(client, &adoption, &|step| say!("{step} ...")).await?;
    say!("\nAdopted {} DaemonSets; none of their {} pods was touched.", adoption.sets.len(), adoption.pods.len());
    say!("A manager of dapple that runs takes them up within ten seconds; else: dapple up --cluster && dapple manager");
    say!("Do not start OpenKruise's controller again while dapple serves them: it would act on them too.");
    Ok(ExitCode::SUCCESS)
}

/// What adopting means here; nothing if there is nothing to adopt.
async fn judged(args: &AdoptArgs, client: &Client) -> anyhow::Result<Option<Adoption>> {
    match look(client).await? {
        Standing::Missing => {
            bail!("there is no CRD {CRD}, so nothing to adopt; `dapple up --cluster` installs dapple's")
        }
        Standing::Ours => {
            say!("CRD {CRD} is dapple's already: nothing to do.");
            Ok(None)
        }
        Standing::Open(observed) => Ok(Some(judge(&observed, args.allow_restarts, Env::system().now().as_second()))),
    }
}

/// Ends if something stands in the way. The report has it all; this line only says where to look.
fn stop_if_refused(adoption: &Adoption) -> anyhow::Result<()> {
    if adoption.refusals.is_empty() {
        return Ok(());
    }
    let mut objects: Vec<&str> = adoption.refusals.iter().map(|refusal| refusal.object.as_str()).collect();
    objects.dedup();
    bail!("nothing was changed, see what stands in the way: {}", objects.join(", "))
}
