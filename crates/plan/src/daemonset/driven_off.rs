//! Nodes where a taint has driven off the pod that a rollout had to do with, remembered in the cluster.
//!
//! A bad agent may have somebody taint its node: then its pod is evicted, and none may start. Nothing on the node tells such
//! a one from those that the set was never for. If the slot were free again, the next node would follow, until all are lost.
//! So the newest ControllerRevision names them, from when this is seen until it is the newest no more.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::cell::Rollout;
use crate::mutant::{Mutant, is_on};

/// The annotation of a ControllerRevision that names them, each with when that was noted.
pub const DRIVEN_OFF_ANNOTATION: &str = "dapple.dev/driven-off";

/// No more are named: an annotation has its limits, and a rollout that has lost so many has long stopped.
const MOST: usize = 1_000;

/// Nodes, and when each was noted, in seconds.
pub type DrivenOff = BTreeMap<Arc<str>, i64>;

/// What a revision notes. What cannot be read notes nothing.
#[must_use]
pub fn read(annotation: Option<&str>) -> DrivenOff {
    let noted = annotation.and_then(|text| serde_json::from_str::<BTreeMap<String, Timestamp>>(text).ok());
    noted.unwrap_or_default().into_iter().map(|(node, at)| (Arc::from(node), at.as_second())).collect()
}

/// What a revision notes once these nodes are added. Those that are gone are left out.
#[must_use]
pub fn written(noted: &DrivenOff, new: &[Arc<str>], now: Timestamp, is_there: impl Fn(&str) -> bool) -> String {
    let kept = noted.iter().filter(|(node, _)| is_there(node)).map(|(node, at)| (&**node, *at));
    let new = new.iter().filter(|node| !noted.contains_key(*node)).map(|node| (&**node, now.as_second()));
    let all = kept.chain(new).take(MOST);
    let told = all.filter_map(|(node, at)| Some((node, Timestamp::from_second(at).ok()?.to_string())));
    json!(told.collect::<BTreeMap<_, _>>()).to_string()
}

/// Those that count in a rollout, of what revisions note, each with its number: those of this rollout, and those that others
/// have left that came to no end. An undo to the last complete revision gets past the latter.
pub fn counting(rollout: &Rollout, noted: impl Iterator<Item = (i64, DrivenOff)>) -> DrivenOff {
    let mut all = DrivenOff::new();
    for (number, nodes) in noted.filter(|_| !is_on(Mutant::DrivenOffForgotten)) {
        let is_newest = number == rollout.newest;
        let is_left_over = rollout.newest != rollout.current && rollout.is_left_over(number);
        all.extend(nodes.into_iter().filter(|(_, at)| is_left_over || (is_newest && *at >= rollout.since)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(all: &[(&str, i64)]) -> DrivenOff {
        all.iter().map(|(node, at)| (Arc::from(*node), *at)).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let now = Timestamp::from_second(1_000).unwrap();
        let before = nodes(&[("a", 900), ("gone", 900)]);
        let text = written(&before, &["a", "b"].map(Arc::from), now, |node| node != "gone");
        assert_eq!(text, r#"{"a":"1970-01-01T00:15:00Z","b":"1970-01-01T00:16:40Z"}"#);
        assert_eq!(read(Some(&text)), nodes(&[("a", 900), ("b", 1_000)]));
        for text in [None, Some(""), Some("[]"), Some(r#"{"a":1}"#)] {
            assert_eq!(read(text), DrivenOff::new(), "{text:?}");
        }
    }

    #[test]
    fn only_rollouts_that_came_to_no_end_count() {
        let began = Rollout { began: 500, since: 500, newest: 4, current: 2, complete: 2, soak: None };
        let all = |rollout: &Rollout| {
            let noted = [(1, "a"), (2, "b"), (3, "c"), (4, "d")].map(|(number, node)| (number, nodes(&[(node, 600)])));
            let old = (4, nodes(&[("before", 400)]));
            counting(rollout, noted.into_iter().chain([old])).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(all(&began), ["c", "d"].map(Arc::from));
        let undone = Rollout { current: 4, complete: 2, ..began };
        assert_eq!(all(&undone), ["d"].map(Arc::from), "the last complete revision is back");
    }
}
