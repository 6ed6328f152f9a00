//! What is sent to a pod for a marker.

use std::collections::BTreeMap;
use std::sync::Arc;

use dapple_api::marker::MARKS_ANNOTATION;
use dapple_edit::marker::{Change, Place, mark, unmark, wanted};
use dapple_plan::marker::rule::{Rule, Rules};
use dapple_plan::marker::standing::{Marks, Pod};
use dapple_plan::mutant::{Mutant, is_on};
use serde_json::Value;

use super::view::{Seen, is_not_read};

/// What becomes of the marks of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// It gets them, or those that it lacks, and loses those that are none any more.
    Mark,
    /// It loses those that the marker has set.
    Unmark,
}

/// A patch that is sent.
pub(super) struct Job {
    pub(super) seen: Seen,
    pub(super) rule: Arc<Rule>,
    pub(super) task: Task,
    /// When, in seconds since 1970.
    at: i64,
    /// What is changed; nothing if a value that is replaced has to be read before.
    pub(super) change: Option<Change>,
    /// Whether it belongs to a change of the marker's spec.
    pub(super) is_carried: bool,
    /// Whether it counts among those that a minute may have.
    pub(super) counts: bool,
}

impl Job {
    pub(super) fn new(seen: Seen, (rule, rules): (Arc<Rule>, &Rules), task: Task, at: i64) -> Self {
        let change = seen.show(rules, |pod| {
            let is_blind = |(place, key, _): (Place, &str, &str)| is_not_read(pod.value(place, key));
            let has_all = task == Task::Unmark || !wanted(&rule.items).any(is_blind);
            has_all.then(|| change_of(pod, &rule, task, at))
        });
        Self { seen, rule, task, at, change, is_carried: false, counts: false }
    }

    /// What is changed of the pod, by the annotations of its very version that was looked at.
    pub(super) fn change_by(&self, pod: &Value) -> Change {
        let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let annotations: BTreeMap<String, String> = annotations.filter_map(text).collect();
        self.seen.show_with(&annotations, |pod| change_of(pod, &self.rule, self.task, self.at))
    }

    /// What the pod has of the marks once it is patched.
    pub(super) fn marks(&self) -> Marks {
        match self.task {
            Task::Mark => Marks::Own { are_complete: true, set_at: self.at },
            Task::Unmark => Marks::Lacking,
        }
    }
}

fn change_of(pod: &Pod<'_>, rule: &Rule, task: Task, at: i64) -> Change {
    let value = |place: Place, key: &str| pod.value(place, key);
    let mut change = match task {
        Task::Mark => mark(pod.record, &value, rule.name(), &rule.items, pod.owner, at),
        Task::Unmark => unmark(pod.record, &value, rule.name()),
    };
    if is_on(Mutant::MarksUnrecorded) {
        change.annotations.remove(MARKS_ANNOTATION);
    }
    if is_on(Mutant::OthersValuesTaken) && task == Task::Unmark {
        let labels = pod.record.of(rule.name()).filter(|entry| entry.place == Place::Label);
        change.labels.extend(labels.map(|entry| (entry.key.clone(), None)));
    }
    change
}
