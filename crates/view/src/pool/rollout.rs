//! What `dapple rollout status` says of an application: one line for each change, until there is nothing more to wait for.

use dapple_api::pool::{SubjectKind, YurtAppConfigurationReplacement};
use dapple_plan::pool::object::ApplicationObject;
use dapple_plan::pool::progress::{Progress, State, has_seen, progress};
use dapple_plan::pool::said::Said;

use super::kind_of;
use crate::paint::{count, harmless};
use crate::step::Step;

/// As many pools are named in a line.
const NAMED: usize = 3;

/// Follows one application, and says each thing once.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    uid: Option<String>,
    last: Option<String>,
}

impl Follower {
    /// The next look at it and its replacement; nothing if it is not there.
    pub fn step(
        &mut self,
        (kind, name): (SubjectKind, &str),
        object: Option<&ApplicationObject>,
        replacement: Option<&YurtAppConfigurationReplacement>,
    ) -> Step {
        let name = harmless(&format!("{}/{name}", kind_of(kind).to_lowercase()));
        let Some(object) = object else {
            return Step::Failed(match self.uid {
                Some(_) => format!("{name} was deleted"),
                None => format!("{name} not found"),
            });
        };
        // Another one of the same name is not the one that was asked about.
        if self.uid.as_ref().is_some_and(|uid| Some(uid) != object.metadata.uid.as_ref()) {
            return Step::Failed(format!("{name} was deleted, and another one created under its name"));
        }
        self.uid = self.uid.take().or_else(|| object.metadata.uid.clone());
        let progress = progress(object, &Said::by(object, replacement));
        let is_seen = has_seen(object, replacement);
        let text = harmless(&line(&name, object, replacement, &progress));
        if is_seen && progress.is_done {
            return Step::Done(text);
        }
        if is_seen && matches!(progress.state, State::Stopped | State::Late { .. }) {
            return Step::Failed(text);
        }
        if self.last.as_ref() == Some(&text) {
            return Step::Same;
        }
        self.last = Some(text.clone());
        Step::Line(text)
    }
}

/// How far it is, in a line.
fn line(
    name: &str,
    object: &ApplicationObject,
    replacement: Option<&YurtAppConfigurationReplacement>,
    progress: &Progress,
) -> String {
    let counts = format!("{} of {} pools done", progress.done, progress.pools);
    let more = more(progress);
    match progress.state {
        State::Deleting => format!("{name} is being deleted"),
        State::Unseen => {
            let seen = object.status.observed_generation.unwrap_or(0);
            let generation = object.metadata.generation.unwrap_or(0);
            format!("{name}: waiting until the manager has seen generation {generation} (it has seen {seen})")
        }
        State::Degraded => format!("{name}: degraded, {counts}{more}"),
        _ if !has_seen(object, replacement) => {
            let what = match replacement.and_then(|known| known.metadata.name.as_deref()) {
                Some(replacement) => format!("what YurtAppConfigurationReplacement {replacement} says"),
                None => "that its YurtAppConfigurationReplacement is gone".to_owned(),
            };
            format!("{name}: waiting until the manager has seen {what}")
        }
        State::Stopped => format!("{name} is stopped: {counts}{more}"),
        State::Late { .. } => format!("{name} was not done in time: {counts}{more}"),
        // What the controller says of a pause is what is said here.
        State::Paused if !progress.is_done => {
            format!("{name}: paused at {counts}; `dapple rollout resume` lets it go on")
        }
        _ if progress.is_done && progress.pools == 0 => {
            format!("{name} successfully rolled out: it is in no pool{more}")
        }
        _ if progress.is_done => format!("{name} successfully rolled out: {counts}{more}"),
        _ => format!("{name}: {counts}{more}"),
    }
}

/// What is to be said beside numbers.
fn more(progress: &Progress) -> String {
    let mut told = few(&progress.waiting);
    told.extend(progress.notes.iter().cloned());
    told.extend(few(&progress.leaving).into_iter().map(|pool| format!("leaving: {pool}")));
    told.into_iter().map(|text| format!("; {text}")).collect()
}

