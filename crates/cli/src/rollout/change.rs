//! Changing a DaemonSet, unless somebody else has changed it since it was looked at.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use dapple_api::daemonset::{DaemonSet, UpdateStrategyType};
use dapple_plan::daemonset::rollout::ChangeError;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::args::SetArgs;
use crate::output::{note, say};
use crate::sets::{Found, RESOURCE, Sets, explained};
use crate::sources::with_notice;

/// During a rollout the status is written all the time. More often in a row than this is not chance.
const TRIES: usize = 10;

/// Changes a DaemonSet by the merge patch that `decide` makes of it. `done` is what is said then.
pub(super) async fn run(
    args: &SetArgs,
    done: &str,
    decide: impl Fn(&DaemonSet) -> Result<Value, ChangeError>,
) -> anyhow::Result<ExitCode> {
    let (sets, name) = Sets::connect_for(args).await?;
    let work = unless_changed(&sets, &name, async |found: &Found| {
        let patch = decide(&found.set).map_err(|error| anyhow!("{} {error}", sets.shown(&name)))?;
        Ok(sets.objects().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| found.set.clone()))
    });
    let before =
        with_notice(&format!("waiting for the API server to have {} {done} ...", sets.shown(&name)), work).await?;
    say!("{RESOURCE}/{name} {done}");
    if done == "restarted" {
        note_what_stands_in_the_way(&before, &name);
    }
    Ok(ExitCode::SUCCESS)
}

/// Tries a change on the DaemonSet as it is. If something was written in between, it is tried again on what came of that;
/// but not if it was somebody's change of the spec, who may not have reckoned with this one.
pub(super) async fn unless_changed<T>(
    sets: &Sets,
    name: &str,
    attempt: impl AsyncFn(&Found) -> anyhow::Result<Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    let mut seen = None;
    for _ in 0..TRIES {
        let found = sets.get(name).await?;
        let metadata = &found.set.metadata;
        let now = (metadata.uid.clone(), metadata.generation);
        if seen.get_or_insert_with(|| now.clone()) != &now {
            bail!("{} was changed by somebody else just now: look at it, and try again", sets.shown(name));
        }
        match attempt(&found).await? {
            Ok(done) => return Ok(done),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(explained(error, &format!("cannot change {}", sets.shown(name)))),
        }
    }
    bail!("{} is being written all the time: try again", sets.shown(name))
}

/// Says why a change does not show in pods by itself.
pub(super) fn note_what_stands_in_the_way(set: &DaemonSet, name: &str) {
    if set.spec.update_strategy_type() == UpdateStrategyType::OnDelete {
        note("note: pods are replaced when somebody deletes them, since spec.updateStrategy.type is OnDelete");
    } else if set.spec.rolling_update().paused() {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        note(&format!(
            "note: it is paused: no pod changes before `dapple rollout resume daemonset/{name} -n {namespace}`"
        ));
    }
}
