//! Whether a workload that differs is as another webhook makes it: the API server is asked what it would make of what is wanted.

use std::collections::BTreeMap;

use dapple_edit::render::hash;
use dapple_plan::pool::application::Existing;
use dapple_plan::pool::stored::{is_as_stored, merge_patch};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kept::ApplicationSpec;
use super::AGAIN;
use super::io::{Io, WorkloadKind};

/// What the API server said, by the UID of the workload.
#[derive(Default)]
pub(super) struct Judged(BTreeMap<String, Judgement>);

struct Judgement {
    /// What was compared: while it is the same, so is the answer.
    compared: String,
    is_others_doing: bool,
    /// Until when that counts, if not for ever: a webhook that makes a difference may have come since, or was out of reach.
    until: Option<Timestamp>,
}

impl Judged {
    /// Forgets workloads that are not there any more.
    pub(super) fn keep(&mut self, workloads: &[Existing]) {
        self.0.retain(|uid, _| workloads.iter().any(|known| uid_of(known) == *uid));
    }

    /// Whether it is another's doing, if that is known.
    fn known(&self, uid: &str, compared: &str, now: Timestamp) -> Option<bool> {
        let known = self.0.get(uid).filter(|known| known.compared == compared)?;
        known.until.is_none_or(|until| now < until).then_some(known.is_others_doing)
    }

    fn note(&mut self, uid: String, compared: String, is_others_doing: bool, now: Timestamp) {
        let until = (!is_others_doing).then(|| now.checked_add(AGAIN).unwrap_or(now));
        self.0.insert(uid, Judgement { compared, is_others_doing, until });
    }

    /// Whether the API server has made a workload what it is of what is wanted. It is asked only if that `matters` and is not known.
    pub(super) async fn is_others_doing<S: ApplicationSpec>(
        &mut self,
        io: &Io<S>,
        (kind, workload, wanted): (WorkloadKind, &Existing, &Value),
        matters: bool,
        now: Timestamp,
    ) -> Result<bool, kube::Error> {
        let metadata = &workload.object["metadata"];
        let uid = uid_of(workload);
        let compared = hash(&json!([metadata["labels"], metadata["annotations"], workload.object["spec"], wanted]));
        if let Some(known) = self.known(uid, &compared, now) {
            return Ok(known);
        }
        if !matters {
            return Ok(false);
        }
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let patch = json!({
            "metadata": {
                "uid": uid, "resourceVersion": metadata["resourceVersion"],
                "labels": wanted["metadata"]["labels"], "annotations": wanted["metadata"]["annotations"],
            },
            "spec": merge_patch(&workload.object["spec"], &wanted["spec"]),
        });
        let is_others_doing = match io.writer(kind.at(), namespace).try_patch(workload.name(), &patch).await {
            Ok(answer) => is_as_stored(kind.document(), &workload.object, &answer),
            // A refusal is told when it is written.
            Err(kube::Error::Api(_)) => false,
            Err(error) => return Err(error),
        };
        self.note(uid.to_owned(), compared, is_others_doing, now);
        Ok(is_others_doing)
    }
}

fn uid_of(workload: &Existing) -> &str {
    workload.object["metadata"]["uid"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn what_was_said_counts_for_as_long_as_nothing_of_it_changes() {
        let mut judged = Judged::default();
        judged.note("own".to_owned(), "a".to_owned(), false, at(0));
        judged.note("others".to_owned(), "a".to_owned(), true, at(0));
        assert_eq!((judged.known("own", "a", at(29)), judged.known("own", "b", at(0))), (Some(false), None));
        assert_eq!(judged.known("own", "a", at(30)), None, "a webhook may be there by now");
        assert_eq!((judged.known("others", "a", at(9_999)), judged.known("others", "b", at(0))), (Some(true), None));
    }

    #[test]
    fn of_workloads_that_are_gone_nothing_is_kept() {
        let mut judged = Judged::default();
        for uid in ["a", "b"] {
            judged.note(uid.to_owned(), String::new(), true, at(0));
        }
        judged.keep(&[Existing::new("p".to_owned(), Arc::new(json!({"metadata": {"uid": "b"}})))]);
        assert_eq!(judged.0.keys().collect::<Vec<_>>(), ["b"]);
    }
}
