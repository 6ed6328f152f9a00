//! Going back to an earlier revision of an application in pools: its template and pools, and the replacements that were in force.
//!
//! Two objects say all that. If both are written, the application is paused by the first write and goes on by the last, and each is
//! done once the manager has seen the one before, since it may see two objects in either order: so no pool is ever given what neither
//! revision says.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use dapple_api::kinds;
use dapple_api::pool::{Replacement, SUSPEND_ANNOTATION};
use dapple_edit::document::Document;
use dapple_plan::cause::annotations;
use dapple_plan::pool::object::in_force;
use dapple_plan::pool::revision::Revision;
use dapple_plan::pool::rollback::{Replacing, Restored, Undo, undo};
use dapple_plan::pool::steer;
use dapple_plan::pool::version::Version;
use dapple_view::diff::DiffView;
use dapple_view::pool::history::says;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;

use super::{asked, how};
use crate::applications::{self, Found};
use crate::args::{DryRun, UndoArgs};
use crate::output::{is_coloured, note, say};
use crate::reach::{Reach, resource_of};
use crate::rollout::change::{TRIES, unless_changed};
use crate::sources::with_notice;

/// A manager that is there has seen what was written by then: it tells of an object once a second.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// How often it is asked whether it has.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// What became of it.
enum Outcome {
    Skipped(i64),
    Back(Box<Back>),
}

/// What there was, and what comes back.
struct Back {
    found: Found,
    now: Version,
    restored: Restored,
}

pub(super) async fn run(reach: &Reach, name: &str, args: &UndoArgs) -> anyhow::Result<ExitCode> {
    let undoing = Undoing { reach, name, args, is_announced: Cell::new(false) };
    let work = unless_changed(reach, name, async |object: &DynamicObject| undoing.attempt(object).await);
    let shown = reach.shown(name);
    let outcome = with_notice(&format!("going back to an earlier revision of {shown} ..."), work).await?;
    let resource = reach.resource();
    let Back { found, now, restored } = match outcome {
        Outcome::Skipped(number) => {
            say!("{resource}/{name} skipped rollback (it and its replacement already match revision {number})");
            return Ok(ExitCode::SUCCESS);
        }
        Outcome::Back(back) => *back,
    };
    if args.dry_run == DryRun::Client {
        let (before, after) = (says(&now), says(&restored.version));
        let to = format!("revision {}", restored.number);
        let diff = DiffView::new(&shown, Document::Deployment, ("now", &before), (&to, &after));
        say!("{}", diff.text(is_coloured()).trim_end());
    }
    let (number, how) = (restored.number, how(args.dry_run));
    if restored.changes_application {
        say!("{resource}/{name} rolled back to revision {number}{how}");
    }
    if let Some((replacement, _)) = written(&restored.replacements) {
        let kind = kinds::REPLACEMENT.at;
        say!("{}.{}/{replacement} rolled back to revision {number}{how}", kind.kind.to_lowercase(), kind.group);
    }
    let obstacle = steer::obstacle(&found.application, found.replacement());
    obstacle.iter().for_each(|text| note(&format!("note: {text}")));
    Ok(ExitCode::SUCCESS)
}

/// One going back.
struct Undoing<'a> {
    reach: &'a Reach,
    name: &'a str,
    args: &'a UndoArgs,
    /// Whether it was said what is written.
    is_announced: Cell<bool>,
}

