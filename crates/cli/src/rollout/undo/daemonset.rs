//! Going back to an earlier revision of a DaemonSet: its template and its patches.

use std::process::ExitCode;

use anyhow::anyhow;
use dapple_api::daemonset::DaemonSet;
use dapple_edit::document::Document;
use dapple_plan::cause::annotations;
use dapple_plan::daemonset::revision::Revision;
use dapple_plan::daemonset::rollback::{Restored, Undo, undo};
use dapple_view::diff::DiffView;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::{asked, how};
use crate::args::{DryRun, UndoArgs};
use crate::output::{is_coloured, note, say};
use crate::reach::{Reach, typed};
use crate::rollout::change::unless_changed;
use crate::sets;
use crate::sources::with_notice;

/// What became of it.
enum Outcome {
    Skipped(i64),
    Back(Box<DynamicObject>, Box<DaemonSet>, Restored),
}

pub(super) async fn run(reach: &Reach, name: &str, args: &UndoArgs) -> anyhow::Result<ExitCode> {
    let to = asked(args);
    let work = unless_changed(reach, name, async |object: &DynamicObject| {
        attempt(reach, name, object, to, args.dry_run).await
    });
    let shown = reach.shown(name);
    let outcome = with_notice(&format!("going back to an earlier revision of {shown} ..."), work).await?;
    let resource = reach.resource();
    let (object, set, restored) = match outcome {
        Outcome::Skipped(number) => {
            say!("{resource}/{name} skipped rollback (current template already matches revision {number})");
            return Ok(ExitCode::SUCCESS);
        }
        Outcome::Back(object, set, restored) => (object, set, restored),
    };
    if args.dry_run == DryRun::Client {
        say!("{}", diff(&shown, &object, &restored).text(is_coloured()).trim_end());
    }
    say!("{resource}/{name} rolled back to revision {}{}", restored.number, how(args.dry_run));
    sets::obstacle(&set, name).iter().for_each(|text| note(&format!("note: {text}")));
    Ok(ExitCode::SUCCESS)
}

async fn attempt(
    reach: &Reach,
    name: &str,
    object: &DynamicObject,
    to: Option<i64>,
    dry_run: DryRun,
) -> anyhow::Result<Result<Outcome, kube::Error>> {
    let set: DaemonSet = reach.read(name, object, typed)?;
    let facts = sets::revisions(reach, &set).await?;
    let revisions: Vec<Revision> = facts.iter().map(|facts| facts.revision.clone()).collect();
    let restored = match undo(&set, &revisions, to).map_err(|error| anyhow!("{} {error}", reach.shown(name)))? {
        Undo::Skipped { number } => return Ok(Ok(Outcome::Skipped(number))),
        Undo::Back(restored) => restored,
    };
    if dry_run != DryRun::Client {
        let mut object = object.clone();
        // The version that was looked at is in it: the API server refuses it if there is a newer one.
        restored.put_into(&mut object.data);
        let cause = facts.iter().find(|facts| facts.revision.number == restored.number);
        let cause = cause.and_then(|facts| facts.change_cause.as_deref());
        object.metadata.annotations = annotations(object.metadata.annotations.take(), cause);
        let params = PostParams { dry_run: dry_run == DryRun::Server, ..PostParams::default() };
        if let Err(error) = reach.objects().replace(name, &params, &object).await {
            return Ok(Err(error));
        }
    }
    Ok(Ok(Outcome::Back(Box::new(object.clone()), Box::new(set), restored)))
}

fn diff(shown: &str, object: &DynamicObject, restored: &Restored) -> DiffView {
    let says = |spec: &Value| match spec.get("patches") {
        Some(patches) => json!({"spec": {"template": spec["template"], "patches": patches}}),
        None => json!({"spec": {"template": spec["template"]}}),
    };
    let mut then = object.data.clone();
    restored.put_into(&mut then);
    let (now, then) = (says(&object.data["spec"]), says(&then["spec"]));
    let name = format!("revision {}", restored.number);
    DiffView::new(shown, Document::Deployment, ("now", &now), (&name, &then))
}