/// The first of many.
fn few(all: &[String]) -> Vec<String> {
    let more = all.len().saturating_sub(NAMED);
    let rest = (more > 0).then(|| count(more, "more pool"));
    all.iter().take(NAMED).cloned().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{application, replacement};
    use super::*;

    const WEB: (SubjectKind, &str) = (SubjectKind::YurtAppSet, "web");

    fn pool(name: &str, state: &str, message: &str) -> Value {
        json!({"name": name, "state": state, "desired": 1, "updated": 1, "message": message})
    }

    #[test]
    fn each_change_is_said_once_until_the_end() {
        let mut follower = Follower::default();
        let mut step = |status: Value| follower.step(WEB, Some(&application("web", json!({}), status)), None);
        let unseen = "yurtappset/web: waiting until the manager has seen generation 2 (it has seen 1)";
        assert_eq!(step(json!({"observedGeneration": 1})), Step::Line(unseen.to_owned()));
        assert_eq!(step(json!({"observedGeneration": 1, "poolCount": 3})), Step::Same);
        let pools: Vec<Value> = ["a", "b", "c", "d"].map(|name| pool(name, "Changing", "0 of 1 pods\u{1b}[2J")).into();
        let said = "yurtappset/web: 0 of 4 pools done; a: 0 of 1 pods\\u{1b}[2J; b: 0 of 1 pods\\u{1b}[2J; c: 0 of 1 pods\\u{1b}[2J; 1 more pool";
        assert_eq!(step(json!({"pools": pools})), Step::Line(said.to_owned()));
        assert_eq!(step(json!({"pools": pools})), Step::Same);
        let done = json!({"pools": [pool("a", "Done", ""), pool("b", "Leaving", "its workload stays until noon")]});
        let said =
            "yurtappset/web successfully rolled out: 1 of 1 pools done; leaving: b: its workload stays until noon";
        assert_eq!(step(done), Step::Done(said.to_owned()));
        let none = "yurtappset/web successfully rolled out: it is in no pool";
        assert_eq!(step(json!({})), Step::Done(none.to_owned()));
    }

    #[test]
    fn a_change_of_the_replacement_is_waited_for() {
        let done = |more: Value| {
            let mut status = json!({"pools": [pool("a", "Done", "")]});
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            application("web", json!({}), status)
        };
        let step = |object: &ApplicationObject, by: Option<&YurtAppConfigurationReplacement>| {
            Follower::default().step(WEB, Some(object), by)
        };
        let of = |seen: i64| replacement("r", json!({"status": {"observedGeneration": seen}}));
        let Step::Line(said) = step(&done(json!({"overriderRef": "r"})), Some(&of(2))) else { panic!() };
        assert!(said.ends_with("has seen what YurtAppConfigurationReplacement r says"), "{said}");
        assert!(matches!(step(&done(json!({"overriderRef": "r"})), Some(&of(3))), Step::Done(_)));
        let Step::Line(said) = step(&done(json!({"overriderRef": "r"})), None) else { panic!() };
        assert!(said.ends_with("has seen that its YurtAppConfigurationReplacement is gone"), "{said}");
    }

    #[test]
    fn what_will_not_end_by_itself_is_said_plainly() {
        let waiting =
            json!([pool("a", "Done", ""), pool("b", "Late", "0 of 1 pods are available"), pool("c", "Waiting", "")]);
        let step = |metadata: Value, status: Value| {
            Follower::default().step(WEB, Some(&application("web", metadata, status)), None)
        };
        let stopped = json!({"pools": waiting, "stopped": {"revision": 2, "since": "2026-11-15T10:00:00Z"}});
        let Step::Failed(said) = step(json!({}), stopped) else { panic!() };
        assert_eq!(said, "yurtappset/web is stopped: 1 of 3 pools done; b: 0 of 1 pods are available");
        let late = json!({"pools": [waiting[0], waiting[1]]});
        let Step::Failed(said) = step(json!({}), late) else { panic!() };
        assert_eq!(said, "yurtappset/web was not done in time: 1 of 2 pools done; b: 0 of 1 pods are available");
        let paused = json!({"annotations": {"dapple.dev/suspend": "true"}});
        let Step::Line(said) = step(paused, json!({"pools": waiting})) else { panic!() };
        assert_eq!(said, "yurtappset/web: paused at 1 of 3 pools done; `dapple rollout resume` lets it go on");
        let Step::Line(said) = step(json!({}), json!({"pools": [pool("a", "Failed", "no such container")]})) else {
            panic!()
        };
        assert_eq!(said, "yurtappset/web: degraded, 0 of 1 pools done; a: no such container");
    }

    #[test]
    fn one_that_is_gone_is_not_taken_for_its_successor() {
        let of = |uid: &str| application("web", json!({"uid": uid}), json!({"pools": [pool("a", "Changing", "")]}));
        let mut follower = Follower::default();
        assert_eq!(follower.step(WEB, None, None), Step::Failed("yurtappset/web not found".to_owned()));
        assert!(matches!(follower.step(WEB, Some(&of("u")), None), Step::Line(_)));
        assert_eq!(follower.step(WEB, None, None), Step::Failed("yurtappset/web was deleted".to_owned()));
        let Step::Failed(said) = follower.step(WEB, Some(&of("v")), None) else { panic!() };
        assert!(said.contains("another one created under its name"), "{said}");
    }
}
