//! Doing it, step by step. Each step can be repeated, and each write names the version it replaces.

use dapple_api::kinds::{KindInfo, NATIVE_DEPLOYMENT, NATIVE_STATEFUL_SET};
use dapple_plan::adopt::pool::Adoption;
use kube::Client;

use super::super::Error;
use super::super::act::{edit_hook, our_crd, replace_crd, unchanged, wait_until_listed};
use super::super::rest::{Shape, list, refused};
use super::workloads;
use crate::install::{apply, wait_until_served};

/// Carries out an adoption that nothing stands in the way of, and says each step.
pub async fn carry_out(client: &Client, adoption: &Adoption, say: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
    for edited in &adoption.hooks {
        for step in &edited.steps {
            say(step);
        }
        edit_hook(client, edited, &adoption.product).await?;
    }
    for adopted in &adoption.kinds {
        let name = adopted.taken.kind.crd();
        say(&format!("replace the spec of CRD {name}"));
        replace_crd(client, (name.as_str(), adopted.crd.uid.as_str()), &our_crd(&name)?).await?;
        wait_until_listed(client, adopted.taken.kind.at).await?;
    }
    say("check objects and workloads");
    verify(client, adoption).await?;
    for adopted in &adoption.kinds {
        let name = adopted.taken.kind.crd();
        say(&format!("label CRD {name} as dapple's"));
        apply(client, &our_crd(&name)?).await?;
        wait_until_served(client, &name).await?;
    }
    Ok(())
}

/// Every object that was there can be read as ours, and every workload has the pod template that it had. How many pods it has is
/// for autoscalers to say.
async fn verify(client: &Client, adoption: &Adoption) -> Result<(), Error> {
    let mut objects = Vec::new();
    for adopted in &adoption.kinds {
        let KindInfo { group, version, plural, .. } = adopted.taken.kind.at;
        let path = format!("/apis/{group}/{version}/{plural}");
        objects.push(list(client, &path, "", Shape::Whole, Some).await.map_err(refused(plural))?);
    }
    let mut all = workloads(client, NATIVE_DEPLOYMENT.at).await?;
    all.extend(workloads(client, NATIVE_STATEFUL_SET.at).await?);
    unchanged(adoption.changed(&objects, &all))
}
