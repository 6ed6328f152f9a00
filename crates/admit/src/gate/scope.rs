//! Of which namespaces pods are asked about: they come at once and go late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A namespace in which nothing asks for policies any more is kept for so long: what comes back costs no change of the
/// configuration, of which API servers hear with some delay.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// Annotation of the configuration: when a namespace was added for a workload that was about to be created, as JSON. Without it
/// a leader that does not know the workload yet would take the namespace out again.
const ADDED_ANNOTATION: &str = "dapple.dev/namespaces-added";

/// When namespaces were added to a configuration by those who admit workloads.
pub fn added(configuration: &Value) -> BTreeMap<String, Timestamp> {
    let text = configuration["metadata"]["annotations"][ADDED_ANNOTATION].as_str().unwrap_or_default();
    // What somebody else has written there is as good as nothing.
    serde_json::from_str(text).unwrap_or_default()
}

/// Notes when namespaces were added; what is too old to matter is left out.
pub fn note_added(configuration: &mut Value, mut added: BTreeMap<String, Timestamp>, now: Timestamp) {
    added.retain(|_, at| age(*at, now) < KEPT_FOR);
    if !configuration["metadata"]["annotations"].is_object() {
        configuration["metadata"]["annotations"] = json!({});
    }
    configuration["metadata"]["annotations"][ADDED_ANNOTATION] = json!(json!(added).to_string());
}

/// How long ago something was. Clocks of replicas differ: what is yet to come counts as now.
pub fn age(at: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(at).max(SignedDuration::ZERO).unsigned_abs()
}

/// Which namespaces are wanted.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Those in which there is a policy, or something that asks for one.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Whether these are all.
    pub is_complete: bool,
}

/// What the leader knows of namespaces: when something was last known to ask for policies there.
#[derive(Debug, Default)]
pub struct Scope {
    term: u64,
    asked_at: BTreeMap<String, Instant>,
}

impl Scope {
    /// The namespaces to ask about: those in which something asks for policies, and those that the configuration had before,
    /// for a while. Nothing goes on an incomplete view, nor by what was known in a term that is over.
    pub fn update(
        &mut self,
        term: u64,
        asked: &Asked,
        found: &BTreeSet<String>,
        added: &BTreeMap<String, Duration>,
        now: Instant,
    ) -> BTreeSet<String> {
        if std::mem::replace(&mut self.term, term) != term {
            self.asked_at.clear();
        }
        // What the configuration does not have any more need not be remembered.
        self.asked_at.retain(|namespace, _| found.contains(namespace));
        for namespace in found {
            let at = self.asked_at.entry(namespace.clone()).or_insert(now);
            if let Some(added) = added.get(namespace).and_then(|age| now.checked_sub(*age)) {
                *at = added.max(*at);
            }
        }
        for namespace in &asked.namespaces {
            self.asked_at.insert(namespace.to_string(), now);
        }
        let is_kept = |at: &Instant| !asked.is_complete || now.duration_since(*at) < KEPT_FOR;
        self.asked_at.iter().filter(|(_, at)| is_kept(at)).map(|(namespace, _)| namespace.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn asked(names: &[&str]) -> Asked {
        Asked { namespaces: names.iter().map(|name| Arc::from(*name)).collect(), is_complete: true }
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_come_at_once_and_go_late() {
        let (mut scope, none, now) = (Scope::default(), BTreeMap::new(), Instant::now());
        assert_eq!(scope.update(1, &asked(&["a"]), &set(&["b"]), &none, now), set(&["a", "b"]));
        let later = now + KEPT_FOR / 2;
        assert_eq!(scope.update(1, &asked(&["a"]), &set(&["a", "b"]), &none, later), set(&["a", "b"]));
        let at_last = now + KEPT_FOR;
        for _ in 0..2 {
            let left = scope.update(1, &asked(&[]), &set(&["a", "b"]), &none, at_last);
            assert_eq!(left, set(&["a"]), "until it is written, it is wanted each time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_goes_on_an_incomplete_view_or_by_an_old_one() {
        let (mut scope, none, now) = (Scope::default(), BTreeMap::new(), Instant::now());
        let found = set(&["a"]);
        scope.update(1, &asked(&[]), &found, &none, now);
        let late = now + 2 * KEPT_FOR;
        let partial = Asked { is_complete: false, ..asked(&[]) };
        assert_eq!(scope.update(1, &partial, &found, &none, late), found);
        assert_eq!(scope.update(2, &asked(&[]), &found, &none, late), found, "another led in between");
        assert_eq!(scope.update(2, &asked(&[]), &found, &none, late + KEPT_FOR), set(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_added_for_a_workload_stays_until_it_is_known() {
        let (mut scope, none) = (Scope::default(), BTreeMap::new());
        // An instant from which one can count back.
        tokio::time::advance(2 * KEPT_FOR).await;
        let (now, found) = (Instant::now(), set(&["a"]));
        scope.update(1, &asked(&[]), &found, &none, now);
        let late = now + KEPT_FOR;
        let added = BTreeMap::from([("a".to_owned(), Duration::from_secs(1))]);
        assert_eq!(scope.update(1, &asked(&[]), &found, &added, late), found);
    }

    #[test]
    fn times_are_kept_in_the_configuration() {
        let now: Timestamp = "2026-11-18T00:00:00Z".parse().unwrap();
        let mut configuration = json!({"metadata": {"name": "x"}});
        let old = now - KEPT_FOR;
        note_added(&mut configuration, BTreeMap::from([("a".to_owned(), now), ("b".to_owned(), old)]), now);
        assert_eq!(added(&configuration), BTreeMap::from([("a".to_owned(), now)]));
        assert_eq!(added(&json!({"metadata": {"annotations": {ADDED_ANNOTATION: "{"}}})), BTreeMap::new());
        assert_eq!(age(now, old), Duration::ZERO, "a clock that is ahead");
    }
}
