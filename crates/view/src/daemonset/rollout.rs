//! What `dapple rollout status` says: one line for each change, until there is nothing more to wait for.

use dapple_api::daemonset::DaemonSet;
use dapple_plan::daemonset::rollout::{Progress, State, progress};

use crate::paint::{count, harmless};
use crate::step::Step;

/// Follows one DaemonSet, and says each thing once.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    uid: Option<String>,
    last: Option<String>,
}

impl Follower {
    /// The next look at it; nothing if it is not there.
    pub fn step(&mut self, name: &str, set: Option<&DaemonSet>) -> Step {
        let name = harmless(name);
        let Some(set) = set else {
            return Step::Failed(match self.uid {
                Some(_) => format!("daemonset/{name} was deleted"),
                None => format!("daemonset/{name} not found"),
            });
        };
        // Another one of the same name is not the one that was asked about.
        if self.uid.as_ref().is_some_and(|uid| Some(uid) != set.metadata.uid.as_ref()) {
            return Step::Failed(format!("daemonset/{name} was deleted, and another one created under its name"));
        }
        self.uid = self.uid.take().or_else(|| set.metadata.uid.clone());
        let progress = progress(set);
        let text = harmless(&line(set, &progress));
        if progress.is_done {
            return Step::Done(text);
        }
        if self.last.as_ref() == Some(&text) {
            return Step::Same;
        }
        self.last = Some(text.clone());
        Step::Line(text)
    }
}

/// How far it is, in a line.
fn line(set: &DaemonSet, progress: &Progress) -> String {
    let Progress { desired, updated, available, .. } = *progress;
    let name = format!("daemonset/{}", set.metadata.name.as_deref().unwrap_or_default());
    let counts = format!("{updated} of {desired} nodes updated, {available} available");
    let mut more = String::new();
    if !progress.waiting.is_empty() {
        more += &format!("; waiting for {}", progress.waiting.join(", "));
    }
    progress.notes.iter().for_each(|note| more += &format!("; {note}"));
    match progress.state {
        State::Deleting => format!("{name} is being deleted"),
        State::Unseen => {
            let seen = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
            let generation = set.metadata.generation.unwrap_or(0);
            format!("{name}: waiting until the manager has seen generation {generation} (it has seen {seen})")
        }
        State::OnDelete { waiting } => format!(
            "{name}: {} of {desired} {} until somebody deletes them (spec.updateStrategy.type is OnDelete)",
            count(usize::try_from(waiting).unwrap_or(0), "pod"),
            if waiting == 1 { "keeps an older revision" } else { "keep an older revision" },
        ),
        // What the controller says of a pause is what is said here.
        State::Paused if !progress.is_done => {
            format!("{name}: paused at {counts}; `dapple rollout resume` lets it go on")
        }
        State::HeldBack { nodes } if progress.is_done => format!(
            "{name} partitioned roll out complete: {updated} of {desired} nodes updated, {nodes} held back by partition or \
             selector (spec.updateStrategy.rollingUpdate)"
        ),
        State::OutOfReach { nodes } if progress.is_done => {
            format!("{name} rolled out as far as it goes: {counts}, {nodes} out of reach{more}")
        }
        _ if progress.is_done && desired == 0 => {
            format!("{name} successfully rolled out: no node should run a pod of it")
        }
        _ if progress.is_done => {
            let wrong = if progress.state == State::Degraded { more } else { String::new() };
            format!("{name} successfully rolled out: {updated} of {desired} nodes updated and available{wrong}")
        }
        State::Degraded => format!("{name}: degraded, {counts}{more}"),
        _ => format!("{name}: {counts}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(uid: &str, strategy: Value, status: Value) -> DaemonSet {
        let mut whole = json!({"observedGeneration": 2, "desiredNumberScheduled": 6, "currentNumberScheduled": 6,
            "updatedNumberScheduled": 6, "numberReady": 6, "numberAvailable": 6});
        whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": {"name": "agent", "uid": uid, "generation": 2}, "status": whole,
            "spec": {"selector": {}, "template": {}, "updateStrategy": strategy}}))
        .unwrap()
    }

    #[test]
    fn each_change_is_said_once_until_the_end() {
        let mut follower = Follower::default();
        let mut step = |status: Value| follower.step("agent", Some(&set("u", json!({}), status)));
        let unseen = "daemonset/agent: waiting until the manager has seen generation 2 (it has seen 1)";
        assert_eq!(step(json!({"observedGeneration": 1})), Step::Line(unseen.to_owned()));
        assert_eq!(step(json!({"observedGeneration": 1, "numberReady": 5})), Step::Same);
        let some = json!({"updatedNumberScheduled": 2, "numberAvailable": 5, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "R", "lastTransitionTime": "2026-11-15T10:00:00Z",
             "message": "pod agent-x on n3: ImagePullBackOff\u{1b}[2J"}]});
        let said = "daemonset/agent: 2 of 6 nodes updated, 5 available; waiting for pod agent-x on n3: ImagePullBackOff\\u{1b}[2J"
            .to_owned();
        assert_eq!(step(some.clone()), Step::Line(said));
        assert_eq!(step(some), Step::Same);
        let done = "daemonset/agent successfully rolled out: 6 of 6 nodes updated and available";
        assert_eq!(step(json!({})), Step::Done(done.to_owned()));
    }

    #[test]
    fn what_will_not_end_by_itself_is_said_plainly() {
        let line =
            |strategy: Value, status: Value| Follower::default().step("agent", Some(&set("u", strategy, status)));
        let rolling = |more: Value| json!({"rollingUpdate": more});
        let four = || json!({"updatedNumberScheduled": 4});
        let Step::Done(said) = line(json!({"type": "OnDelete"}), four()) else { panic!() };
        assert_eq!(
            said,
            "daemonset/agent: 2 pods of 6 keep an older revision until somebody deletes them (spec.updateStrategy.type is OnDelete)"
        );
        let Step::Done(said) = line(rolling(json!({"partition": 2})), four()) else { panic!() };
        assert!(said.contains("complete: 4 of 6 nodes updated, 2 held back"), "{said}");
        let Step::Line(said) = line(rolling(json!({"paused": true})), four()) else { panic!() };
        assert!(said.contains("paused at 4 of 6 nodes updated, 6 available; `dapple rollout resume`"), "{said}");
        let Step::Done(said) = line(json!({}), json!({"desiredNumberScheduled": 0})) else { panic!() };
        assert!(said.ends_with("no node should run a pod of it"), "{said}");
        let Step::Done(said) = line(rolling(json!({"paused": true})), json!({})) else { panic!() };
        assert!(said.contains("successfully rolled out"), "{said}");
    }

    #[test]
    fn one_that_is_gone_is_not_taken_for_its_successor() {
        let (first, second) = (set("u", json!({}), json!({"numberAvailable": 1})), set("v", json!({}), json!({})));
        let mut follower = Follower::default();
        assert_eq!(follower.step("agent", None), Step::Failed("daemonset/agent not found".to_owned()));
        assert!(matches!(follower.step("agent", Some(&first)), Step::Line(_)));
        assert_eq!(follower.step("agent", None), Step::Failed("daemonset/agent was deleted".to_owned()));
        let Step::Failed(said) = follower.step("agent", Some(&second)) else { panic!() };
        assert!(said.contains("another one created under its name"), "{said}");
    }
}
