//! `dapple adopt`: taking kinds over from another product, without a restart.

mod daemonset;
mod pool;

use std::process::ExitCode;

use anyhow::bail;
use dapple_control::writes::client;
use dapple_plan::adopt::Refusal;

use crate::args::{AdoptArgs, AdoptFamily};
use crate::connect;
use crate::output::{confirmed, say};

use daemonset::DaemonSets;
use pool::Pools;

/// What taking over means for one family.
trait TakeOver {
    /// What was found, and what will be done.
    type Adoption;

    /// What is taken over, as in a question.
    fn what(&self) -> String;

    /// What adopting means here; nothing, after it has said so, if there is nothing to adopt.
    async fn judged(&self) -> anyhow::Result<Option<Self::Adoption>>;

    /// What stands in the way.
    fn refusals(adoption: &Self::Adoption) -> &[Refusal];

    /// Says what was found, what will be done, and what stands in the way.
    fn show(&self, adoption: &Self::Adoption);

    /// Does it, and says what to do next.
    async fn carry_out(&self, adoption: &Self::Adoption) -> anyhow::Result<()>;
}

pub(crate) async fn run(args: AdoptArgs) -> anyhow::Result<ExitCode> {
    if args.family != AdoptFamily::Pool && !args.kinds.is_empty() {
        bail!("--kinds is for `dapple adopt pool`: the other families are taken over whole");
    }
    let config = connect::config(&args.connect).await?;
    let server = config.cluster_url.to_string();
    let client = client::connect(config)?;
    match args.family {
        AdoptFamily::Daemonset => take_over(&args, &DaemonSets::new(&args, client, server)).await,
        AdoptFamily::Pool => take_over(&args, &Pools::new(&args, client, server)).await,
    }
}

async fn take_over<T: TakeOver>(args: &AdoptArgs, family: &T) -> anyhow::Result<ExitCode> {
    let Some(mut adoption) = family.judged().await? else { return Ok(ExitCode::SUCCESS) };
    family.show(&adoption);
    stop_if_refused(T::refusals(&adoption))?;
    if args.dry_run {
        say!("Nothing was changed (--dry-run).");
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes {
        if !confirmed(&format!("adopt {}", family.what()))? {
            say!("Nothing was changed.");
            return Ok(ExitCode::from(1));
        }
        // The answer may have taken a while: what was found may not hold any more.
        match family.judged().await? {
            Some(now) => adoption = now,
            None => return Ok(ExitCode::SUCCESS),
        }
        if !T::refusals(&adoption).is_empty() {
            say!("");
            family.show(&adoption);
        }
        stop_if_refused(T::refusals(&adoption))?;
    }
    family.carry_out(&adoption).await?;
    Ok(ExitCode::SUCCESS)
}

/// Ends if something stands in the way. The report has it all; this line only says where to look.
fn stop_if_refused(refusals: &[Refusal]) -> anyhow::Result<()> {
    if refusals.is_empty() {
        return Ok(());
    }
    let mut objects: Vec<&str> = refusals.iter().map(|refusal| refusal.object.as_str()).collect();
    objects.dedup();
    bail!("nothing was changed, see what stands in the way: {}", objects.join(", "))
}
