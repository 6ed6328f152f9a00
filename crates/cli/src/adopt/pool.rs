//! NodePools, YurtAppSets and YurtAppDaemons of OpenYurt.

use anyhow::bail;
use dapple_control::adopt::Standing;
use dapple_control::adopt::pool::{carry_out, look};
use dapple_control::env::Env;
use dapple_plan::adopt::Refusal;
use dapple_plan::adopt::pool::{ALL, Adoption, Taken, judge};
use dapple_view::adopt::pool::PoolAdoptView;
use kube::Client;

use super::TakeOver;
use crate::args::AdoptArgs;
use crate::output::{is_coloured, say};

/// The kinds of a cluster that are to be taken over.
pub(super) struct Pools {
    client: Client,
    server: String,
    allow_restarts: bool,
    kinds: Vec<&'static Taken>,
}

impl Pools {
    pub(super) fn new(args: &AdoptArgs, client: Client, server: String) -> Self {
        let is_asked = |taken: &&'static Taken| {
            args.kinds.is_empty() || args.kinds.iter().any(|kind| kind.taken().kind.name == taken.kind.name)
        };
        let kinds = ALL.into_iter().filter(is_asked).collect();
        Self { client, server, allow_restarts: args.allow_restarts, kinds }
    }

    fn crds(&self) -> String {
        self.kinds.iter().map(|taken| taken.kind.crd()).collect::<Vec<_>>().join(", ")
    }
}

impl TakeOver for Pools {
    type Adoption = Adoption;

    fn what(&self) -> String {
        format!("{} at {}", self.crds(), self.server)
    }

    async fn judged(&self) -> anyhow::Result<Option<Adoption>> {
        match look(&self.client, &self.kinds).await? {
            Standing::Missing => {
                bail!("there is no CRD {}, so nothing to adopt; `dapple up --cluster` installs dapple's", self.crds())
            }
            Standing::Ours => {
                say!("What there is of {} is dapple's already: nothing to do.", self.crds());
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
        say!("{}", PoolAdoptView { adoption, server: &self.server, colour: is_coloured() });
    }

    async fn carry_out(&self, adoption: &Adoption) -> anyhow::Result<()> {
        carry_out(&self.client, adoption, &|step| say!("{step} ...")).await?;
        let (objects, workloads) = (adoption.count(), adoption.workloads.len());
        say!("\nAdopted {objects} objects; no pod template of their {workloads} workloads was touched.");
        say!("A manager of dapple that runs takes them up within ten seconds; else run one: dapple manager");
        say!("Run `dapple up --cluster` again: it installs the policies on who may write them.");
        say!(
            "Leave their controllers off in OpenYurt's manager, in the values of its Helm chart too: they would act on them."
        );
        Ok(())
    }
}
