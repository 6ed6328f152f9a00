//! `dapple rollout undo`: template and patches of an earlier revision.

use std::process::ExitCode;

use anyhow::anyhow;
use dapple_edit::document::Document;
use dapple_plan::cause::annotations;
use dapple_plan::daemonset::revision::Revision;
use dapple_plan::daemonset::rollback::{Restored, Undo, undo};
use dapple_view::diff::DiffView;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::args::{DryRun, UndoArgs};
use crate::output::{is_coloured, say};
use crate::rollout::change::{note_what_stands_in_the_way, unless_changed};
use crate::sets::{Found, RESOURCE, Sets};
use crate::sources::with_notice;

/// What became of it.
enum Outcome {
    Skipped(i64),
    Back(Box<Found>, Restored),
}

pub(crate) async fn run(args: UndoArgs) -> anyhow::Result<ExitCode> {
    let (sets, name) = Sets::connect_for(&args.set).await?;
    // As kubectl: 0 is the one before the newest.
    let to = Some(args.to_revision).filter(|number| *number > 0);
    let work = unless_changed(&sets, &name, async |found: &Found| attempt(&sets, &name, found, to, args.dry_run).await);
    let outcome = with_notice(&format!("going back to an earlier revision of {} ...", sets.shown(&name)), work).await?;
    let (found, restored) = match outcome {
        Outcome::Skipped(number) => {
            say!("{RESOURCE}/{name} skipped rollback (current template already matches revision {number})");
            return Ok(ExitCode::SUCCESS);
        }
        Outcome::Back(found, restored) => (found, restored),
    };
    if args.dry_run == DryRun::Client {
        say!("{}", diff(&sets.shown(&name), &found, &restored).text(is_coloured()).trim_end());
    }
    let how = match args.dry_run {
        DryRun::None => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    };
    say!("{RESOURCE}/{name} rolled back to revision {}{how}", restored.number);
    note_what_stands_in_the_way(&found.set, &name);
    Ok(ExitCode::SUCCESS)
}

async fn attempt(
    sets: &Sets,
    name: &str,
    found: &Found,
    to: Option<i64>,
    dry_run: DryRun,
) -> anyhow::Result<Result<Outcome, kube::Error>> {
    let facts = sets.revisions(&found.set).await?;
    let revisions: Vec<Revision> = facts.iter().map(|facts| facts.revision.clone()).collect();
    let restored = match undo(&found.set, &revisions, to).map_err(|error| anyhow!("{} {error}", sets.shown(name)))? {
        Undo::Skipped { number } => return Ok(Ok(Outcome::Skipped(number))),
        Undo::Back(restored) => restored,
    };
    if dry_run != DryRun::Client {
        let mut object = found.object.clone();
        // The version that was looked at is in it: the API server refuses it if there is a newer one.
        restored.put_into(&mut object.data);
        let cause = facts.iter().find(|facts| facts.revision.number == restored.number);
        let cause = cause.and_then(|facts| facts.change_cause.as_deref());
        object.metadata.annotations = annotations(object.metadata.annotations.take(), cause);
        let params = PostParams { dry_run: dry_run == DryRun::Server, ..PostParams::default() };
        if let Err(error) = sets.objects().replace(name, &params, &object).await {
            return Ok(Err(error));
        }
    }
    let found = Found { object: found.object.clone(), set: found.set.clone() };
    Ok(Ok(Outcome::Back(Box::new(found), restored)))
}

fn diff(object: &str, found: &Found, restored: &Restored) -> DiffView {
    let shown = |spec: &Value| match spec.get("patches") {
        Some(patches) => json!({"spec": {"template": spec["template"], "patches": patches}}),
        None => json!({"spec": {"template": spec["template"]}}),
    };
    let mut then = found.object.data.clone();
    restored.put_into(&mut then);
    let (now, then) = (shown(&found.object.data["spec"]), shown(&then["spec"]));
    let name = format!("revision {}", restored.number);
    DiffView::new(object, Document::Deployment, ("now", &now), (&name, &then))
}
