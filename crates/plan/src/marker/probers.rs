//! Which probers are heard: by renewals of their Leases, as they reach the manager, by its own clock.
//!
//! Invariant: a prober is heard for three minutes after a renewal was seen, and by no other sign: what a Lease says when it is
//! first listed may be old, whoever led before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// So long after a renewal a prober counts as heard.
pub const HEARD: Duration = Duration::from_secs(180);

/// The probers of all nodes. Times are those of one clock that never goes back.
#[derive(Debug, Default)]
pub struct Probers {
    nodes: BTreeMap<Arc<str>, Prober>,
    /// When those that are heard will be silent, if nothing more is heard of them.
    silent: BTreeSet<(Duration, Arc<str>)>,
}

#[derive(Debug)]
struct Prober {
    /// What its Lease says of the last renewal. Only that it changes matters: it is by another clock.
    renewal: Arc<str>,
    silent_at: Option<Duration>,
}

impl Probers {
    /// A Lease was there when all were listed: it says nothing about now. To be told of each at the begin of a term.
    pub fn listed(&mut self, node: &Arc<str>, renewal: &str) {
        self.removed(node);
        self.nodes.insert(node.clone(), Prober { renewal: Arc::from(renewal), silent_at: None });
    }

    /// A Lease came, or changed. Returns whether its prober is heard now and was not.
    pub fn changed(&mut self, node: &Arc<str>, renewal: &str, now: Duration) -> bool {
        let was_heard = self.is_heard(node, now);
        if self.nodes.get(node).is_some_and(|known| *known.renewal == *renewal) {
            return false;
        }
        self.removed(node);
        let silent_at = now.saturating_add(HEARD);
        self.nodes.insert(node.clone(), Prober { renewal: Arc::from(renewal), silent_at: Some(silent_at) });
        self.silent.insert((silent_at, node.clone()));
        !was_heard
    }

    /// A Lease is gone, and with it what was known of the prober. Returns whether it was heard.
    pub fn removed(&mut self, node: &Arc<str>) -> bool {
        let Some(known) = self.nodes.remove(node) else { return false };
        known.silent_at.is_some_and(|silent_at| self.silent.remove(&(silent_at, node.clone())))
    }

    /// Whether the prober of a node is heard.
    #[must_use]
    pub fn is_heard(&self, node: &str, now: Duration) -> bool {
        self.nodes.get(node).and_then(|known| known.silent_at).is_some_and(|silent_at| silent_at > now)
    }

    /// The nodes whose probers have become silent since this was last asked.
    pub fn fallen_silent(&mut self, now: Duration) -> Vec<Arc<str>> {
        let mut found = Vec::new();
        while let Some((_, node)) = self.silent.first().filter(|(at, _)| *at <= now).cloned() {
            self.silent.pop_first();
            if let Some(known) = self.nodes.get_mut(&node) {
                known.silent_at = None;
            }
            found.push(node);
        }
        found
    }

    /// When the next one falls silent, if nothing more is heard of it.
    #[must_use]
    pub fn next_silence(&self) -> Option<Duration> {
        self.silent.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn node(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn after_a_takeover_a_prober_is_heard_once_a_renewal_is_seen() {
        let mut probers = Probers::default();
        probers.listed(&node("a"), "10:00");
        assert!(!probers.is_heard("a", seconds(1)));
        assert!(!probers.changed(&node("a"), "10:00", seconds(2)), "it says what it said when it was listed");
        assert!(!probers.is_heard("a", seconds(2)));
        assert!(probers.changed(&node("a"), "10:01", seconds(3)));
        assert!(probers.is_heard("a", seconds(3)));
        probers.listed(&node("a"), "10:01");
        assert!(!probers.is_heard("a", seconds(4)), "in another term it is unknown again");
        assert_eq!(probers.next_silence(), None);
    }

    #[test]
    fn a_lease_that_comes_new_is_a_renewal() {
        let mut probers = Probers::default();
        assert!(probers.changed(&node("a"), "10:00", seconds(5)));
        assert!(probers.is_heard("a", seconds(5)) && !probers.is_heard("b", seconds(5)));
    }

    #[test]
    fn three_minutes_without_a_renewal_are_silence_by_our_own_clock() {
        let mut probers = Probers::default();
        for (name, at) in [("a", 0), ("b", 10), ("c", 20)] {
            probers.changed(&node(name), "10:00", seconds(at));
        }
        // The prober's clock may say anything.
        assert!(!probers.changed(&node("a"), "1970", seconds(100)), "it was heard before");
        assert_eq!(probers.next_silence(), Some(seconds(190)));
        assert_eq!(probers.fallen_silent(seconds(189)), Vec::<Arc<str>>::new());
        assert_eq!(probers.fallen_silent(seconds(195)), [node("b")]);
        assert!(!probers.is_heard("b", seconds(195)) && probers.is_heard("c", seconds(195)));
        assert_eq!(probers.fallen_silent(seconds(1000)), [node("c"), node("a")]);
        assert!(probers.changed(&node("b"), "10:04", seconds(1001)), "it is back");
    }

    #[test]
    fn a_lease_that_goes_takes_its_prober_along() {
        let mut probers = Probers::default();
        probers.changed(&node("a"), "10:00", seconds(0));
        assert!(probers.removed(&node("a")) && !probers.removed(&node("a")));
        assert!(!probers.is_heard("a", seconds(1)) && probers.next_silence().is_none());
    }
}
