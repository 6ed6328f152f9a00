//! DaemonSets of OpenKruise.

use anyhow::bail;
use dapple_control::adopt::{Standing, carry_out, look};
use dapple_control::env::Env;
use dapple_plan::adopt::{Adoption, CRD, Refusal, judge};
use dapple_view::adopt::AdoptView;
use kube::Client;

use super::TakeOver;
use crate::args::AdoptArgs;
use crate::output::{is_coloured, say};

/// DaemonSets of a cluster.
pub(super) struct DaemonSets {
    client: Client,
    server: String,
    allow_restarts: bool,
}

impl DaemonSets {
    pub(super) fn new(args: &AdoptArgs, client: Client, server: String) -> Self {
        Self { client, server, allow_restarts: args.allow_restarts }
    }
}

impl TakeOver for DaemonSets {
    type Adoption = Adoption;

    fn what(&self) -> String {
        format!("{CRD} at {}", self.server)
    }

    async fn judged(&self) -> anyhow::Result<Option<Adoption>> {
        match look(&self.client).await? {
            Standing::Missing => {
                bail!("there is no CRD {CRD}, so nothing to adopt; `dapple up --cluster` installs dapple's")
            }
            Standing::Ours => {
                say!("CRD {CRD} is dapple's already: nothing to do.");
                Ok(None)
            }
            Standing::Open(observed) => {
                Ok(Some(judge(&observed, self.allow_restarts, Env::system().now().as_second())))
            }
        }
    }

    fn refusals(adoption: &Adoption) -> &[Refusal] {
        &adoption.refusals
    }

    fn show(&self, adoption: &Adoption) {
        say!("{}", AdoptView { adoption, server: &self.server, colour: is_coloured() });
    }

    async fn carry_out(&self, adoption: &Adoption) -> anyhow::Result<()> {
        carry_out(&self.client, adoption, &|step| say!("{step} ...")).await?;
        say!("\nAdopted {} DaemonSets; none of their {} pods was touched.", adoption.sets.len(), adoption.pods.len());
        say!(
            "A manager of dapple that runs takes them up within ten seconds; else: dapple up --cluster && dapple manager"
        );
        say!("Do not start OpenKruise's controller again while dapple serves them: it would act on them too.");
        Ok(())
    }
}