impl Undoing<'_> {
    async fn attempt(&self, object: &DynamicObject) -> anyhow::Result<Result<Outcome, kube::Error>> {
        let (reach, name) = (self.reach, self.name);
        let found = Found::beside(reach, name, object).await?;
        let facts = applications::revisions(reach, &found.application).await?;
        let revisions: Vec<Revision> = facts.iter().map(|facts| facts.revision.clone()).collect();
        let undone = undo(&found.application, &found.replacements, &revisions, asked(self.args));
        let restored = match undone.map_err(|error| anyhow!("{} {error}", reach.shown(name)))? {
            Undo::Skipped { number } => return Ok(Ok(Outcome::Skipped(number))),
            Undo::Back(restored) => *restored,
        };
        self.announce(&restored);
        if self.args.dry_run != DryRun::Client {
            let cause = facts.iter().find(|facts| facts.revision.number == restored.number);
            let cause = cause.and_then(|facts| facts.change_cause.as_deref());
            if let Err(error) = self.write(object, &found, &restored, cause).await? {
                return Ok(Err(error));
            }
        }
        let now = found.application.version(found.replacement().map(in_force));
        Ok(Ok(Outcome::Back(Box::new(Back { found, now, restored }))))
    }

    /// Says which objects are written, and what comes of it beyond a rollout.
    fn announce(&self, restored: &Restored) {
        if self.is_announced.replace(true) {
            return;
        }
        let mut objects = Vec::new();
        if restored.changes_application {
            objects.push(self.reach.shown(self.name));
        }
        if let Some((name, _)) = written(&restored.replacements) {
            let namespace = self.reach.namespace.as_deref().unwrap_or_default();
            let (kind, does) = (kinds::REPLACEMENT.at.kind, is_new(&restored.replacements));
            objects.push(format!("{kind} {namespace}/{name}{}", if does { ", which is made anew" } else { "" }));
        }
        note(&format!("going back to revision {} writes {}", restored.number, objects.join(" and ")));
        if !restored.leaving.is_empty() {
            let pools = restored.leaving.join(", ");
            note(&format!("pools that the application leaves, with their workloads: {pools}"));
        }
        if !restored.joining.is_empty() {
            note(&format!("pools that it comes back to: {}", restored.joining.join(", ")));
        }
    }

    /// Writes what comes back. An error that is given back as such came before anything was written.
    async fn write(
        &self,
        object: &DynamicObject,
        found: &Found,
        restored: &Restored,
        cause: Option<&str>,
    ) -> anyhow::Result<Result<(), kube::Error>> {
        let (reach, name, number) = (self.reach, self.name, restored.number);
        let is_dry = self.args.dry_run == DryRun::Server;
        let are_both = restored.changes_application && restored.replacements != Replacing::Kept;
        // What is refused should be so before half of it is written.
        if are_both || is_dry {
            self.write_replacement(found, restored, true).await?;
        }
        let is_paused = found.application.annotation(SUSPEND_ANNOTATION) == Some("true");
        if restored.changes_application {
            let mut object = object.clone();
            // The version that was looked at is in it: the API server refuses it if there is a newer one.
            restored.put_into(&mut object.data);
            object.metadata.annotations = annotations(object.metadata.annotations.take(), cause);
            if are_both {
                let known = object.metadata.annotations.get_or_insert_default();
                known.insert(SUSPEND_ANNOTATION.to_owned(), "true".to_owned());
            }
            let params = PostParams { dry_run: is_dry, ..PostParams::default() };
            let put = match reach.objects().replace(name, &params, &object).await {
                Ok(put) => put,
                Err(error) => return Ok(Err(error)),
            };
            if are_both && !is_dry {
                // Else the manager may give pools the replacements of one revision with the template of another.
                let seen = until_seen(&reach.objects(), &put, &reach.shown(name)).await;
                seen.with_context(|| half_done(&reach.shown(name), number))?;
            }
        }
        if is_dry {
            return Ok(Ok(()));
        }
        let written = self.write_replacement(found, restored, false).await;
        if !are_both {
            return written.map(|_| Ok(()));
        }
        let written = written.with_context(|| half_done(&reach.shown(name), number))?;
        if !is_paused {
            self.release(object, number, written.as_ref()).await?;
        }
        Ok(Ok(()))
    }

    /// Has the application go on, once the manager has seen the replacement as it was written.
    async fn release(
        &self,
        object: &DynamicObject,
        number: i64,
        replacement: Option<&DynamicObject>,
    ) -> anyhow::Result<()> {
        let (reach, name) = (self.reach, self.name);
        let shown = reach.shown(name);
        let still =
            || format!("{shown} is back at revision {number}, and still paused: go on with `dapple rollout resume`");
        if let Some(written) = replacement {
            let at = kinds::REPLACEMENT.at;
            let named = format!("{} {}/{}", at.kind, written.namespace().unwrap_or_default(), written.name_any());
            until_seen(&reach.others(at), written, &named).await.with_context(still)?;
        }
        let released = json!({"metadata": {"uid": object.metadata.uid, "annotations": {SUSPEND_ANNOTATION: null}}});
        let released = reach.objects().patch(name, &PatchParams::default(), &Patch::Merge(&released)).await;
        released.map(|_| ()).with_context(still)
    }

    /// Writes the replacements that come back, unless somebody has changed them since they were looked at. Gives back what there is
    /// then, if anything was to be written.
    async fn write_replacement(
        &self,
        found: &Found,
        restored: &Restored,
        is_dry: bool,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let Some((name, replacements)) = written(&restored.replacements) else { return Ok(None) };
        let (kind, namespace) = (kinds::REPLACEMENT.at, found.application.namespace());
        let api = self.reach.others(kind);
        let shown = format!("{} {namespace}/{name}", kind.kind);
        let params = PostParams { dry_run: is_dry, ..PostParams::default() };
        if is_new(&restored.replacements) {
            let subject = json!({
                "apiVersion": self.reach.own.at.api_version(), "kind": self.reach.own.at.kind, "name": self.name,
            });
            let object = DynamicObject::new(name, &resource_of(kind)).within(namespace);
            let object = object.data(json!({"subject": subject, "replacements": replacements}));
            let made = api.create(&params, &object).await;
            return made.map(Some).map_err(|error| self.reach.explained(error, &format!("cannot make {shown}")));
        }
        let seen = found.replacement().map(|known| (known.metadata.uid.clone(), known.metadata.generation));
        for _ in 0..TRIES {
            let failed = |error: kube::Error| self.reach.explained(error, &format!("cannot change {shown}"));
            let mut object = api.get(name).await.map_err(failed)?;
            if seen != Some((object.metadata.uid.clone(), object.metadata.generation)) {
                bail!("{shown} was changed by somebody else just now: look at it, and try again");
            }
            object.data["replacements"] = json!(replacements);
            match api.replace(name, &params, &object).await {
                Ok(put) => return Ok(Some(put)),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
        }
        bail!("{shown} is being written all the time: try again")
    }
}

