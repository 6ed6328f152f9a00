//! Changing the course of a rollout, unless somebody else has changed the object since it was looked at.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use dapple_api::daemonset::DaemonSet;
use dapple_api::kinds::Name;
use dapple_plan::daemonset::rollout::{pause, restart};
use dapple_plan::pool::steer;
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::Value;

use crate::applications;
use crate::args::ObjectArgs;
use crate::output::{note, say};
use crate::reach::{Reach, typed};
use crate::sets;
use crate::sources::with_notice;

/// During a rollout the status is written all the time. More often in a row than this is not chance.
pub(super) const TRIES: usize = 10;

/// How the course of a rollout is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    Pause,
    Resume,
    Restart,
}

impl Course {
    /// What is said then.
    fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Restart => "restarted",
        }
    }
}

/// A merge patch, and why it does not show in pods by itself, if it does not.
struct Change {
    patch: Value,
    obstacle: Option<String>,
}

pub(super) async fn run(args: &ObjectArgs, course: Course) -> anyhow::Result<ExitCode> {
    let (reach, name) = Reach::connect_for(args).await?;
    let work = unless_changed(&reach, &name, async |object: &DynamicObject| {
        let change = match reach.own.name {
            Name::DaemonSet => of_set(&reach, &name, object, course)?,
            _ => of_application(&reach, &name, object, course).await?,
        };
        let written = reach.objects().patch(&name, &PatchParams::default(), &Patch::Merge(&change.patch)).await;
        Ok(written.map(|_| change.obstacle))
    });
    let (shown, done) = (reach.shown(&name), course.done());
    let obstacle = with_notice(&format!("waiting for the API server to have {shown} {done} ..."), work).await?;
    say!("{}/{name} {done}", reach.resource());
    obstacle.iter().for_each(|text| note(&format!("note: {text}")));
    Ok(ExitCode::SUCCESS)
}

fn of_set(reach: &Reach, name: &str, object: &DynamicObject, course: Course) -> anyhow::Result<Change> {
    let set: DaemonSet = reach.read(name, object, typed)?;
    let patch = match course {
        Course::Pause => pause(&set, true),
        Course::Resume => pause(&set, false),
        Course::Restart => restart(&set, &now()?.to_string()),
    };
    let obstacle = (course == Course::Restart).then(|| sets::obstacle(&set, name)).flatten();
    let patch = patch.map_err(|error| anyhow!("{} {error}", reach.shown(name)))?;
    Ok(Change { patch, obstacle })
}

async fn of_application(reach: &Reach, name: &str, object: &DynamicObject, course: Course) -> anyhow::Result<Change> {
    let found = applications::Found::beside(reach, name, object).await?;
    let (application, replacement) = (&found.application, found.replacement());
    let patch = match course {
        Course::Pause => steer::pause(application),
        Course::Resume => steer::resume(application, replacement, now()?),
        Course::Restart => steer::restart(application, now()?),
    };
    let patch = patch.map_err(|error| anyhow!("{} {error}", reach.shown(name)))?;
    let obstacle = match course {
        Course::Pause => None,
        Course::Resume => steer::pause_of_replacement(replacement),
        Course::Restart => steer::obstacle(application, replacement),
    };
    Ok(Change { patch, obstacle })
}

/// The time in whole seconds, as kubectl writes it.
fn now() -> anyhow::Result<Timestamp> {
    Ok(Timestamp::from_second(Timestamp::now().as_second())?)
}

/// Tries a change on an object as it is. If something was written in between, it is tried again on what came of that;
/// but not if it was somebody's change of the spec, who may not have reckoned with this one.
pub(super) async fn unless_changed<T>(
    reach: &Reach,
    name: &str,
    attempt: impl AsyncFn(&DynamicObject) -> anyhow::Result<Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    let mut seen = None;
    for _ in 0..TRIES {
        let object = reach.get(name).await?;
        let now = (object.metadata.uid.clone(), object.metadata.generation);
        if seen.get_or_insert_with(|| now.clone()) != &now {
            bail!("{} was changed by somebody else just now: look at it, and try again", reach.shown(name));
        }
        match attempt(&object).await? {
            Ok(done) => return Ok(done),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(reach.explained(error, &format!("cannot change {}", reach.shown(name)))),
        }
    }
    bail!("{} is being written all the time: try again", reach.shown(name))
}
