//! Following the rollout of an application over its pools. A change of its replacement is one of its rollout, too.

use std::process::ExitCode;
use std::sync::Arc;

use dapple_api::kinds;
use dapple_api::pool::YurtAppConfigurationReplacement;
use dapple_plan::pool::object::{ApplicationObject, counting};
use dapple_testbed::progress::{Progress, Quiet};
use dapple_view::pool::rollout::Follower;
use dapple_view::step::Step;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};

use super::{FAILED, said, say_broken, wait};
use crate::applications::{read, replacements, subject_kind};
use crate::args::StatusOfArgs;
use crate::mirror::Mirror;
use crate::reach::{Reach, typed};
use crate::sources::with_notice;

pub(super) async fn run(reach: &Reach, name: &str, args: &StatusOfArgs) -> anyhow::Result<ExitCode> {
    let mut looks = Looks { follower: Follower::default(), reach, name };
    // What cannot be read at all is an error now, not something to wait for.
    let work = async { anyhow::Ok((reach.find(name).await?, replacements(reach).await?)) };
    let (object, known) = with_notice(&format!("reading {} ...", reach.shown(name)), work).await?;
    let application = object.map(|object| reach.read(name, &object, |object| read(reach.own, object))).transpose()?;
    let are_served = known.is_some();
    if let Some(code) = said(looks.step(application.as_ref(), known.iter().flatten()), &Quiet) {
        return Ok(code);
    }
    if !args.watch {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(wait(reach, name, args, |spinner| follow(looks, are_served, spinner)).await)
}

/// Looks at an application, one after another.
struct Looks<'a> {
    follower: Follower,
    reach: &'a Reach,
    name: &'a str,
}

impl Looks<'_> {
    fn step<'r>(
        &mut self,
        application: Option<&ApplicationObject>,
        replacements: impl Iterator<Item = &'r YurtAppConfigurationReplacement>,
    ) -> Step {
        let replacement = application.and_then(|application| counting(replacements, application));
        self.follower.step((subject_kind(self.reach.own), self.name), application, replacement)
    }
}

/// Watches both to the end of the rollout.
async fn follow(mut looks: Looks<'_>, are_served: bool, spinner: Arc<dyn Progress>) -> ExitCode {
    let (reach, name) = (looks.reach, looks.name);
    let mut objects = watcher::watch_object(reach.objects(), name).default_backoff().boxed();
    let mut events = events(reach, are_served);
    let mut known: Mirror<YurtAppConfigurationReplacement> =
        if are_served { Mirror::default() } else { Mirror::of_nothing() };
    let mut application: Option<Option<ApplicationObject>> = None;
    let mut is_broken = false;
    loop {
        tokio::select! {
            biased;
            look = objects.next() => match look {
                // One that cannot be read was said to be so; the next look may be better.
                Some(Ok(Some(object))) => match read(reach.own, &object) {
                    Ok(read) => application = Some(Some(read)),
                    Err(_) => continue,
                },
                Some(Ok(None)) => application = Some(None),
                Some(Err(error)) => {
                    say_broken(&mut is_broken, &error, &*spinner);
                    continue;
                }
                None => return ExitCode::from(FAILED),
            },
            event = events.next() => match event {
                Some(Ok(event)) => known.take(event, |object: &DynamicObject| typed(object).ok()),
                Some(Err(error)) => {
                    say_broken(&mut is_broken, &error, &*spinner);
                    continue;
                }
                None => return ExitCode::from(FAILED),
            },
        }
        is_broken = false;
        let Some(application) = application.as_ref().filter(|_| known.is_whole) else { continue };
        if let Some(code) = said(looks.step(application.as_ref(), known.known.values()), &*spinner) {
            return code;
        }
    }
}

/// What happens to replacements beside the application.
fn events(reach: &Reach, are_served: bool) -> BoxStream<'static, Result<Event<DynamicObject>, watcher::Error>> {
    match are_served {
        true => watch(reach.others(kinds::REPLACEMENT.at), Config::default()).default_backoff().boxed(),
        false => futures::stream::pending().boxed(),
    }
}
