//! What a workload remembers of the rollout that changed it last: it is written with the change, so that no leader can have made a
//! change that the next one does not know of.

use dapple_api::pool::{CHANGED, POOL_REVISION_LABEL};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::revision::Revision;

/// A change of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// The number of the revision that was being rolled out: each rollout has its own.
    pub rollout: i64,
    /// When the pool was last written for it.
    pub at: Timestamp,
    /// Whether all its pods were available before it was changed, or before what changed it earlier and did it no good.
    pub was_available: bool,
}

impl Changed {
    /// What a workload remembers. One that names the newest revision and remembers nothing was changed by its rollout, and was
    /// well: somebody took the note away, and what is not known counts.
    pub fn of(workload: &Value, newest: &Revision) -> Option<Self> {
        let label = workload["metadata"]["labels"].get(POOL_REVISION_LABEL);
        let has_newest = || label.is_some_and(|name| *name == newest.name);
        Self::noted(workload).or_else(|| has_newest().then(|| Self::forgotten(newest)))
    }

    /// What is noted on a workload.
    pub fn noted(workload: &Value) -> Option<Self> {
        let note = workload["metadata"]["annotations"].get(CHANGED).and_then(Value::as_str)?;
        serde_json::from_str(note).ok()
    }

    /// What is taken for the memory of a pool of this rollout that remembers nothing: it was changed, and was well.
    pub fn forgotten(newest: &Revision) -> Self {
        Self { rollout: newest.number, at: Timestamp::UNIX_EPOCH, was_available: true }
    }

    /// What is remembered with another write of the pool. `unfinished` is an earlier change that it was never done with, or whose
    /// rollout never came to all pools: if the pool was well before that, it is to be well again.
    pub fn next(unfinished: Option<Self>, rollout: i64, is_available: bool, now: Timestamp) -> Self {
        let was_available = is_available || unfinished.is_some_and(|before| before.was_available);
        Self { rollout, at: now, was_available }
    }

    /// As it is written.
    pub fn note(&self) -> String {
        // It is plain data.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_noted_is_read_and_what_is_not_noted_counts() {
        let newest = Revision { name: "r".to_owned(), number: 7, data: Value::Null };
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let first = Changed::next(None, 7, true, now);
        for rollout in [7, 8] {
            let again = Changed::next(Some(first), rollout, false, now);
            assert!(again.was_available, "it was, before the first of them came");
            assert_eq!(again.rollout, rollout);
        }
        let last = Changed::next(None, 8, false, now);
        assert!(!last.was_available, "it was not when this came");
        assert!(Changed::next(Some(last), 8, true, now).was_available, "and now it is");
        assert!(!Changed::next(Some(last), 9, false, now).was_available);
        let workload = |note: &str, revision: &str| json!({"metadata": {"annotations": {CHANGED: note}, "labels": {POOL_REVISION_LABEL: revision}}});
        assert_eq!(Changed::of(&workload(&first.note(), "old"), &newest), Some(first));
        assert_eq!(Changed::of(&workload("garbled", "old"), &newest), None);
        assert_eq!(Changed::of(&workload("garbled", "r"), &newest).map(|changed| changed.rollout), Some(7));
    }
}