/// Waits until the manager has seen an object as it was written, or as it is since. It says so in the status of each.
async fn until_seen(api: &Api<DynamicObject>, written: &DynamicObject, shown: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let found = api.get(&written.name_any()).await.with_context(|| format!("cannot get {shown}"))?;
        if found.data["status"]["observedGeneration"].as_i64() >= written.metadata.generation {
            return Ok(());
        }
        if began.elapsed() >= SEEN_WITHIN {
            bail!("no manager has seen the change of {shown} within {SEEN_WITHIN:?}: is a dapple manager running?");
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

/// What is to be done when the application is written and its replacements are not.
fn half_done(shown: &str, number: i64) -> String {
    format!(
        "{shown} is back at revision {number}, its replacements are not, and it is paused: go on with `dapple rollout undo \
         --to-revision {number}` and then `dapple rollout resume`"
    )
}

/// The object with replacements that is written, if one is, and what it says then.
fn written(replacing: &Replacing) -> Option<(&str, &[Replacement])> {
    match replacing {
        Replacing::Kept => None,
        Replacing::Changed { name, replacements } | Replacing::Made { name, replacements } => {
            Some((name.as_str(), replacements.as_slice()))
        }
    }
}

fn is_new(replacing: &Replacing) -> bool {
    matches!(replacing, Replacing::Made { .. })
}
